//! The arithmetic of `CL.THROTTLE`, which is that of redis-cell.
//!
//! ```text
//! interval = period / count                         whole nanoseconds, rounded down
//! tolerance = interval × (max_burst + 1)
//! new = max(now, time of the key) + interval × quantity
//! limited iff now < new - tolerance                 then nothing is written
//! ttl = new - now, or the key's own time - now if it is limited
//! remaining = (tolerance - ttl) / interval          rounded towards zero
//! ```
//!
//! The time of the key is what a [floating](tollgate::store::Rule::floating) limit keeps; the store decides, and from its ttl
//! everything else follows here. Where redis-cell ends in an error that says nothing (numbers beyond 64 bits, giving back more
//! than was taken), we answer what the formulas say, within what 64 bits hold.

use std::time::Duration;

use tollgate::{Decision, Quota};

/// So much, of a limit that the caller describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    /// In nanoseconds.
    interval: u64,
    /// How many at once.
    limit: i64,
    pub(super) quantity: i64,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) is_limited: bool,
    pub(super) limit: i64,
    pub(super) remaining: i64,
    /// In nanoseconds; none if it was not limited, or no wait can help.
    pub(super) retry_after: Option<i128>,
    /// In nanoseconds.
    pub(super) reset_after: i128,
}

/// As much of time as a token bucket's level holds, in nanoseconds: 146 years. A longer time would make it coarser than a
/// nanosecond.
const LONGEST: u64 = 1 << 62;

impl Cell {
    /// One that lets `limit` pass at once, or the [longest](LONGEST) time's worth if that is less, and `count` per `period` in the
    /// long run. None if it has no rate, or one that is less than a nanosecond apart.
    pub(super) fn new(limit: i64, count: i64, period_seconds: i64, quantity: i64) -> Option<Self> {
        if count <= 0 || period_seconds <= 0 {
            return None;
        }
        let (period, count) = (period_seconds.unsigned_abs(), count.unsigned_abs());
        let interval = match period.checked_mul(1_000_000_000) {
            Some(period) => period / count,
            None => u64::try_from(u128::from(period) * 1_000_000_000 / u128::from(count)).unwrap_or(u64::MAX),
        };
        let interval = interval.min(LONGEST);
        let most = LONGEST.checked_div(interval)?;
        Some(Self { interval, limit: limit.min(most.cast_signed()), quantity })
    }

    /// The quota, as the store decides by it.
    #[inline]
    pub(super) fn quota(&self) -> Quota {
        Quota::every(Duration::from_nanos(self.interval)).burst(u64::try_from(self.limit).unwrap_or(0))
    }

    /// How a call ends that took something, or would have.
    #[inline]
    pub(super) fn taken(&self, decision: &Decision) -> Outcome {
        let ttl = ttl(decision);
        let computed = self.beyond(ttl);
        // The store's own word, where it has one: it may have refused for reasons of its own.
        let wait = decision.retry_after().map_or(computed, nanos);
        self.outcome(!decision.is_admitted(), ttl, wait)
    }

    /// How a call ends that takes nothing, or gives something back, given how things stand before.
    pub(super) fn looked(&self, decision: &Decision) -> Outcome {
        let ttl = ttl(decision);
        let beyond = self.beyond(ttl);
        self.outcome(beyond > 0, ttl, beyond)
    }

    /// How a call ends that gave something back.
    pub(super) fn given_back(&self, decision: &Decision) -> Outcome {
        self.outcome(false, ttl(decision), 0)
    }

    fn outcome(&self, is_limited: bool, ttl: i128, wait: i128) -> Outcome {
        let left = self.tolerance() - ttl;
        let is_ever = self.increment() <= self.tolerance();
        Outcome {
            is_limited,
            limit: self.limit,
            remaining: if left <= 0 { 0 } else { divided(left, self.interval) },
            retry_after: (is_limited && is_ever).then_some(wait.max(0)),
            reset_after: ttl,
        }
    }

    /// How far behind the end of the tolerance a call ends up that starts at `ttl`.
    fn beyond(&self, ttl: i128) -> i128 {
        ttl + self.increment() - self.tolerance()
    }

    fn increment(&self) -> i128 {
        i128::from(self.interval) * i128::from(self.quantity)
    }

    fn tolerance(&self) -> i128 {
        i128::from(self.interval) * i128::from(self.limit)
    }
}

fn ttl(decision: &Decision) -> i128 {
    nanos(decision.reset_after().unwrap_or(Duration::MAX))
}

fn nanos(span: Duration) -> i128 {
    i128::try_from(span.as_nanos()).unwrap_or(i128::MAX)
}

/// Rounded towards zero, and within what 64 bits hold. Most numbers fit those, where a division takes a fraction of the time.
#[inline]
fn divided(number: i128, by: u64) -> i64 {
    let quotient = match u64::try_from(number) {
        Ok(number) => i128::from(number / by),
        Err(_) => number / i128::from(by),
    };
    i64::try_from(quotient).unwrap_or(if number < 0 { i64::MIN } else { i64::MAX })
}

const SECOND: u64 = 1_000_000_000;
const MILLISECOND: i128 = 1_000_000;

/// In whole seconds as redis-cell has them: one more if there are milliseconds left, and what is less than that is dropped.
#[inline]
pub(super) fn seconds_of_cell(nanos: i128) -> i64 {
    // Rounding up what is left after the part of a millisecond comes to the same.
    divided(nanos.saturating_add(i128::from(SECOND) - MILLISECOND), SECOND)
}

/// In whole seconds as throttlecrab has them: rounded down.
pub(super) fn seconds_down(nanos: i128) -> i64 {
    divided(nanos, SECOND)
}

#[cfg(test)]
mod tests {
    use tollgate::Verdict;

    use super::*;

    #[test]
    fn the_example_of_redis_cell() {
        // CL.THROTTLE user123 15 30 60 -> 0 16 15 -1 2
        let cell = Cell::new(16, 30, 60, 1).expect("a rate");
        assert_eq!(cell.quota(), Quota::every(Duration::from_secs(2)).burst(16));
        let outcome = cell.taken(&Decision::new(Verdict::Allow, 16, 15, 0, 2 * SECOND));
        assert_eq!(
            outcome,
            Outcome {
                is_limited: false,
                limit: 16,
                remaining: 15,
                retry_after: None,
                reset_after: 2_000_000_000,
            }
        );
    }

    #[test]
    fn what_can_never_be_had_has_no_time_to_come_back_at() {
        let cell = Cell::new(16, 30, 60, 17).expect("a rate");
        let outcome = cell.taken(&Decision::new(Verdict::Deny, 16, 16, u64::MAX, 0));
        assert_eq!((outcome.is_limited, outcome.remaining, outcome.retry_after), (true, 16, None));
        // Sixteen times two seconds are used, and one more was asked for.
        let cell = Cell::new(16, 30, 60, 1).expect("a rate");
        let outcome = cell.taken(&Decision::new(Verdict::Deny, 16, 0, 2 * SECOND, 32 * SECOND));
        assert_eq!((outcome.remaining, outcome.retry_after), (0, Some(2_000_000_000)));
    }

    #[test]
    fn a_look_is_limited_by_what_others_used_of_a_wider_limit() {
        // Ten seconds are used; this limit tolerates eight.
        let used = Decision::new(Verdict::Allow, 4, 0, 0, 10 * SECOND);
        let outcome = Cell::new(4, 1, 2, 0).expect("a rate").looked(&used);
        assert_eq!((outcome.is_limited, outcome.remaining), (true, 0));
        assert_eq!((outcome.retry_after, outcome.reset_after), (Some(2_000_000_000), 10_000_000_000));
        assert!(!Cell::new(5, 1, 2, 0).expect("a rate").looked(&used).is_limited, "just as much");
        // Two back are four seconds, which leaves six.
        assert!(!Cell::new(4, 1, 2, -2).expect("a rate").looked(&used).is_limited);
    }

    #[test]
    fn numbers_at_the_end_of_what_there_is() {
        assert_eq!(Cell::new(1, 0, 1, 1), None);
        assert_eq!(Cell::new(1, 1, 0, 1), None);
        assert_eq!(Cell::new(1, -1, -1, 1), None);
        assert_eq!(Cell::new(1, 1_000_000_001, 1, 1), None, "less than a nanosecond apart");
        assert!(Cell::new(1, 1_000_000_000, 1, 1).is_some());
        for limit in [i64::MIN, -1, 0, 1, i64::MAX] {
            for period in [1, i64::MAX] {
                for quantity in [i64::MIN, -1, 0, 1, i64::MAX] {
                    let cell = Cell::new(limit, 1, period, quantity).expect("a rate");
                    let deny = Decision::new(Verdict::Deny, 0, 0, u64::MAX, u64::MAX);
                    for outcome in [cell.taken(&deny), cell.looked(&deny), cell.given_back(&deny)] {
                        let most = if period == 1 { (1 << 62) / 1_000_000_000 } else { 1 };
                        assert_eq!(outcome.limit, limit.min(most), "146 years' worth");
                        assert!(outcome.remaining >= 0);
                    }
                    assert_eq!(i64::try_from(cell.quota().burst_size()), Ok(cell.limit.max(0)));
                }
            }
        }
    }

    #[test]
    fn seconds_are_rounded_as_others_round_them() {
        for (nanos, of_cell, down) in [
            (0, 0, 0),
            (999_999, 0, 0),
            (1_000_000, 1, 0),
            (1_000_000_000, 1, 1),
            (1_000_999_999, 1, 1),
            (1_001_000_000, 2, 1),
            (i128::MAX, i64::MAX, i64::MAX),
        ] {
            assert_eq!((seconds_of_cell(nanos), seconds_down(nanos)), (of_cell, down), "{nanos}");
        }
    }
}
