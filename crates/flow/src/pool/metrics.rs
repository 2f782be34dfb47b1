//! The numbers of a pool, for whoever collects metrics.

#[cfg(not(feature = "metrics"))]
mod disabled;
#[cfg(feature = "metrics")]
mod enabled;

#[cfg(not(feature = "metrics"))]
pub(super) use disabled::{Gauges, Metering};
#[cfg(feature = "metrics")]
pub(super) use enabled::{Gauges, Metering};
