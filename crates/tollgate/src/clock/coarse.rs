//! A clock that somebody else winds.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tollgate_core::Tick;

use super::{Clock, MonotonicClock};

/// A clock whose reading is a load from memory, refreshed in the background.
///
/// A reading is at most one interval old (more if the machine is overloaded). A limiter on it admits at most
/// `burst + rate·(T + interval)` over a span T, and is late by up to an interval in granting what time restores.
/// Clones share one background thread, which ends within an interval after the last of them is dropped.
///
/// It pays where reading the processor's counter is slow, and most with many keys: some processors read it only when
/// all loads before have come, so that one check must wait for memory until the last one has. There a check of one
/// key among a million takes about half as long (`cargo xtask bench keyed`, `tollgate-coarse`).
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate::{Clock, CoarseClock};
///
/// let clock = CoarseClock::new(Duration::from_millis(1));
/// assert!(clock.now() <= clock.now());
/// ```
#[derive(Clone, Debug)]
pub struct CoarseClock {
    reading: Arc<AtomicU64>,
}

impl CoarseClock {
    /// A clock that is refreshed every `interval`, from 10 µs to a second; others are taken as the nearest of these. Its origin is
    /// that of [`MonotonicClock`].
    pub fn new(interval: Duration) -> Self {
        let interval = bounded(interval);
        let clock = MonotonicClock::new();
        let reading = Arc::new(AtomicU64::new(clock.now().as_nanos()));
        let weak = Arc::downgrade(&reading);
        std::thread::Builder::new()
            .name("tollgate-clock".to_owned())
            .spawn(move || refresh(&clock, &weak, interval))
            .expect("the system lets us start a thread");
        Self { reading }
    }
}

/// Too short an interval would keep a core busy; with too long a one the clock would stand still, and its thread never end.
fn bounded(interval: Duration) -> Duration {
    interval.clamp(Duration::from_micros(10), Duration::from_secs(1))
}

fn refresh(clock: &MonotonicClock, reading: &Weak<AtomicU64>, interval: Duration) {
    while let Some(reading) = reading.upgrade() {
        reading.store(clock.now().as_nanos(), Ordering::Relaxed);
        drop(reading);
        std::thread::park_timeout(interval);
    }
}

impl Clock for CoarseClock {
    #[inline]
    fn now(&self) -> Tick {
        // Relaxed: nothing else is published with the time.
        Tick::from_nanos(self.reading.load(Ordering::Relaxed))
    }

    #[inline]
    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.reading, &other.reading)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_wound_at_least_every_second() {
        let second = Duration::from_secs(1);
        assert_eq!([Duration::MAX, 2 * second, second].map(bounded), [second; 3]);
        assert_eq!(bounded(Duration::from_millis(1)), Duration::from_millis(1));
        assert_eq!(bounded(Duration::ZERO), Duration::from_micros(10));
    }
}
