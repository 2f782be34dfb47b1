//! Leases beside asking each time: one hot key, and a hundred thousand of which some are hot.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tollgate::Quota;
use tollgate::store::{Hit, Mode, Rule, Store};
use tollgate_benches::{Better, Case, Contender, Goal, alternate};
use tollgate_redis::{Leased, Leases, RedisLimit, RedisStore};
use tollgate_testkit::Redis;

use crate::{Place, Round, TASKS, runtime};

const KEYS: usize = 100_000;
/// The largest lease.
const LEASE: u64 = 1_000;

/// Who is asked about, in order.
struct Load {
    name: &'static str,
    keys: Vec<Box<[u8]>>,
    /// How much faster leases are meant to be.
    goal: f64,
    /// How many calls a round has: asked each time, and with leases.
    calls: [u64; 2],
}

/// Calls a second of 64 tasks, and what Redis needs for each.
pub(crate) fn cases(rounds: usize, calls: u64) -> Vec<Case> {
    let hot = Load { name: "hot-key", keys: vec![(*b"hot").into()], goal: 20.0, calls: [calls, 30 * calls] };
    let zipf = Load { name: "zipf-100k-keys", keys: zipf_keys(), goal: 3.0, calls: [calls, 5 * calls] };
    [hot, zipf].into_iter().flat_map(|load| compare(rounds, load)).collect()
}

fn compare(rounds: usize, load: Load) -> [Case; 2] {
    let speed = Case::new(format!("leased-{}", load.name), "calls/s", Better::Higher);
    let mut speed = speed.goal(Goal::ratio_at_least("leased", "exact", load.goal));
    let mut server = Case::new(format!("leased-{}-redis-cpu", load.name), "us a call", Better::Lower);
    let place = Place::new(Redis::start(), runtime());
    // Nobody is ever refused.
    let rule = Rule::new("bench", load.name, Quota::per_second(1_000_000_000));
    let (exact, limit) = (place.store.clone(), place.store.open(&rule));
    let leased =
        Leased::new(RedisStore::new(&place.redis.url()).expect("a good address"), Leases::up_to(LEASE));
    let ([few, many], keys) = (load.calls, Arc::<[_]>::from(load.keys));
    let contenders: Vec<Contender<'_, Round>> = vec![
        ("exact", Box::new(|| round(&place, &exact, &limit, &keys, few))),
        ("leased", Box::new(|| round(&place, &leased, &limit, &keys, many))),
    ];
    alternate(rounds, &contenders, |name, round| {
        speed.sample(name, round.calls_a_second);
        server.sample(name, round.server_us);
    });
    println!("{}: {:?}", load.name, leased.stats());
    [speed, server]
}

fn round<S: Store<Limit = RedisLimit>>(
    place: &Place,
    store: &S,
    limit: &RedisLimit,
    keys: &Arc<[Box<[u8]>]>,
    calls: u64,
) -> Round {
    let (next, before, start) = (Arc::new(AtomicU64::new(0)), place.server_seconds(), Instant::now());
    place.runtime.block_on(async {
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..TASKS {
            tasks.spawn(ask(store.clone(), limit.clone(), Arc::clone(keys), Arc::clone(&next), calls));
        }
        tasks.join_all().await;
    });
    let (seconds, server) = (start.elapsed().as_secs_f64(), place.server_seconds() - before);
    Round { calls_a_second: calls as f64 / seconds, server_us: server * 1e6 / calls as f64 }
}

/// Asks for one key after another until all calls have been made.
async fn ask<S: Store<Limit = RedisLimit>>(
    store: S,
    limit: RedisLimit,
    keys: Arc<[Box<[u8]>]>,
    next: Arc<AtomicU64>,
    calls: u64,
) {
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= calls {
            return;
        }
        let key = &keys[number as usize % keys.len()];
        let answer = store.decide(Mode::Take, &[Hit::new(&limit, key)]).await;
        assert!(answer.expect("decided").is_admitted());
    }
}

/// A million calls; the key of rank r has a weight of 1/r (an exponent of 1.0), so the first has 8 % of them.
fn zipf_keys() -> Vec<Box<[u8]>> {
    let mut sum = 0.0;
    let sums: Vec<f64> = (1..=KEYS)
        .map(|rank| {
            sum += 1.0 / rank as f64;
            sum
        })
        .collect();
    let mut chance = fastrand::Rng::with_seed(1);
    let mut rank = || {
        let drawn = chance.f64() * sum;
        sums.partition_point(|sum| *sum <= drawn).min(KEYS - 1)
    };
    (0..1_000_000).map(|_| format!("user:{}", rank()).into_bytes().into()).collect()
}
