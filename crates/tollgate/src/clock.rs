//! Clocks, and the timers that go with them. Nothing outside this folder reads the time.

mod boot;
mod coarse;
mod manual;
mod monotonic;
#[cfg(feature = "tokio")]
mod tokio;
#[cfg(feature = "tsc")]
mod tsc;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tollgate_core::Tick;

pub use boot::BootClock;
pub use coarse::CoarseClock;
pub use manual::ManualClock;
pub use monotonic::MonotonicClock;
#[cfg(feature = "tokio")]
pub use tokio::{TokioClock, TokioTimer};
#[cfg(feature = "tsc")]
pub use tsc::TscClock;

use crate::timer::{ThreadTimer, Timer};

/// The clock a limiter uses unless told otherwise: [`TscClock`] with the feature `tsc`, else [`MonotonicClock`].
#[cfg(feature = "tsc")]
pub type DefaultClock = TscClock;
/// The clock a limiter uses unless told otherwise: [`TscClock`] with the feature `tsc`, else [`MonotonicClock`].
#[cfg(not(feature = "tsc"))]
pub type DefaultClock = MonotonicClock;

/// Something that tells the time.
///
/// Readings may stand still, and may even step back: a limiter then refuses where it might have admitted, and never the
/// other way round. Only giving something back believes its reading: one that is behind by d may give back up to
/// `rate·d` too much.
pub trait Clock: Clone + fmt::Debug + Send + Sync + 'static {
    /// The time now. A keyed limiter asks for it while it holds a lock, so the answer must not come from asking a limiter.
    fn now(&self) -> Tick;

    /// Whether both always tell the same time, so that one reading will do for both. Saying no is always right, and
    /// costs a reading.
    fn is_same(&self, other: &Self) -> bool {
        let _ = other;
        false
    }

    /// The time since 1970, which unlike [`now`](Self::now) means the same in every process: it tells how long a limiter was
    /// away between being saved and restored. The default is the system's.
    #[allow(clippy::disallowed_methods, reason = "this is where the time is read")]
    fn unix(&self) -> Duration {
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
    }

    /// What wakes those who wait by this clock.
    fn timer(&self) -> Arc<dyn Timer> {
        ThreadTimer::shared()
    }
}
