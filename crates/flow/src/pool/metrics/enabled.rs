//! Metrics, by the `metrics` facade.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, SharedString};
use tollgate::ConcurrencyLimit;

use crate::fault::Panicked;
use crate::pool::Pool;
use crate::{Again, Elapsed, Fault};

/// Metrics of a pool, by the `metrics` facade and whatever recorder is installed when it runs.
impl<J> Pool<J> {
    /// Records what the pool does, each with the label `pool`:
    ///
    /// | metric | kind | what |
    /// | --- | --- | --- |
    /// | `tollgate_pool_in_flight` | gauge | jobs started and not finished |
    /// | `tollgate_pool_queued` | gauge | jobs taken and not started |
    /// | `tollgate_pool_wait_seconds` | histogram | from the source to the first attempt |
    /// | `tollgate_pool_outcomes_total` | counter | outcomes, by the label `result`: `value`, `fault`; its rate is the pool's |
    /// | `tollgate_pool_retries_total` | counter | attempts after the first, by the label `reason`: `pushback`, `timeout`, `panic`, `fault` |
    /// | `tollgate_pool_concurrency_limit_current` | gauge | how many there may be at once |
    /// | `tollgate_pool_rate_limit_current` | gauge | see [`rate_metric`](Self::rate_metric) |
    ///
    /// Several runs under one name add up.
    #[must_use]
    pub fn metrics(mut self, name: impl Into<String>) -> Self {
        self.rules.metering.name = Some(SharedString::from(name.into()));
        self
    }

    /// Says what `tollgate_pool_rate_limit_current` is, per second; such as what a [`Feedback`](crate::Feedback) found.
    #[must_use]
    pub fn rate_metric(mut self, rate: impl Fn() -> f64 + Send + Sync + 'static) -> Self {
        self.rules.metering.rate = Some(Arc::new(rate));
        self
    }
}

/// What is recorded, if anything.
#[derive(Clone, Default)]
pub(in super::super) struct Metering {
    name: Option<SharedString>,
    rate: Option<Arc<dyn Fn() -> f64 + Send + Sync>>,
}

impl Metering {
    /// For one run.
    pub(in super::super) fn gauges(&self) -> Gauges {
        Gauges { handles: self.name.clone().map(Handles::new), in_flight: 0, queued: 0 }
    }

    #[allow(clippy::cast_precision_loss, reason = "a limit has 30 bits")]
    pub(in super::super) fn tell_limits(&self, limit: &ConcurrencyLimit) {
        let Some(name) = &self.name else { return };
        let gauge = metrics::gauge!("tollgate_pool_concurrency_limit_current", "pool" => name.clone());
        gauge.set(limit.limit() as f64);
        if let Some(rate) = &self.rate {
            metrics::gauge!("tollgate_pool_rate_limit_current", "pool" => name.clone()).set(rate());
        }
    }
}

impl fmt::Debug for Metering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metering").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The metrics of one run. What it was told last it takes back when it ends.
pub(in super::super) struct Gauges {
    handles: Option<Handles>,
    in_flight: usize,
    queued: usize,
}

impl Gauges {
    /// How many there are now.
    pub(in super::super) fn tell(&mut self, in_flight: usize, queued: usize) {
        if let Some(handles) = &self.handles {
            change(&handles.in_flight, self.in_flight, in_flight);
            change(&handles.queued, self.queued, queued);
            (self.in_flight, self.queued) = (in_flight, queued);
        }
    }

    pub(in super::super) fn started(&self, waited: Duration) {
        if let Some(handles) = &self.handles {
            handles.waits.record(waited);
        }
    }

    pub(in super::super) fn ended(&self, has_value: bool) {
        if let Some(handles) = &self.handles {
            let outcomes = if has_value { &handles.values } else { &handles.faults };
            outcomes.increment(1);
        }
    }

    pub(in super::super) fn retried(&self, fault: &Fault) {
        if let Some(handles) = &self.handles {
            handles.retries(fault).increment(1);
        }
    }
}

impl Drop for Gauges {
    fn drop(&mut self) {
        self.tell(0, 0);
    }
}

impl fmt::Debug for Gauges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gauges").field("are_told", &self.handles.is_some()).finish_non_exhaustive()
    }
}

#[allow(clippy::cast_precision_loss, reason = "nobody has 2^53 jobs in memory")]
fn change(gauge: &Gauge, before: usize, now: usize) {
    if now > before {
        gauge.increment((now - before) as f64);
    } else if now < before {
        gauge.decrement((before - now) as f64);
    }
}

struct Handles {
    name: SharedString,
    in_flight: Gauge,
    queued: Gauge,
    waits: Histogram,
    values: Counter,
    faults: Counter,
}

impl Handles {
    fn new(name: SharedString) -> Self {
        let outcomes = |result: &'static str| metrics::counter!("tollgate_pool_outcomes_total", "pool" => name.clone(), "result" => result);
        Self {
            values: outcomes("value"),
            faults: outcomes("fault"),
            in_flight: metrics::gauge!("tollgate_pool_in_flight", "pool" => name.clone()),
            queued: metrics::gauge!("tollgate_pool_queued", "pool" => name.clone()),
            waits: metrics::histogram!("tollgate_pool_wait_seconds", "pool" => name.clone()),
            name,
        }
    }

    fn retries(&self, fault: &Fault) -> Counter {
        let name = self.name.clone();
        metrics::counter!("tollgate_pool_retries_total", "pool" => name, "reason" => reason(fault))
    }
}

/// Why something is tried again.
fn reason(fault: &Fault) -> &'static str {
    if matches!(fault.again(), Again::After(_)) {
        "pushback"
    } else if fault.find::<Elapsed>().is_some() {
        "timeout"
    } else if fault.find::<Panicked>().is_some() {
        "panic"
    } else {
        "fault"
    }
}
