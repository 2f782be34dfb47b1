//! Nobody collects anything.

use std::time::Duration;

use tollgate::ConcurrencyLimit;

use crate::Fault;

#[derive(Clone, Debug, Default)]
pub(in super::super) struct Metering {}

impl Metering {
    #[allow(clippy::unused_self, reason = "the other half uses it")]
    pub(in super::super) fn gauges(&self) -> Gauges {
        Gauges
    }

    #[allow(clippy::unused_self, reason = "the other half uses it")]
    pub(in super::super) fn tell_limits(&self, _: &ConcurrencyLimit) {}
}

#[derive(Debug)]
pub(in super::super) struct Gauges;

#[allow(clippy::unused_self, reason = "the other half uses it")]
impl Gauges {
    pub(in super::super) fn tell(&mut self, _in_flight: usize, _queued: usize) {}

    pub(in super::super) fn started(&self, _waited: Duration) {}

    pub(in super::super) fn ended(&self, _has_value: bool) {}

    pub(in super::super) fn retried(&self, _fault: &Fault) {}
}
