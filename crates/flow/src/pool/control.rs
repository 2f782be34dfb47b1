//! Steering a pool while it runs.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tollgate::{ConcurrencyLimit, Tick};

use super::stats::Stats;

/// Steers a run from anywhere, and tells how it is doing; made by [`Outcomes::control`](super::Outcomes::control). Clones
/// steer the same run. One that outlives its run does nothing.
///
/// Whatever is told is done when the [`Outcomes`](super::Outcomes) are next polled: whoever awaits them is woken for it.
///
/// The concurrency is changed by [`limit`](Self::limit), the rate by the caller's own clone of what it gave to
/// [`Pool::gate`](super::Pool::gate), such as with [`Limiter::set_quota`](tollgate::Limiter::set_quota).
#[derive(Clone)]
pub struct Control {
    run: Arc<dyn Steered>,
}

/// How far a run is to go. What comes later goes less far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Course {
    /// Until the source ends.
    Run,
    /// Until what was taken is finished.
    Drain,
    /// No further.
    Stop,
    /// Nowhere: nobody is left to read what comes.
    Abandon,
}

/// A run, whatever its jobs are.
pub(super) trait Steered: Send + Sync {
    fn pause(&self, is_paused: bool);
    fn hold_until(&self, moment: Tick);
    fn set_course(&self, course: Course);
    fn now(&self) -> Tick;
    fn limit(&self) -> &ConcurrencyLimit;
    fn stats(&self) -> Stats;
}

impl Control {
    pub(super) fn new(run: Arc<dyn Steered>) -> Self {
        Self { run }
    }

    /// Starts nothing, neither jobs nor their next attempts, and takes nothing from the source, until it is told to
    /// [`resume`](Self::resume). Attempts that are under way go on.
    pub fn pause(&self) {
        self.run.pause(true);
    }

    /// Goes on after a [`pause`](Self::pause). A [`hold`](Self::hold) still holds.
    pub fn resume(&self) {
        self.run.pause(false);
    }

    /// Starts nothing for `span` from now. Of several holds the longest counts.
    pub fn hold(&self, span: Duration) {
        self.run.hold_until(self.run.now() + span);
    }

    /// [`hold`](Self::hold) until a moment, by the pool's [`Time`](crate::Time).
    pub fn hold_until(&self, moment: Tick) {
        self.run.hold_until(moment);
    }

    /// Takes nothing more from the source; what was taken is finished, with retries and all, and then the outcomes end. This
    /// also ends a pause.
    pub fn drain(&self) {
        self.run.set_course(Course::Drain);
    }

    /// Ends the run at once. What is running is cancelled; [`Outcomes::stop`](super::Outcomes::stop) hands it back, and with
    /// it what was not started.
    pub fn stop(&self) {
        self.run.set_course(Course::Stop);
    }

    /// How many jobs there may be at once; to be changed by [`set_limit`](ConcurrencyLimit::set_limit). After it was lowered,
    /// what is running goes on.
    pub fn limit(&self) -> &ConcurrencyLimit {
        self.run.limit()
    }

    /// How it is doing.
    pub fn stats(&self) -> Stats {
        self.run.stats()
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
