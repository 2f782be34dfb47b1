//! The sliding window log.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::decision::Facts;
use crate::{Algorithm, Ask, Claim, GiveBack, Quota, Step, Tick};

/// The sliding window log: remembers when everything was admitted, and is therefore exact.
///
/// **Guarantee**: at most `count` in every span shorter than or equal to the period, wherever it starts (a call exactly
/// one period ago no longer counts). The quota's burst is not used.
///
/// **Formula**:
/// ```text
/// admit iff cost + sum of what was admitted in (now - period, now] <= count
/// ```
///
/// **Weakness**: memory. It keeps up to `count` entries of 16 bytes for every key (calls at the same instant share one),
/// and allocates while it grows. [`SubWindows`](crate::SubWindows) keeps the guarantee in constant memory and gives a
/// little less than the limit.
///
/// # Examples
/// ```
/// use core::time::Duration;
/// use tollgate_core::{Algorithm, Ask, Quota, SlidingLog, Tick};
///
/// let log = SlidingLog::new(Quota::per_second(2));
/// let mut state = Default::default();
/// let mut at = |ms| log.step(&mut state, Tick::ZERO + Duration::from_millis(ms), Ask::now(1));
/// assert!(at(0).is_allowed() && at(900).is_allowed());
/// assert_eq!(at(999).retry_after(), Some(Duration::from_millis(1)));
/// assert!(at(1_000).is_allowed()); // the first has left the window
/// assert_eq!(at(1_000).retry_after(), Some(Duration::from_millis(900)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlidingLog {
    count: u64,
    /// Zero means unlimited.
    period_ns: u64,
}

/// The admissions a [`SlidingLog`] remembers, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    entries: VecDeque<Entry>,
    /// The cost of all entries, which may together exceed what one window holds.
    total: u128,
    /// By when those that are no longer here had left. For a clock that is behind they may still count, so it waits until then.
    forgotten_ns: u64,
}

impl Log {
    /// The earliest moment that can be told something about.
    fn newest_ns(&self) -> u64 {
        self.entries.back().map_or(0, |entry| entry.at_ns).max(self.forgotten_ns)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    at_ns: u64,
    cost: u64,
}

/// What changes in a [`Log`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogChange {
    /// Something was admitted at `at`; what had left the window by `now` may be forgotten.
    Add {
        /// When it acts.
        at: Tick,
        /// What it cost.
        cost: u64,
        /// When it was decided.
        now: Tick,
    },
    /// Something admitted at `at` was given back.
    Remove {
        /// When it would have acted.
        at: Tick,
        /// How much comes back.
        amount: u64,
    },
    /// Something was given back of which nobody knows when it was admitted: the oldest that counts at `now` goes first.
    RemoveOldest {
        /// How much comes back.
        amount: u64,
        /// When it was given back.
        now: Tick,
    },
}

impl SlidingLog {
    /// The most entries that a store keeps for a key, and so the highest count that it accepts for a log. Of a log with a higher
    /// count, outside of stores, the most is that count. What is [charged](Algorithm::charge) beyond it is remembered as one with the
    /// newest entry.
    pub const MAX_ENTRIES: u64 = 10_000;

    /// A log for `quota`.
    pub const fn new(quota: Quota) -> Self {
        Self { count: quota.count(), period_ns: quota.period_nanos() }
    }

    fn has_left(&self, entry: Entry, now_ns: u64) -> bool {
        now_ns.saturating_sub(entry.at_ns) >= self.period_ns
    }

    /// Drops what has left the window. Only what has left by `now`: a promise for later may still be taken back.
    fn forget(&self, log: &mut Log, now: Tick) {
        while let Some(oldest) = log.entries.front().filter(|oldest| self.has_left(**oldest, now.as_nanos()))
        {
            log.total -= u128::from(oldest.cost);
            log.entries.pop_front();
            log.forgotten_ns = log.forgotten_ns.max(now.as_nanos());
        }
    }

    fn in_window(&self, log: &Log, now: Tick) -> u64 {
        let left = log.entries.iter().take_while(|entry| self.has_left(**entry, now.as_nanos()));
        let inside = log.total - left.map(|entry| u128::from(entry.cost)).sum::<u128>();
        u64::try_from(inside).unwrap_or(u64::MAX)
    }

    /// The first moment that has room for `cost`, not before what was promised already.
    fn opening(&self, log: &Log, now: Tick, cost: u64) -> Option<Tick> {
        let mut at = now.as_nanos().max(log.newest_ns());
        let mut used = log.total;
        for entry in &log.entries {
            let fits = used + u128::from(cost) <= u128::from(self.count);
            if fits && !self.has_left(*entry, at) {
                break;
            }
            at = at.max(entry.at_ns.checked_add(self.period_ns)?);
            used -= u128::from(entry.cost);
        }
        Some(Tick::from_nanos(at))
    }

    fn facts(&self, log: &Log, now: Tick) -> Facts {
        let is_behind = now.as_nanos() < log.newest_ns();
        let remaining = if is_behind { 0 } else { self.count.saturating_sub(self.in_window(log, now)) };
        let left_ns = log.entries.back().map_or(0, |newest| newest.at_ns.saturating_add(self.period_ns));
        let reset_ns = left_ns.max(log.forgotten_ns).saturating_sub(now.as_nanos());
        Facts { remaining, reset_ns }
    }
}

impl Algorithm for SlidingLog {
    type State = Log;
    type Change = LogChange;

    fn decide(&self, log: &Log, now: Tick, ask: Ask) -> Step<LogChange> {
        if self.period_ns == 0 {
            return Step::UNLIMITED;
        }
        let before = self.facts(log, now);
        if ask.cost > self.count {
            return Step::never(self.count, before.remaining, before.reset_ns);
        }
        if ask.cost == 0 {
            return Step::nothing(self.count, before);
        }
        let Some(at) = self.opening(log, now, ask.cost) else {
            return Step::never(self.count, before.remaining, before.reset_ns);
        };
        let after = || {
            let reset_ns = at.as_nanos().saturating_add(self.period_ns) - now.as_nanos();
            let remaining = if at > now { 0 } else { before.remaining.saturating_sub(ask.cost) };
            let facts = Facts { remaining, reset_ns };
            (LogChange::Add { at, cost: ask.cost, now }, facts)
        };
        Step::at(at, now, ask, self.count, after, before)
    }

    fn apply(&self, log: &mut Log, change: LogChange) {
        match change {
            LogChange::Add { at, cost, now } => {
                self.forget(log, now);
                let is_full = log.entries.len() as u64 >= self.count.max(Self::MAX_ENTRIES);
                let mut added = cost;
                match log.entries.back_mut() {
                    Some(newest) if newest.at_ns == at.as_nanos() || is_full => {
                        added = cost.min(u64::MAX - newest.cost);
                        *newest = Entry { at_ns: at.as_nanos(), cost: newest.cost + added };
                    }
                    _ => log.entries.push_back(Entry { at_ns: at.as_nanos(), cost }),
                }
                log.total += u128::from(added);
            }
            LogChange::Remove { at, amount } => {
                if let Ok(index) = log.entries.binary_search_by_key(&at.as_nanos(), |entry| entry.at_ns) {
                    let amount = amount.min(log.entries[index].cost);
                    log.total -= u128::from(amount);
                    log.entries[index].cost -= amount;
                    if log.entries[index].cost == 0 {
                        log.entries.remove(index);
                    }
                }
            }
            LogChange::RemoveOldest { mut amount, now } => {
                self.forget(log, now);
                while let Some(oldest) = log.entries.front_mut().filter(|_| amount > 0) {
                    let part = amount.min(oldest.cost);
                    (amount, oldest.cost) = (amount - part, oldest.cost - part);
                    log.total -= u128::from(part);
                    if oldest.cost == 0 {
                        log.entries.pop_front();
                    }
                }
            }
        }
    }

    fn claim(&self, change: &LogChange, cost: u64, act: Tick) -> Claim {
        let at = match change {
            LogChange::Add { at, .. } | LogChange::Remove { at, .. } => *at,
            LogChange::RemoveOldest { now, .. } => *now,
        };
        // Kept as the mark because a clock that stepped back may put the entry later than the caller's own moment.
        Claim { cost, act, mark: at.as_nanos() }
    }

    fn give_back(&self, log: &Log, back: GiveBack, now: Tick) -> Option<LogChange> {
        let at = Tick::from_nanos(back.claim.mark);
        let index = log.entries.binary_search_by_key(&back.claim.mark, |entry| entry.at_ns).ok()?;
        let amount = back.amount.min(back.claim.cost);
        (amount > 0 && !self.has_left(log.entries[index], now.as_nanos()))
            .then_some(LogChange::Remove { at, amount })
    }

    fn refund(&self, log: &Log, amount: u64, now: Tick) -> Option<LogChange> {
        let counts = self.in_window(log, now) > 0 && self.period_ns > 0;
        (counts && amount > 0).then_some(LogChange::RemoveOldest { amount, now })
    }

    fn charge(&self, log: &Log, extra: u64, now: Tick) -> Option<LogChange> {
        let newest = now.max(Tick::from_nanos(log.newest_ns()));
        let extra = extra.min(u64::MAX - log.entries.back().map_or(0, |entry| entry.cost));
        (extra > 0 && self.period_ns > 0).then_some(LogChange::Add { at: newest, cost: extra, now })
    }

    /// The log stays as it is. If the period grows, what had left the shorter window is already forgotten.
    fn retune(&self, log: &Log, now: Tick, quota: Quota) -> (Self, Log) {
        let mut log = log.clone();
        self.forget(&mut log, now); // or it would count again in a longer window
        (Self::new(quota), log)
    }

    /// Entries keep their times.
    fn carried(&self, claim: Claim, _: &Log, _: Tick, _: &Self, _: &Log) -> Option<Claim> {
        Some(claim)
    }

    fn is_idle(&self, log: &Log, now: Tick) -> bool {
        self.period_ns == 0 || self.facts(log, now).reset_ns == 0
    }

    /// Two words an entry; before them by when others were forgotten, if any were.
    fn write_state(&self, log: &Log, words: &mut Vec<u64>) {
        words.extend((log.forgotten_ns > 0).then_some(log.forgotten_ns));
        words.extend(log.entries.iter().flat_map(|entry| [entry.at_ns, entry.cost]));
    }

    fn read_state(&self, words: &[u64]) -> Option<Log> {
        let (forgotten, pairs) = words.as_rchunks();
        let forgotten_ns = match forgotten {
            [0] => return None, // which is not written
            _ => forgotten.first().copied().unwrap_or(0),
        };
        let entries: VecDeque<Entry> = pairs.iter().map(|&[at_ns, cost]| Entry { at_ns, cost }).collect();
        let is_in_order = pairs.windows(2).all(|pair| pair[0][0] < pair[1][0]);
        let total = entries.iter().map(|entry| u128::from(entry.cost)).sum();
        (is_in_order && entries.iter().all(|entry| entry.cost > 0)).then_some(Log {
            entries,
            total,
            forgotten_ns,
        })
    }
}
