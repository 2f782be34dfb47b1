//! What the tests share.

use std::ops::Range;
use std::time::Duration;

use tollgate::store::{Answer, Hit, MemoryStore, Mode, Store};
use tollgate::{Clock, Decision, ManualClock, Tick, Verdict};
use tollgate_redis::{Leased, RedisLimit, RedisStore};
use tollgate_testkit::Redis;

/// A store in Redis and one in process, by the same clock.
pub(crate) struct Both {
    pub(crate) redis: RedisStore,
    pub(crate) memory: MemoryStore<ManualClock>,
    pub(crate) clock: ManualClock,
}

impl Both {
    /// `number` keeps its keys apart from those of others.
    pub(crate) fn new(redis: &Redis, number: u64) -> Self {
        let clock = ManualClock::new();
        let store = RedisStore::builder(&redis.url()).prefix(format!("{number}:")).clock(clock.clone());
        Self::by(store.build().expect("the address is good"), clock)
    }

    /// A store in process beside this one, which goes by this clock.
    pub(crate) fn by(redis: RedisStore, clock: ManualClock) -> Self {
        let memory = MemoryStore::builder().clock(clock.clone()).build();
        Self { redis, memory, clock }
    }

    pub(crate) fn now(&self) -> Tick {
        self.clock.now()
    }
}

/// A decision whose times are rounded up to microseconds.
pub(crate) fn in_ticks(decision: Decision) -> (Verdict, u64, u64, u128, Option<u128>, Option<u128>) {
    let ticks = |span: Duration| span.as_nanos().div_ceil(1_000);
    (
        decision.verdict(),
        decision.limit(),
        decision.remaining(),
        ticks(decision.delay()),
        decision.retry_after().map(ticks),
        decision.reset_after().map(ticks),
    )
}

/// The seed in the environment, or all of these.
pub(crate) fn seeds(seeds: Range<u64>) -> Range<u64> {
    match std::env::var("TOLLGATE_SEED").ok().and_then(|text| text.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None => seeds,
    }
}

/// The seed in the environment, as many seeds as it says, or these.
pub(crate) fn histories(usual: Range<u64>) -> Range<u64> {
    match std::env::var("TOLLGATE_HISTORIES").ok().and_then(|text| text.parse().ok()) {
        Some(number) => seeds(0..number),
        None => seeds(usual),
    }
}

/// A store that asks each time, by this clock.
pub(crate) fn plain(redis: &Redis, clock: &ManualClock) -> RedisStore {
    RedisStore::builder(&redis.url()).clock(clock.clone()).build().expect("the address is good")
}

pub(crate) async fn take(store: &RedisStore, limit: &RedisLimit, cost: u64) -> bool {
    let hits = [Hit::new(limit, b"k").costing(cost)];
    store.decide(Mode::Take, &hits).await.expect("decided").is_admitted()
}

/// What Redis says is left of the one key that these tests use.
pub(crate) async fn left(store: &RedisStore, limit: &RedisLimit) -> u64 {
    let hits = [Hit::new(limit, b"k").costing(0)];
    store.decide(Mode::Peek, &hits).await.expect("decided").decision().remaining()
}

/// What is asked of a store with leases.
pub(crate) trait Node {
    async fn answer(&self, limit: &RedisLimit, cost: u64) -> Answer;
    async fn take(&self, limit: &RedisLimit, cost: u64) -> bool;
    fn take_here(&self, limit: &RedisLimit, cost: u64) -> bool;
}

impl Node for Leased {
    async fn answer(&self, limit: &RedisLimit, cost: u64) -> Answer {
        self.decide(Mode::Take, &[Hit::new(limit, b"k").costing(cost)]).await.expect("decided")
    }

    async fn take(&self, limit: &RedisLimit, cost: u64) -> bool {
        self.answer(limit, cost).await.is_admitted()
    }

    fn take_here(&self, limit: &RedisLimit, cost: u64) -> bool {
        let answer = self.decide_now(Mode::Take, &[Hit::new(limit, b"k").costing(cost)]);
        answer.is_some_and(|answer| answer.expect("decided").is_admitted())
    }
}

pub(crate) fn secs(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

/// Waits for something to happen, for some seconds at most.
pub(crate) async fn eventually(mut has_happened: impl FnMut() -> bool) {
    for _ in 0..10_000 {
        if has_happened() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("it did not happen");
}

/// Waits until a store has found its server again.
pub(crate) async fn until_up(store: &RedisStore) {
    for _ in 0..10_000 {
        if store.ping().await.is_ok() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("it is not there");
}

/// How often a server has looked at the state of a bucket or window so far.
pub(crate) fn looks(redis: &Redis) -> u64 {
    let stats = redis.ask(&["INFO", "commandstats"]);
    let calls = |line: &str| line.split_once("calls=")?.1.split(',').next()?.parse::<u64>().ok();
    stats.lines().filter(|line| line.starts_with("cmdstat_get:")).filter_map(calls).sum()
}

/// Looks until it is so.
pub(crate) async fn until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..3_000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it never came about that {what}");
}
