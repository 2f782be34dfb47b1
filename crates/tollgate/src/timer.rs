//! What wakes those who wait.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};
use std::time::Duration;

use tollgate_core::Tick;

use crate::clock::{Clock, MonotonicClock};

/// Wakes somebody after a while: the only thing a limiter needs of a runtime.
///
/// Its clock need not be the limiter's: it is told how long, not until when. Waking late delays those who wait; waking
/// early or twice does no harm. Wakers must not block: they run on the timer's thread. A timer must not
/// wake before `wake_after` has returned: it is called under a lock.
pub trait Timer: fmt::Debug + Send + Sync {
    /// Wakes `waker` after `delay`.
    fn wake_after(&self, delay: Duration, waker: Waker);

    /// How far apart wake-ups should be while a queue is busy: what falls due in between is granted together. Zero wakes
    /// for each grant.
    fn granularity(&self) -> Duration {
        Duration::ZERO
    }
}

impl<T: Timer + ?Sized> Timer for Arc<T> {
    fn wake_after(&self, delay: Duration, waker: Waker) {
        (**self).wake_after(delay, waker);
    }

    fn granularity(&self) -> Duration {
        (**self).granularity()
    }
}

/// What a timer rings for one sleeper, however often it is polled: one alarm at a time, set again if it rang early.
///
/// # Examples
/// A future that is ready when a clock says so:
/// ```
/// use std::future::poll_fn;
/// use std::task::Poll;
/// use std::time::Duration;
/// use tollgate::{Bell, Clock, DefaultClock};
///
/// let (clock, mut bell) = (DefaultClock::new(), Bell::default());
/// let until = clock.now() + Duration::from_millis(1);
/// let sleep = poll_fn(|context| {
///     let left = until.since(clock.now());
///     if left.is_zero() {
///         return Poll::Ready(());
///     }
///     bell.ring_after(&*clock.timer(), left, context.waker());
///     Poll::Pending
/// });
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(sleep);
/// ```
#[derive(Debug, Default)]
pub struct Bell(Option<Arc<Rope>>);

#[derive(Debug)]
struct Rope {
    sleeper: Mutex<Waker>,
    has_rung: AtomicBool,
}

impl Bell {
    /// Makes sure that it will ring for this sleeper: after `delay`, or when it was set to before, if it has not rung since.
    pub fn ring_after(&mut self, timer: &dyn Timer, delay: Duration, sleeper: &Waker) {
        if let Some(rope) = self.0.as_ref().filter(|rope| !rope.has_rung()) {
            rope.sleeper().clone_from(sleeper);
            // It may have rung meanwhile, for the sleeper before.
            if !rope.has_rung() {
                return;
            }
        }
        let rope = Arc::new(Rope { sleeper: Mutex::new(sleeper.clone()), has_rung: AtomicBool::new(false) });
        timer.wake_after(delay, Waker::from(Arc::clone(&rope)));
        self.0 = Some(rope);
    }
}

impl Rope {
    fn has_rung(&self) -> bool {
        self.has_rung.load(Ordering::Acquire)
    }

    fn sleeper(&self) -> MutexGuard<'_, Waker> {
        self.sleeper.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Rope {
    fn wake(self: Arc<Self>) {
        self.has_rung.store(true, Ordering::Release);
        let sleeper = self.sleeper().clone();
        sleeper.wake();
    }
}

/// One background thread that wakes everybody in the process, to within some 60 µs; the default.
///
/// The thread starts with the first wait and sleeps while nobody waits.
#[derive(Debug)]
pub struct ThreadTimer {
    clock: MonotonicClock,
    alarms: Mutex<Alarms>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Alarms {
    /// By moment, then by order of setting.
    due: BTreeMap<(Tick, u64), Waker>,
    set: u64,
    running: bool,
}

static SHARED: LazyLock<Arc<ThreadTimer>> = LazyLock::new(|| {
    let (alarms, changed) = (Mutex::default(), Condvar::new());
    Arc::new(ThreadTimer { clock: MonotonicClock::new(), alarms, changed })
});

impl ThreadTimer {
    /// The process's timer.
    pub fn shared() -> Arc<dyn Timer> {
        Arc::<Self>::clone(&SHARED)
    }

    fn run(&self) {
        let mut alarms = self.alarms.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let now = self.clock.now();
            alarms = match alarms.due.first_entry() {
                None => self.changed.wait(alarms).unwrap_or_else(PoisonError::into_inner),
                Some(first) if first.key().0 <= now => {
                    let waker = first.remove();
                    drop(alarms);
                    // May set further alarms, or run into somebody's panic, which is theirs and must not stop the others' time.
                    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| waker.wake()));
                    self.alarms.lock().unwrap_or_else(PoisonError::into_inner)
                }
                Some(first) => {
                    let pause = first.key().0.since(now);
                    self.changed.wait_timeout(alarms, pause).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

impl Timer for ThreadTimer {
    /// Enough to keep a busy queue below a third of a core and its grants within 300 µs of their time.
    fn granularity(&self) -> Duration {
        Duration::from_micros(120)
    }

    fn wake_after(&self, delay: Duration, waker: Waker) {
        let mut alarms = self.alarms.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (self.clock.now() + delay, alarms.set);
        alarms.set += 1;
        let is_first = alarms.due.first_key_value().is_none_or(|(first, _)| key < *first);
        alarms.due.insert(key, waker);
        if !alarms.running {
            let timer = std::thread::Builder::new().name("tollgate-timer".to_owned());
            timer.spawn(|| SHARED.run()).expect("the system lets us start a thread");
            alarms.running = true;
        } else if is_first {
            self.changed.notify_one();
        }
    }
}
