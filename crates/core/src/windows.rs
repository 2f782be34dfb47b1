//! Aligned windows on a level: what fixed and paced windows share.
//!
//! Window `i` owns the levels from `base + i·count` to `base + (i+1)·count`; a level inside it says how much of the
//! window is used, and a level below it belongs to the past. No division is needed to tell them apart.
//!
//! Windows begin at multiples of the period since a moment that may lie before the clock's origin, by the *age*. Window zero is
//! the one that the origin lies in, so it has begun `phase = age mod period` before.

use crate::decision::NEVER;
use crate::level::CURVE_WORDS;
use crate::{GiveBack, Quota, Tick};

/// The most a window may hold per nanosecond, so that no level overflows in 18 years.
const FASTEST_PER_NANO: u64 = 16;
/// No level goes beyond this, so that adding a windowful to one never overflows, nor makes [`HELD`](crate::HELD).
const LAST_LEVEL: u64 = (3 << 62) - 2;

/// A row of windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Windows {
    pub(crate) count: u64,
    /// Zero means unlimited.
    pub(crate) period_ns: u64,
    base: u64,
    /// How much of window zero had passed at the clock's origin.
    phase_ns: u64,
    /// How much time had passed there since the moment that windows are aligned to.
    age_ns: u64,
}

impl Windows {
    pub(crate) const fn of(quota: Quota) -> Self {
        let (count, period_ns) = (quota.count(), quota.period_nanos());
        let (base, phase_ns, age_ns) = (0, 0, 0);
        if quota.is_unlimited() {
            return Self { count, period_ns, base, phase_ns, age_ns };
        }
        let fastest = period_ns.saturating_mul(FASTEST_PER_NANO);
        let fastest = if fastest > 1 << 62 { 1 << 62 } else { fastest };
        Self { count: if count < fastest { count } else { fastest }, period_ns, base, phase_ns, age_ns }
    }

    /// The same, aligned to a moment that lies `age_ns` before the clock's origin. Only for windows without a state yet.
    pub(crate) const fn aligned(self, age_ns: u64) -> Self {
        let phase_ns = if self.period_ns == 0 { 0 } else { age_ns % self.period_ns };
        Self { phase_ns, age_ns, ..self }
    }

    /// The window that `now` lies in.
    #[inline]
    pub(crate) fn index(&self, now: Tick) -> u64 {
        self.shifted(now) / self.period_ns.max(1)
    }

    /// How much of window `index`, which `now` lies in, has passed.
    pub(crate) fn passed(&self, index: u64, now: Tick) -> u64 {
        self.shifted(now) - index * self.period_ns
    }

    /// Time since window zero began.
    #[inline]
    fn shifted(&self, now: Tick) -> u64 {
        now.as_nanos().saturating_add(self.phase_ns)
    }

    /// The level at which window `index` begins; at the last level it stays there, and everything is refused.
    #[inline]
    pub(crate) fn floor_of(&self, index: u64) -> u64 {
        let used = index.saturating_mul(self.count).min(1 << 63);
        self.base.saturating_add(used).min(LAST_LEVEL)
    }

    #[inline]
    pub(crate) fn floor(&self, now: Tick) -> u64 {
        self.floor_of(self.index(now))
    }

    /// The first window that has room for `cost` above `start`, counting from the one `now` lies in; and the level it
    /// starts from there. `None` if no window ever has.
    pub(crate) fn roomy(&self, start: u64, now: Tick, cost: u64) -> Option<(u64, u64)> {
        if cost > self.count {
            return None;
        }
        let index = self.window_of(start.checked_add(cost)?).max(self.index(now));
        let (floor, end) = (self.floor_of(index), self.floor_of(index.saturating_add(1)));
        let start = start.max(floor);
        (start.checked_add(cost)? <= end).then_some((index, start))
    }

    /// When window `index` begins; `None` if that cannot be written down.
    pub(crate) fn begins(&self, index: u64) -> Option<Tick> {
        self.moment(index, 0)
    }

    /// When so much of window `index` has passed, or the clock's origin if that is later; `None` if it cannot be written down.
    pub(crate) fn moment(&self, index: u64, passed: u64) -> Option<Tick> {
        let shifted = index.checked_mul(self.period_ns)?.checked_add(passed)?;
        Some(Tick::from_nanos(shifted.saturating_sub(self.phase_ns)))
    }

    /// The window that a level ends in: a level right at a boundary ends the window before.
    fn window_of(&self, level: u64) -> u64 {
        level.saturating_sub(self.base).saturating_sub(1) / self.count.max(1)
    }

    /// Nanoseconds until `level` is below everything.
    pub(crate) fn reset_ns(&self, level: u64, now: Tick) -> u64 {
        if level <= self.floor(now) {
            return 0;
        }
        if self.count == 0 {
            return NEVER;
        }
        self.begins(self.window_of(level) + 1)
            .map_or(NEVER, |at| at.as_nanos().saturating_sub(now.as_nanos()))
    }

    /// Counts are commutative within a window: a claim can go back as long as its window is the newest and not over.
    pub(crate) fn returned(&self, level: u64, back: GiveBack, now: Tick) -> Option<u64> {
        let window = self.window_of(back.claim.mark);
        let amount = back.amount.min(back.claim.cost);
        let open = window >= self.index(now) && window == self.window_of(level) && level > self.floor(now);
        let next = level.saturating_sub(amount).max(self.floor_of(window));
        (open && next < level).then_some(next)
    }

    pub(crate) fn charged(&self, level: u64, extra: u64, now: Tick) -> u64 {
        level.max(self.floor(now)).saturating_add(extra).min(LAST_LEVEL)
    }

    /// What was used of the window stays used, up to the new limit; what was promised beyond it stays owed.
    pub(crate) fn retuned(&self, level: u64, now: Tick, quota: Quota) -> (Self, u64) {
        let start = level.max(self.floor(now));
        let used = start - self.floor(now);
        let owed = if self.period_ns == 0 { 0 } else { used.saturating_sub(self.count) };
        let new = Self::of(quota).aligned(self.age_ns);
        let used = (used - owed).min(new.count).saturating_add(owed);
        let bare = new.floor(now).saturating_add(used);
        let base = start.saturating_add(1).saturating_sub(bare).min(LAST_LEVEL);
        (Self { base, ..new }, bare.saturating_add(base).min(LAST_LEVEL))
    }

    /// Not if more was used than the new window holds: it then starts out used up, and not all that was used shows any more.
    pub(crate) fn carries(&self, level: u64, now: Tick, new: &Self) -> bool {
        level.saturating_sub(self.floor(now)) <= new.count
    }

    pub(crate) fn lifted(&self, by: u64) -> (Self, u64) {
        let by = by.min(LAST_LEVEL - self.base);
        (Self { base: self.base + by, ..*self }, by)
    }

    pub(crate) const fn is_unlimited(&self) -> bool {
        self.period_ns == 0
    }

    pub(crate) const fn pack(&self) -> [u64; CURVE_WORDS] {
        [self.count, self.period_ns, self.base, self.phase_ns, self.age_ns, 0, 0]
    }

    pub(crate) const fn unpack([count, period_ns, base, phase_ns, age_ns, ..]: [u64; CURVE_WORDS]) -> Self {
        Self { count, period_ns, base, phase_ns, age_ns }
    }
}
