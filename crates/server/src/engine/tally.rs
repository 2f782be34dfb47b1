//! What is counted of every limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What became of a call, as a limit saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was allowed.
    Allowed,
    /// This limit denied it.
    Denied,
    /// It was allowed, and this limit, which is in shadow mode, would have denied it.
    ShadowDenied,
    /// The store was unavailable, and the limit has `on_store_failure = "allow"`.
    ErrorOpen,
    /// The store was unavailable, and the limit has `on_store_failure = "deny"`.
    ErrorClosed,
    /// The store was unavailable, and this process allowed it by its local counters.
    ErrorLocalAllowed,
    /// The store was unavailable, and this process denied it by its local counters.
    ErrorLocalDenied,
}

impl Outcome {
    /// All there are.
    pub const ALL: [Self; 7] = [
        Self::Allowed,
        Self::Denied,
        Self::ShadowDenied,
        Self::ErrorOpen,
        Self::ErrorClosed,
        Self::ErrorLocalAllowed,
        Self::ErrorLocalDenied,
    ];

    /// Returns the label in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::ShadowDenied => "shadow_denied",
            Self::ErrorOpen => "error_allowed",
            Self::ErrorClosed => "error_denied",
            Self::ErrorLocalAllowed => "error_local_allowed",
            Self::ErrorLocalDenied => "error_local_denied",
        }
    }
}

/// What became of a call as a whole, whatever the number of limits that it met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallOutcome {
    /// It was allowed.
    Allowed,
    /// It was denied.
    Denied,
    /// It was allowed, and something of that was decided without the store.
    ErrorAllowed,
    /// It was denied, and something of that was decided without the store.
    ErrorDenied,
}

impl CallOutcome {
    /// All there are.
    pub const ALL: [Self; 4] = [Self::Allowed, Self::Denied, Self::ErrorAllowed, Self::ErrorDenied];

    /// The label in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::ErrorAllowed => "error_allowed",
            Self::ErrorDenied => "error_denied",
        }
    }

    pub(super) const fn of(is_allowed: bool, is_degraded: bool) -> Self {
        match (is_allowed, is_degraded) {
            (true, false) => Self::Allowed,
            (false, false) => Self::Denied,
            (true, true) => Self::ErrorAllowed,
            (false, true) => Self::ErrorDenied,
        }
    }
}

/// Counts calls by outcome. Looking, charging and giving back are no calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallCounts([u64; CallOutcome::ALL.len()]);

impl CallCounts {
    #[inline]
    pub(super) fn note(&mut self, outcome: CallOutcome) {
        self.0[outcome as usize] += 1;
    }

    /// How many there were of each outcome.
    pub fn each(self) -> impl Iterator<Item = (CallOutcome, u64)> {
        CallOutcome::ALL.into_iter().zip(self.0)
    }
}

/// What was counted of one limit.
#[derive(Debug, Default)]
pub struct Tally {
    calls: [AtomicU64; Outcome::ALL.len()],
    hits: [AtomicU64; Outcome::ALL.len()],
    near: AtomicU64,
    bad_values: AtomicU64,
}

/// What was counted of a limit, with its name.
#[derive(Clone, Debug)]
pub struct Tallied {
    /// Its domain.
    pub domain: Arc<str>,
    /// Its name in it.
    pub name: Arc<str>,
    /// What was counted.
    pub tally: Arc<Tally>,
}

impl Tally {
    #[inline]
    pub(super) fn count(&self, outcome: Outcome, cost: u64, is_near: bool) {
        self.calls[outcome as usize].fetch_add(1, Ordering::Relaxed);
        add(&self.hits[outcome as usize], cost);
        if is_near {
            self.near.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn count_bad_value(&self) {
        self.bad_values.fetch_add(1, Ordering::Relaxed);
    }

    /// How many calls had a value that the limit could not use.
    pub fn bad_values(&self) -> u64 {
        self.bad_values.load(Ordering::Relaxed)
    }

    /// How many calls ended so.
    pub fn calls(&self, outcome: Outcome) -> u64 {
        self.calls[outcome as usize].load(Ordering::Relaxed)
    }

    /// What they cost together.
    pub fn hits(&self, outcome: Outcome) -> u64 {
        self.hits[outcome as usize].load(Ordering::Relaxed)
    }

    /// How many calls were allowed that left less than a fifth.
    pub fn near(&self) -> u64 {
        self.near.load(Ordering::Relaxed)
    }
}

/// Adds hits to a counter. Callers name any cost, and a count that falls looks like a restart, so it stays at its maximum.
#[inline]
pub(super) fn add(counter: &AtomicU64, hits: u64) {
    if counter.fetch_add(hits, Ordering::Relaxed).checked_add(hits).is_none() {
        counter.store(u64::MAX, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_calls_cost_is_counted_to_the_end_and_never_falls() {
        let tally = Tally::default();
        for (cost, together) in [(7, 7), (u64::MAX - 7, u64::MAX), (5, u64::MAX), (u64::MAX, u64::MAX)] {
            tally.count(Outcome::Denied, cost, false);
            assert_eq!(tally.hits(Outcome::Denied), together);
        }
        assert_eq!((tally.calls(Outcome::Denied), tally.hits(Outcome::Allowed)), (4, 0));
    }
}
