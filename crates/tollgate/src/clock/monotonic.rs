//! The operating system's monotonic clock.

use std::sync::LazyLock;
use std::time::Instant;

use tollgate_core::Tick;

use super::Clock;

/// The operating system's monotonic clock; all of a process are the same, and begin when the first one is made.
///
/// # Examples
/// ```
/// use tollgate::{Clock, MonotonicClock};
///
/// let clock = MonotonicClock::new();
/// assert!(clock.now() <= clock.now());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct MonotonicClock {
    origin: Instant,
}

/// Where the time of this process begins.
#[allow(clippy::disallowed_methods, reason = "this is where the time is read")]
static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

impl MonotonicClock {
    /// The process's clock.
    pub fn new() -> Self {
        Self { origin: *ORIGIN }
    }
}

impl Default for MonotonicClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for MonotonicClock {
    #[inline]
    #[allow(clippy::disallowed_methods, reason = "this is where the time is read")]
    fn now(&self) -> Tick {
        Tick::ZERO + self.origin.elapsed()
    }

    #[inline]
    fn is_same(&self, _other: &Self) -> bool {
        true
    }
}
