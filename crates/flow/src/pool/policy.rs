//! When to try again, whoever judges that and hears of it.

use std::time::Duration;

use crate::{Fault, Judge, Notify, Retry, Waits};

/// A [`Retry`] for faults.
pub(super) trait Policy: Send + Sync {
    /// A job is tried for the first time.
    fn begin(&self);

    /// The waits of a job that failed.
    fn waits(&self) -> Waits;

    /// How long to wait after an attempt that failed, if there is to be another. Pays for it.
    fn next(&self, number: u32, elapsed: Duration, fault: &Fault, waits: &mut Waits) -> Option<Duration>;
}

impl<J, N> Policy for Retry<J, N>
where
    J: Judge<Fault> + Send + Sync,
    N: Notify<Fault> + Send + Sync,
{
    fn begin(&self) {
        self.deposit();
    }

    fn waits(&self) -> Waits {
        self.waits()
    }

    fn next(&self, number: u32, elapsed: Duration, fault: &Fault, waits: &mut Waits) -> Option<Duration> {
        self.failed(number, elapsed, fault, waits).ok()
    }
}
