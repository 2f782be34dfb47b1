//! Staying awake while one piece of work comes right after the other.
//!
//! A worker without work falls asleep, and whoever sends it more has to wake it: that takes some microseconds of either core. If
//! the next piece comes sooner than that, looking for it a few times takes less. So a worker to whom a piece came within a
//! [`PAUSE`] of the one before looks for the next one for as long, and falls asleep only then. One with little to do, to whom
//! work comes seldom, falls asleep at once.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::yield_now;
use tollgate::Tick;

/// About what it takes to fall asleep and be woken.
const PAUSE: Duration = Duration::from_micros(10);

/// Keeps a worker awake while much is asked of it. All of its connections have the same.
#[derive(Clone, Debug, Default)]
pub struct Vigil(Rc<State>);

#[derive(Debug, Default)]
struct State {
    /// When the last piece of work was done.
    done: Cell<Option<Tick>>,
    is_kept: Cell<bool>,
    begin: Notify,
}

impl Vigil {
    /// A piece of work has come.
    #[inline]
    pub fn begin(&self, now: Tick) {
        if !self.0.is_kept.get() && self.is_worth_it(now) {
            self.0.is_kept.set(true);
            self.0.begin.notify_one();
        }
    }

    /// It is done.
    #[inline]
    pub fn done(&self, now: Tick) {
        self.0.done.set(Some(now));
    }

    /// Whether the last piece was done only just now.
    #[inline]
    fn is_worth_it(&self, now: Tick) -> bool {
        self.0.done.get().is_some_and(|done| now.since(done) < PAUSE)
    }

    /// Stays awake whenever that is worth it, for ever.
    pub(super) async fn keep(self, now: impl Fn() -> Tick) {
        loop {
            self.0.begin.notified().await;
            while self.is_worth_it(now()) {
                yield_now().await; // upon which the runtime looks for what has come, and does not wait for it
            }
            self.0.is_kept.set(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll, Wake};

    use tollgate::{Clock, ManualClock};

    use super::*;

    /// Counts how often somebody who keeps a vigil asks to be looked at again.
    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_worker_stays_awake_for_a_pause_after_work_that_came_within_one() {
        let (clock, vigil, count) = (ManualClock::new(), Vigil::default(), Arc::new(Count::default()));
        let mut keeping = pin!(vigil.clone().keep(|| clock.now()));
        let waker = Arc::clone(&count).into();
        let mut look = || {
            assert_eq!(keeping.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Pending);
            count.0.swap(0, Ordering::Relaxed) > 0
        };
        assert!(!look(), "there was no work");
        vigil.begin(clock.now());
        vigil.done(clock.now());
        assert!(!look(), "the first piece is followed by none yet");
        clock.advance(PAUSE);
        vigil.begin(clock.now());
        vigil.done(clock.now());
        assert!(!look(), "it came too late");
        clock.advance(PAUSE.saturating_sub(Duration::from_nanos(1)));
        vigil.begin(clock.now());
        vigil.done(clock.now());
        assert!(look() && look(), "it came soon, so the next may as well");
        clock.advance(PAUSE.saturating_sub(Duration::from_nanos(1)));
        assert!(look());
        clock.advance(Duration::from_nanos(1));
        assert!(!look(), "it did not");
        vigil.begin(clock.now());
        vigil.done(clock.now());
        assert!(!look());
        vigil.begin(clock.now());
        assert!(look(), "and all over again");
    }
}
