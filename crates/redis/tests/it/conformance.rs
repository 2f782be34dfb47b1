//! The suite that every algorithm runs, through Redis.
//!
//! The suite counts nanoseconds and the script counts microseconds, so a nanosecond of the suite is a microsecond here: a clock and
//! periods a thousand times slower, and answers a thousand times shorter. Nothing is rounded, and nothing need be tolerated.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use tokio::runtime::Runtime;
use tollgate::store::{Answer, Hit, Mode, Rule, Store};
use tollgate::{AnyAlgorithm, Ask, Decision, Kind, ManualClock, Quota, SlidingLog, Tick};
use tollgate_redis::{RedisLimit, RedisPermit, RedisStore};
use tollgate_sim::Outcome;
use tollgate_sim::conformance::{self, Held, Subject};
use tollgate_testkit::Redis;

const SLOWER: u32 = 1_000;
/// What lies further ahead, the scripts take for a state that was written by another clock.
const LEAP: Duration = Duration::from_secs(60);
/// From here on a double is not exact.
const EXACT: u128 = 1 << 52;

/// Makes subjects that share a server.
struct Server {
    _redis: Redis,
    runtime: Runtime,
    store: RedisStore,
    clock: ManualClock,
    subjects: Cell<u64>,
}

impl Server {
    fn start() -> Rc<Self> {
        let (redis, clock) = (Redis::start(), ManualClock::new());
        let store = RedisStore::builder(&redis.url()).clock(clock.clone()).build().expect("a good address");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        Rc::new(Self { _redis: redis, runtime, store, clock, subjects: Cell::new(0) })
    }

    /// A limit that nobody has hit, beside `others` that are unlimited; core itself where doubles are not exact.
    fn subject(self: &Rc<Self>, kind: Kind, quota: Quota, others: usize) -> Box<dyn Subject> {
        let number = self.subjects.get();
        if !is_exact(kind, quota) {
            return Box::new(Held::new(AnyAlgorithm::new(kind, quota)));
        }
        self.subjects.set(number + 1);
        let rule = |name: &str, quota| Rule::new("suite", name, quota).with_kind(kind);
        let mut limits = vec![self.store.open(&rule("first", slower(quota)))];
        limits.extend((0..others).map(|_| self.store.open(&rule("other", Quota::UNLIMITED))));
        Box::new(Through { server: Rc::clone(self), limits, key: number.to_le_bytes(), admitted: Vec::new() })
    }
}

fn slower(quota: Quota) -> Quota {
    Quota::per(quota.count(), quota.period().saturating_mul(SLOWER)).burst(quota.burst_size())
}

/// Whether all products that the script makes are exact. Beyond that it errs on the safe side, which is tested elsewhere.
fn is_exact(kind: Kind, quota: Quota) -> bool {
    let (count, burst, period) =
        (u128::from(quota.count()), u128::from(quota.burst_size()), quota.period().as_nanos());
    let per_token = period / divisor(count, period).max(1);
    let largest = match kind {
        Kind::TokenBucket | Kind::LeakyBucket | Kind::LeakyQueue => per_token * burst.max(1),
        Kind::PacedWindow => per_token * count,
        _ => period * count,
    };
    let has_room = kind != Kind::SlidingLog || count <= u128::from(SlidingLog::MAX_ENTRIES);
    largest <= EXACT && period <= EXACT && has_room
}

fn divisor(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { divisor(b, a % b) }
}

/// The conformance suite's view of a store.
struct Through {
    server: Rc<Server>,
    limits: Vec<RedisLimit>,
    key: [u8; 8],
    admitted: Vec<Option<(RedisPermit, u64)>>,
}

impl Through {
    fn hits(&self, cost: u64) -> Vec<Hit<'_, RedisLimit>> {
        self.limits.iter().map(|limit| Hit::new(limit, &self.key).costing(cost)).collect()
    }

    fn set(&self, now: Tick) {
        self.server.clock.set(Tick::from_nanos(now.as_nanos() * u64::from(SLOWER)));
    }

    fn decide_as(&self, mode: Mode, cost: u64) -> Answer {
        self.server.runtime.block_on(self.server.store.decide(mode, &self.hits(cost))).expect("decided")
    }
}

fn outcome(answer: &Answer) -> Outcome {
    let decision: Decision = answer.of_hit(0)[0].decision;
    let faster = |span: Duration| u64::try_from(span.as_nanos() / u128::from(SLOWER)).expect("not so long");
    if decision.is_admitted() {
        Outcome::Admit { delay_ns: faster(decision.delay()) }
    } else {
        Outcome::Deny { retry_ns: decision.retry_after().map(faster) }
    }
}

impl Subject for Through {
    fn decide(&mut self, now: Tick, ask: Ask) -> Outcome {
        self.set(now);
        let acquired = self.server.runtime.block_on(self.server.store.acquire(&self.hits(ask.cost())));
        let (answer, permit) = acquired.expect("decided");
        assert_eq!(answer.is_admitted(), permit.is_some());
        self.admitted.extend(permit.map(|permit| Some((permit, ask.cost()))));
        outcome(&answer)
    }

    fn peek(&mut self, now: Tick, ask: Ask) -> Outcome {
        self.set(now);
        outcome(&self.decide_as(Mode::Peek, ask.cost()))
    }

    fn give_back(&mut self, now: Tick, admission: usize, amount: u64) {
        self.set(now);
        if let Some((mut permit, cost)) = self.admitted.get_mut(admission).and_then(Option::take) {
            let actual = vec![cost - amount; self.limits.len()];
            self.server.runtime.block_on(self.server.store.settle(&mut permit, &actual)).expect("settled");
        }
    }

    fn charge(&mut self, now: Tick, extra: u64) {
        self.set(now);
        let _ = self.decide_as(Mode::Charge, extra);
    }

    fn set_quota(&mut self, _: Tick, _: Quota) {
        unreachable!("another quota is another rule");
    }

    fn reset(&mut self) {
        self.server.runtime.block_on(self.server.store.reset(&self.limits[0], &self.key)).expect("reset");
        self.admitted.clear();
    }
}

/// A subject that is one of two, seen as the one that can do less.
struct Either(Box<dyn Subject>);

impl Subject for Either {
    fn decide(&mut self, now: Tick, ask: Ask) -> Outcome {
        self.0.decide(now, ask)
    }

    fn peek(&mut self, now: Tick, ask: Ask) -> Outcome {
        self.0.peek(now, ask)
    }

    fn give_back(&mut self, now: Tick, admission: usize, amount: u64) {
        self.0.give_back(now, admission, amount);
    }

    fn charge(&mut self, now: Tick, extra: u64) {
        self.0.charge(now, extra);
    }

    fn set_quota(&mut self, _: Tick, _: Quota) {
        unreachable!("another quota is another rule");
    }

    fn reset(&mut self) {
        self.0.reset();
    }

    fn can_promise(&self) -> bool {
        false
    }

    fn can_change(&self) -> bool {
        false
    }

    fn latest(&self) -> Tick {
        Tick::from_nanos(1 << 51)
    }

    fn most_behind(&self) -> Duration {
        LEAP / SLOWER
    }
}

fn run(kinds: impl IntoIterator<Item = Kind>, others: usize, seeds: u64) {
    let server = Server::start();
    for kind in kinds {
        let before = server.subjects.get();
        let mut made = 0;
        let make = |quota| {
            made += 1;
            Either(server.subject(kind, quota, others))
        };
        conformance::run(kind, make, 0..seeds);
        let through = server.subjects.get() - before;
        assert!(through * 10 >= made * 6, "{kind}: {through} of {made} went through redis");
    }
}

#[test]
fn one_hit_is_decided_as_its_algorithm_does() {
    // A queue delays who comes alone; it is compared with a store in process.
    run(Kind::ALL.into_iter().filter(|kind| *kind != Kind::LeakyQueue), 0, 150);
}

#[test]
fn a_hit_is_decided_the_same_beside_others_on_unlimited_ones() {
    run(Kind::ALL, 2, 40);
}
