//! The operating system's monotonic clock.

use std::time::Instant;

use tollgate_core::Tick;

use super::Clock;

/// The operating system's monotonic clock; its origin is when it was made.
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

impl MonotonicClock {
    /// A clock that starts at zero now.
    #[allow(clippy::disallowed_methods, reason = "this is where the time is read")]
    pub fn new() -> Self {
        Self { origin: Instant::now() }
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
}
