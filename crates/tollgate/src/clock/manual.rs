//! A clock for tests, moved by hand.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use std::time::Duration;

use tollgate_core::Tick;

use super::Clock;
use crate::timer::Timer;

/// A clock that only moves when told to, and then wakes those who wait, each at its own moment and in order.
///
/// Tests of hours run in microseconds and always go the same way. Clones are the same clock.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate::{Limiter, ManualClock, Quota};
///
/// let clock = ManualClock::new();
/// let limiter = Limiter::builder(Quota::per_day(1)).clock(clock.clone()).build();
/// assert!(limiter.allow());
/// assert!(!limiter.allow());
/// clock.advance(Duration::from_secs(86_400));
/// assert!(limiter.allow());
/// ```
#[derive(Clone, Debug, Default)]
pub struct ManualClock {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    now: AtomicU64,
    /// The time since 1970 when it stands at zero.
    origin: Duration,
    /// Unsorted: tests have few, and ties must ring in the order they were set.
    alarms: Mutex<Vec<(Tick, Waker)>>,
}

impl ManualClock {
    /// A clock that stands at zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// A clock that stands at zero, `origin` after 1970; others stand at zero in 1970. For tests of what happens when a
    /// process ends and another goes on with what it saved.
    pub fn starting_at(origin: Duration) -> Self {
        Self { shared: Arc::new(Shared { origin, ..Shared::default() }) }
    }

    /// Moves the clock on, stopping at every alarm on the way.
    pub fn advance(&self, span: Duration) {
        self.advance_to(self.now() + span);
    }

    /// Moves the clock to `moment`, stopping at every alarm on the way.
    pub fn advance_to(&self, moment: Tick) {
        while let Some((at, waker)) = self.next_alarm(moment) {
            self.shared.now.fetch_max(at.as_nanos(), Ordering::SeqCst);
            waker.wake();
        }
        self.shared.now.fetch_max(moment.as_nanos(), Ordering::SeqCst);
    }

    /// Puts the clock anywhere, also back. Rings nothing.
    pub fn set(&self, moment: Tick) {
        self.shared.now.store(moment.as_nanos(), Ordering::SeqCst);
    }

    /// When the next alarm is due, if one is set.
    pub fn next_due(&self) -> Option<Tick> {
        self.alarms().iter().map(|(at, _)| *at).min()
    }

    fn next_alarm(&self, latest: Tick) -> Option<(Tick, Waker)> {
        let mut alarms = self.alarms();
        let due = alarms.iter().map(|(at, _)| *at).min().filter(|at| *at <= latest)?;
        let index = alarms.iter().position(|(at, _)| *at == due)?;
        Some(alarms.remove(index))
    }

    fn alarms(&self) -> std::sync::MutexGuard<'_, Vec<(Tick, Waker)>> {
        self.shared.alarms.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for ManualClock {
    #[inline]
    fn now(&self) -> Tick {
        Tick::from_nanos(self.shared.now.load(Ordering::SeqCst))
    }

    #[inline]
    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    fn unix(&self) -> Duration {
        self.shared.origin.saturating_add(self.now().since(Tick::ZERO))
    }

    fn timer(&self) -> Arc<dyn Timer> {
        Arc::new(self.clone())
    }
}

impl Timer for ManualClock {
    fn wake_after(&self, delay: Duration, waker: Waker) {
        let at = self.now() + delay;
        self.alarms().push((at, waker));
    }
}
