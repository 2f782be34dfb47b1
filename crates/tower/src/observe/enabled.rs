//! Metrics, by the `metrics` facade and whatever recorder is installed.

use std::sync::{Arc, LazyLock};

use metrics::SharedString;
use tollgate::{Clock, DefaultClock, Tick};

use super::Outcome;

/// `tollgate_decisions_total`, by domain, limit and outcome.
pub(super) fn add_one(domain: &Arc<str>, limit: &Arc<str>, outcome: Outcome) {
    metrics::counter!(
        "tollgate_decisions_total", "domain" => shared(domain), "limit" => shared(limit), "outcome" => outcome.name()
    )
    .increment(1);
}

/// `tollgate_near_limit_total`, by domain and limit.
pub(super) fn add_near(domain: &Arc<str>, limit: &Arc<str>) {
    metrics::counter!("tollgate_near_limit_total", "domain" => shared(domain), "limit" => shared(limit))
        .increment(1);
}

fn shared(text: &Arc<str>) -> SharedString {
    SharedString::from(Arc::clone(text))
}

static CLOCK: LazyLock<DefaultClock> = LazyLock::new(DefaultClock::new);

/// Runs from when it was made.
#[derive(Debug)]
pub(crate) struct Watch(Tick);

impl Default for Watch {
    fn default() -> Self {
        Self::start()
    }
}

impl Watch {
    #[inline]
    pub(crate) fn start() -> Self {
        Self(CLOCK.now())
    }

    /// `tollgate_decision_duration_seconds`, by domain and protocol.
    pub(super) fn stop(&self, domain: &Arc<str>) {
        let took = CLOCK.now().since(self.0);
        metrics::histogram!("tollgate_decision_duration_seconds", "domain" => shared(domain), "protocol" => "http")
            .record(took);
    }
}
