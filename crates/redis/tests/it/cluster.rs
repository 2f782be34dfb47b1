//! Limits that are spread over a cluster.

use std::collections::HashSet;
use std::time::Duration;

use tollgate::store::{Hit, Mode, Rule, Store};
use tollgate::{Kind, Quota};
use tollgate_redis::{Leased, Leases, RedisLimit, RedisStore};
use tollgate_testkit::{Redis, RedisCluster};

/// Nothing comes back by itself within a test.
const SLOW: Quota = Quota::per_day(1).burst(10);

async fn left(store: &RedisStore, limit: &RedisLimit, key: &[u8]) -> Vec<u64> {
    let answer = store.decide(Mode::Peek, &[Hit::new(limit, key).costing(0)]).await.expect("decided");
    answer.each().iter().map(|said| said.decision.remaining()).collect()
}

/// The keys of states on a node.
fn states(node: &Redis) -> Vec<String> {
    node.ask(&["KEYS", "*:{*"]).lines().map(str::to_owned).collect()
}

fn name(number: u32) -> Vec<u8> {
    format!("user {number}").into_bytes()
}

#[tokio::test]
async fn keys_are_spread_and_the_limits_of_one_key_are_together() {
    let cluster = RedisCluster::start(3);
    let store = RedisStore::new(&cluster.url()).unwrap();
    for kind in Kind::ALL {
        let rule = |name: &str| {
            Rule::new("d", name, Quota::per_hour(3)).with_quota(Quota::per_day(9)).with_kind(kind)
        };
        let (one, two) = (store.open(&rule("one")), store.open(&rule("two")));
        for number in 0..20 {
            let key = name(number);
            let answer = store.decide(Mode::Take, &[Hit::new(&one, &key), Hit::new(&two, &key)]).await;
            assert_eq!(answer.expect("all four are in one slot").each().len(), 4, "{kind}");
        }
    }
    let sizes: Vec<usize> = cluster.nodes().iter().map(|node| states(node).len()).collect();
    assert!(sizes.iter().all(|size| *size > 0), "{sizes:?}");
    // One more is the list of those who share the cluster; it comes when it comes.
    let (usage, states) = (store.usage().await.unwrap(), sizes.iter().sum::<usize>() as u64);
    assert!([Some(states), Some(states + 1)].contains(&usage.keys), "{usage:?}, {states}");
}

#[tokio::test]
async fn what_is_spread_is_admitted_together_or_not_at_all() {
    let cluster = RedisCluster::start(3);
    let store = RedisStore::new(&cluster.url()).unwrap();
    for kind in [Kind::TokenBucket, Kind::SlidingLog, Kind::FixedWindow] {
        let long = Duration::from_secs(100 * 365 * 86_400);
        let rule =
            |name: &str, count: u64| Rule::new(kind.name(), name, Quota::per(count, long)).with_kind(kind);
        let (user, everybody) = (store.open(&rule("user", 3)), store.open(&rule("everybody", 20)));
        let mut admitted = 0;
        for number in 0..10 {
            let key = name(number);
            for _ in 0..4 {
                let hits = [Hit::new(&everybody, b""), Hit::new(&user, &key)];
                admitted += u64::from(store.decide(Mode::Take, &hits).await.unwrap().is_admitted());
            }
        }
        // Three for each user, until the twenty of everybody are used up.
        assert_eq!(admitted, 20, "{kind}");
        assert_eq!(left(&store, &everybody, b"").await, [0], "{kind}");
        let mut used = Vec::new();
        for number in 0..10 {
            used.push(3 - left(&store, &user, &name(number)).await[0]);
        }
        assert_eq!(
            used,
            [3, 3, 3, 3, 3, 3, 2, 0, 0, 0],
            "{kind}: who is refused by everybody's gets its own back"
        );
    }
}

#[tokio::test]
async fn permits_charges_and_refunds_reach_every_server() {
    let cluster = RedisCluster::start(3);
    let store = RedisStore::new(&cluster.url()).unwrap();
    let (user, everybody) = (
        store.open(&Rule::new("d", "user", SLOW)),
        store.open(&Rule::new("d", "everybody", SLOW.burst(1_000))),
    );
    let keys: Vec<Vec<u8>> = (0..8).map(name).collect();
    let mut hits: Vec<_> = keys.iter().map(|key| Hit::new(&user, key).costing(6)).collect();
    hits.push(Hit::new(&everybody, b"").costing(48));
    let (answer, permit) = store.acquire(&hits).await.unwrap();
    assert!(answer.is_admitted());
    store.settle(&mut permit.unwrap(), &[2, 2, 2, 2, 9, 9, 9, 9, 44]).await.unwrap();
    assert_eq!(
        (left(&store, &user, &keys[0]).await, left(&store, &user, &keys[7]).await),
        (vec![8], vec![1])
    );
    assert_eq!(left(&store, &everybody, b"").await, [956]);
    let charged = store.decide(Mode::Charge, &hits).await.unwrap();
    assert_eq!(charged.of_hit(0)[0].decision.remaining(), 2);
    let back = store.decide(Mode::Refund, &hits).await.unwrap();
    assert_eq!(back.of_hit(8)[0].decision.remaining(), 956);
    assert!(store.reset(&everybody, b"").await.unwrap());
    assert_eq!(left(&store, &everybody, b"").await, [1_000]);
}

#[tokio::test]
async fn a_tag_brings_limits_of_several_keys_together() {
    let cluster = RedisCluster::start(3);
    let tenant = |_: &Rule, key: &[u8]| key.split(|byte| *byte == b'/').next().unwrap_or(key).to_vec();
    let store = RedisStore::builder(&cluster.url()).tag(tenant).build().unwrap();
    let (user, team) =
        (store.open(&Rule::new("d", "user", SLOW)), store.open(&Rule::new("d", "team", SLOW.burst(12))));
    let hits = [Hit::new(&user, b"acme/alice").costing(6), Hit::new(&team, b"acme").costing(6)];
    assert!(store.decide(Mode::Take, &hits).await.unwrap().is_admitted());
    let servers: HashSet<u16> =
        cluster.nodes().iter().filter(|node| !states(node).is_empty()).map(Redis::port).collect();
    assert_eq!(servers.len(), 1);
}

#[tokio::test]
async fn a_server_that_is_gone_takes_its_own_keys_with_it_and_no_others() {
    let mut cluster = RedisCluster::start(3);
    let store = RedisStore::new(&cluster.url()).unwrap();
    let limit = store.open(&Rule::new("d", "n", SLOW));
    let keys: Vec<Vec<u8>> = (0..30).map(name).collect();
    for key in &keys {
        assert!(store.decide(Mode::Take, &[Hit::new(&limit, key)]).await.unwrap().is_admitted());
    }
    let gone = cluster.take_node(1);
    let lost = states(&gone).len();
    drop(gone);
    let mut failed = 0;
    for key in &keys {
        match store.decide(Mode::Take, &[Hit::new(&limit, key)]).await {
            Ok(answer) => assert_eq!(answer.decision().remaining(), 8),
            Err(error) => {
                assert!(error.is_transient(), "{error}");
                failed += 1;
            }
        }
    }
    assert_eq!(failed, lost);
}

/// The slot of the one key on a node, and the node.
fn where_it_is(cluster: &RedisCluster) -> (usize, String) {
    let from = cluster.nodes().iter().position(|node| states(node).len() == 1).expect("one key");
    let key = &states(&cluster.nodes()[from])[0];
    (from, cluster.nodes()[from].ask(&["CLUSTER", "KEYSLOT", key]))
}

#[tokio::test]
async fn a_slot_that_moves_is_followed_and_nothing_is_counted_twice() {
    let cluster = RedisCluster::start(3);
    let store = RedisStore::new(&cluster.url()).unwrap();
    let limit = store.open(&Rule::new("d", "n", Quota::per_second(0).burst(1_000)));
    let hit = [Hit::new(&limit, b"k")];
    let take = async |times: usize| {
        for _ in 0..times {
            assert!(store.decide(Mode::Take, &hit).await.expect("followed").is_admitted());
        }
    };
    take(1).await;
    let (from, slot) = where_it_is(&cluster);
    let to = (from + 1) % 3;
    let [from, to] = [&cluster.nodes()[from], &cluster.nodes()[to]];
    let ids = [from, to].map(|node| node.ask(&["CLUSTER", "MYID"]));
    assert_eq!(to.ask(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &ids[0]]), "OK");
    assert_eq!(from.ask(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &ids[1]]), "OK");
    take(5).await; // where it still is
    let key = &states(from)[0];
    let moved = from.ask(&["MIGRATE", "127.0.0.1", &to.port().to_string(), key, "0", "5000"]);
    assert_eq!(moved, "OK");
    take(5).await; // the new one is asked, though the slot is still the old one's
    for node in [to, from] {
        assert_eq!(node.ask(&["CLUSTER", "SETSLOT", &slot, "NODE", &ids[1]]), "OK");
    }
    take(5).await; // the old one says where it has gone
    assert_eq!(left(&store, &limit, b"k").await, [1_000 - 16]);
    assert_eq!((states(from).len(), states(to).len()), (0, 1));
}

#[tokio::test]
async fn leases_are_of_one_key_and_what_is_spread_is_decided_without() {
    let cluster = RedisCluster::start(3);
    let node = Leased::new(RedisStore::new(&cluster.url()).unwrap(), Leases::up_to(4));
    let limit = node.open(&Rule::new("d", "n", Quota::per_second(0).burst(50)));
    for number in 0..20 {
        let key = name(number);
        for _ in 0..10 {
            let answer = node.decide(Mode::Take, &[Hit::new(&limit, &key)]).await.expect("decided");
            assert!(answer.is_admitted());
        }
    }
    let (first, second) = (name(0), name(1));
    let both = [Hit::new(&limit, &first).costing(20), Hit::new(&limit, &second).costing(20)];
    assert!(node.decide(Mode::Take, &both).await.expect("decided").is_admitted());
    assert!(node.stats().spent > 20, "{:?}", node.stats());
    node.close().await.expect("closed");
    for number in 0..20 {
        let want = if number < 2 { 20 } else { 40 };
        assert_eq!(left(node.inner(), &limit, &name(number)).await, [want], "{number}");
    }
    let stats = node.stats();
    assert_eq!((stats.out, stats.lost, stats.lent), (0, 0, stats.spent + stats.returned));
}
