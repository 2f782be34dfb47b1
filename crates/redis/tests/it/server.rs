//! What becomes of it in a real server: keys and how long they last, scripts that are forgotten, memory that is full, servers that
//! come late.

use std::time::Duration;

use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use tollgate::store::{Hit, Mode, Rule, Store, Top};
use tollgate::{Kind, Quota, SlidingLog};
use tollgate_redis::{RedisLimit, RedisStore};
use tollgate_testkit::{Redis, free_port};

fn store(redis: &Redis) -> RedisStore {
    RedisStore::new(&redis.url()).expect("a good address")
}

async fn raw(redis: &Redis) -> MultiplexedConnection {
    let client = redis::Client::open(redis.url()).expect("a good address");
    client.get_multiplexed_async_connection().await.expect("it is there")
}

/// The keys of states.
async fn keys(raw: &mut MultiplexedConnection) -> Vec<Vec<u8>> {
    raw.keys("*:{*").await.expect("its keys")
}

async fn take(store: &RedisStore, limit: &RedisLimit, key: &[u8], cost: u64) -> bool {
    let hits = [Hit::new(limit, key).costing(cost)];
    store.decide(Mode::Take, &hits).await.expect("decided").is_admitted()
}

async fn left(store: &RedisStore, limit: &RedisLimit, key: &[u8]) -> Vec<u64> {
    let hits = [Hit::new(limit, key).costing(0)];
    let answer = store.decide(Mode::Peek, &hits).await.expect("decided");
    answer.each().iter().map(|said| said.decision.remaining()).collect()
}

/// Nothing comes back by itself within a test.
const SLOW: Quota = Quota::per_day(1).burst(10);

/// Windows that do not end within a test, whatever the date.
fn long(count: u64) -> Quota {
    Quota::per(count, Duration::from_secs(100 * 365 * 86_400))
}

/// Answers, item 18: the key of a window outlives it by as much as a clock may be put back, so that it is found again then.
#[tokio::test]
async fn a_key_goes_when_its_state_is_as_good_as_new() {
    let redis = Redis::start();
    let (store, mut raw) = (store(&redis), raw(&redis).await);
    for kind in Kind::ALL {
        let limit = store.open(&Rule::new("d", "n", Quota::per_minute(6)).with_kind(kind));
        let answer = store.decide(Mode::Take, &[Hit::new(&limit, b"k")]).await.unwrap();
        let fresh = answer.decision().reset_after().expect("it is fresh one day").as_millis();
        let [key] = &keys(&mut raw).await[..] else { panic!("{kind}: one key") };
        let lasts = u128::try_from(raw.pttl::<_, i64>(key).await.unwrap()).expect("it goes some day");
        // Redis counts milliseconds, and some have passed since.
        let is_window = matches!(kind, Kind::FixedWindow | Kind::PacedWindow);
        let end = fresh + if is_window { 60_000 } else { 0 };
        assert!(lasts <= end + 1 && lasts + 5_000 > end, "{kind}: {lasts} ms, fresh in {fresh} ms");
        let _: () = raw.flushall().await.unwrap();
    }
}

/// Answers, item 20: every key has a time to live, so that none stays for ever and a server that evicts by it knows which to keep; a
/// key whose limit never comes back is kept for a century.
#[tokio::test]
async fn what_never_comes_back_is_forgotten_after_a_century() {
    let redis = Redis::start();
    let (store, mut raw) = (store(&redis), raw(&redis).await);
    let limit = store.open(&Rule::new("d", "n", Quota::per_second(0).burst(2)));
    assert!(take(&store, &limit, b"k", 2).await && !take(&store, &limit, b"k", 1).await);
    let [key] = &keys(&mut raw).await[..] else { panic!("one key") };
    let century = 100 * 365 * 86_400_000;
    let lasts = raw.pttl::<_, i64>(key).await.unwrap();
    assert!(lasts <= century && lasts > century - 60_000, "{lasts}");
}

#[tokio::test]
async fn a_refusal_and_a_look_write_nothing() {
    let redis = Redis::start();
    let (store, mut raw) = (store(&redis), raw(&redis).await);
    for kind in Kind::ALL {
        let limit = store.open(&Rule::new("d", "n", long(5)).with_kind(kind));
        let hit = Hit::new(&limit, b"k");
        for (mode, cost) in
            [(Mode::Take, 6), (Mode::Peek, 1), (Mode::Take, 0), (Mode::Refund, 3), (Mode::Charge, 0)]
        {
            let _ = store.decide(mode, &[hit.costing(cost)]).await.unwrap();
        }
        assert!(keys(&mut raw).await.is_empty(), "{kind}");
        assert!(!store.reset(&limit, b"k").await.unwrap(), "{kind}");
        assert!(take(&store, &limit, b"k", 1).await, "{kind}");
        let before: Vec<u8> = dump(&mut raw).await;
        let both = [hit.costing(1), Hit::new(&limit, b"other").costing(6)];
        assert!(!store.decide(Mode::Take, &both).await.unwrap().is_admitted(), "{kind}");
        assert_eq!(dump(&mut raw).await, before, "{kind}: all or nothing");
        let _: () = raw.flushall().await.unwrap();
    }
}

/// The one key there is, as bytes.
async fn dump(raw: &mut MultiplexedConnection) -> Vec<u8> {
    let [key] = &keys(raw).await[..] else { panic!("one key") };
    redis::cmd("DUMP").arg(key).query_async(raw).await.expect("a dump")
}

#[tokio::test]
async fn keys_are_any_bytes_and_no_two_are_the_same() {
    let redis = Redis::start();
    let (store, mut raw) = (store(&redis), raw(&redis).await);
    let limit = store.open(&Rule::new("d", "n", SLOW));
    let long = vec![b'x'; 100_000];
    let names: [&[u8]; 8] = [b"", b"\0", b"\0\0", b"\xff\xfe", b"{}", b"}{\r\n", &long, &long[1..]];
    for key in names {
        assert!(take(&store, &limit, key, 10).await && !take(&store, &limit, key, 1).await);
    }
    let kept = keys(&mut raw).await;
    assert_eq!(kept.len(), names.len());
    assert!(kept.iter().all(|key| key.starts_with(b"tg2:{") && key.len() < 120));
}

#[tokio::test]
async fn a_rule_that_differs_in_anything_is_another_limit_and_equal_ones_are_one() {
    let redis = Redis::start();
    let (one, two) = (store(&redis), store(&redis));
    let rule = Rule::new("api", "per user", SLOW);
    assert!(take(&one, &one.open(&rule), b"alice", 7).await);
    assert_eq!(left(&two, &two.open(&rule.clone()), b"alice").await, [3]);
    let others = [
        Rule::new("web", "per user", SLOW),
        Rule::new("api", "per user", SLOW.burst(11)),
        rule.clone().with_quota(SLOW),
        rule.clone().with_kind(Kind::LeakyQueue),
    ];
    for other in others {
        let limit = two.open(&other);
        assert_eq!(left(&two, &limit, b"alice").await, left(&two, &limit, b"nobody").await, "{other:?}");
    }
    let apart = RedisStore::builder(&redis.url()).prefix("another app:").build().unwrap();
    assert_eq!(left(&apart, &apart.open(&rule), b"alice").await, [10]);
}

#[tokio::test]
async fn scripts_that_the_server_forgot_are_sent_again() {
    let redis = Redis::start();
    let (store, mut raw) = (store(&redis), raw(&redis).await);
    // A queue would delay the second, and how much a paced window has released depends on the date.
    for kind in Kind::ALL.into_iter().filter(|kind| !matches!(kind, Kind::LeakyQueue | Kind::PacedWindow)) {
        let limit = store.open(&Rule::new("d", kind.name(), long(3)).with_kind(kind));
        for round in 0..2 {
            let _: () = redis::cmd("SCRIPT").arg("FLUSH").query_async(&mut raw).await.unwrap();
            let admitted = store.decide(Mode::Count, &[Hit::new(&limit, b"k").costing(3)]).await.unwrap();
            assert_eq!(admitted.is_admitted(), round == 0, "{kind}");
        }
    }
}

#[tokio::test]
async fn a_server_without_memory_is_said_and_what_was_there_goes_on_when_there_is_some() {
    let redis = Redis::start_with(&["--maxmemory-policy", "noeviction"]);
    let (store, mut raw) = (store(&redis), raw(&redis).await);
    let limit = store.open(&Rule::new("d", "n", SLOW));
    assert!(take(&store, &limit, b"k", 4).await);
    let _: () = redis::cmd("CONFIG").arg(&["SET", "maxmemory", "1"]).query_async(&mut raw).await.unwrap();
    let error = store.decide(Mode::Take, &[Hit::new(&limit, b"k")]).await.unwrap_err();
    assert!(error.is_transient());
    assert_eq!(error.to_string(), "Redis has no memory left: check maxmemory; nothing was charged");
    let _: () = redis::cmd("CONFIG").arg(&["SET", "maxmemory", "0"]).query_async(&mut raw).await.unwrap();
    assert_eq!(left(&store, &limit, b"k").await, [6]);
}

#[tokio::test]
async fn a_replica_refuses_and_nothing_is_taken() {
    let primary = Redis::start();
    let port = primary.port().to_string();
    let replica = Redis::start_with(&["--replicaof", "127.0.0.1", &port]);
    let store = store(&replica);
    let limit = store.open(&Rule::new("d", "n", SLOW));
    let error = store.decide(Mode::Take, &[Hit::new(&limit, b"k")]).await.unwrap_err();
    assert!(error.is_transient() && error.to_string().ends_with("; nothing was charged"), "{error}");
}

#[tokio::test]
async fn somebody_elses_value_under_our_key_is_an_error_that_says_so() {
    let redis = Redis::start();
    let (store, mut raw) = (store(&redis), raw(&redis).await);
    let limit = store.open(&Rule::new("d", "n", SLOW));
    assert!(take(&store, &limit, b"k", 1).await);
    let [key] = &keys(&mut raw).await[..] else { panic!("one key") };
    let _: () = raw.del(key).await.unwrap();
    let _: () = raw.hset(key, "field", "value").await.unwrap();
    let error = store.decide(Mode::Take, &[Hit::new(&limit, b"k")]).await.unwrap_err();
    assert!(!error.is_transient() && error.to_string().contains("set another prefix"), "{error}");
}

#[tokio::test]
async fn a_store_needs_no_server_to_begin_with_and_finds_it_when_it_comes() {
    let port = free_port();
    let store = RedisStore::new(&format!("redis://127.0.0.1:{port}")).unwrap();
    let limit = store.open(&Rule::new("d", "n", SLOW));
    let hit = [Hit::new(&limit, b"k")];
    for _ in 0..3 {
        let error = store.decide(Mode::Take, &hit).await.unwrap_err();
        assert!(error.is_transient(), "{error}");
        assert!(error.to_string().starts_with("cannot connect to Redis"), "{error}");
    }
    let _redis = Redis::start_on(port, &[]);
    // It tries a few times a second.
    let found = tokio::time::timeout(Duration::from_secs(5), async {
        while store.decide(Mode::Take, &hit).await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    found.await.expect("it is found again");
}

#[tokio::test]
async fn a_server_that_ends_and_starts_again_empty_is_found_again() {
    let redis = Redis::start();
    let (store, port) = (store(&redis), redis.port());
    let limit = store.open(&Rule::new("d", "n", SLOW));
    assert!(take(&store, &limit, b"k", 10).await);
    drop(redis);
    let error = store.decide(Mode::Take, &[Hit::new(&limit, b"k")]).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    let _redis = Redis::start_on(port, &[]);
    let found = tokio::time::timeout(Duration::from_secs(5), async {
        loop {
            if let Ok(answer) = store.decide(Mode::Take, &[Hit::new(&limit, b"k")]).await {
                return answer.is_admitted();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    assert!(found.await.expect("it is found again"), "it has forgotten everything");
}

/// Where a state says when it was written, in the algorithm's own ticks, of which there are so many in an hour.
const WRITTEN: [(Kind, &[usize], f64); 7] = [
    (Kind::TokenBucket, &[0], 3_600e6),
    (Kind::LeakyBucket, &[0], 3_600e6),
    (Kind::FixedWindow, &[0], 3_600.0),
    (Kind::PacedWindow, &[0], 3_600.0),
    (Kind::SlidingCounter, &[0], 3_600.0),
    (Kind::SubWindows, &[1, 2], 36_000.0),
    (Kind::SlidingLog, &[5], 3_600e6),
];

fn an_hour_later(state: &mut [u8], places: &[usize], hour: f64) {
    for place in places {
        let word = &mut state[8 * place..][..8];
        let at = f64::from_le_bytes(word.try_into().unwrap()) + hour;
        word.copy_from_slice(&at.to_le_bytes());
    }
}

/// Answers, item 20: a look at a state from a clock that was put back since writes nothing.
#[tokio::test]
async fn a_clock_that_was_put_back_does_not_refuse_until_it_is_there_again() {
    let redis = Redis::start();
    let (store, mut raw) = (store(&redis), raw(&redis).await);
    for (kind, places, hour) in WRITTEN {
        let limit = store.open(&Rule::new("d", "n", Quota::per_second(5)).with_kind(kind));
        assert!(take(&store, &limit, b"k", 1).await);
        let [key] = &keys(&mut raw).await[..] else { panic!("one key") };
        let mut state: Vec<u8> = raw.get(key).await.unwrap();
        an_hour_later(&mut state, places, hour);
        let _: () = raw.set(key, &state).await.unwrap();
        soon_again(&store, &limit, kind).await;
        assert_eq!(raw.get::<_, Vec<u8>>(key).await.unwrap(), state, "{kind}: a look writes nothing");
        let _: () = raw.flushall().await.unwrap();
    }
}

/// One of five is used, and the others are there within the two seconds that the slowest of them takes.
async fn soon_again(store: &RedisStore, limit: &RedisLimit, kind: Kind) {
    let seen = store.decide(Mode::Peek, &[Hit::new(limit, b"k").costing(5)]).await.unwrap();
    let wait = seen.retry_after().expect("some day");
    assert!(wait <= Duration::from_secs(2) && !wait.is_zero(), "{kind}: {wait:?}");
}

#[tokio::test]
async fn a_reset_forgets_all_quotas_of_a_key_and_its_receipts_and_nobody_elses() {
    let redis = Redis::start();
    let store = store(&redis);
    for kind in
        [Kind::TokenBucket, Kind::FixedWindow, Kind::SlidingLog, Kind::SlidingCounter, Kind::SubWindows]
    {
        let rule = Rule::new("d", kind.name(), long(10)).with_quota(long(20)).with_kind(kind);
        let limit = store.open(&rule);
        let hit = [Hit::new(&limit, b"alice").costing(10)];
        let (_, permit) = store.acquire(&hit).await.unwrap();
        assert!(take(&store, &limit, b"bob", 10).await);
        assert!(store.reset(&limit, b"alice").await.unwrap());
        assert!(!store.reset(&limit, b"alice").await.unwrap(), "{kind}");
        assert_eq!(left(&store, &limit, b"alice").await, [10, 20], "{kind}");
        assert!(take(&store, &limit, b"alice", 4).await);
        store.settle(&mut permit.unwrap(), &[0]).await.unwrap();
        assert_eq!(left(&store, &limit, b"alice").await, [6, 16], "{kind}: it is worth nothing any more");
        assert_eq!(left(&store, &limit, b"bob").await, [0, 10], "{kind}");
    }
}

#[tokio::test]
async fn a_permit_is_settled_by_whoever_has_it_and_a_dropped_one_keeps_what_it_took() {
    let redis = Redis::start();
    let (one, two) = (store(&redis), store(&redis));
    let (tokens, requests) =
        (Rule::new("llm", "tokens", SLOW.burst(1_000)), Rule::new("llm", "requests", SLOW));
    let (tokens, requests) = (one.open(&tokens), one.open(&requests));
    let hits = [Hit::new(&requests, b"alice"), Hit::new(&tokens, b"alice").costing(800)];
    let (answer, permit) = one.acquire(&hits).await.unwrap();
    assert!(answer.is_admitted());
    two.settle(&mut permit.unwrap(), &[1, 300]).await.unwrap();
    assert_eq!(
        (left(&one, &requests, b"alice").await, left(&one, &tokens, b"alice").await),
        (vec![9], vec![700])
    );
    drop(one.acquire(&hits[..1]).await.unwrap());
    let (_, permit) = one.acquire(&hits[..1]).await.unwrap();
    one.settle(&mut permit.unwrap(), &[]).await.unwrap();
    assert_eq!(left(&one, &requests, b"alice").await, [7]);
    let (refused, none) = one.acquire(&[hits[0], hits[1].costing(701)]).await.unwrap();
    assert!(!refused.is_admitted() && none.is_none());
    assert_eq!(left(&one, &requests, b"alice").await, [7]);
}

#[tokio::test]
async fn nothing_asked_is_admitted_and_unlimited_ones_ask_nobody() {
    let nobody = RedisStore::new(&format!("redis://127.0.0.1:{}", free_port())).unwrap();
    let limit = nobody.open(&Rule::new("d", "n", Quota::UNLIMITED));
    for mode in [Mode::Take, Mode::Peek, Mode::Count, Mode::Charge, Mode::Refund] {
        // There is no server that could be asked.
        assert!(nobody.decide(mode, &[]).await.expect("nothing asked").is_admitted());
        let answer =
            nobody.decide(mode, &[Hit::new(&limit, b"k").costing(u64::MAX)]).await.expect("unlimited");
        assert_eq!((answer.is_admitted(), answer.decision().remaining()), (true, u64::MAX));
    }
    let (_, permit) = nobody.acquire(&[Hit::new(&limit, b"k")]).await.unwrap();
    nobody.settle(&mut permit.unwrap(), &[7]).await.expect("nothing to settle");
    assert!(!nobody.reset(&limit, b"k").await.unwrap());
}

#[tokio::test]
async fn numbers_as_large_as_they_get_do_no_harm() {
    let redis = Redis::start();
    let store = store(&redis);
    for kind in Kind::ALL {
        let most = if kind == Kind::SlidingLog { SlidingLog::MAX_ENTRIES } else { u64::MAX };
        let quotas = [Quota::per_second(most).burst(u64::MAX), Quota::per_second(0), Quota::UNLIMITED];
        for (number, quota) in quotas.into_iter().enumerate() {
            let limit =
                store.open(&Rule::new("d", number.to_string(), quota).with_kind(kind).with_quota(SLOW));
            for mode in [Mode::Charge, Mode::Take, Mode::Peek, Mode::Count, Mode::Refund, Mode::Take] {
                for cost in [u64::MAX, u64::MAX - 1, 1 << 63, 1 << 52, 0] {
                    let hit = Hit::new(&limit, b"k").costing(cost);
                    let one = store.decide(mode, &[hit]).await.expect("decided");
                    let two = store.decide(mode, &[hit, hit]).await.expect("decided");
                    let takes = cost > 0 && matches!(mode, Mode::Take | Mode::Count);
                    assert!(
                        !(takes && (one.is_admitted() || two.is_admitted())),
                        "{kind} {quota} {mode:?} {cost}"
                    );
                }
            }
            let (_, permit) = store.acquire(&[Hit::new(&limit, b"k").costing(0)]).await.unwrap();
            store.settle(&mut permit.expect("nothing is always admitted"), &[u64::MAX]).await.unwrap();
        }
    }
    let many: Vec<RedisLimit> =
        (0..1_001).map(|number| store.open(&Rule::new("d", number.to_string(), SLOW))).collect();
    let hits: Vec<_> = many.iter().map(|limit| Hit::new(limit, b"k")).collect();
    let error = store.decide(Mode::Take, &hits).await.unwrap_err();
    assert!(error.to_string().starts_with("1001 limits in one call; at most 1000 are allowed"), "{error}");
    assert!(store.decide(Mode::Take, &hits[1..]).await.unwrap().is_admitted());
}

#[tokio::test]
async fn the_busiest_of_this_process_are_known_by_name_and_usage_is_the_servers() {
    let redis = Redis::start();
    let store = RedisStore::builder(&redis.url()).names(10).build().unwrap();
    let limit = store.open(&Rule::new("api", "per user", SLOW.burst(2)));
    for key in [&b"alice"[..], b"bob", b"alice", b"alice"] {
        take(&store, &limit, key, 1).await;
    }
    let asked = store.busiest(Top::Asked, 1).await.unwrap();
    assert_eq!(
        (&*asked[0].domain, &*asked[0].name, &*asked[0].key, asked[0].count),
        ("api", "per user", &b"alice"[..], 3)
    );
    let denied = store.busiest(Top::Denied, 9).await.unwrap();
    assert_eq!((denied.len(), &*denied[0].key, denied[0].count), (1, &b"alice"[..], 1));
    let usage = store.usage().await.unwrap();
    // One more is the list of those who share the server; it comes when it comes.
    assert!(matches!((usage.keys, usage.evicted), (Some(2 | 3), 0)), "{usage:?}");
    assert!(usage.bytes.unwrap() > 100_000);
    store.ping().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_future_that_is_dropped_may_take_what_it_asked_for_and_no_more() {
    let redis = Redis::start();
    let store = store(&redis);
    let limit = store.open(&Rule::new("d", "n", Quota::per_second(0).burst(1_000)));
    assert!(take(&store, &limit, b"k", 0).await);
    let mut given_up = 0;
    for round in 0..200_u64 {
        let hit = [Hit::new(&limit, b"k")];
        tokio::select! {
            biased;
            () = async { for _ in 0..round % 7 { tokio::task::yield_now().await } } => given_up += 1,
            answer = store.decide(Mode::Take, &hit) => assert!(answer.unwrap().is_admitted()),
        }
    }
    let used = 1_000 - left(&store, &limit, b"k").await[0];
    assert!(used <= 200 && used + given_up >= 200, "{used} used, {given_up} given up");
    assert!(given_up > 0);
}
