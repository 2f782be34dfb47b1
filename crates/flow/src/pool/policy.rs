//! When to try again, whoever judges that and hears of it.

use std::time::Duration;

use crate::retry::{Judge, Notify, Schedule};
use crate::{Fault, Retry, Scope};

/// A [`Retry`] for faults.
pub(super) trait Policy: Send + Sync {
    /// A job is tried for the first time.
    fn begin(&self);

    /// What the tries belong to.
    fn scope(&self) -> Option<&Scope>;

    /// The schedule of a job that failed.
    fn schedule(&self) -> Schedule;

    /// How long to wait after an attempt that failed, if there is to be another. Pays for it.
    fn next(
        &self,
        number: u32,
        elapsed: Duration,
        fault: &Fault,
        schedule: &mut Schedule,
    ) -> Option<Duration>;
}

impl<J, N> Policy for Retry<J, N>
where
    J: Judge<Fault> + Send + Sync,
    N: Notify<Fault> + Send + Sync,
{
    fn begin(&self) {
        self.deposit();
    }

    fn scope(&self) -> Option<&Scope> {
        self.scope()
    }

    fn schedule(&self) -> Schedule {
        self.schedule()
    }

    fn next(
        &self,
        number: u32,
        elapsed: Duration,
        fault: &Fault,
        schedule: &mut Schedule,
    ) -> Option<Duration> {
        self.failed(number, elapsed, fault, schedule).ok()
    }
}
