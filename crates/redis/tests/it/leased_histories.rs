//! Nodes with leases, and others without, share one limit, and together are never admitted more than it says, over any span;
//! nor less by more than what is out on lease.

use std::time::Duration;

use crate::kit::{Node, plain, secs, seeds};
use fastrand::Rng;
use tollgate::store::{Hit, Mode, Rule, Store};
use tollgate::{Clock, Kind, ManualClock, MonotonicClock, Quota};
use tollgate_redis::{Leased, Leases, RedisLimit, RedisStore};
use tollgate_sim::bound::Bound;
use tollgate_sim::history::Operation;
use tollgate_testkit::Redis;

/// Nodes that come and go, and what they were admitted.
struct Fleet<'a> {
    redis: &'a Redis,
    clock: ManualClock,
    kind: Kind,
    quota: Quota,
    leases: Leases,
    limit: RedisLimit,
    nodes: Vec<Leased>,
    /// One that asks each time.
    plain: RedisStore,
    history: Vec<Operation>,
}

impl<'a> Fleet<'a> {
    fn new(redis: &'a Redis, kind: Kind, quota: Quota, nodes: usize, leases: Leases) -> Self {
        let clock = ManualClock::new();
        let plain = plain(redis, &clock);
        let limit = plain.open(&Rule::new("d", format!("{:x}", fastrand::u64(..)), quota).with_kind(kind));
        let history = Vec::new();
        let mut fleet = Self { redis, clock, kind, quota, leases, limit, nodes: Vec::new(), plain, history };
        fleet.nodes = (0..nodes).map(|_| fleet.node()).collect();
        fleet
    }

    fn node(&self) -> Leased {
        Leased::new(plain(self.redis, &self.clock), self.leases)
    }

    /// Time does not pass while it asks.
    fn note(&mut self, is_admitted: bool, cost: u64) -> bool {
        if is_admitted {
            self.history.push(Operation::at(self.clock.now().as_nanos(), cost));
        }
        is_admitted
    }

    async fn take(&mut self, node: usize, cost: u64) -> bool {
        let is_admitted = self.nodes[node].take(&self.limit, cost).await;
        self.note(is_admitted, cost)
    }

    async fn take_plain(&mut self, cost: u64) -> bool {
        let is_admitted = crate::kit::take(&self.plain, &self.limit, cost).await;
        self.note(is_admitted, cost)
    }

    /// Everybody asks in turn until all are refused.
    async fn drain(&mut self) {
        loop {
            let mut is_admitted = self.take_plain(1).await;
            for node in 0..self.nodes.len() {
                is_admitted |= self.take(node, 1).await;
            }
            if !is_admitted {
                return;
            }
        }
    }

    fn check(&self, context: &str) {
        if let Err(violation) = Bound::of(self.kind, self.quota).check(&self.history) {
            panic!("{context}: {violation}");
        }
    }
}

fn draw_quota(rng: &mut Rng) -> Quota {
    let quota = Quota::per_second([5, 40, 1_000][rng.usize(..3)]);
    if rng.bool() { quota.burst(rng.u64(5..200)) } else { quota }
}

/// Anything may happen, in any order, but for what is not a matter of the limit.
async fn live(redis: &Redis, seed: u64, kind: Kind, nodes: usize) {
    let mut rng = Rng::with_seed(seed);
    let leases = Leases::up_to([2, 10, 50][rng.usize(..3)]).lasting(secs([0.1, 1.0, 4.0][rng.usize(..3)]));
    let mut fleet = Fleet::new(redis, kind, draw_quota(&mut rng), nodes, leases);
    for _ in 0..120 {
        let node = rng.usize(..nodes);
        match rng.u8(..24) {
            0 => fleet.nodes[node].tend().await.expect("tended"),
            1 => fleet.nodes[node].close().await.expect("closed"),
            // A node that was closed, or not, is gone, and another comes.
            2 => fleet.nodes[node] = fleet.node(),
            3 => fleet.drain().await,
            4..6 => fleet.clock.advance(secs(4.0 * rng.f64())),
            6..12 => fleet.clock.advance(Duration::from_micros(rng.u64(..100_000))),
            12..15 => drop(fleet.take_plain(rng.u64(1..4)).await),
            _ => drop(fleet.take(node, rng.u64(1..4)).await),
        }
    }
    fleet.check(&format!("{kind}, seed {seed}, {nodes} nodes, {} {leases:?}", fleet.quota));
}

#[tokio::test]
async fn never_more_than_the_limit_whatever_happens() {
    let redis = Redis::start();
    for kind in [Kind::TokenBucket, Kind::FixedWindow] {
        for nodes in [2, 8] {
            for seed in seeds(0..40) {
                live(&redis, seed, kind, nodes).await;
            }
        }
    }
}

/// The worst that can be done to leases: borrow as much as possible, wait until all that is owed is paid off, then spend
/// everything at once, and more.
#[tokio::test]
async fn never_more_than_the_limit_after_hoarding() {
    let redis = Redis::start();
    for nodes in [2, 8] {
        for wait in [0.5, 1.0, 3.7, 3.9, 4.1] {
            let quota = Quota::per_second(1_000).burst(3_000);
            let mut fleet = Fleet::new(&redis, Kind::TokenBucket, quota, nodes, Leases::up_to(60));
            // Who asks for one more than it has borrows twice as much as the last time.
            for node in (0..6).flat_map(|_| 0..nodes) {
                fleet.take(node, fleet.nodes[node].stats().out + 1).await;
                fleet.clock.advance(Duration::from_micros(100));
            }
            assert!(fleet.nodes.iter().all(|node| node.stats().out == 60), "they hoard");
            fleet.clock.advance(secs(wait));
            fleet.drain().await;
            fleet.clock.advance(secs(wait));
            fleet.drain().await;
            fleet.check(&format!("{nodes} nodes, {wait} s"));
        }
    }
}

#[tokio::test]
async fn less_than_the_limit_by_no_more_than_is_out() {
    let redis = Redis::start();
    for kind in [Kind::TokenBucket, Kind::FixedWindow] {
        for nodes in [2, 8] {
            let hundred_years = Duration::from_secs(100 * 365 * 86_400);
            let quota = match kind {
                Kind::TokenBucket => Quota::per_second(0).burst(1_000),
                _ => Quota::per(1_000, hundred_years),
            };
            let mut fleet = Fleet::new(&redis, kind, quota, nodes, Leases::up_to(20));
            for _ in 0..3 {
                for node in 0..nodes {
                    fleet.take(node, 1).await;
                }
            }
            // One asks for all that it can get, while the others only have their leases.
            while fleet.take(0, 1).await {}
            let (admitted, out) =
                (fleet.history.len() as u64, fleet.nodes.iter().map(|node| node.stats().out));
            let out: u64 = out.sum();
            assert!(out > 0 && out <= fleet.nodes[0].stats().lease * nodes as u64, "{out}");
            assert_eq!(admitted + out, 1_000, "{kind}, {nodes} nodes: all that is missing is out on lease");
            // And all of it can be had once it is given back: exactly once.
            for node in &fleet.nodes {
                node.close().await.expect("closed");
            }
            fleet.drain().await;
            assert_eq!(fleet.history.len(), 1_000, "{kind}, {nodes} nodes");
        }
    }
}

/// By the server's clock, with as many threads as there are. An operation counts against a span if it lies wholly in it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn never_more_than_the_limit_in_real_time() {
    let redis = Redis::start();
    for (nodes, tasks) in [(2, 8), (8, 2)] {
        let quota = Quota::per_second(5_000).burst(2_000);
        let rule = Rule::new("real", format!("{nodes} nodes"), quota);
        let clock = MonotonicClock::new();
        let mut all = tokio::task::JoinSet::new();
        for _ in 0..nodes {
            let store = RedisStore::new(&redis.url()).expect("a good address");
            let node = Leased::new(store, Leases::up_to(50));
            for _ in 0..tasks {
                all.spawn(hammer(node.clone(), node.open(&rule), clock));
            }
        }
        let history: Vec<Operation> = all.join_all().await.into_iter().flatten().collect();
        assert!(history.len() >= 1_500, "{} were admitted", history.len());
        if let Err(violation) = Bound::of(Kind::TokenBucket, quota).check(&history) {
            panic!("{nodes} nodes: {violation}");
        }
    }
}

/// Asks until it has been refused often, and lets others have their turn then.
async fn hammer(node: Leased, limit: RedisLimit, clock: MonotonicClock) -> Vec<Operation> {
    let (mut history, mut refused) = (Vec::new(), 0);
    while refused < 300 {
        let invoke_ns = clock.now().as_nanos();
        let answer = node.decide(Mode::Take, &[Hit::new(&limit, b"hot")]).await.expect("decided");
        let response_ns = clock.now().as_nanos();
        if answer.is_admitted() {
            history.push(Operation { invoke_ns, response_ns, cost: 1 });
        } else {
            refused += 1;
            tokio::task::yield_now().await;
        }
    }
    history
}
