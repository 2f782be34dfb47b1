//! Sweeping in the background.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use super::{KeyedLimiter, Store};
use crate::cell::Held;
use crate::clock::Clock;

/// The most steps a round is spread over.
const MOST_STEPS: usize = 64;
/// The shortest pause between two steps: a thread that wakes more often does little else.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

/// A thread that drops idle keys and gives their memory back; made by [`KeyedLimiter::sweeper`]. Dropping it ends the
/// thread.
#[must_use = "dropping it ends the sweeping"]
pub struct Sweeper {
    bell: Arc<Bell>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread sleeps on.
#[derive(Default)]
struct Bell {
    is_stopped: Mutex<bool>,
    rings: Condvar,
}

impl Bell {
    fn stop(&self) {
        *self.is_stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.rings.notify_one();
    }

    fn is_stopped(&self) -> bool {
        *self.is_stopped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for `pause`, or until stopped; whether to go on.
    fn wait(&self, pause: Duration) -> bool {
        let is_stopped = self.is_stopped.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.rings.wait_timeout_while(is_stopped, pause, |is_stopped| !*is_stopped);
        !*waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Sweeper {
    /// Ends the thread, and waits until it has ended: not longer than sweeping one shard takes.
    pub fn stop(self) {
        drop(self);
    }

    /// Whether the thread still runs. It ends by itself when the limiter and all its clones are gone, at its next step.
    pub fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        self.bell.stop();
        if let Some(thread) = self.thread.take() {
            // An observer may own the sweeper, and be dropped with the limiter by the thread itself.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join(); // it catches its panics
            }
        }
    }
}

impl fmt::Debug for Sweeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sweeper").field("is_running", &self.is_running()).finish_non_exhaustive()
    }
}

impl<K: ?Sized + 'static, A: Held, C: Clock> KeyedLimiter<K, A, C> {
    /// Starts a thread that goes over the whole store about once per `every` of real time, a little at a time, and drops
    /// what is idle by the limiter's clock. Calls do that too, by the way; this is for a store that may have grown large
    /// before the calls cease.
    ///
    /// It ends when the [`Sweeper`] is dropped or the limiter and all its clones are.
    ///
    /// # Panics
    /// If the system does not let us start a thread.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{KeyedLimiter, Quota};
    ///
    /// let limiter = KeyedLimiter::<str>::new(Quota::per_second(1_000));
    /// let sweeper = limiter.sweeper(Duration::from_millis(1));
    /// assert!(limiter.allow("alice"));
    /// while !limiter.is_empty() {
    ///     std::thread::yield_now(); // a millisecond until alice is idle, and some more until she is dropped
    /// }
    /// sweeper.stop();
    /// ```
    pub fn sweeper(&self, every: Duration) -> Sweeper {
        let bell = Arc::new(Bell::default());
        let rounds = Rounds::new(Arc::downgrade(&self.store), self.store.shards.len(), every);
        let thread = std::thread::Builder::new().name("tollgate-sweeper".to_owned()).spawn({
            let bell = Arc::clone(&bell);
            move || rounds.run(&bell)
        });
        Sweeper { bell, thread: Some(thread.expect("the system lets us start a thread")) }
    }
}

/// Rounds over all shards of a store, in steps of a few shards.
struct Rounds<K: ?Sized, A: Held, C: Clock> {
    store: Weak<Store<K, A, C>>,
    shards: usize,
    shards_per_step: usize,
    pause: Duration,
}

impl<K: ?Sized, A: Held, C: Clock> Rounds<K, A, C> {
    fn new(store: Weak<Store<K, A, C>>, shards: usize, every: Duration) -> Self {
        let most = (every.as_nanos() / SHORTEST_PAUSE.as_nanos()).clamp(1, MOST_STEPS as u128) as usize;
        let shards_per_step = shards.div_ceil(most);
        let steps = shards.div_ceil(shards_per_step) as u32; // 64 at most
        Self { store, shards, shards_per_step, pause: (every / steps).max(SHORTEST_PAUSE) }
    }

    /// Goes round until the bell rings or the store is gone.
    fn run(&self, bell: &Bell) {
        let mut next = 0;
        loop {
            let Some(store) = self.store.upgrade() else { return };
            if next == 0 {
                store.sweep_lines(store.clock.now());
            }
            let end = (next + self.shards_per_step).min(self.shards);
            for shard in store.shards[next..end].iter().take_while(|_| !bell.is_stopped()) {
                // What panics is an observer, and that is its own affair: the others still go.
                let _ = catch_unwind(AssertUnwindSafe(|| store.sweep(shard, store.clock.now())));
            }
            drop(store); // or it would be kept for as long as the pause
            next = if end == self.shards { 0 } else { end };
            if !bell.wait(self.pause) {
                return;
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use tollgate_core::TokenBucket;

    use super::*;
    use crate::clock::ManualClock;

    type Rounds = super::Rounds<u64, TokenBucket, ManualClock>;

    #[test]
    fn a_round_takes_as_long_as_it_should_and_leaves_no_shard_out() {
        for shards in [2, 4, 64, 128, 4_096] {
            for every_ms in [0, 1, 3, 40, 64, 1_000, 3_600_000] {
                let every = Duration::from_millis(every_ms);
                let rounds = Rounds::new(Weak::new(), shards, every);
                let steps = shards.div_ceil(rounds.shards_per_step) as u32;
                let takes = rounds.pause * steps;
                let about = every.max(SHORTEST_PAUSE);
                assert!(
                    takes <= about && takes + Duration::from_nanos(64) > about,
                    "{takes:?} for {every:?}"
                );
                assert!(rounds.pause >= SHORTEST_PAUSE && steps as usize <= MOST_STEPS);
                assert!(every < Duration::from_millis(64) || steps as usize == shards.min(64), "not spread");
            }
        }
    }
}
