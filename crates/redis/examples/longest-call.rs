//! How long one call can keep Redis busy, for each algorithm on its worst input:
//! `cargo run --release -p tollgate-redis --example longest-call`.
//!
//! It starts a `redis-server`, fills a key as far as its limit allows, and has Redis itself time each call (`SLOWLOG`). A table tells the
//! longest of some calls of each sort in microseconds.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tollgate::store::{Hit, Mode, Rule, Store};
use tollgate::{Kind, ManualClock, Quota};
use tollgate_redis::{RedisLimit, RedisPermit, RedisStore};
use tollgate_testkit::Redis;

/// As many calls in a period as a log may remember.
const COUNT: u32 = 10_000;
const PERIOD: Duration = Duration::from_secs(3_600);
/// A call that writes nothing is timed so often.
const TIMES: u32 = 20;

type Failed = Box<dyn std::error::Error>;

/// A key that is full.
struct Full {
    _redis: Redis,
    raw: MultiplexedConnection,
    clock: ManualClock,
    store: RedisStore,
    limit: RedisLimit,
    /// Of the call in the middle.
    permit: Option<RedisPermit>,
}

impl Full {
    async fn new(kind: Kind) -> Result<Self, Failed> {
        let (redis, clock) = (Redis::start_with(&["--slowlog-log-slower-than", "0"]), ManualClock::new());
        let store = RedisStore::builder(&redis.url()).clock(clock.clone()).build()?;
        let rule = Rule::new("d", "n", Quota::per(COUNT.into(), PERIOD));
        let rule = if kind == Kind::SubWindows { rule.with_sub_windows(1_000) } else { rule.with_kind(kind) };
        let raw = redis::Client::open(redis.url())?.get_multiplexed_async_connection().await?;
        let mut full = Self { limit: store.open(&rule), _redis: redis, raw, clock, store, permit: None };
        full.clock.advance(PERIOD);
        for number in 0..COUNT {
            if number == COUNT / 2 {
                (_, full.permit) = full.store.acquire(&[Hit::new(&full.limit, b"k")]).await?;
            } else {
                full.call(Mode::Charge, 1).await?;
            }
            full.clock.advance(PERIOD / (COUNT + 1));
        }
        Ok(full)
    }

    async fn call(&self, mode: Mode, cost: u32) -> Result<(), Failed> {
        let answer = self.store.decide(mode, &[Hit::new(&self.limit, b"k").costing(cost.into())]).await;
        Ok(answer.map(drop)?)
    }

    /// The longest script since this was last asked, in microseconds.
    async fn longest(&mut self) -> Result<i64, Failed> {
        let log: Vec<redis::Value> =
            redis::cmd("SLOWLOG").arg("GET").arg(TIMES + 5).query_async(&mut self.raw).await?;
        redis::cmd("SLOWLOG").arg("RESET").exec_async(&mut self.raw).await?;
        let time = |entry: &redis::Value| match entry {
            redis::Value::Array(fields) => match &fields[2..4] {
                [redis::Value::Int(time), redis::Value::Array(words)] => {
                    let is_script =
                        matches!(words.first(), Some(redis::Value::BulkString(word)) if word == b"EVALSHA");
                    is_script.then_some(*time)
                }
                _ => None,
            },
            _ => None,
        };
        Ok(log.iter().filter_map(time).max().unwrap_or(0))
    }

    /// The longest of some calls that write nothing.
    async fn longest_of(&mut self, mode: Mode, cost: u32) -> Result<i64, Failed> {
        self.call(mode, cost).await?; // which sends the script
        self.longest().await?;
        for _ in 0..TIMES {
            self.call(mode, cost).await?;
        }
        self.longest().await
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failed> {
    println!(
        "| algorithm | refused at half the limit | given back from the middle | looked at when all is over | admitted then |"
    );
    println!("| --- | --- | --- | --- | --- |");
    for kind in Kind::ALL {
        let mut full = Full::new(kind).await?;
        let refused = full.longest_of(Mode::Take, COUNT / 2).await?;
        if let Some(mut permit) = full.permit.take() {
            full.store.settle(&mut permit, &[0]).await?;
        }
        let given_back = full.longest().await?;
        full.clock.advance(2 * PERIOD);
        let looked = full.longest_of(Mode::Peek, COUNT + 1).await?;
        full.call(Mode::Take, 1).await?;
        let admitted = full.longest().await?;
        println!("| {kind} | {refused} us | {given_back} us | {looked} us | {admitted} us |");
    }
    Ok(())
}
