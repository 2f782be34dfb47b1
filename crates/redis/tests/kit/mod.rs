//! What the tests share.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::ops::Range;
use std::time::Duration;

use tollgate::store::MemoryStore;
use tollgate::{Clock, Decision, ManualClock, Tick, Verdict};
use tollgate_redis::RedisStore;
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
        let memory = MemoryStore::builder().clock(clock.clone()).build();
        Self { redis: store.build().expect("the address is good"), memory, clock }
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
