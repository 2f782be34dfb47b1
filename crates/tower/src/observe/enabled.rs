//! Metrics, by the `metrics` facade and whatever recorder is installed.

use std::sync::Arc;

use metrics::SharedString;

use super::Outcome;

/// `tollgate_decisions_total`, by domain, rule and outcome.
pub(super) fn add_one(domain: &Arc<str>, rule: &Arc<str>, outcome: Outcome) {
    let (domain, rule) = (SharedString::from(Arc::clone(domain)), SharedString::from(Arc::clone(rule)));
    metrics::counter!("tollgate_decisions_total", "domain" => domain, "rule" => rule, "outcome" => outcome.name())
        .increment(1);
}
