//! What a pool goes by, whatever its jobs are.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tollgate::ConcurrencyLimit;

use super::metrics::Metering;
use super::observer::Observer;
use super::policy::Policy;
use super::toll::Toll;
use crate::Scope;

/// What a pool goes by.
#[derive(Clone)]
pub(super) struct Rules {
    pub(super) limit: ConcurrencyLimit,
    pub(super) toll: Option<Arc<dyn Toll>>,
    pub(super) retry: Option<Arc<dyn Policy>>,
    pub(super) attempt_timeout: Option<Duration>,
    pub(super) job_timeout: Option<Duration>,
    pub(super) observers: Vec<Arc<dyn Observer>>,
    pub(super) metering: Metering,
    pub(super) queued: usize,
    pub(super) unread: usize,
}

impl Rules {
    /// What a job's attempts belong to, if anything: they end with it.
    pub(super) fn scope(&self) -> Option<&Scope> {
        self.retry.as_ref().and_then(|policy| policy.scope())
    }

    /// Whether more are running than may, because the limit was lowered.
    pub(super) fn is_above_limit(&self) -> bool {
        self.limit.in_use() > self.limit.limit()
    }

    /// In order of input, how many jobs may have been taken from the source ahead of the outcome to be read next.
    pub(super) fn window(&self) -> usize {
        let running = usize::try_from(self.limit.limit()).unwrap_or(usize::MAX);
        self.queued.saturating_add(self.unread.max(running))
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules")
            .field("limit", &self.limit)
            .field("has_gate", &self.toll.is_some())
            .field("has_retry", &self.retry.is_some())
            .field("attempt_timeout", &self.attempt_timeout)
            .field("job_timeout", &self.job_timeout)
            .field("observers", &self.observers.len())
            .field("queued", &self.queued)
            .field("unread", &self.unread)
            .finish_non_exhaustive()
    }
}
