//! Measuring, and enforcing what comes out of it.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tollgate::{ConcurrencyLimit, OwnedSlot, Tick, WaitError};

use super::estimator::{Estimator, Sample};
use super::window::Window;
use crate::Time;

/// Limits how many calls there are at once to what the other side can take, by how they go.
///
/// An [`Estimator`] says how many; it learns once a second at most, from ten calls at least. Clones share one state.
///
/// The slots are those of a [`ConcurrencyLimit`], which may also be a member of a [`Gate`](tollgate::Gate): take slots there
/// from [`concurrency`](Self::concurrency), and [`report`](Self::report) how the calls went. A pool does both
/// by itself: see [`Pool::adapting`](crate::Pool::adapting).
///
/// # Examples
/// ```
/// use tollgate_flow::{AdaptiveLimit, Finish, Gradient2, Time};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
/// # runtime.block_on(async {
/// # async fn call() -> Result<u32, std::io::Error> { Ok(7) }
/// let limit = AdaptiveLimit::new(Gradient2::new(), Time::tokio());
/// let permit = limit.acquire().await?;
/// match call().await {
///     Ok(_) => permit.success(),
///     Err(error) if error.kind() == std::io::ErrorKind::TimedOut => permit.dropped(),
///     Err(_) => permit.ignored(), // it says nothing of how busy they are
/// }
/// # assert_eq!(limit.concurrency().in_use(), 0);
/// # Ok::<(), tollgate::WaitError>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct AdaptiveLimit {
    shared: Arc<Shared>,
}

struct Shared {
    slots: ConcurrencyLimit,
    time: Time,
    learning: Mutex<Learning>,
}

struct Learning {
    estimator: Box<dyn Estimator>,
    window: Window,
}

/// How a call ended, as far as it says something of the other side's capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// It was answered; how long that took counts.
    Success,
    /// It says nothing: a mistake of the caller's, a call that was given up, an answer from a cache.
    Ignored,
    /// It timed out, or was refused for lack of capacity (429, 503).
    Dropped,
}

impl AdaptiveLimit {
    /// A limit by `estimator`, which learns once a second from ten calls or more.
    pub fn new(estimator: impl Estimator + 'static, time: Time) -> Self {
        Self::with_window(estimator, time, Duration::from_secs(1), 10)
    }

    /// A limit by `estimator`, which learns whenever `span` has passed and `samples` calls have ended.
    pub fn with_window(
        estimator: impl Estimator + 'static,
        time: Time,
        span: Duration,
        samples: u64,
    ) -> Self {
        let slots = ConcurrencyLimit::new(estimator.limit());
        let learning = Learning { estimator: Box::new(estimator), window: Window::new(span, samples) };
        Self { shared: Arc::new(Shared { slots, time, learning: Mutex::new(learning) }) }
    }

    /// Waits for a slot.
    ///
    /// # Errors
    /// [`WaitError`], if too many wait or the limit was closed.
    ///
    /// # Cancel safety
    /// Dropping the future at any moment loses nothing: the place in line goes to those behind.
    pub async fn acquire(&self) -> Result<AdaptivePermit, WaitError> {
        let slot = self.shared.slots.acquire().await?;
        Ok(self.permit(slot.into_owned()))
    }

    /// A slot, if one is free and nobody waits for it.
    pub fn try_acquire(&self) -> Option<AdaptivePermit> {
        self.shared.slots.try_acquire().map(|slot| self.permit(slot.into_owned()))
    }

    /// The slots themselves.
    pub fn concurrency(&self) -> &ConcurrencyLimit {
        &self.shared.slots
    }

    /// How many there may be at once.
    pub fn limit(&self) -> u64 {
        self.shared.slots.limit()
    }

    /// Learns how a call went that took `took`, and whose slot was taken from [`concurrency`](Self::concurrency).
    pub fn report(&self, took: Duration, finish: Finish) {
        self.learn(took, self.shared.slots.in_use(), finish);
    }

    fn permit(&self, slot: OwnedSlot) -> AdaptivePermit {
        let (started, in_flight) = (self.shared.time.now(), self.shared.slots.in_use());
        AdaptivePermit { limit: self.clone(), started, in_flight, _slot: slot }
    }

    fn learn(&self, rtt: Duration, in_flight: u64, finish: Finish) {
        if finish == Finish::Ignored {
            return;
        }
        let sample = Sample { rtt, in_flight, dropped: finish == Finish::Dropped };
        if self.shared.learning().add(self.shared.time.now(), sample) {
            self.enforce();
        }
    }

    /// Sets the limit to what the estimator says. Waiters are woken by that, so it is done without the lock; and again if
    /// somebody else was faster and learnt something else.
    fn enforce(&self) {
        loop {
            let limit = self.shared.learning().estimator.limit().max(1);
            if limit.min(ConcurrencyLimit::MOST) == self.limit() {
                return;
            }
            self.shared.slots.set_limit(limit);
        }
    }
}

impl Shared {
    fn learning(&self) -> MutexGuard<'_, Learning> {
        self.learning.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Learning {
    /// Whether that was enough for the estimator to learn something.
    fn add(&mut self, now: Tick, sample: Sample) -> bool {
        let window = self.window.add(now, sample);
        if let Some(sample) = window {
            self.estimator.learn(sample);
        }
        window.is_some()
    }
}

impl fmt::Debug for AdaptiveLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdaptiveLimit")
            .field("slots", &self.shared.slots)
            .field("estimator", &self.shared.learning().estimator)
            .finish_non_exhaustive()
    }
}

/// A slot in use. Say how the call went when it ends; a permit that is just dropped, as when the call is cancelled, is
/// [ignored](Finish::Ignored).
#[must_use = "a permit that is dropped is free again"]
#[derive(Debug)]
pub struct AdaptivePermit {
    limit: AdaptiveLimit,
    started: Tick,
    in_flight: u64,
    /// Given back with the permit, after what it taught: so whoever is next finds the new limit.
    _slot: OwnedSlot,
}

impl AdaptivePermit {
    /// The call was answered.
    pub fn success(self) {
        self.finish(Finish::Success);
    }

    /// The call says nothing of the other side's capacity.
    pub fn ignored(self) {
        self.finish(Finish::Ignored);
    }

    /// The call timed out, or was refused for lack of capacity.
    pub fn dropped(self) {
        self.finish(Finish::Dropped);
    }

    /// The call ended like this.
    pub fn finish(self, finish: Finish) {
        let took = self.limit.shared.time.now().since(self.started);
        self.limit.learn(took, self.in_flight, finish);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Aimd;
    use super::*;

    fn limit(time: &Time) -> AdaptiveLimit {
        AdaptiveLimit::with_window(Aimd::new().starting_at(2), time.clone(), Duration::ZERO, 1)
    }

    #[tokio::test(start_paused = true)]
    async fn a_success_with_all_slots_in_use_makes_room_for_one_more() {
        let limit = limit(&Time::tokio());
        let (first, second) = (limit.acquire().await.unwrap(), limit.acquire().await.unwrap());
        assert!(limit.try_acquire().is_none());
        second.success();
        assert_eq!((limit.limit(), limit.concurrency().in_use()), (3, 1));
        first.dropped();
        assert_eq!((limit.limit(), limit.concurrency().in_use()), (2, 0)); // 2.7
    }

    #[tokio::test(start_paused = true)]
    async fn a_permit_that_is_just_dropped_teaches_nothing() {
        let limit = limit(&Time::tokio());
        drop(limit.acquire().await.unwrap());
        limit.acquire().await.unwrap().ignored();
        assert_eq!((limit.limit(), limit.concurrency().in_use()), (2, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiter_gets_the_slot_that_a_larger_limit_brings() {
        let limit = limit(&Time::tokio());
        let held = [limit.acquire().await.unwrap(), limit.acquire().await.unwrap()];
        let waiter = tokio::spawn({
            let limit = limit.clone();
            async move { limit.acquire().await.map(drop) }
        });
        tokio::task::yield_now().await;
        assert_eq!(limit.concurrency().waiting(), 1);
        limit.report(Duration::ZERO, Finish::Success);
        assert!(waiter.await.unwrap().is_ok());
        drop(held);
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiter_that_gives_up_leaks_no_slot() {
        let limit = limit(&Time::tokio());
        let held = [limit.acquire().await.unwrap(), limit.acquire().await.unwrap()];
        let time = Time::tokio();
        assert!(time.timeout(Duration::from_secs(1), limit.acquire()).await.is_err());
        drop(held);
        assert_eq!((limit.concurrency().waiting(), limit.concurrency().in_use()), (0, 0));
        assert!(limit.try_acquire().is_some());
    }
}
