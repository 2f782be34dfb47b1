//! Telling whoever watches, without ever telling a key.

#[cfg(not(feature = "metrics"))]
mod disabled;
#[cfg(feature = "metrics")]
mod enabled;

use std::sync::Arc;
use std::time::Duration;

#[cfg(not(feature = "metrics"))]
pub(crate) use disabled::Watch;
#[cfg(not(feature = "metrics"))]
use disabled::{add_near, add_one};
#[cfg(feature = "metrics")]
pub(crate) use enabled::Watch;
#[cfg(feature = "metrics")]
use enabled::{add_near, add_one};
use tollgate::store::StoreError;
use tollgate::{Decision, Sometimes};

/// What became of a call, as one of its limits sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Allowed,
    Denied,
    /// A shadow limit would have denied it.
    ShadowDenied,
    /// The store could not tell, so it passed.
    ErrorOpen,
    /// The store could not tell, so it was refused.
    ErrorClosed,
    /// The store could not tell, so this process decided.
    ErrorLocal,
}

impl Outcome {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::ShadowDenied => "shadow_denied",
            Self::ErrorOpen => "error_allowed",
            Self::ErrorClosed => "error_denied",
            Self::ErrorLocal => "error_local",
        }
    }
}

/// A limit is near when less than this part of it is left.
const NEAR: u64 = 5;

#[derive(Debug)]
pub(crate) struct Observer {
    domain: Arc<str>,
    /// Limits the log to one line a second while the store is unavailable.
    failures: Sometimes,
}

impl Observer {
    pub(crate) fn new(domain: Arc<str>) -> Self {
        Self { domain, failures: Sometimes::new().interval(Duration::from_secs(1)) }
    }

    /// Counts and logs the outcome of one limit for a request.
    #[inline]
    pub(crate) fn count(&self, limit: &Arc<str>, outcome: Outcome) {
        let (domain, name) = (&*self.domain, &**limit);
        match outcome {
            Outcome::Denied => tracing::debug!(domain, limit = name, "limit denied a request"),
            Outcome::ShadowDenied => {
                tracing::info!(domain, limit = name, "shadow limit would have denied a request");
            }
            _ => {}
        }
        add_one(&self.domain, limit, outcome);
    }

    /// Counts an admission that leaves less than a fifth of the limit.
    #[inline]
    pub(crate) fn count_near<'a>(&self, limit: &Arc<str>, said: impl IntoIterator<Item = &'a Decision>) {
        let is_near = |said: &Decision| said.remaining().saturating_mul(NEAR) < said.limit();
        if said.into_iter().any(is_near) {
            add_near(&self.domain, limit);
        }
    }

    /// How long a decision took.
    #[inline]
    pub(crate) fn decided(&self, watch: &Watch) {
        watch.stop(&self.domain);
    }

    pub(crate) fn store_failed(&self, error: &StoreError, outcome: Outcome) {
        self.failures.run(|| {
            let (domain, outcome) = (&*self.domain, outcome.name());
            tracing::warn!(domain, outcome, %error, "store unavailable");
        });
    }

    pub(crate) fn could_not_settle(&self, error: &StoreError) {
        self.failures.run(|| {
            let domain = &*self.domain;
            tracing::warn!(domain, %error, "cannot settle the actual cost");
        });
    }
}
