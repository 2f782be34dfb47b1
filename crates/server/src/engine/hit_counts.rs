//! Hits as envoyproxy/ratelimit counts them.

use super::ruling::{Basis, Finding};

/// From which share of a limit on hits are near it.
const NEAR_RATIO: f32 = 0.8;

/// The hits of a call by where they fall. A call that crosses the limit has hits on both sides of it: 15 hits on a limit of ten are
/// five over the limit and two near it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HitCounts {
    /// All hits of calls within the limit.
    pub within: u64,
    /// Those in the last fifth of the limit.
    pub near: u64,
    /// Those beyond the limit, in shadow mode too.
    pub over: u64,
    /// Those beyond a limit in shadow mode.
    pub shadow: u64,
}

impl HitCounts {
    /// Counts the hits of a finding about a call.
    pub fn of(finding: &Finding<'_>) -> Self {
        let (limit, cost) = (finding.decision.limit(), finding.cost);
        if limit == u64::MAX {
            return Self::default(); // unlimited
        }
        let room_near = limit - near_from(limit);
        if !finding.is_refusal() {
            let left = finding.decision.remaining().min(limit);
            return Self { within: cost, near: cost.min(room_near.saturating_sub(left)), ..Self::default() };
        }
        // Only a counter that was asked takes a part of a call that it denies.
        let is_split = finding.limit.rule.is_counter() && finding.basis != Basis::Closed;
        let over = if is_split { finding.over } else { cost };
        let shadow = if finding.limit.is_shadow { over } else { 0 };
        Self { within: 0, near: room_near.min(cost - over), over, shadow }
    }
}

/// The count from which on hits are near a limit, as upstream rounds it.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::cast_possible_truncation,
    reason = "upstream counts so"
)]
fn near_from(limit: u64) -> u64 {
    ((limit as f32 * NEAR_RATIO).floor() as u64).min(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_from_rounds_down_the_share_of_the_limit() {
        let cases = [(0, 0), (1, 0), (4, 3), (5, 4), (10, 8), (99, 79), (1_000, 800)];
        for (limit, expected) in cases {
            assert_eq!(near_from(limit), expected, "{limit}");
        }
    }
}
