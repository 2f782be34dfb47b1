//! tokio's time.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;
use tollgate_core::Tick;

use super::{Clock, MonotonicClock};
use crate::timer::{ThreadTimer, Timer};

/// tokio's clock, which `tokio::time::pause` stops and tests move; its timer is [`TokioTimer`]. It tells the time of the runtime
/// that it was made on, on every thread.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate::{Limiter, Quota, TokioClock};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
/// # runtime.block_on(async {
/// let limiter = Limiter::builder(Quota::per_hour(1)).clock(TokioClock::new()).build();
/// let start = tokio::time::Instant::now();
/// limiter.wait().await.unwrap();
/// limiter.wait().await.unwrap(); // an hour later, by tokio's paused clock
/// assert!(start.elapsed() >= Duration::from_secs(3_600));
/// # });
/// ```
#[derive(Clone, Debug)]
pub struct TokioClock {
    origin: Instant,
    handle: Handle,
}

impl TokioClock {
    /// A clock that starts at zero now, on the current runtime.
    ///
    /// # Panics
    /// Outside of a tokio runtime, as everything of tokio's time does.
    pub fn new() -> Self {
        Self { origin: Instant::now(), handle: Handle::current() }
    }

    /// Whether this thread is not on the runtime. One that is just ending can be on none.
    fn is_elsewhere(&self) -> bool {
        match Handle::try_current() {
            Ok(current) => current.id() != self.handle.id(),
            Err(error) => error.is_missing_context(),
        }
    }
}

impl Default for TokioClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Tick {
        // Elsewhere tokio tells the system's time, also while its own stands still.
        let _entered = self.is_elsewhere().then(|| self.handle.enter());
        Tick::ZERO + self.origin.elapsed()
    }

    fn is_same(&self, other: &Self) -> bool {
        self.origin == other.origin && self.handle.id() == other.handle.id()
    }

    fn timer(&self) -> Arc<dyn Timer> {
        Arc::new(TokioTimer { handle: self.handle.clone() })
    }
}

/// Wakes from a task on a tokio runtime. Its ticks are a millisecond apart; the default
/// [`ThreadTimer`](crate::ThreadTimer) is finer.
#[derive(Clone, Debug)]
pub struct TokioTimer {
    handle: Handle,
}

impl TokioTimer {
    /// A timer on the current runtime.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn new() -> Self {
        Self { handle: Handle::current() }
    }
}

impl Default for TokioTimer {
    fn default() -> Self {
        Self::new()
    }
}

impl Timer for TokioTimer {
    fn wake_after(&self, delay: Duration, waker: Waker) {
        let clock = MonotonicClock::new();
        let bell = Bell { waker: Some(waker), due: clock.now() + delay, clock };
        self.handle.spawn(async move {
            tokio::time::sleep(delay).await;
            bell.ring();
        });
    }
}

/// Rings even if the runtime goes away before it is time, or has no timer: then the process's own timer takes over.
struct Bell {
    waker: Option<Waker>,
    due: Tick,
    clock: MonotonicClock,
}

impl Bell {
    fn ring(mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        if let Some(waker) = self.waker.take() {
            ThreadTimer::shared().wake_after(self.due.since(self.clock.now()), waker);
        }
    }
}
