//! The token bucket.

use crate::decision::NEVER;
use crate::level::{Band, CLOSED, CURVE_WORDS, Curve};
use crate::refill::{self, Refill};
use crate::{Decision, GiveBack, Quota, Tick, Verdict};

/// The token bucket: a bucket of `burst` tokens, refilled at a steady rate. The default, and the best all-rounder.
///
/// **Guarantee**: in any span of length T at most `burst + rate·T` is admitted, to the token, whatever the clock does;
/// and whoever asks for less than that is never refused. (At rates that are no whole number of units a nanosecond, such as
/// 101/s, a single admission may come early or late by less than an eighth of a nanosecond's refill; the long-run rate is never
/// above the limit. What is given back must be by a reading no older than others', as
/// [`give_back`](crate::Algorithm::give_back) says.)
///
/// **Formula**, in units (see the module's source): `given(t)` rises with the rate, `level` counts what was ever
/// consumed, `depth` is a full bucket.
/// ```text
/// start = max(level, given(now))                       what was not used in time is lost
/// admit iff start + cost <= given(now) + depth;        level' = start + cost
/// retry after: the first t with given(t) + depth >= start + cost
/// ```
/// GCRA is the same decision seen as a time; a leaky bucket used as a meter is its complement. A level has two advantages
/// over a time: it is exact at every rate (a whole-nanosecond interval is 11 % wrong at 300 million/s), and a quota can
/// change without rescaling it under the callers' feet.
///
/// **Weakness**: after an idle time a caller may send `burst` at once and the rate on top, so up to `burst + rate·W` in a
/// window W. Use [`SlidingLog`](crate::SlidingLog) or [`SubWindows`](crate::SubWindows) where a window must never hold
/// more than n.
///
/// # Examples
/// ```
/// use core::time::Duration;
/// use tollgate_core::{Algorithm, Ask, Quota, Tick, TokenBucket};
///
/// let bucket = TokenBucket::new(Quota::per_second(3).burst(2));
/// let mut level = 0; // the fresh state
/// let mut ask = |at_ms: u64| bucket.step(&mut level, Tick::ZERO + Duration::from_millis(at_ms), Ask::now(1));
/// assert!(ask(0).is_allowed());
/// assert!(ask(0).is_allowed());
/// assert_eq!(ask(0).retry_after(), Some(Duration::from_nanos(333_333_334))); // a third of a second, rounded up
/// assert!(ask(334).is_allowed());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TokenBucket {
    slope: u64,
    inverse: u64,
    unit: u64,
    /// `brink = given + head` for a cost of one.
    head: u64,
    /// `floor = given + heel`. [`CLOSED`] if the short way has no answer; the floor's offset is then kept as the head.
    heel: u64,
    limit: u64,
    /// 2^64 / unit, rounded down: how units become tokens without a division.
    reciprocal: u64,
}

// Where `pack` puts what.
const SLOPE: usize = 0;
const INVERSE: usize = 1;
const UNIT: usize = 2;
const HEAD: usize = 3;
const LIMIT: usize = 4;
const RECIPROCAL: usize = 5;
const HEEL: usize = 6;

impl TokenBucket {
    /// A bucket for `quota`.
    pub const fn new(quota: Quota) -> Self {
        Self::on_line(Refill::of(quota), quota.burst_size(), 0)
    }

    /// A bucket whose floor lies `heel` above its line.
    const fn on_line(line: Refill, limit: u64, heel: u64) -> Self {
        let Refill { slope, inverse, unit, depth } = line;
        if unit > depth || inverse == 0 {
            // Unlimited, a burst of zero, a rate of zero, or so slow that times need a division.
            return Self { slope, inverse, unit, head: heel, heel: CLOSED, limit, reciprocal: 0 };
        }
        let reciprocal = u64::MAX / unit;
        Self { slope, inverse, unit, head: heel + depth - unit, heel, limit, reciprocal }
    }

    #[inline]
    fn is_closed(&self) -> bool {
        self.heel == CLOSED
    }

    #[inline]
    fn depth(&self) -> u64 {
        if self.is_closed() {
            self.unit.saturating_mul(self.limit).min(refill::MOST_UNITS)
        } else {
            self.head + self.unit - self.heel
        }
    }

    /// How far the floor lies above the line.
    #[inline]
    fn floor_offset(&self) -> u64 {
        if self.is_closed() { self.head } else { self.heel }
    }

    #[inline]
    fn ceiling(&self, now: Tick) -> u64 {
        self.floor(now) + self.depth()
    }

    /// Units of `cost`; `None` if it can never be had.
    #[inline]
    fn size(&self, cost: u64) -> Option<u64> {
        self.unit.checked_mul(cost).filter(|size| *size <= self.depth())
    }
}

impl Curve for TokenBucket {
    const LATCH: Option<usize> = Some(HEEL);

    #[inline]
    fn band_of_one(word: impl Fn(usize) -> u64, now: Tick) -> Band {
        let heel = word(HEEL);
        let given = refill::given(word(SLOPE), now);
        Band { floor: given + heel, brink: given + word(HEAD), size: word(UNIT) }
    }

    #[inline]
    fn admit_one(word: impl Fn(usize) -> u64, band: Band, start: u64, _now: Tick) -> Decision {
        // A bucket with a band for one has an inverse, so neither line needs a division.
        let remaining = whole(band.brink - start, band.size, word(RECIPROCAL));
        let reset_ns = refill::nanos_by_inverse(word(INVERSE), start + band.size - band.floor);
        Decision::new(Verdict::Allow, word(LIMIT), remaining, 0, reset_ns)
    }

    #[inline]
    fn refuse_one(word: impl Fn(usize) -> u64, band: Band, level: u64, now: Tick) -> Option<Decision> {
        let inverse = word(INVERSE);
        let wait_ns = refill::nanos_by_inverse(inverse, level - band.brink);
        let reset_ns = refill::nanos_by_inverse(inverse, level - band.floor);
        let decision = Decision::new(Verdict::Deny, word(LIMIT), 0, wait_ns, reset_ns); // less than one is left
        refill::is_exact(word(SLOPE), wait_ns, now).then_some(decision)
    }

    #[inline]
    fn band(&self, now: Tick, cost: u64) -> Band {
        let floor = self.floor(now);
        match self.size(cost) {
            Some(size) => Band { floor, brink: floor + self.depth() - size, size },
            None => Band { floor: floor.max(1), brink: 0, size: 0 },
        }
    }

    fn opening(&self, level: u64, now: Tick, cost: u64) -> Option<(Tick, u64)> {
        let size = self.size(cost)?;
        let start = level.max(self.floor(now));
        let missing = start.saturating_add(size).saturating_sub(self.ceiling(now));
        match refill::nanos_until(self.slope, self.inverse, missing, now) {
            NEVER => None,
            wait => Some((now.plus_nanos(wait), start)),
        }
    }

    #[inline]
    fn remaining(&self, level: u64, now: Tick) -> u64 {
        let start = level.max(self.floor(now));
        self.ceiling(now).saturating_sub(start).checked_div(self.unit).unwrap_or(u64::MAX)
    }

    #[inline]
    fn reset_ns(&self, level: u64, now: Tick) -> u64 {
        refill::nanos(self.slope, self.inverse, level.saturating_sub(self.floor(now)))
    }

    #[inline]
    fn limit(&self) -> u64 {
        self.limit
    }

    #[inline]
    fn is_unlimited(&self) -> bool {
        self.unit == 0
    }

    fn returned(&self, level: u64, back: GiveBack, now: Tick) -> Option<u64> {
        let amount = self.unit.checked_mul(back.amount.min(back.claim.cost))?;
        let later = level.checked_sub(back.claim.mark)?; // what was taken after the claim
        let refund = if later == 0 {
            amount // nobody came after: undoing is exact
        } else {
            // Those who were promised their times stand on top of this claim, and only what is left above them is free.
            let free = if level > self.ceiling(now) { amount.saturating_sub(later) } else { amount };
            // What time has restored since the claim is already back; and what was taken as of a moment to come stands on
            // the floor of that moment, which must stay.
            free.min(back.claim.mark.saturating_sub(self.floor(now.max(back.ahead))))
        };
        // Below zero is as good as zero: both are below the floor, and mean full.
        (refund > 0).then(|| level.saturating_sub(refund))
    }

    fn charged(&self, level: u64, extra: u64, now: Tick) -> u64 {
        let size = self.unit.saturating_mul(extra);
        level.max(self.floor(now)).saturating_add(size).min(LAST_LEVEL)
    }

    fn retuned(&self, level: u64, now: Tick, quota: Quota) -> (Self, u64) {
        let line = Refill::of(quota);
        let old_start = level.max(self.floor(now));
        let (ceiling, unit) = (i128::from(self.ceiling(now)), i128::from(self.unit.max(1)));
        // Tokens left (negative: owed) in units of the new line, rounded against the caller.
        let left = ((ceiling - i128::from(old_start)) * i128::from(line.unit)).div_euclid(unit);
        let left =
            if self.is_unlimited() { i128::from(line.depth) } else { left.min(i128::from(line.depth)) };
        // The new level is just above the old one, unless the line itself has already risen beyond.
        let given = i128::from(line.given(now));
        let lowest_ceiling = given + i128::from(line.depth);
        let ceiling = lowest_ceiling.max(i128::from(old_start) + 1 + left);
        let heel = u64::try_from(ceiling - lowest_ceiling).unwrap_or(0);
        let heel = next_heel(self.floor_offset(), heel);
        let level = lowest_ceiling + i128::from(heel) - left;
        let level = u64::try_from(level).unwrap_or(LAST_LEVEL).min(LAST_LEVEL);
        (Self::on_line(line, quota.burst_size(), heel), level)
    }

    fn unit(&self) -> u64 {
        self.unit
    }

    #[inline]
    fn floor(&self, now: Tick) -> u64 {
        refill::given(self.slope, now) + self.floor_offset()
    }

    fn lifted(&self, by: u64) -> (Self, u64) {
        let old = self.floor_offset();
        let by = next_heel(old, old.saturating_add(by)) - old;
        let heel = if self.is_closed() { CLOSED } else { self.heel + by };
        (Self { head: self.head + by, heel, ..*self }, by)
    }

    fn pack(&self) -> [u64; CURVE_WORDS] {
        [self.slope, self.inverse, self.unit, self.head, self.limit, self.reciprocal, self.heel]
    }

    #[inline]
    fn unpack([slope, inverse, unit, head, limit, reciprocal, heel]: [u64; CURVE_WORDS]) -> Self {
        Self { slope, inverse, unit, head, heel, limit, reciprocal }
    }
}

/// `units / unit`, rounded down. The product with the reciprocal is at most one too low, since units stay below 2^63, and
/// that is put right.
#[inline]
const fn whole(units: u64, unit: u64, reciprocal: u64) -> u64 {
    let guess = ((units as u128 * reciprocal as u128) >> 64) as u64;
    guess + (units.wrapping_sub(guess.wrapping_mul(unit)) >= unit) as u64
}

/// The heel of the next curve: `lowest`, or a little more, so that its last 16 bits count up. It is the curve's latch, by which a
/// caller tells one curve from the next.
fn next_heel(old: u64, lowest: u64) -> u64 {
    const TAGS: u64 = 1 << 16;
    let ahead = (old + 1).wrapping_sub(lowest) % TAGS;
    lowest.saturating_add(ahead).min(HIGHEST_HEEL)
}

/// No level goes beyond this, so that adding a bucketful to one never overflows.
const LAST_LEVEL: u64 = (3 << 62) - 1;
/// The line stays below 2^63 and the depth within 2^62, so with this their sum with the heel fits 64 bits, and is not
/// [`HELD`](crate::HELD).
const HIGHEST_HEEL: u64 = (1 << 62) - 1;
