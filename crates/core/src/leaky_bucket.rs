//! The leaky bucket, as a meter and as a queue.

use core::time::Duration;

use crate::decision::NEVER;
use crate::level::{Band, CURVE_WORDS, Curve};
use crate::refill::{self, Refill};
use crate::{GiveBack, Quota, Tick};

/// The leaky bucket: calls leave evenly spaced, never in a burst.
///
/// As a *meter* ([`LeakyBucket::meter`]) it refuses a call that comes too soon. As a *queue*
/// ([`LeakyBucket::queue`]) it delays it: a plain check answers [`Verdict::Delay`](crate::Verdict::Delay) as long as no
/// more than the quota's burst is ahead, and refuses beyond.
///
/// **Guarantee**: after a call of cost n the next one is at least n/rate later. Over a span T at most one call's cost
/// plus `rate·T` is admitted.
///
/// **Formula**, in units as for [`TokenBucket`](crate::TokenBucket):
/// ```text
/// start = max(level, given(now))
/// admit iff start <= given(now + longest wait);     level' = start + cost;     act at the first t with given(t) >= start
/// ```
/// A cost above the quota's burst is never admitted: for a meter the burst is the largest single cost, for a queue also
/// how much may wait.
///
/// **Weakness**: no burst at all, so a caller with two things to do at once always waits; and a queue turns overload into
/// delay, up to burst/rate for everybody, before it refuses.
///
/// # Examples
/// ```
/// use core::time::Duration;
/// use tollgate_core::{Algorithm, Ask, LeakyBucket, Quota, Tick};
///
/// let queue = LeakyBucket::queue(Quota::per_second(10).burst(2));
/// let mut level = 0;
/// let mut arrive = || queue.step(&mut level, Tick::ZERO, Ask::within(1, queue.patience()));
/// assert_eq!(arrive().delay(), Duration::ZERO);
/// assert_eq!(arrive().delay(), Duration::from_millis(100));
/// assert_eq!(arrive().delay(), Duration::from_millis(200));
/// assert_eq!(arrive().retry_after(), Some(Duration::from_millis(100))); // two are waiting: full
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeakyBucket {
    slope: u64,
    inverse: u64,
    unit: u64,
    /// How far the floor lies above the line.
    heel: u64,
    limit: u64,
    /// How long a full queue takes to drain; zero for a meter.
    patience_ns: u64,
    is_queue: bool,
}

impl LeakyBucket {
    /// Refuses what comes too soon.
    pub const fn meter(quota: Quota) -> Self {
        let Refill { slope, inverse, unit, .. } = Refill::of(quota);
        Self { slope, inverse, unit, heel: 0, limit: quota.burst_size(), patience_ns: 0, is_queue: false }
    }

    /// Delays what comes too soon, with room for the quota's burst.
    pub const fn queue(quota: Quota) -> Self {
        let line = Refill::of(quota);
        // Nothing drains at rate zero, so nothing may queue for it.
        let patience_ns = if line.slope == 0 { 0 } else { line.nanos(line.depth) };
        Self { patience_ns, is_queue: true, ..Self::meter(quota) }
    }

    /// Whether it delays what comes too soon, rather than refusing it.
    pub const fn is_queue(&self) -> bool {
        self.is_queue
    }

    #[inline]
    fn size(&self, cost: u64) -> Option<u64> {
        if cost > self.limit { None } else { self.unit.checked_mul(cost).filter(|size| *size <= LARGEST) }
    }
}

impl Curve for LeakyBucket {
    #[inline]
    fn band(&self, now: Tick, cost: u64) -> Band {
        let floor = self.floor(now);
        match self.size(cost) {
            Some(size) if !self.is_unlimited() => Band { floor, brink: floor, size },
            _ => Band { floor: floor.max(1), brink: 0, size: 0 },
        }
    }

    fn opening(&self, level: u64, now: Tick, cost: u64) -> Option<(Tick, u64)> {
        self.size(cost)?;
        let start = level.max(self.floor(now));
        match refill::nanos_until(self.slope, self.inverse, start - self.floor(now), now) {
            NEVER => None,
            wait => Some((now.plus_nanos(wait), start)),
        }
    }

    /// For a meter: the whole limit if a call may leave now, else nothing. For a queue: the room left in it, which at
    /// rate zero is as for a meter.
    fn remaining(&self, level: u64, now: Tick) -> u64 {
        let backlog = level.saturating_sub(self.floor(now));
        if self.is_queue && self.slope > 0 {
            self.limit.saturating_sub(backlog.div_ceil(self.unit.max(1)))
        } else if backlog == 0 {
            self.limit
        } else {
            0
        }
    }

    fn reset_ns(&self, level: u64, now: Tick) -> u64 {
        refill::nanos(self.slope, self.inverse, level.saturating_sub(self.floor(now)))
    }

    fn limit(&self) -> u64 {
        self.limit
    }

    fn is_unlimited(&self) -> bool {
        self.unit == 0
    }

    /// Only the last claim can be undone: others have been given their times on top of an earlier one.
    fn returned(&self, level: u64, back: GiveBack, _now: Tick) -> Option<u64> {
        let amount = self.unit.checked_mul(back.amount.min(back.claim.cost))?;
        (level == back.claim.mark && amount > 0).then(|| level.saturating_sub(amount))
    }

    /// A meter's backlog is that of its last call. Those in a queue were given their times one on top of the other.
    fn refunded(&self, level: u64, amount: u64, now: Tick) -> Option<u64> {
        let next = level.saturating_sub(self.unit.saturating_mul(amount)).max(self.floor(now));
        (next < level && !self.is_queue).then_some(next)
    }

    fn charged(&self, level: u64, extra: u64, now: Tick) -> u64 {
        level.max(self.floor(now)).saturating_add(self.unit.saturating_mul(extra)).min(LAST_LEVEL)
    }

    fn retuned(&self, level: u64, now: Tick, quota: Quota) -> (Self, u64) {
        let new = if self.is_queue { Self::queue(quota) } else { Self::meter(quota) };
        let start = level.max(self.floor(now));
        let backlog = u128::from(start - self.floor(now)) * u128::from(new.unit);
        let backlog = backlog.div_ceil(u128::from(self.unit.max(1))).min(u128::from(LAST_LEVEL / 2));
        // The level must end up above the old one; how far the line is below that is the heel.
        let given = u128::from(refill::given(new.slope, now));
        let floor = given.max((u128::from(start) + 1).saturating_sub(backlog));
        let heel = u64::try_from(floor - given).unwrap_or(HIGHEST_HEEL).min(HIGHEST_HEEL);
        let level = u64::try_from(floor + backlog).unwrap_or(LAST_LEVEL).min(LAST_LEVEL);
        (Self { heel, ..new }, level)
    }

    fn patience(&self) -> Duration {
        Duration::from_nanos(self.patience_ns)
    }

    fn unit(&self) -> u64 {
        self.unit
    }

    #[inline]
    fn floor(&self, now: Tick) -> u64 {
        refill::given(self.slope, now) + self.heel
    }

    fn lifted(&self, by: u64) -> (Self, u64) {
        let by = by.min(HIGHEST_HEEL - self.heel);
        (Self { heel: self.heel + by, ..*self }, by)
    }

    fn pack(&self) -> [u64; CURVE_WORDS] {
        [
            self.slope,
            self.inverse,
            self.unit,
            self.heel,
            self.limit,
            self.patience_ns,
            u64::from(self.is_queue),
        ]
    }

    fn unpack([slope, inverse, unit, heel, limit, patience_ns, is_queue]: [u64; CURVE_WORDS]) -> Self {
        Self { slope, inverse, unit, heel, limit, patience_ns, is_queue: is_queue == 1 }
    }
}

/// The most units one call may take, so that adding it to a level that has come due fits 64 bits.
const LARGEST: u64 = 1 << 62;
/// No level goes beyond this, so that adding one call's cost to it never overflows.
const LAST_LEVEL: u64 = (3 << 62) - 1;
/// The line stays below 2^63, so with this their sum is a level.
const HIGHEST_HEEL: u64 = 1 << 62;
