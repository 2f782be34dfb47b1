//! A store that never keeps anybody waiting.

mod breaker;

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tollgate::store::{Answer, Busy, Health, Hit, Mode, Rule, Store, StoreError, Top, Usage};
use tollgate::{Clock, MonotonicClock, Tick};

use breaker::{Attempt, Breaker, End};

/// How long a call may take unless [`within`](Guarded::within) says otherwise.
pub const PATIENCE: Duration = Duration::from_millis(25);

/// For those with more patience than a clock can count.
const FOREVER: Duration = Duration::from_secs(3_600 * 24 * 365);

/// A store that never keeps anybody waiting: what it does not answer in time it cannot tell, and when it has answered nobody for
/// 50 ms, five in a row at least, it is not even asked for a while.
///
/// Whoever decides for others then falls back on what the limit says: allow, deny, or decide alone. While the store is left
/// alone, one call at a time is tried after a pause of at most 0.4 s; when it answers, twice as many are with each success,
/// until all are: within a second of its return decisions are exact again, and it is not run over.
///
/// # Cancel safety
/// That of the store: what it was asked for may have been taken, though nobody waited for the answer. The same holds for what is
/// not answered in time.
///
/// # Examples
/// ```
/// use tollgate::Quota;
/// use tollgate::store::{Hit, MemoryStore, Mode, Rule, Store};
/// use tollgate_redis::Guarded;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::store::StoreError> {
/// let store = Guarded::new(MemoryStore::new()); // one that is in process always answers
/// let limit = store.open(&Rule::new("api", "everybody", Quota::per_second(1)));
/// assert!(store.decide(Mode::Take, &[Hit::new(&limit, b"")]).await?.is_admitted());
/// assert_eq!(store.health().answered, 1);
/// # Ok(()) }
/// ```
pub struct Guarded<S, C = MonotonicClock> {
    store: S,
    guard: Arc<Guard<C>>,
    patience: Duration,
    /// Until when all that is asked for [one request](Store::for_request) must be answered.
    until: Option<Instant>,
}

/// What all clones share.
struct Guard<C> {
    clock: C,
    breaker: Mutex<Breaker>,
    answered: AtomicU64,
    failed: AtomicU64,
    late: AtomicU64,
    untried: AtomicU64,
}

impl<S: Store> Guarded<S> {
    /// Guards a store.
    pub fn new(store: S) -> Self {
        Self::by(store, MonotonicClock::new())
    }
}

impl<S: Store, C: Clock> Guarded<S, C> {
    /// Guards a store, with pauses by that clock. How long a call may take goes by tokio's time.
    pub fn by(store: S, clock: C) -> Self {
        let guard = Guard {
            clock,
            breaker: Mutex::new(Breaker::new()),
            answered: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            late: AtomicU64::new(0),
            untried: AtomicU64::new(0),
        };
        Self { store, guard: Arc::new(guard), patience: PATIENCE, until: None }
    }

    /// Waits so long for each answer, instead of [`PATIENCE`]; for all that is asked about [one request](Store::for_request)
    /// together.
    #[must_use]
    pub fn within(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// The store.
    pub fn inner(&self) -> &S {
        &self.store
    }

    /// How it has been.
    pub fn health(&self) -> Health {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let Guard { answered, failed, late, untried, .. } = &*self.guard;
        let mut health = Health::default();
        health.is_up = self.guard.lock().is_closed();
        health.answered = load(answered);
        health.failed = load(failed);
        health.late = load(late);
        health.untried = load(untried);
        health
    }

    /// Until when something that is asked now must be answered.
    fn until(&self) -> Instant {
        let from = |now: Instant| now.checked_add(self.patience).unwrap_or(now + FOREVER);
        self.until.unwrap_or_else(|| from(Instant::now()))
    }

    async fn call<T>(&self, call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        let mut trial = self.guard.attempt()?;
        let (result, end, count) = match tokio::time::timeout_at(self.until(), call).await {
            Ok(Err(error)) if error.is_transient() => (Err(error), End::Failed, &self.guard.failed),
            Ok(result) => (result, End::Answered, &self.guard.answered),
            Err(_) => (Err(too_late(self.patience)), End::Failed, &self.guard.late),
        };
        count.fetch_add(1, Ordering::Relaxed);
        trial.end = end;
        result
    }
}

impl<C: Clock> Guard<C> {
    fn lock(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Tick {
        self.clock.now()
    }

    fn attempt(&self) -> Result<Trial<'_, C>, StoreError> {
        if let Some(attempt) = self.lock().attempt(self.now()) {
            return Ok(Trial { guard: self, attempt, end: End::Abandoned });
        }
        self.untried.fetch_add(1, Ordering::Relaxed);
        let untried = "circuit breaker open after several failures";
        Err(StoreError::transient(untried).without_effect())
    }
}

/// A call under way. Dropping it tells the breaker how it ended.
struct Trial<'a, C: Clock> {
    guard: &'a Guard<C>,
    attempt: Attempt,
    end: End,
}

impl<C: Clock> Drop for Trial<'_, C> {
    fn drop(&mut self) {
        let (now, jitter) = (self.guard.now(), fastrand::f64());
        self.guard.lock().ended(self.attempt, self.end, now, jitter);
    }
}

fn too_late(patience: Duration) -> StoreError {
    StoreError::transient(format!("no response within {patience:?}; the cost may have been charged"))
}

impl<S: Store, C: Clock> Store for Guarded<S, C> {
    type Limit = S::Limit;
    type Permit = S::Permit;

    fn open(&self, rule: &Rule) -> S::Limit {
        self.store.open(rule)
    }

    async fn decide(&self, mode: Mode, hits: &[Hit<'_, S::Limit>]) -> Result<Answer, StoreError> {
        // Whoever asks again and again without ever having to wait lets others have their turn.
        tokio::task::consume_budget().await;
        match self.decide_now(mode, hits) {
            Some(answer) => answer,
            None => self.call(self.store.decide(mode, hits)).await,
        }
    }

    /// What needs no waiting needs no guard either: it is answered even while the store is left alone.
    fn decide_now(&self, mode: Mode, hits: &[Hit<'_, S::Limit>]) -> Option<Result<Answer, StoreError>> {
        let answer = self.store.decide_now(mode, hits)?;
        self.guard.answered.fetch_add(1, Ordering::Relaxed);
        Some(answer)
    }

    async fn acquire(&self, hits: &[Hit<'_, S::Limit>]) -> Result<(Answer, Option<S::Permit>), StoreError> {
        self.call(self.store.acquire(hits)).await
    }

    async fn settle(&self, permit: &mut S::Permit, actual: &[u64]) -> Result<(), StoreError> {
        self.call(self.store.settle(permit, actual)).await
    }

    async fn reset(&self, limit: &S::Limit, key: &[u8]) -> Result<bool, StoreError> {
        self.call(self.store.reset(limit, key)).await
    }

    async fn usage(&self) -> Result<Usage, StoreError> {
        self.call(self.store.usage()).await
    }

    async fn busiest(&self, top: Top, n: usize) -> Result<Vec<Busy>, StoreError> {
        self.call(self.store.busiest(top, n)).await
    }

    fn for_request(&self) -> Self {
        Self { store: self.store.for_request(), until: Some(self.until()), ..self.clone() }
    }

    fn nodes(&self) -> u32 {
        self.store.nodes()
    }

    fn health(&self) -> Option<Health> {
        Some(self.health())
    }
}

impl<S: Clone, C> Clone for Guarded<S, C> {
    /// Another handle on the same store, and the same memory of how it has been.
    fn clone(&self) -> Self {
        let (patience, until) = (self.patience, self.until);
        Self { store: self.store.clone(), guard: Arc::clone(&self.guard), patience, until }
    }
}

impl<S: Store, C: Clock> fmt::Debug for Guarded<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guarded")
            .field("patience", &self.patience)
            .field("health", &self.health())
            .finish_non_exhaustive()
    }
}
