//! Aligned windows on a level: what fixed and paced windows share.
//!
//! Window `i` owns the levels from `base + i·stride` to `base + (i+1)·stride`; a level inside it says how much of the
//! window is used, and a level below it belongs to the past. No division is needed to tell them apart. The stride is more than
//! the count, so that a window still shows what was used of it before the count became less. What is charged beyond the count is
//! owed by the windows that follow, the count by each.
//!
//! Windows begin at multiples of the period since a moment that may lie before the clock's origin, by the *age*. Window zero is
//! the one that the origin lies in, so it has begun `phase = age mod period` before.

use crate::decision::NEVER;
use crate::level::CURVE_WORDS;
use crate::refill::least;
use crate::{GiveBack, Quota, Tick};

/// The most a window may hold per nanosecond, so that no level overflows in 18 years.
const FASTEST_PER_NANO: u64 = 16;
/// The most levels of a window.
const LONGEST_STRIDE: u64 = 1 << 62;
/// No level goes beyond this, so that adding a windowful to one never overflows, nor makes [`HELD`](crate::HELD).
const LAST_LEVEL: u64 = (3 << 62) - 2;

/// A row of windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Windows {
    pub(crate) count: u64,
    /// Zero means unlimited.
    pub(crate) period_ns: u64,
    /// How many levels a window owns: as many as it has nanoseconds, or as its count if that is more. Zero if the count is, or if
    /// there is no limit: then no window ever gives anything back.
    stride: u64,
    base: u64,
    /// How much of window zero had passed at the clock's origin.
    phase_ns: u64,
    /// How much time had passed there since the moment that windows are aligned to.
    age_ns: u64,
    /// How much of its window was used when these began to be in force: it may be more than the count.
    most: u64,
}

impl Windows {
    pub(crate) const fn of(quota: Quota) -> Self {
        let (count, period_ns) = (quota.count(), quota.period_nanos());
        let bare = Self { count, period_ns, stride: 0, base: 0, phase_ns: 0, age_ns: 0, most: 0 };
        if quota.is_unlimited() || count == 0 {
            return bare;
        }
        let count = least(count, least(period_ns.saturating_mul(FASTEST_PER_NANO), LONGEST_STRIDE));
        let stride = least(period_ns, LONGEST_STRIDE);
        Self { count, stride: if count > stride { count } else { stride }, ..bare }
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
        let used = index.saturating_mul(self.stride).min(1 << 63);
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
        let Place { index, used } = self.place(start, now);
        let (index, start) = if used.checked_add(cost)? <= self.count {
            (index, start.max(self.floor(now)))
        } else {
            let next = index.checked_add(1)?;
            (next, self.floor_of(next))
        };
        (start.checked_add(cost)? <= self.floor_of(index.saturating_add(1))).then_some((index, start))
    }

    /// Which window a level is in, from that of `now` on, and how much of it is used.
    fn place(&self, level: u64, now: Tick) -> Place {
        let above = level.saturating_sub(self.floor(now));
        let Some(ahead) = above.saturating_sub(1).checked_div(self.stride) else {
            return Place { index: self.index(now), used: above };
        };
        let used = above - ahead * self.stride;
        // A level at the very beginning of a window that a clock behind it has not reached yet is a stride above the one before, of
        // which no more is used than it holds.
        let used = if used == self.stride { self.fullest() } else { used };
        Place { index: self.index(now).saturating_add(ahead), used }
    }

    /// The most that can have been used of a window.
    fn fullest(&self) -> u64 {
        self.count.max(self.most).min(self.stride)
    }

    /// What windows after that of `now` owe at a place.
    fn owed(&self, place: Place, now: Tick) -> u64 {
        match place.index - self.index(now) {
            0 => 0,
            ahead => (ahead - 1).saturating_mul(self.count).saturating_add(place.used),
        }
    }

    /// The level at which windows after that of `now` owe so much, the count each.
    fn owing(&self, owed: u64, now: Tick) -> u64 {
        let full = (owed - 1) / self.count;
        let last = self.index(now).saturating_add(1).saturating_add(full);
        self.floor_of(last).saturating_add(owed - full * self.count).min(LAST_LEVEL)
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
        level.saturating_sub(self.base).saturating_sub(1) / self.stride.max(1)
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
        let begin = self.floor_of(window);
        // As in `place`.
        let is_whole = level == self.floor_of(window.saturating_add(1)) && self.stride > 0;
        let level_in = if is_whole { begin.saturating_add(self.fullest()) } else { level };
        let mut next = level_in.saturating_sub(amount).max(begin);
        if window > self.index(now) && next == begin {
            // It was promised because the window before had no room; how full that is was forgotten, so it is full.
            next = self.floor_of(window - 1).saturating_add(self.count.max(self.most)).min(begin);
        }
        (open && next < level).then_some(next)
    }

    /// What does not fit into the window is owed by those that follow.
    pub(crate) fn charged(&self, level: u64, extra: u64, now: Tick) -> u64 {
        let place = self.place(level, now);
        let (owed, room) = (self.owed(place, now), self.count.saturating_sub(place.used));
        if self.stride == 0 || (owed == 0 && extra <= room) {
            return self.floor(now).saturating_add(place.used).saturating_add(extra).min(LAST_LEVEL);
        }
        let room = if owed == 0 { room } else { 0 };
        self.owing(owed.saturating_add(extra - room), now)
    }

    /// The level after giving back without a receipt: what is owed goes first, then what was used of the window.
    pub(crate) fn refunded(&self, level: u64, amount: u64, now: Tick) -> Option<u64> {
        let place = self.place(level, now);
        let owed = self.owed(place, now);
        let next = if amount < owed {
            self.owing(owed - amount, now)
        } else {
            let used = if owed == 0 { place.used } else { self.count };
            self.floor(now).saturating_add(used.saturating_sub(amount - owed))
        };
        (next < level && !self.is_unlimited()).then_some(next)
    }

    /// What was used of the window stays used; what was promised beyond it stays owed.
    pub(crate) fn retuned(&self, level: u64, now: Tick, quota: Quota) -> (Self, u64) {
        let new = Self::of(quota).aligned(self.age_ns);
        let start = level.max(self.floor(now));
        let bare = self.carried(start, now, &new);
        let base = start.saturating_add(1).saturating_sub(bare).min(LAST_LEVEL);
        let place = self.place(start, now);
        let most = match self.owed(place, now) {
            _ if self.is_unlimited() => 0,
            0 => place.used,
            _ => self.count.max(self.most),
        };
        (Self { base, most, ..new }, bare.saturating_add(base).min(LAST_LEVEL))
    }

    /// What a level is in `new` windows that are not lifted yet. With a count of zero there is no telling what was used from what
    /// is owed; it is then owed.
    fn carried(&self, level: u64, now: Tick, new: &Self) -> u64 {
        let place = self.place(level, now);
        match self.owed(place, now) {
            _ if self.is_unlimited() => new.floor(now),
            _ if self.stride == 0 => new.charged(0, place.used, now),
            0 if new.stride == 0 => place.used,
            0 => new.floor(now).saturating_add(place.used.min(new.stride)),
            owed if new.stride == 0 => self.count.max(self.most).saturating_add(owed),
            owed => new.charged(0, new.count.saturating_add(owed), now),
        }
    }

    /// Not if windows to come owe something: that is owed otherwise then.
    pub(crate) fn carries(&self, level: u64, now: Tick, new: &Self) -> bool {
        level.saturating_sub(self.floor(now)) <= self.stride.min(new.stride)
    }

    pub(crate) fn lifted(&self, by: u64) -> (Self, u64) {
        let by = by.min(LAST_LEVEL - self.base);
        (Self { base: self.base + by, ..*self }, by)
    }

    pub(crate) const fn is_unlimited(&self) -> bool {
        self.period_ns == 0
    }

    pub(crate) const fn pack(&self) -> [u64; CURVE_WORDS] {
        [self.count, self.period_ns, self.stride, self.base, self.phase_ns, self.age_ns, self.most]
    }

    pub(crate) const fn unpack(words: [u64; CURVE_WORDS]) -> Self {
        let [count, period_ns, stride, base, phase_ns, age_ns, most] = words;
        Self { count, period_ns, stride, base, phase_ns, age_ns, most }
    }
}

/// Where a level is.
#[derive(Clone, Copy, Debug)]
struct Place {
    index: u64,
    used: u64,
}
