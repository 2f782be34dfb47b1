//! How the hits of one call divide.

/// The hits of one call, divided as envoyproxy/ratelimit divides them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hits {
    /// All of them if the call is within the limit, else none.
    pub(super) within: u64,
    /// Those above the near limit ratio and not beyond the limit. A call within the limit counts them twice.
    pub(super) near: u64,
    /// Those beyond the limit.
    pub(super) over: u64,
    total: u64,
}

impl Hits {
    /// Divides `hits` that come after `before` others have been counted.
    pub(super) fn of(limit: u64, near_limit_ratio: f32, before: u64, hits: u64) -> Self {
        let after = before.saturating_add(hits);
        let over = after.saturating_sub(before.max(limit));
        let near_from = near_from(limit, near_limit_ratio);
        Self {
            within: if after > limit { 0 } else { hits },
            near: after.min(limit).saturating_sub(before.max(near_from)),
            over,
            total: hits,
        }
    }

    /// The hits of a call that is allowed without a look at the counters.
    pub(super) fn all_within(hits: u64) -> Self {
        Self { within: hits, near: 0, over: 0, total: hits }
    }

    /// The hits of a call that is denied without a look at the counters.
    pub(super) fn all_over(hits: u64) -> Self {
        Self { within: 0, near: 0, over: hits, total: hits }
    }

    /// All hits.
    pub(super) fn total(self) -> u64 {
        self.total
    }
}

/// The count above which hits are near the limit. envoyproxy/ratelimit computes it in single precision too.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "see above"
)]
fn near_from(limit: u64, ratio: f32) -> u64 {
    (limit as f32 * ratio).floor() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::statistics::NEAR_LIMIT_RATIO;

    /// Item 26.3: only the hits beyond the limit count as over it, and only those above the ratio as near it.
    #[test]
    fn hits_divide_at_the_near_limit_ratio_and_at_the_limit() {
        for (limit, before, hits, [within, near, over]) in [
            (10, 0, 1, [1, 0, 0]),
            (10, 0, 8, [8, 0, 0]),
            (10, 7, 2, [2, 1, 0]),
            (10, 8, 2, [2, 2, 0]),
            (10, 0, 10, [10, 2, 0]),
            (10, 0, 15, [0, 2, 5]),
            (10, 9, 3, [0, 1, 2]),
            (10, 10, 3, [0, 0, 3]),
            (10, 15, 3, [0, 0, 3]),
            (10, 15, 0, [0, 0, 0]),
            (0, 0, 4, [0, 0, 4]),
            (1, 0, 1, [1, 1, 0]),
        ] {
            let expected = Hits { within, near, over, total: hits };
            let divided = Hits::of(limit, NEAR_LIMIT_RATIO, before, hits);
            assert_eq!(divided, expected, "{hits} after {before} of {limit}");
        }
    }

    /// Item 26.3: the ratio can be set.
    #[test]
    fn the_near_limit_ratio_moves_the_first_division() {
        assert_eq!(Hits::of(20, 0.5, 9, 4).near, 3);
        assert_eq!(Hits::of(20, 1.0, 9, 11).near, 0);
    }
}
