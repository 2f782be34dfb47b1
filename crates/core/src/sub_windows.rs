//! Sub-windows: a sliding window in constant memory that never exceeds its limit.

use alloc::vec::Vec;
use core::time::Duration;

use crate::decision::Facts;
use crate::tick::nanos_of;
use crate::{Algorithm, Ask, Claim, GiveBack, Quota, Step, Tick};

/// Sub-windows: the window is cut into k parts, each with a count, and the part that the trailing window covers only
/// partly is counted in full.
///
/// **Guarantee**: never more than `count` in any trailing window, like [`SlidingLog`](crate::SlidingLog), for k+1 counts
/// whatever the limit. The quota's burst is not used.
///
/// **Formula**, with parts of `ceil(period / k)` and j the part that now lies in:
/// ```text
/// admit iff cost + sum of parts j-k ..= j <= count
/// ```
///
/// **Weakness**: counting the oldest part in full holds a busy caller to about k/(k+1) of the limit: 91 % with the
/// default of ten parts, 98 % with sixty.
///
/// # Examples
/// ```
/// use core::time::Duration;
/// use tollgate_core::{Algorithm, Ask, Quota, SubWindows, Tick};
///
/// let parts = SubWindows::new(Quota::per_second(2)).parts(10);
/// let mut state = Default::default();
/// let mut at = |ms| parts.step(&mut state, Tick::ZERO + Duration::from_millis(ms), Ask::now(1));
/// assert!(at(50).is_allowed() && at(950).is_allowed());
/// // The first was at 50 ms, somewhere in the part up to 100 ms: it counts until that whole part is a second old.
/// assert_eq!(at(1_050).retry_after(), Some(Duration::from_millis(50)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SubWindows {
    count: u64,
    /// Zero means unlimited.
    period_ns: u64,
    parts: u32,
    part_ns: u64,
    /// How much of part zero had passed at the clock's origin.
    phase_ns: u64,
    /// How much time had passed there since the moment that parts are aligned to.
    age_ns: u64,
}

/// The counts of the newest parts, newest last. Empty if nothing was ever admitted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    newest: u64,
    counts: Vec<u64>,
}

/// What changes in [`Parts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartsChange {
    part: u64,
    /// Added to that part; taken from it if negative.
    add: i128,
    /// Whether more than that part holds may be taken, from those after it.
    spills: bool,
}

impl SubWindows {
    /// Ten parts for `quota`, aligned to the clock's origin.
    pub const fn new(quota: Quota) -> Self {
        Self::of(quota, 10, 0)
    }

    /// The same limit in `parts` parts, from 1 to 1000; others are taken as the nearest of these.
    #[must_use]
    pub const fn parts(self, parts: u32) -> Self {
        let parts = if parts == 0 { 1 } else { parts };
        Self::of(self.quota(), if parts > 1000 { 1000 } else { parts }, self.age_ns)
    }

    /// The same, aligned to a moment that lies `age` before the clock's origin: with the time since 1970 there, parts begin at
    /// multiples of their length on the wall clock. A state belongs to parts of one age.
    #[must_use]
    pub const fn aligned(self, age: Duration) -> Self {
        Self::of(self.quota(), self.parts, nanos_of(age))
    }

    const fn of(quota: Quota, parts: u32, age_ns: u64) -> Self {
        let (count, period_ns) = (quota.count(), quota.period_nanos());
        let part_ns = period_ns.div_ceil(parts as u64);
        let phase_ns = if part_ns == 0 { 0 } else { age_ns % part_ns };
        Self { count, period_ns, parts, part_ns, phase_ns, age_ns }
    }

    const fn quota(&self) -> Quota {
        Quota::per(self.count, Duration::from_nanos(self.period_ns))
    }

    /// How many parts there are.
    pub const fn part_count(&self) -> u32 {
        self.parts
    }

    /// Time since part zero began.
    fn shifted(&self, now: Tick) -> u64 {
        now.as_nanos().saturating_add(self.phase_ns)
    }

    fn part_at(&self, now: Tick) -> u64 {
        self.shifted(now) / self.part_ns
    }

    /// What counts in part `part`, given that no newer one is used.
    fn used(&self, state: &Parts, part: u64) -> u64 {
        let gone = part.saturating_sub(state.newest).min(u64::from(self.parts) + 1) as usize;
        state.counts.iter().skip(gone).fold(0, |sum: u64, count| sum.saturating_add(*count))
    }

    /// The first part, from `now` or the newest used on, in which `cost` fits.
    fn opening(&self, state: &Parts, now: Tick, cost: u64) -> Option<u64> {
        let first = self.part_at(now).max(state.newest);
        let last = first.checked_add(u64::from(self.parts) + 1)?;
        (first..=last)
            .find(|part| self.used(state, *part).checked_add(cost).is_some_and(|sum| sum <= self.count))
    }

    /// What can be had at `now` if `part` is the newest: nothing before that begins.
    fn left(&self, state: &Parts, part: u64, now: Tick) -> u64 {
        if part > self.part_at(now) { 0 } else { self.count.saturating_sub(self.used(state, part)) }
    }

    fn facts(&self, state: &Parts, now: Tick) -> Facts {
        let part = self.part_at(now).max(state.newest);
        let newest_used = state.counts.iter().rposition(|count| *count > 0);
        // A part that has not begun yet is not fresh though it be empty: what was promised in it may have been given back,
        // but what it pushed out of sight still counts until then.
        let forgotten = newest_used.map_or(state.newest, |index| {
            let used_part = state.newest - (state.counts.len() - 1 - index) as u64;
            used_part.saturating_add(u64::from(self.parts) + 1).max(state.newest)
        });
        let reset_ns = forgotten.saturating_mul(self.part_ns).saturating_sub(self.shifted(now));
        Facts { remaining: self.left(state, part, now), reset_ns }
    }
}

impl Algorithm for SubWindows {
    type State = Parts;
    type Change = PartsChange;

    fn decide(&self, state: &Parts, now: Tick, ask: Ask) -> Step<PartsChange> {
        if self.period_ns == 0 {
            return Step::UNLIMITED;
        }
        let before = self.facts(state, now);
        if ask.cost == 0 {
            return Step::nothing(self.count, before);
        }
        let opening = if ask.cost > self.count { None } else { self.opening(state, now, ask.cost) };
        let begin = opening.and_then(|part| part.checked_mul(self.part_ns).map(|begin| (part, begin)));
        let Some((part, begin)) = begin else {
            return Step::never(self.count, before.remaining, before.reset_ns);
        };
        let after = || {
            let forgotten = part.saturating_add(u64::from(self.parts) + 1).saturating_mul(self.part_ns);
            let remaining = self.left(state, part, now).saturating_sub(ask.cost);
            let facts = Facts { remaining, reset_ns: forgotten.saturating_sub(self.shifted(now)) };
            (PartsChange { part, add: i128::from(ask.cost), spills: false }, facts)
        };
        let begin = Tick::from_nanos(begin.saturating_sub(self.phase_ns));
        Step::at(begin.max(now), now, ask, self.count, after, before)
    }

    fn apply(&self, state: &mut Parts, change: PartsChange) {
        let length = self.parts as usize + 1;
        state.counts.resize(length, 0);
        let gone = change.part.saturating_sub(state.newest).min(length as u64) as usize;
        state.counts.rotate_left(gone % length);
        state.counts[length - gone..].fill(0);
        state.newest = state.newest.max(change.part);
        let age = (state.newest - change.part) as usize;
        let Some(first) = length.checked_sub(1 + age) else { return };
        let mut add = change.add;
        for count in &mut state.counts[first..] {
            let next = i128::from(*count) + add;
            *count = next.clamp(0, i128::from(u64::MAX)) as u64; // clamped
            add = next.min(0);
            if add == 0 || !change.spills {
                break;
            }
        }
    }

    fn claim(&self, change: &PartsChange, cost: u64, act: Tick) -> Claim {
        Claim { cost, act, mark: change.part }
    }

    fn give_back(&self, state: &Parts, back: GiveBack, now: Tick) -> Option<PartsChange> {
        if self.period_ns == 0 {
            return None;
        }
        let part = back.claim.mark;
        let amount = back.amount.min(back.claim.cost);
        let counts = self.part_at(now).max(state.newest) - part.min(state.newest) <= u64::from(self.parts);
        (amount > 0 && counts).then_some(PartsChange { part, add: -i128::from(amount), spills: false })
    }

    fn refund(&self, state: &Parts, amount: u64, now: Tick) -> Option<PartsChange> {
        if self.period_ns == 0 || amount == 0 {
            return None;
        }
        let part = self.part_at(now).max(state.newest);
        let oldest = part.saturating_sub(u64::from(self.parts)); // that counts
        let counts = self.used(state, part) > 0;
        counts.then_some(PartsChange { part: oldest, add: -i128::from(amount), spills: true })
    }

    fn charge(&self, state: &Parts, extra: u64, now: Tick) -> Option<PartsChange> {
        if self.period_ns == 0 || extra == 0 {
            return None;
        }
        let part = self.part_at(now).max(state.newest);
        Some(PartsChange { part, add: i128::from(extra), spills: false })
    }

    /// Parts of the same length go on as they are. Otherwise what counts at `now` counts as if it had just happened.
    fn retune(&self, state: &Parts, now: Tick, quota: Quota) -> (Self, Parts) {
        let new = Self::of(quota, self.parts, self.age_ns);
        if new.period_ns == self.period_ns {
            return (new, state.clone());
        }
        let mut carried = Parts::default();
        if new.period_ns > 0 && self.period_ns > 0 {
            let part = self.part_at(now);
            // Something was promised for later because there was no room, whether it was cancelled since or not.
            let full = if state.newest > part { self.count } else { 0 };
            let used = self.used(state, part.max(state.newest)).max(full);
            // What was promised for later stays ahead of everybody who comes now.
            let begin = state.newest.saturating_mul(self.part_ns).saturating_sub(self.phase_ns);
            let newest = now.max(Tick::from_nanos(begin));
            if let Some(change) = new.charge(&carried, used, newest) {
                new.apply(&mut carried, change);
            }
        }
        (new, carried)
    }

    /// Parts of the same length go on as they are, and so do claims on them.
    fn carried(&self, claim: Claim, _: &Parts, _: Tick, new: &Self, _: &Parts) -> Option<Claim> {
        (new.period_ns == self.period_ns && new.parts == self.parts).then_some(claim)
    }

    fn is_idle(&self, state: &Parts, now: Tick) -> bool {
        self.period_ns == 0 || self.facts(state, now).reset_ns == 0
    }

    fn write_state(&self, state: &Parts, words: &mut Vec<u64>) {
        if !state.counts.is_empty() {
            words.push(state.newest);
            words.extend(&state.counts);
        }
    }

    fn read_state(&self, words: &[u64]) -> Option<Parts> {
        let Some((&newest, counts)) = words.split_first() else {
            return Some(Parts::default());
        };
        // Neither before the first part there is, nor after the end of time.
        let oldest = counts.iter().position(|count| *count > 0).map_or(0, |index| counts.len() - 1 - index);
        let is_in_time = newest >= oldest as u64 && newest.checked_mul(self.part_ns).is_some();
        (counts.len() == self.parts as usize + 1 && is_in_time)
            .then(|| Parts { newest, counts: counts.to_vec() })
    }
}
