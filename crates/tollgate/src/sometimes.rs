//! Doing something now and then.

use std::fmt;
use std::time::Duration;

use tollgate_core::Tick;

use crate::clock::{Clock, DefaultClock};
use crate::sync::{Mutex, lock};

/// Runs a closure the first few times, every so many times, or once an interval: for log lines in a busy loop.
///
/// The first call always runs. Conditions add up: whichever holds is enough.
///
/// # Examples
/// ```
/// use tollgate::Sometimes;
///
/// let sometimes = Sometimes::new().first(2).every(5);
/// let ran: Vec<u32> = (0..12).filter(|_| sometimes.run(|| ()).is_some()).collect();
/// assert_eq!(ran, [0, 1, 5, 10]);
/// ```
pub struct Sometimes<C: Clock = DefaultClock> {
    clock: C,
    first: u64,
    every: u64,
    interval: Option<Duration>,
    past: Mutex<Past>,
}

#[derive(Debug, Default)]
struct Past {
    calls: u64,
    last_run: Option<Tick>,
}

impl Sometimes {
    /// Runs once, until told otherwise.
    pub fn new() -> Self {
        Self::with_clock(DefaultClock::new())
    }
}

impl Default for Sometimes {
    fn default() -> Self {
        Self::new()
    }
}

impl<C: Clock> Sometimes<C> {
    /// Runs once, until told otherwise, by `clock`.
    pub fn with_clock(clock: C) -> Self {
        Self { clock, first: 1, every: 0, interval: None, past: Mutex::new(Past::default()) }
    }

    /// Runs the first `n` times.
    #[must_use]
    pub fn first(self, n: u64) -> Self {
        Self { first: n.max(1), ..self }
    }

    /// Runs every `n`th time, counting from the first.
    #[must_use]
    pub fn every(self, n: u64) -> Self {
        Self { every: n, ..self }
    }

    /// Runs whenever `interval` has passed since it last ran.
    #[must_use]
    pub fn interval(self, interval: Duration) -> Self {
        Self { interval: Some(interval), ..self }
    }

    /// Runs `job` if it is time to; what it returned if it ran. Others do not wait for it.
    pub fn run<R>(&self, job: impl FnOnce() -> R) -> Option<R> {
        self.is_time().then(job)
    }

    fn is_time(&self) -> bool {
        // Without an interval the clock is never read.
        let now = self.interval.map(|interval| (interval, self.clock.now()));
        let mut past = lock(&self.past);
        let nth = past.calls;
        past.calls += 1;
        let interval_passed =
            now.is_some_and(|(interval, now)| past.last_run.is_none_or(|last| now.since(last) >= interval));
        let is_time =
            nth < self.first || (self.every > 0 && nth.is_multiple_of(self.every)) || interval_passed;
        if is_time {
            past.last_run = now.map(|(_, now)| now);
        }
        is_time
    }
}

impl<C: Clock> fmt::Debug for Sometimes<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, every, interval, .. } = self;
        write!(f, "Sometimes {{ first: {first}, every: {every}, interval: {interval:?} }}")
    }
}
