//! A store that does not answer keeps nobody waiting. In tokio's time, which these tests move.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use tollgate::store::{
    Answer, Busy, Hit, MemoryLimit, MemoryPermit, MemoryStore, Mode, Rule, Store, StoreError, Top, Usage,
};
use tollgate::{Quota, TokioClock};
use tollgate_redis::{Guarded, PATIENCE};

/// What the store does.
#[derive(Clone, Copy)]
enum Mood {
    Answers,
    Fails,
    CannotDoThat,
    Hangs,
    TakesTenMillis,
}

/// A store that does as it is told, and counts how often it was asked.
#[derive(Clone)]
struct Moody {
    store: MemoryStore,
    mood: Arc<AtomicU8>,
    asked: Arc<AtomicU64>,
}

impl Moody {
    fn new() -> Self {
        Self { store: MemoryStore::new(), mood: Arc::default(), asked: Arc::default() }
    }

    fn is(&self, mood: Mood) {
        self.mood.store(mood as u8, Ordering::Relaxed);
    }

    fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    async fn answer(&self) -> Result<(), StoreError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        match self.mood.load(Ordering::Relaxed) {
            0 => Ok(()),
            1 => Err(StoreError::transient("it is away")),
            2 => Err(StoreError::permanent("it cannot do that")),
            3 => pending().await,
            _ => {
                tokio::time::sleep(Duration::from_millis(10)).await;
                Ok(())
            }
        }
    }
}

impl Store for Moody {
    type Limit = MemoryLimit;
    type Permit = MemoryPermit;

    fn open(&self, rule: &Rule) -> MemoryLimit {
        self.store.open(rule)
    }

    async fn decide(&self, mode: Mode, hits: &[Hit<'_, MemoryLimit>]) -> Result<Answer, StoreError> {
        self.answer().await?;
        self.store.decide(mode, hits).await
    }

    async fn acquire(
        &self,
        hits: &[Hit<'_, MemoryLimit>],
    ) -> Result<(Answer, Option<MemoryPermit>), StoreError> {
        self.answer().await?;
        self.store.acquire(hits).await
    }

    async fn settle(&self, permit: &mut MemoryPermit, actual: &[u64]) -> Result<(), StoreError> {
        self.answer().await?;
        self.store.settle(permit, actual).await
    }

    async fn reset(&self, limit: &MemoryLimit, key: &[u8]) -> Result<bool, StoreError> {
        self.answer().await?;
        self.store.reset(limit, key).await
    }

    async fn usage(&self) -> Result<Usage, StoreError> {
        self.answer().await?;
        self.store.usage().await
    }

    async fn busiest(&self, top: Top, n: usize) -> Result<Vec<Busy>, StoreError> {
        self.answer().await?;
        self.store.busiest(top, n).await
    }

    fn nodes(&self) -> u32 {
        7
    }
}

struct Scene {
    moody: Moody,
    guarded: Guarded<Moody, TokioClock>,
    limit: MemoryLimit,
}

impl Scene {
    fn new() -> Self {
        let moody = Moody::new();
        let guarded = Guarded::by(moody.clone(), TokioClock::new());
        let limit = guarded.open(&Rule::new("d", "n", Quota::per_second(1_000_000)));
        Self { moody, guarded, limit }
    }

    /// Fails until it is left alone.
    async fn wear_out(&self) {
        self.moody.is(Mood::Fails);
        for _ in 0..5 {
            tokio::time::advance(Duration::from_millis(20)).await;
            self.call().await.0.unwrap_err();
        }
        assert!(!self.guarded.health().is_up);
    }

    /// Whether a decision was made, and how long it took.
    async fn call(&self) -> (Result<(), StoreError>, Duration) {
        self.call_by(&self.guarded).await
    }

    async fn call_by(&self, store: &Guarded<Moody, TokioClock>) -> (Result<(), StoreError>, Duration) {
        let start = Instant::now();
        let result = store.decide(Mode::Take, &[Hit::new(&self.limit, b"ann")]).await;
        (result.map(drop), start.elapsed())
    }
}

#[tokio::test(start_paused = true)]
async fn what_hangs_is_given_up_in_time_and_then_left_alone() {
    let scene = Scene::new();
    scene.moody.is(Mood::Hangs);
    for _ in 0..5 {
        let (result, took) = scene.call().await;
        let error = result.unwrap_err();
        assert!(error.is_transient());
        assert!(error.to_string().starts_with("no response within 25ms"), "{error}");
        assert_eq!(took, PATIENCE);
    }
    let (result, took) = scene.call().await;
    assert!(result.unwrap_err().to_string().contains("circuit breaker open"));
    assert_eq!((took, scene.moody.asked()), (Duration::ZERO, 5));
    let health = scene.guarded.health();
    assert_eq!((health.is_up, health.late, health.untried, health.answered), (false, 5, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn all_calls_for_one_request_have_one_time_out() {
    let scene = Scene::new();
    scene.moody.is(Mood::TakesTenMillis);
    for _ in 0..3 {
        let request = scene.guarded.for_request().for_request();
        for (is_answered, millis) in [(true, 10), (true, 10), (false, 5), (false, 0)] {
            let (result, took) = scene.call_by(&request.clone()).await;
            assert_eq!((result.is_ok(), took), (is_answered, Duration::from_millis(millis)));
        }
    }
    assert!(scene.call().await.0.is_ok(), "other calls have a time-out of their own");
    let patient = scene.guarded.clone().within(Duration::MAX).for_request();
    assert_eq!(scene.call_by(&patient).await.1, Duration::from_millis(10));
}

#[tokio::test(start_paused = true)]
async fn while_it_is_away_few_calls_wait_for_it_and_none_for_long() {
    let scene = Scene::new();
    scene.moody.is(Mood::Hangs);
    for _ in 0..10_000 {
        let (_, took) = scene.call().await;
        assert!(took <= PATIENCE);
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    // Ten seconds or more, with a pause of 0.2 s at least between attempts once it has been away for a while.
    assert!(scene.moody.asked() < 5 + 10 + 60, "{}", scene.moody.asked());
}

#[tokio::test(start_paused = true)]
async fn within_a_second_of_its_return_all_calls_are_answered() {
    for away in [0, 60, 200, 900, 5_000] {
        let scene = Scene::new();
        scene.moody.is(Mood::Fails);
        for _ in 0..5 + away {
            scene.call().await.0.unwrap_err();
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        scene.moody.is(Mood::Answers);
        let back = Instant::now();
        let mut last_refused = back;
        while back.elapsed() < Duration::from_secs(3) {
            if scene.call().await.0.is_err() {
                last_refused = Instant::now();
            }
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert!(last_refused - back < Duration::from_secs(1), "{away}: {:?}", last_refused - back);
        assert!(scene.guarded.health().is_up);
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_comes_back_is_not_run_over() {
    let scene = Scene::new();
    scene.wear_out().await;
    scene.moody.is(Mood::Hangs); // it takes calls in, and answers none yet
    tokio::time::advance(Duration::from_millis(50)).await;
    let before = scene.moody.asked();
    let calls: Vec<_> = (0..1_000).map(|_| scene.call()).collect();
    let all = futures_of(calls);
    assert!(tokio::time::timeout(Duration::from_millis(10), all).await.is_err(), "one of them waits");
    assert_eq!(scene.moody.asked() - before, 1);
}

/// Drives all of them at once.
async fn futures_of<F: Future>(futures: Vec<F>) {
    let mut all: Vec<_> = futures.into_iter().map(|future| (Box::pin(future), false)).collect();
    std::future::poll_fn(|context| {
        for (future, is_done) in &mut all {
            *is_done = *is_done || future.as_mut().poll(context).is_ready();
        }
        if all.iter().all(|(_, is_done)| *is_done) {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_it_cannot_do_is_no_reason_to_leave_it_alone() {
    let scene = Scene::new();
    scene.moody.is(Mood::CannotDoThat);
    for _ in 0..100 {
        assert!(!scene.call().await.0.unwrap_err().is_transient());
    }
    assert!(scene.guarded.health().is_up);
}

#[tokio::test(start_paused = true)]
async fn everything_that_is_asked_of_it_is_guarded() {
    let scene = Scene::new();
    let (answer, permit) = scene.guarded.acquire(&[Hit::new(&scene.limit, b"ann").costing(9)]).await.unwrap();
    assert!(answer.is_admitted());
    scene.moody.is(Mood::Hangs);
    let start = Instant::now();
    let guarded = &scene.guarded;
    guarded.acquire(&[Hit::new(&scene.limit, b"ann")]).await.unwrap_err();
    guarded.settle(&mut permit.unwrap(), &[1]).await.unwrap_err();
    guarded.reset(&scene.limit, b"ann").await.unwrap_err();
    guarded.usage().await.unwrap_err();
    assert!(guarded.busiest(Top::Asked, 1).await.is_err());
    assert_eq!(start.elapsed(), PATIENCE * 5);
    assert_eq!(guarded.nodes(), 7, "what it knows without asking");
}

#[tokio::test(start_paused = true)]
async fn whoever_stops_waiting_for_a_probe_leaves_the_next_one_its_turn() {
    let scene = Scene::new();
    scene.wear_out().await;
    scene.moody.is(Mood::Hangs);
    tokio::time::advance(Duration::from_millis(50)).await;
    tokio::time::timeout(Duration::from_millis(5), scene.call()).await.unwrap_err();
    scene.moody.is(Mood::Answers);
    scene.call().await.0.unwrap();
}
