//! How much time gives back: the exact, division-free line that buckets refill along.
//!
//! A bucket does not count tokens but *units*, chosen so that both a token and a nanosecond are worth a whole number
//! of them. For 3/s a token is 10^9 units and every nanosecond gives 3. Everything is then an integer and nothing is
//! ever rounded: two million years of 7/min end on the exact token.
//!
//! A state must fit one 64-bit word, so the units given per nanosecond must stay below 16 if the word is to last 18
//! years. That holds for every quota whose reduced fraction *count / period in ns* has a numerator up to 15: all round
//! numbers (10/s is 1 per 10^8 ns, 30 million/s is 3 per 100 ns). For the others (101/s, 17/min) a token is
//! 2^f units and a nanosecond gives a binary fraction of 59 bits or more, rounded down. The long-run rate is then low
//! by less than one part in 2^61, never high; a single admission may come early or late by less than one unit, which is an
//! eighth of a nanosecond of refill. (A burst that takes more than a century to refill makes units coarser.)
//!
//! ```text
//! given(t) = floor(t · slope / 2^59)        one 64×64→128 multiplication
//! ```

use crate::decision::NEVER;
use crate::quota::Quota;
use crate::tick::Tick;

/// Bits of the fraction in [`Refill::slope`]; also the logarithm of the nanoseconds a word lasts.
const FRACTION_BITS: u32 = 59;
/// The most units a bucket may hold; leaves room to add two such numbers to 2^63 without overflow.
pub(crate) const MOST_UNITS: u64 = 1 << 62;
/// The steepest slope: just below 16 units a nanosecond, so that `given` stays below 2^63.
const STEEPEST: u64 = (1 << 63) - 1;

/// A refill line, in units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Refill {
    /// Units a nanosecond, times 2^59.
    pub(crate) slope: u64,
    /// Nanoseconds a unit, times 2^64, rounded down to an odd number; zero where that does not fit and a division must do.
    pub(crate) inverse: u64,
    /// Units a token.
    pub(crate) unit: u64,
    /// Units in a full bucket.
    pub(crate) depth: u64,
}

impl Refill {
    /// The line of a quota.
    pub(crate) const fn of(quota: Quota) -> Self {
        let (count, period, burst) = (quota.count(), quota.period_nanos(), quota.burst_size());
        if quota.is_unlimited() {
            // A token that costs nothing: every test passes and nothing ever changes.
            return Self { slope: 0, inverse: 0, unit: 0, depth: 0 };
        }
        if count == 0 {
            return Self { slope: 0, inverse: 0, unit: 1, depth: least(burst, MOST_UNITS) };
        }
        let divisor = greatest_common_divisor(count, period);
        let (count, period) = (count / divisor, period / divisor);
        match period.checked_mul(if burst == 0 { 1 } else { burst }) {
            Some(full) if full <= MOST_UNITS && count < 16 => {
                let depth = if burst == 0 { 0 } else { full };
                Self::with(count << FRACTION_BITS, period, depth)
            }
            _ => Self::rounded(count, period, burst),
        }
    }

    const fn with(slope: u64, unit: u64, depth: u64) -> Self {
        let inverse = ((1_u128 << (64 + FRACTION_BITS)) - 1) / slope as u128;
        let inverse = if inverse > u64::MAX as u128 { 0 } else { (inverse as u64 - 1) | 1 };
        Self { slope, inverse, unit, depth }
    }

    /// A token of 2^f units, f as large as slope and depth allow.
    const fn rounded(count: u64, period: u64, burst: u64) -> Self {
        let burst = least(burst, MOST_UNITS);
        let deepest = match MOST_UNITS.checked_div(burst) {
            Some(room) => room.ilog2(),
            None => 62,
        };
        let mut shift = deepest;
        loop {
            match scaled_ratio(count, period, FRACTION_BITS + shift) {
                Some(slope) if slope <= STEEPEST => {
                    return Self::with(if slope == 0 { 1 } else { slope }, 1 << shift, burst << shift);
                }
                _ if shift == 0 => return Self::with(STEEPEST, 1, burst),
                _ => shift -= 1,
            }
        }
    }

    /// Units given since the origin. Time past 2^59 ns wraps around, which a level sees as a clock that stepped back:
    /// it refuses, and never admits too much.
    #[inline]
    pub(crate) const fn given(&self, now: Tick) -> u64 {
        given(self.slope, now)
    }

    /// Nanoseconds that give `units`, rounded up.
    pub(crate) const fn nanos(&self, units: u64) -> u64 {
        nanos(self.slope, self.inverse, units)
    }
}

/// [`Refill::given`] of a bare slope, for a cell that keeps its numbers in atomics.
#[inline]
pub(crate) const fn given(slope: u64, now: Tick) -> u64 {
    (((now.as_nanos() << (64 - FRACTION_BITS)) as u128 * slope as u128) >> 64) as u64
}

/// [`Refill::nanos`] of bare numbers.
#[inline]
pub(crate) const fn nanos(slope: u64, inverse: u64, units: u64) -> u64 {
    match (units, inverse) {
        (0, _) => 0,
        (_, 0) => slow_nanos(slope, units),
        _ => nanos_by_inverse(inverse, units),
    }
}

/// [`nanos`] of at least one unit, where the inverse is not zero. The inverse is odd, so that its product with fewer than 2^64 units
/// is never a multiple of 2^64, and there is always something to round up.
#[inline]
pub(crate) const fn nanos_by_inverse(inverse: u64, units: u64) -> u64 {
    ((units as u128 * inverse as u128) >> 64) as u64 + 1
}

/// Whether a wait worked out by [`nanos_by_inverse`] is true to the nanosecond as it is.
#[inline]
pub(crate) const fn is_exact(slope: u64, wait: u64, now: Tick) -> bool {
    is_whole(slope) && is_near(wait, now)
}

/// Whether a nanosecond gives whole units, so that the line has no steps.
#[inline]
const fn is_whole(slope: u64) -> bool {
    slope << (64 - FRACTION_BITS) == 0
}

/// Whether a wait does not come near the end of time, and is short enough for the error of the inverse not to matter: for s
/// whole units a nanosecond it is below 1/s of one, whatever s is, and for any slope it is below half a nanosecond.
#[inline]
const fn is_near(wait: u64, now: Tick) -> bool {
    (wait | now.as_nanos()) >> (FRACTION_BITS - 1) == 0
}

/// Nanoseconds from `now` until `units` more have been given, true to the nanosecond.
#[inline]
pub(crate) const fn nanos_until(slope: u64, inverse: u64, units: u64, now: Tick) -> u64 {
    if units == 0 {
        return 0;
    }
    if inverse == 0 {
        return slow_nanos_until(slope, units, now);
    }
    let wait = nanos_by_inverse(inverse, units);
    if !is_near(wait, now) {
        return slow_nanos_until(slope, units, now);
    }
    if is_whole(slope) {
        return wait;
    }
    // `given` rounds down, so the straight line may be one nanosecond off on either side.
    let target = given(slope, now) + units;
    if given(slope, now.plus_nanos(wait)) < target {
        wait + 1
    } else {
        wait - (given(slope, now.plus_nanos(wait - 1)) >= target) as u64
    }
}

/// [`nanos_until`] by an exact quotient: for waits of years, and where a nanosecond gives less than a unit (a huge burst at a slow
/// rate, or no rate at all), so that the line stands still for many nanoseconds at a time.
#[cold]
const fn slow_nanos_until(slope: u64, units: u64, now: Tick) -> u64 {
    let at = slow_nanos(slope, given(slope, now).saturating_add(units));
    let last = (1 << FRACTION_BITS) - 1;
    if at > last || now.as_nanos() > last { NEVER } else { at.saturating_sub(now.as_nanos()) }
}

#[cold]
const fn slow_nanos(slope: u64, units: u64) -> u64 {
    if slope == 0 {
        return NEVER;
    }
    let nanos = ((units as u128) << FRACTION_BITS).div_ceil(slope as u128);
    if nanos > NEVER as u128 { NEVER } else { nanos as u64 }
}

/// `floor(count · 2^bits / period)`, or `None` if it does not fit 64 bits.
const fn scaled_ratio(count: u64, period: u64, bits: u32) -> Option<u64> {
    let (mut quotient, mut rest) = ((count / period) as u128, (count % period) as u128);
    let mut bit = 0;
    while bit < bits {
        (quotient, rest) = (quotient << 1, rest << 1);
        if rest >= period as u128 {
            rest -= period as u128;
            quotient |= 1;
        }
        if quotient > u64::MAX as u128 {
            return None;
        }
        bit += 1;
    }
    Some(quotient as u64)
}

const fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

pub(crate) const fn least(a: u64, b: u64) -> u64 {
    if a < b { a } else { b }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_rates_are_whole_numbers() {
        let thirds = Refill::of(Quota::per_second(3));
        assert_eq!((thirds.unit, thirds.depth), (1_000_000_000, 3_000_000_000));
        assert_eq!(thirds.given(Tick::from_nanos(1)), 3);
        assert_eq!(thirds.given(Tick::from_nanos(1_000_000_000)), 3 * thirds.unit);
        assert_eq!(thirds.nanos(thirds.unit), 333_333_334);
    }

    #[test]
    fn odd_rates_never_give_too_much() {
        let odd = Refill::of(Quota::per_second(101));
        assert!(odd.unit.is_power_of_two());
        let year = 31_536_000_000_000_000;
        let exact = u128::from(odd.unit) * 101 * u128::from(year) / 1_000_000_000;
        let given = u128::from(odd.given(Tick::from_nanos(year)));
        assert!(given <= exact && exact - given <= 1, "{given} against {exact}");
    }

    #[test]
    fn the_steepest_slope_still_fits() {
        let flood = Refill::of(Quota::per_second(u64::MAX));
        assert_eq!((flood.slope, flood.unit), (STEEPEST, 1));
        assert!(flood.given(Tick::MAX) < 1 << 63);
    }

    #[test]
    fn a_slow_quota_with_a_huge_burst_is_coarser_but_not_wrong() {
        let slow = Refill::of(Quota::every(core::time::Duration::from_secs(31_536_000)).burst(1_000_000_000));
        assert!(slow.depth <= MOST_UNITS && slow.unit > 1);
        let year = slow.nanos(slow.unit);
        assert!((31_536_000_000_000_000..31_536_000_100_000_000).contains(&year), "{year}");
    }

    #[test]
    fn waits_of_years_are_true_to_the_nanosecond() {
        for units_a_nano in 1..16 {
            let refill = Refill::with(units_a_nano << FRACTION_BITS, 1, 1);
            for wait in [1, 3, (1 << 57) + 1, (1 << 58) - 1, 1 << 58, (1 << 58) + 7, (1 << 59) - 1] {
                for last in 1..=units_a_nano {
                    let units = (wait - 1) * units_a_nano + last;
                    let told = nanos_until(refill.slope, refill.inverse, units, Tick::ZERO);
                    assert_eq!(told, wait, "{units} units at {units_a_nano} a nanosecond");
                }
            }
            let beyond = nanos_until(refill.slope, refill.inverse, units_a_nano << 59, Tick::ZERO);
            assert_eq!(beyond, NEVER, "the end of time");
        }
    }

    #[test]
    fn waiting_is_true_to_the_nanosecond() {
        for quota in [Quota::per_second(7), Quota::per_second(101), Quota::per_minute(17), Quota::per_day(1)]
        {
            let refill = Refill::of(quota);
            for now in [0, 1, 999, 123_456_789, 86_400_000_000_001] {
                let now = Tick::from_nanos(now);
                let target = refill.given(now) + refill.unit;
                let wait = nanos_until(refill.slope, refill.inverse, refill.unit, now);
                assert!(refill.given(now.plus_nanos(wait)) >= target);
                assert!(refill.given(now.plus_nanos(wait - 1)) < target);
            }
        }
    }
}
