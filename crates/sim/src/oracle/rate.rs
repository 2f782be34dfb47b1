//! A rate as an exact fraction.

use tollgate_core::Quota;

use crate::outcome::nanos;

/// The fastest rate that is enforced, in tokens a nanosecond; part of the contract of [`Quota`].
const FASTEST_PER_NANO: u64 = 16;

/// `count` tokens per `period` nanoseconds, in lowest terms, never above the fastest rate that is enforced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    pub(crate) count: i128,
    pub(crate) period: i128,
}

impl Rate {
    pub(crate) fn of(quota: Quota) -> Self {
        let (count, period) = (quota.count(), nanos(quota.period()));
        if count / FASTEST_PER_NANO >= period {
            return Self { count: i128::from(FASTEST_PER_NANO), period: 1 };
        }
        let divisor = common_divisor(count, period).max(1);
        Self { count: i128::from(count / divisor), period: i128::from(period / divisor) }
    }

    /// The first moment at which `units` (of one token / period each) have been given since the origin; `None` if that
    /// is never.
    pub(crate) fn moment_of(&self, units: i128) -> Option<u64> {
        if units <= 0 {
            return Some(0);
        }
        if self.count == 0 {
            return None;
        }
        let moment = (units + self.count - 1) / self.count;
        u64::try_from(moment).ok().filter(|moment| *moment < super::HORIZON_NS)
    }
}

/// How far a bucket may be from the oracle, in nanoseconds: what its documentation promises for the quota.
pub(crate) fn tolerance_ns(quota: Quota) -> u64 {
    // A state of 64 bits has room for a bucket of 2^62 units.
    let room: i128 = 1 << 62;
    let (rate, burst) = (Rate::of(quota), i128::from(quota.burst_size()).clamp(1, room));
    if quota.is_unlimited() || rate.count == 0 || (rate.count < 16 && rate.period * burst <= room) {
        return 0;
    }
    // Else a token is at most room/burst units, and what time gives and what is left are each rounded to one.
    let units_per_token = 1_i128 << (room / burst).ilog2();
    let two_units_ns = 2 * rate.period / (rate.count * units_per_token);
    u64::try_from(1 + two_units_ns).unwrap_or(u64::MAX)
}

fn common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn round_rates_are_exact_and_odd_ones_are_not() {
        assert_eq!(tolerance_ns(Quota::per_second(30_000_000)), 0); // 3 per 100 ns
        assert_eq!(tolerance_ns(Quota::per_second(101)), 1);
        let year = Duration::from_secs(31_536_000);
        // 2^42 is the largest power of two within 2^62 / 10^6; a year of 2^42 parts has parts of 7170 ns.
        assert_eq!(
            tolerance_ns(Quota::every(year).burst(1_000_000)),
            1 + 2 * 31_536_000_000_000_000 / (1 << 42)
        );
    }

    #[test]
    fn a_rate_is_reduced_and_capped() {
        let rate = Rate::of(Quota::per_second(600_000_000));
        assert_eq!((rate.count, rate.period), (3, 5));
        let rate = Rate::of(Quota::per_second(u64::MAX));
        assert_eq!((rate.count, rate.period), (16, 1));
    }
}
