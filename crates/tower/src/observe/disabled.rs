//! No metrics.

use std::sync::Arc;

use super::Outcome;

pub(super) fn add_one(_domain: &Arc<str>, _limit: &Arc<str>, _outcome: Outcome) {}

pub(super) fn add_near(_domain: &Arc<str>, _limit: &Arc<str>) {}

/// Reads no clock.
#[derive(Debug, Default)]
pub(crate) struct Watch;

impl Watch {
    #[inline]
    pub(crate) fn start() -> Self {
        Self
    }

    #[allow(clippy::unused_self, reason = "the other one needs it")]
    pub(super) fn stop(&self, _domain: &Arc<str>) {}
}
