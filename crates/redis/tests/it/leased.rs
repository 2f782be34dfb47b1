//! What a store with leases does, step by step, in virtual time: every number is worked out by hand.

use std::future::{Future, poll_fn};
use std::task::Poll;
use std::time::Duration;

use crate::kit::{Node, eventually, secs};
use redis::AsyncCommands;
use tollgate::store::{Hit, Mode, Rule, Store};
use tollgate::{Kind, ManualClock, Quota};
use tollgate_redis::{Guarded, Leased, Leases, RedisLimit, RedisStore};
use tollgate_testkit::Redis;

/// A node, and somebody else who asks each time.
struct Scene {
    redis: Redis,
    clock: ManualClock,
    plain: RedisStore,
    node: Leased,
    limit: RedisLimit,
}

impl Scene {
    fn new(quota: Quota, leases: Leases) -> Self {
        let (redis, clock) = (Redis::start(), ManualClock::new());
        let plain = crate::kit::plain(&redis, &clock);
        let node = Leased::new(crate::kit::plain(&redis, &clock), leases);
        let limit = plain.open(&Rule::new("d", "n", quota));
        Self { redis, clock, plain, node, limit }
    }

    /// Somebody who has just borrowed four, as many as a first lease may be. One call in a quarter of a second makes four in a
    /// second, which is how long a lease is meant to last.
    async fn with_four(quota: Quota) -> Self {
        let scene = Self::new(quota, Leases::up_to(40));
        assert!(scene.take(1).await);
        scene.clock.advance(secs(0.25)); // which pays off what was taken
        assert!(scene.take(1).await);
        assert_eq!((scene.node.stats().out, scene.node.stats().lent), (4, 4));
        scene
    }

    async fn take(&self, cost: u64) -> bool {
        self.node.take(&self.limit, cost).await
    }

    /// What Redis says is left.
    async fn left(&self) -> u64 {
        crate::kit::left(&self.plain, &self.limit).await
    }

    /// How often Redis has looked at a state.
    fn calls(&self) -> u64 {
        crate::kit::looks(&self.redis)
    }
}

const TEN: Quota = Quota::per_second(10).burst(100);

#[tokio::test]
async fn what_is_out_on_lease_is_kept_free_and_spent_without_asking() {
    let scene = Scene::with_four(TEN).await;
    assert_eq!(scene.left().await, 100 - 1 - 4);
    let before = scene.calls();
    for _ in 0..4 {
        assert!(scene.take(1).await);
    }
    assert_eq!(scene.calls(), before, "nobody was asked");
    let stats = scene.node.stats();
    assert_eq!((stats.spent, stats.out, stats.here, stats.lease), (4, 0, 4, 40));
    assert_eq!(stats.shortfall(), 40 * u64::from(stats.nodes));
    assert_eq!(scene.left().await, 95);
    scene.clock.advance(secs(0.1)); // which pays off what was taken
    assert_eq!(scene.left().await, 96);
    scene.clock.advance(secs(3.0));
    assert_eq!(scene.left().await, 96, "nobody has told yet that it was spent, so time does not pay it off");
}

#[tokio::test]
async fn a_crashed_node_has_spent_all_when_its_time_is_over() {
    let mut scene = Scene::with_four(TEN).await;
    scene.node = Leased::new(scene.plain.clone(), Leases::up_to(0)); // nobody gives back what the old one had
    scene.clock.advance(secs(1.0));
    assert_eq!(scene.left().await, 96);
    assert!(!scene.take(97).await && scene.take(96).await);
    scene.clock.advance(secs(2.9));
    assert_eq!(scene.left().await, 29, "96 - 29 are owed, and four are out");
    scene.clock.advance(secs(0.1));
    assert_eq!(scene.left().await, 30, "96 - 30 are owed, and the four of the lease");
    scene.clock.advance(secs(7.0));
    assert_eq!(scene.left().await, 100);
}

#[tokio::test]
async fn a_lease_that_ended_long_ago_was_paid_off_long_ago() {
    let scene = Scene::with_four(TEN).await;
    scene.clock.advance(secs(4.3)); // it ended at 4 s, and three of it have been paid off since
    assert_eq!(scene.left().await, 99);
    scene.clock.advance(secs(0.1));
    assert_eq!(scene.left().await, 100);
    assert!(!scene.node.take_here(&scene.limit, 1), "and here it cannot be spent any more");
    assert_eq!((scene.node.stats().lost, scene.node.stats().out), (4, 0));
}

#[tokio::test]
async fn what_nobody_asks_for_goes_back_once() {
    let scene = Scene::with_four(TEN).await;
    scene.clock.advance(secs(0.9));
    scene.node.tend().await.unwrap();
    assert_eq!(scene.node.stats().returned, 0, "not for a second yet");
    scene.clock.advance(secs(0.1));
    scene.node.tend().await.unwrap();
    assert_eq!((scene.node.stats().returned, scene.node.stats().out), (4, 0));
    assert_eq!(scene.left().await, 100);
    let before = scene.calls();
    scene.node.tend().await.unwrap();
    assert_eq!((scene.node.stats().returned, scene.calls()), (4, before));
}

#[tokio::test]
async fn what_is_in_use_is_had_for_longer() {
    let scene = Scene::with_four(TEN).await;
    for _ in 0..3 {
        scene.clock.advance(secs(0.9));
        assert!(scene.take(1).await);
        scene.node.tend().await.unwrap();
    }
    // After 2.7 s there is one left, which would have ended at 4 s; as 3 were used in that time, no more were asked for.
    assert_eq!((scene.node.stats().out, scene.node.stats().lent), (1, 4));
    scene.clock.advance(secs(2.0));
    assert!(scene.node.take_here(&scene.limit, 1));
}

#[tokio::test]
async fn closing_gives_back_what_was_not_spent_and_then_asks_each_time() {
    let scene = Scene::with_four(TEN).await;
    assert!(scene.node.take_here(&scene.limit, 1));
    scene.node.close().await.unwrap();
    assert_eq!(scene.left().await, 98);
    scene.node.close().await.unwrap();
    assert_eq!((scene.left().await, scene.node.stats().returned), (98, 3));
    assert!(scene.take(1).await && scene.take(1).await && scene.take(1).await);
    assert_eq!((scene.left().await, scene.node.stats().out), (95, 0));
    let stats = scene.node.stats();
    assert_eq!(stats.lent, stats.spent + stats.returned + stats.lost + stats.out);
}

#[tokio::test]
async fn leases_grow_with_demand_and_shrink_with_it() {
    let scene = Scene::new(Quota::per_second(1_000).burst(100_000), Leases::up_to(64));
    let (mut sizes, mut lent) = (Vec::new(), 0);
    for _ in 0..300 {
        assert!(scene.take(1).await);
        // A call that was begun for more comes to an end before time goes on.
        eventually(|| scene.node.stats().under_way == 0).await;
        let stats = scene.node.stats();
        if stats.lent > lent {
            sizes.push(stats.out);
            lent = stats.lent;
        }
        assert!(stats.out <= 64, "{}", stats.out);
        scene.clock.advance(Duration::from_millis(1));
    }
    assert!(sizes.starts_with(&[4, 8, 16, 32, 64]), "{sizes:?}");
    assert!(scene.node.stats().calls < 20, "{}", scene.node.stats().calls);
    // Now one in half a second. When all is spent, no more than two are expected in a second.
    let mut out = Vec::new();
    for _ in 0..90 {
        scene.clock.advance(secs(0.5));
        assert!(scene.take(1).await);
        scene.node.tend().await.unwrap();
        out.push(scene.node.stats().out);
    }
    assert!(out.iter().rev().take(10).all(|out| *out <= 2), "{out:?}");
}

#[tokio::test]
async fn near_the_limit_there_are_none_and_all_of_it_can_be_had() {
    let scene = Scene::new(Quota::per_second(0).burst(100), Leases::up_to(64));
    for used in 1..=100 {
        assert!(scene.take(1).await, "{used}");
        eventually(|| scene.node.stats().under_way == 0).await;
        let out = scene.node.stats().out;
        assert!(out <= (100 - used) / 2 + 1, "{out} out after {used}");
        assert!(used < 98 || out == 0, "{out} out after {used}");
    }
    assert_eq!(scene.node.stats().out, 0);
    assert!(!scene.take(1).await);
    let before = scene.calls();
    assert!(!scene.take(1).await && !scene.take(7).await);
    assert_eq!((scene.calls(), scene.node.stats().refused_here), (before, 2), "it was refused just now");
}

#[tokio::test]
async fn a_refusal_is_believed_until_there_is_as_much_as_a_lease() {
    let millis = Duration::from_millis;
    let scene = Scene::new(Quota::per_second(500).burst(10), Leases::up_to(3));
    assert!(scene.take(10).await);
    // One is restored in 2 ms, and a lease in 6 ms: that is when to come back, as everybody is told.
    assert_eq!(scene.node.answer(&scene.limit, 1).await.retry_after(), Some(millis(6)));
    scene.clock.advance(millis(5));
    let refused = scene.node.answer(&scene.limit, 2).await;
    assert_eq!((refused.retry_after(), scene.node.stats().refused_here), (Some(millis(1)), 1));
    scene.clock.advance(millis(1));
    assert!(scene.take(3).await);
    // What takes longer than that is asked for when it can be had.
    assert_eq!(scene.node.answer(&scene.limit, 5).await.retry_after(), Some(millis(10)));
    scene.clock.advance(millis(10));
    assert!(scene.take(5).await);
}

#[tokio::test]
async fn a_refusal_is_believed_for_twenty_milliseconds_at_most() {
    let scene = Scene::new(Quota::per_second(100).burst(10), Leases::up_to(8));
    assert!(scene.take(5).await && !scene.take(10).await);
    // Others may give some back before it is restored.
    scene.plain.reset(&scene.limit, b"k").await.unwrap();
    assert!(!scene.take(10).await);
    scene.clock.advance(Duration::from_millis(20));
    assert!(scene.take(10).await);
}

#[tokio::test]
async fn a_smaller_cost_than_the_one_refused_is_asked_for() {
    let scene = Scene::new(Quota::per_second(0).burst(10), Leases::up_to(8));
    assert!(!scene.take(11).await && !scene.take(11).await);
    assert_eq!(scene.node.stats().refused_here, 1);
    assert!(scene.take(10).await);
}

#[tokio::test]
async fn what_is_here_counts_for_whoever_asks_for_more_than_that() {
    let scene = Scene::with_four(TEN).await;
    assert!(scene.take(99).await, "95 are free, and four are here");
    assert_eq!((scene.left().await, scene.node.stats().returned), (0, 4));
}

#[tokio::test]
async fn several_limits_give_all_or_nothing() {
    let scene = Scene::new(Quota::per_second(0).burst(1_000), Leases::up_to(50));
    let few = scene.node.open(&Rule::new("d", "few", Quota::per_second(0).burst(30)));
    let spaced = scene.node.open(&Rule::new("d", "log", Quota::per_day(25)).with_kind(Kind::SlidingLog));
    let both = [Hit::new(&scene.limit, b"k"), Hit::new(&few, b"k")];
    let all = [Hit::new(&scene.limit, b"k"), Hit::new(&spaced, b"k"), Hit::new(&few, b"k")];
    let mut admitted = [0, 0];
    for step in 0..100 {
        let hits = if step % 2 == 0 { &both[..] } else { &all[..] };
        let answer = scene.node.decide(Mode::Take, hits).await.unwrap();
        assert_eq!(answer.each().len(), hits.len());
        admitted[step % 2] += u64::from(answer.is_admitted());
    }
    assert_eq!(admitted.iter().sum::<u64>(), 30, "{admitted:?}");
    scene.node.close().await.unwrap();
    assert_eq!((scene.left().await, crate::kit::left(&scene.plain, &few).await), (970, 0));
    assert_eq!(crate::kit::left(&scene.plain, &spaced).await, 25 - admitted[1]);
    let stats = scene.node.stats();
    assert_eq!((stats.lent, stats.out, stats.lost), (stats.spent + stats.returned, 0, 0));
    assert!(stats.spent > 0, "some of it was spent here");
}

#[tokio::test]
async fn the_same_state_twice_in_one_request_costs_twice() {
    let scene = Scene::with_four(TEN).await;
    let twice = [Hit::new(&scene.limit, b"k").costing(2), Hit::new(&scene.limit, b"k").costing(1)];
    assert!(scene.node.decide_now(Mode::Take, &twice).unwrap().unwrap().is_admitted());
    assert!(scene.node.decide_now(Mode::Take, &twice).is_none(), "there is one left");
    assert_eq!(scene.node.stats().out, 1);
    assert!(scene.node.decide_now(Mode::Peek, &twice[1..]).unwrap().unwrap().is_admitted());
    assert_eq!(scene.node.stats().out, 1);
}

#[tokio::test]
async fn peeks_charges_refunds_and_receipts_are_as_without_leases() {
    let scene = Scene::with_four(Quota::per_second(0).burst(100)).await;
    let hit = |cost| [Hit::new(&scene.limit, b"k").costing(cost)];
    let node = &scene.node;
    assert!(node.decide(Mode::Peek, &hit(4)).await.unwrap().is_admitted());
    assert!(!node.decide(Mode::Peek, &hit(95)).await.unwrap().is_admitted(), "94 are free");
    let _ = node.decide(Mode::Charge, &hit(10)).await.unwrap();
    assert_eq!(scene.left().await, 84);
    let _ = node.decide(Mode::Refund, &hit(5)).await.unwrap();
    assert_eq!(scene.left().await, 89);
    let (_, permit) = node.acquire(&hit(20)).await.unwrap();
    assert_eq!(scene.left().await, 69);
    node.settle(&mut permit.unwrap(), &[1]).await.unwrap();
    assert_eq!(scene.left().await, 88);
    assert!(!node.decide(Mode::Count, &hit(1_000)).await.unwrap().is_admitted());
    assert_eq!((scene.left().await, node.stats().out), (0, 4), "and what is here is still here");
    assert!(scene.take(4).await);
}

#[tokio::test]
async fn a_reset_forgets_what_was_used_and_not_what_others_have() {
    let scene = Scene::with_four(Quota::per_second(0).burst(100)).await;
    let other = Leased::new(crate::kit::plain(&scene.redis, &scene.clock), Leases::up_to(40));
    assert!(other.take(&scene.limit, 1).await && other.take(&scene.limit, 1).await);
    assert_eq!(scene.left().await, 100 - 4 - 8);
    assert!(scene.node.reset(&scene.limit, b"k").await.unwrap());
    assert_eq!((scene.left().await, scene.node.stats().out), (96, 0), "four are out elsewhere");
    other.close().await.unwrap();
    assert_eq!(scene.left().await, 100);
}

#[tokio::test]
async fn fixed_windows_are_lent_and_what_is_lent_counts_in_the_window_it_is_spent_in() {
    let (redis, clock) = (Redis::start(), ManualClock::new());
    let (plain, node) =
        (crate::kit::plain(&redis, &clock), Leased::new(crate::kit::plain(&redis, &clock), Leases::up_to(9)));
    let limit = plain.open(&Rule::new("d", "n", Quota::per_second(20)).with_kind(Kind::FixedWindow));
    clock.advance(secs(0.9));
    assert!(node.take(&limit, 1).await && node.take(&limit, 1).await);
    assert_eq!((node.stats().out, crate::kit::left(&plain, &limit).await), (4, 14));
    clock.advance(secs(0.2));
    assert_eq!(crate::kit::left(&plain, &limit).await, 16, "a new window, of which four are out");
    assert!(node.take_here(&limit, 4));
    assert!(crate::kit::take(&plain, &limit, 16).await && !crate::kit::take(&plain, &limit, 1).await);
}

#[tokio::test]
async fn without_redis_what_is_here_is_spent_until_its_time_is_over() {
    let scene = Scene::with_four(TEN).await;
    let Scene { redis, clock, node, limit, .. } = scene;
    let port = redis.port();
    drop(redis);
    let guarded = Guarded::by(node.clone(), clock.clone());
    let hit = |key: &'static [u8]| [Hit::new(&limit, key)];
    for _ in 0..10 {
        guarded.decide(Mode::Take, &hit(b"somebody else")).await.unwrap_err();
        clock.advance(Duration::from_millis(10));
    }
    assert!(!guarded.health().is_up);
    assert!(guarded.decide(Mode::Take, &hit(b"k")).await.unwrap().is_admitted());
    assert!(guarded.decide(Mode::Take, &hit(b"k")).await.unwrap().is_admitted());
    assert!(guarded.decide_now(Mode::Take, &hit(b"k")).unwrap().unwrap().is_admitted());
    clock.advance(secs(3.75));
    guarded.decide(Mode::Take, &hit(b"k")).await.unwrap_err();
    assert_eq!((node.stats().lost, node.stats().out), (1, 0), "the last one was not spent in time");
    // A server that knows nothing of it lends anew.
    let _redis = Redis::start_on(port, &[]);
    crate::kit::until_up(node.inner()).await;
    assert!(node.take(&limit, 1).await);
    assert_eq!(node.stats().out, 8, "twice as much as the last time, as it was asked for in no time");
}

#[tokio::test]
async fn what_a_server_has_forgotten_is_not_spent_once_that_is_known() {
    let scene = Scene::with_four(TEN).await;
    scene.redis.ask(&["FLUSHALL"]);
    assert!(scene.take(5).await);
    assert_eq!((scene.node.stats().lost, scene.node.stats().returned), (4, 0));
    scene.node.close().await.unwrap();
    assert_eq!(scene.left().await, 95);
}

#[tokio::test]
async fn who_stops_waiting_loses_no_lease() {
    let scene = Scene::new(TEN, Leases::up_to(40));
    assert!(scene.take(1).await);
    {
        let hits = [Hit::new(&scene.limit, b"k")];
        let call = scene.node.decide(Mode::Take, &hits);
        tokio::pin!(call);
        // It is polled once, and sends what it has to say.
        let is_pending = poll_fn(|context| Poll::Ready(call.as_mut().poll(context).is_pending())).await;
        assert!(is_pending);
    }
    eventually(|| scene.node.stats().out == 4).await;
    assert_eq!(scene.left().await, 100 - 2 - 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_comes_while_others_are_asking_finds_what_they_borrowed() {
    let scene = Scene::new(Quota::per_second(0).burst(1_000_000), Leases::up_to(1_000));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..32 {
        let (node, limit) = (scene.node.clone(), scene.limit.clone());
        tasks.spawn(async move {
            for _ in 0..1_000 {
                assert!(node.take(&limit, 1).await);
            }
        });
    }
    tasks.join_all().await;
    let stats = scene.node.stats();
    assert!(stats.here > 25_000, "{stats:?}");
    scene.node.close().await.unwrap();
    assert_eq!(scene.left().await, 1_000_000 - 32_000);
    let stats = scene.node.stats();
    assert_eq!((stats.lent, stats.out, stats.lost), (stats.spent + stats.returned, 0, 0));
}

/// By the server's clock, so that keys go.
#[tokio::test]
async fn a_key_lasts_as_long_as_its_leases_may() {
    let redis = Redis::start();
    let node = Leased::new(RedisStore::new(&redis.url()).unwrap(), Leases::up_to(40).lasting(secs(30.0)));
    let limit = node.open(&Rule::new("d", "n", Quota::per_second(1_000)));
    assert!(node.take(&limit, 1).await && node.take(&limit, 1).await);
    assert!(node.stats().out > 0);
    let lasts: u64 = redis.ask(&["PTTL", &redis.ask(&["KEYS", "*:{*"])]).parse().unwrap();
    // What is owed is paid off in a moment. The rest of these seconds is for a machine that is slow.
    assert!((25_000..=30_100).contains(&lasts), "{lasts}");
    node.close().await.unwrap();
    let lasts: i64 = redis.ask(&["PTTL", &redis.ask(&["KEYS", "*:{*"])]).parse().unwrap_or(0);
    assert!(lasts < 100, "{lasts}");
}

/// A lease that ends an hour from now is from a clock that has since been put back by an hour.
#[tokio::test]
async fn a_lease_from_a_clock_that_was_put_back_ends_now() {
    let redis = Redis::start();
    let node = Leased::new(RedisStore::new(&redis.url()).unwrap(), Leases::up_to(40));
    let limit = node.open(&Rule::new("d", "n", Quota::per_second(0).burst(100)));
    assert!(node.take(&limit, 1).await && node.take(&limit, 1).await);
    assert_eq!(node.stats().out, 4);
    let client = redis::Client::open(redis.url()).unwrap();
    let mut raw = client.get_multiplexed_async_connection().await.unwrap();
    let [key] = &raw.keys::<_, Vec<Vec<u8>>>("*:{*").await.unwrap()[..] else { panic!("one key") };
    let mut state: Vec<u8> = raw.get(key).await.unwrap();
    assert_eq!(state.len(), 8 * (4 + 3 + 4), "at, height, fallen, born; out, first, last; one lease");
    for place in [5, 6, 10] {
        let bytes: &mut [u8; 8] = (&mut state[8 * place..8 * place + 8]).try_into().unwrap();
        *bytes = (f64::from_le_bytes(*bytes) + 3_600e6).to_le_bytes();
    }
    let _: () = raw.set(key, state).await.unwrap();
    let plain = node.inner();
    assert!(!crate::kit::take(plain, &limit, 95).await && crate::kit::take(plain, &limit, 94).await);
    assert!(node.take(&limit, 4).await, "what is here was counted as spent, and may be");
    node.close().await.unwrap();
    assert_eq!(crate::kit::left(plain, &limit).await, 0);
}
