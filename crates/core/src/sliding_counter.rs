//! The sliding window counter.

use alloc::vec::Vec;
use core::time::Duration;

use crate::decision::Facts;
use crate::tick::nanos_of;
use crate::{Algorithm, Ask, Claim, GiveBack, Quota, Step, Tick};

/// The sliding window counter: guesses a trailing window from two aligned counts.
///
/// **Guarantee**: at most `count` in each aligned window, and at most `2·count - 1` in any trailing one. The quota's burst
/// is not used.
///
/// **Formula**, with the previous window weighted by how much of it the trailing window still covers, in whole numbers:
/// ```text
/// admit iff previous·(period - passed) + (current + cost)·period <= count·period
/// ```
///
/// **Weakness**: it assumes that the previous window was used evenly. A caller that sent `count` at the very end of it is
/// let through again as the weight falls, which is where `2·count - 1` comes from; one that sent them at its start
/// is held back for too long. Chosen for compatibility; [`SubWindows`](crate::SubWindows) never exceeds
/// the limit and costs little more.
///
/// # Examples
/// ```
/// use core::time::Duration;
/// use tollgate_core::{Algorithm, Ask, Quota, SlidingCounter, Tick};
///
/// let counter = SlidingCounter::new(Quota::per_minute(100));
/// let mut state = Default::default();
/// let mut at = |secs, cost| counter.step(&mut state, Tick::ZERO + Duration::from_secs(secs), Ask::now(cost));
/// assert!(at(30, 80).is_allowed());
/// // A quarter into the next minute three quarters of the 80 still count: 60 are used, 40 are left.
/// assert!(!at(75, 41).is_allowed());
/// assert!(at(75, 40).is_allowed());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlidingCounter {
    count: u64,
    /// Zero means unlimited.
    period_ns: u64,
    /// How much of window zero had passed at the clock's origin.
    phase_ns: u64,
    /// How much time had passed there since the moment that windows are aligned to.
    age_ns: u64,
}

/// Two neighbouring counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The number of the current window.
    window: u64,
    current: u64,
    previous: u64,
}

impl Counts {
    /// The same counts seen from a later window.
    fn at(self, window: u64) -> Self {
        match window.saturating_sub(self.window) {
            0 => self,
            1 => Self { window, current: 0, previous: self.current },
            _ => Self { window, current: 0, previous: 0 },
        }
    }
}

impl SlidingCounter {
    /// Counts for `quota`, in windows aligned to the clock's origin.
    pub const fn new(quota: Quota) -> Self {
        Self { count: quota.count(), period_ns: quota.period_nanos(), phase_ns: 0, age_ns: 0 }
    }

    /// The same, aligned to a moment that lies `age` before the clock's origin: with the time since 1970 there, windows begin
    /// when those of the wall clock do. A state belongs to windows of one age.
    #[must_use]
    pub const fn aligned(self, age: Duration) -> Self {
        let age_ns = nanos_of(age);
        let phase_ns = if self.period_ns == 0 { 0 } else { age_ns % self.period_ns };
        Self { phase_ns, age_ns, ..self }
    }

    /// Time since window zero began.
    fn shifted(&self, now: Tick) -> u64 {
        now.as_nanos().saturating_add(self.phase_ns)
    }

    /// The window that `now` lies in.
    fn window_at(&self, now: Tick) -> u64 {
        self.shifted(now) / self.period_ns
    }

    /// The counts at `now`, and how much of their window has passed. A clock behind the counts is taken to stand at the
    /// beginning of their window.
    fn seen(&self, counts: &Counts, now: Tick) -> (Counts, u64) {
        let seen = counts.at(self.window_at(now));
        (seen, self.shifted(now).saturating_sub(seen.window * self.period_ns))
    }

    /// How much of the window must have passed for `cost` to fit; `None` if it cannot fit in this window.
    fn passed_needed(&self, counts: Counts, cost: u64) -> Option<u64> {
        let room = u128::from(self.count.checked_sub(counts.current)?.checked_sub(cost)?);
        if counts.previous == 0 {
            return Some(0);
        }
        // previous·(period - passed) <= room·period
        let (period, previous) = (u128::from(self.period_ns), u128::from(counts.previous));
        let covered = room * period / previous;
        let passed = u64::try_from(period.saturating_sub(covered)).ok()?;
        (passed < self.period_ns).then_some(passed)
    }

    /// The first moment at which `cost` fits, and the counts then.
    fn opening(&self, counts: &Counts, now: Tick, cost: u64) -> Option<(Tick, Counts)> {
        let (mut seen, mut passed) = self.seen(counts, now);
        loop {
            if let Some(needed) = self.passed_needed(seen, cost) {
                let at = seen.window.checked_mul(self.period_ns)?.checked_add(needed.max(passed))?;
                return Some((Tick::from_nanos(at.saturating_sub(self.phase_ns)), seen));
            }
            // Two windows on, everything is forgotten and any cost up to the count fits.
            (seen, passed) = (seen.at(seen.window.checked_add(1)?), 0);
        }
    }

    /// What counts at `now`.
    fn used(&self, counts: &Counts, now: Tick) -> u64 {
        let (seen, passed) = self.seen(counts, now);
        let left = u128::from(self.period_ns.saturating_sub(passed));
        let weighed = (u128::from(seen.previous) * left).div_ceil(u128::from(self.period_ns));
        u64::try_from(weighed).unwrap_or(u64::MAX).saturating_add(seen.current)
    }

    fn facts(&self, counts: &Counts, now: Tick) -> Facts {
        let (seen, _) = self.seen(counts, now);
        let windows = if seen.current > 0 { 2 } else { u64::from(seen.previous > 0) };
        // A window that has not begun yet is not fresh though it be empty: what was promised in it may have been given back,
        // but what it pushed out of sight still counts until then.
        let fresh = seen.window.saturating_add(windows).saturating_mul(self.period_ns);
        let reset_ns = fresh.saturating_sub(self.shifted(now));
        // Nothing can be had before that window begins.
        let is_behind = seen.window > self.window_at(now);
        let remaining = if is_behind { 0 } else { self.count.saturating_sub(self.used(counts, now)) };
        Facts { remaining, reset_ns }
    }
}

impl Algorithm for SlidingCounter {
    type State = Counts;
    type Change = Counts;

    fn decide(&self, counts: &Counts, now: Tick, ask: Ask) -> Step<Counts> {
        if self.period_ns == 0 {
            return Step::UNLIMITED;
        }
        let before = self.facts(counts, now);
        if ask.cost == 0 {
            return Step::nothing(self.count, before);
        }
        let opening = if ask.cost > self.count { None } else { self.opening(counts, now, ask.cost) };
        let Some((at, seen)) = opening else {
            return Step::never(self.count, before.remaining, before.reset_ns);
        };
        let after = || {
            let next = Counts { current: seen.current + ask.cost, ..seen };
            (next, self.facts(&next, now))
        };
        Step::at(at, now, ask, self.count, after, before)
    }

    fn apply(&self, counts: &mut Counts, next: Counts) {
        *counts = next;
    }

    fn claim(&self, change: &Counts, cost: u64, act: Tick) -> Claim {
        Claim { cost, act, mark: change.window }
    }

    fn give_back(&self, counts: &Counts, back: GiveBack, now: Tick) -> Option<Counts> {
        if self.period_ns == 0 {
            return None;
        }
        let amount = back.amount.min(back.claim.cost);
        let (seen, _) = self.seen(counts, now);
        let mut next = seen;
        match seen.window.checked_sub(back.claim.mark)? {
            0 => next.current = next.current.saturating_sub(amount),
            1 => next.previous = next.previous.saturating_sub(amount),
            _ => return None,
        }
        (next != seen).then_some(next)
    }

    fn refund(&self, counts: &Counts, amount: u64, now: Tick) -> Option<Counts> {
        if self.period_ns == 0 {
            return None;
        }
        let (seen, _) = self.seen(counts, now);
        let of_previous = amount.min(seen.previous);
        let (previous, left) = (seen.previous - of_previous, amount - of_previous);
        let next = Counts { previous, current: seen.current.saturating_sub(left), ..seen };
        (next != seen).then_some(next)
    }

    fn charge(&self, counts: &Counts, extra: u64, now: Tick) -> Option<Counts> {
        if self.period_ns == 0 || extra == 0 {
            return None;
        }
        let (seen, _) = self.seen(counts, now);
        Some(Counts { current: seen.current.saturating_add(extra), ..seen })
    }

    /// Windows of the same length go on as they are. Otherwise what counts at `now` counts in full in the new window.
    fn retune(&self, counts: &Counts, now: Tick, quota: Quota) -> (Self, Counts) {
        let new = Self::new(quota).aligned(Duration::from_nanos(self.age_ns));
        if new.period_ns == self.period_ns {
            return (new, *counts);
        }
        if new.period_ns == 0 || self.period_ns == 0 {
            return (new, Counts::default());
        }
        // What was promised for later stays ahead of everybody who comes now.
        let newest =
            now.as_nanos().max(counts.window.saturating_mul(self.period_ns).saturating_sub(self.phase_ns));
        let window = new.window_at(Tick::from_nanos(newest));
        // Something was promised for later because there was no room, whether it was cancelled since or not.
        let full = if counts.window > self.window_at(now) { self.count } else { 0 };
        (new, Counts { window, current: self.used(counts, now).max(full), previous: 0 })
    }

    /// Windows of the same length go on as they are, and so do claims on them.
    fn carried(&self, claim: Claim, _: &Counts, _: Tick, new: &Self, _: &Counts) -> Option<Claim> {
        (new.period_ns == self.period_ns).then_some(claim)
    }

    fn is_idle(&self, counts: &Counts, now: Tick) -> bool {
        self.period_ns == 0 || self.facts(counts, now).reset_ns == 0
    }

    fn write_state(&self, counts: &Counts, words: &mut Vec<u64>) {
        words.extend([counts.window, counts.current, counts.previous]);
    }

    fn read_state(&self, words: &[u64]) -> Option<Counts> {
        match *words {
            [] => Some(Counts::default()),
            // A window that begins after the end of time was never seen.
            [window, current, previous] if window.checked_mul(self.period_ns).is_some() => {
                Some(Counts { window, current, previous })
            }
            _ => None,
        }
    }
}
