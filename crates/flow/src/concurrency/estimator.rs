//! What estimates a limit.

use std::fmt;
use std::time::Duration;

/// Estimates how many calls there may be at once.
///
/// An estimator is pure: the same samples give the same limits. It reads no clock, and draws random numbers only from what
/// it was given.
pub trait Estimator: fmt::Debug + Send {
    /// Learns how things went lately.
    fn learn(&mut self, sample: Sample);

    /// How many there may be at once, by what was learnt so far. Never zero: with nothing sent, nothing would be learnt.
    fn limit(&self) -> u64;
}

/// How calls went: one of them, or all in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// How long a call took; in a window, on average. Without meaning if all were dropped.
    pub rtt: Duration,
    /// How many were under way; in a window, at most.
    pub in_flight: u64,
    /// Whether one was dropped: timed out, refused, or turned away for lack of capacity.
    pub dropped: bool,
}

#[cfg(test)]
pub(super) fn sample(rtt_ms: u64, in_flight: u64, dropped: bool) -> Sample {
    Sample { rtt: Duration::from_millis(rtt_ms), in_flight, dropped }
}

/// The same limit always.
///
/// # Examples
/// ```
/// use tollgate_flow::concurrency::Fixed;
/// use tollgate_flow::Estimator;
///
/// assert_eq!(Fixed::new(10).limit(), 10);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Fixed {
    limit: u64,
}

impl Fixed {
    /// At most `limit` at once; zero counts as one.
    pub const fn new(limit: u64) -> Self {
        Self { limit: if limit == 0 { 1 } else { limit } }
    }
}

impl Estimator for Fixed {
    fn learn(&mut self, _: Sample) {}

    fn limit(&self) -> u64 {
        self.limit
    }
}
