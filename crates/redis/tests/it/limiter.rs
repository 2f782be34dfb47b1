//! Limiters and gates of the library, in several processes' worth of stores.

use std::time::Duration;

use tollgate::Quota;
use tollgate::store::{Denied, Gate, Limiter, Rule, Store};
use tollgate_redis::{Guarded, Leased, Leases, RedisStore};
use tollgate_testkit::Redis;

fn stores(redis: &Redis) -> [Guarded<RedisStore>; 2] {
    // Longer than it would wait: a machine with other things to do may be slow.
    [(); 2].map(|()| Guarded::new(RedisStore::new(&redis.url()).unwrap()).within(Duration::from_secs(10)))
}

#[tokio::test]
async fn two_limiters_admit_the_limit_between_them() -> Result<(), Denied> {
    let redis = Redis::start();
    let rule = Rule::new("d", "per user", Quota::per_day(10));
    let [one, two] = stores(&redis).map(|store| Limiter::new(&store, &rule));
    assert!(one.check_n("ann", 6).await?.is_admitted());
    assert!(!two.check_n("ann", 5).await?.is_admitted());
    let held = two.acquire("ann", 4).await?;
    assert!(!one.allow("ann").await?);
    held.settle([1]).await?;
    assert_eq!(one.peek("ann").await?.decision().remaining(), 2, "three came back, and it would take one");
    assert_eq!(two.charge("ann", 5).await?.decision().remaining(), 0);
    assert_eq!(one.refund("ann", 4).await?.decision().remaining(), 2);
    assert!(two.reset("ann").await?);
    assert!(one.check_n("ann", 10).await?.is_admitted());
    Ok(())
}

#[tokio::test]
async fn a_gate_is_all_or_nothing_across_processes() -> Result<(), Denied> {
    let redis = Redis::start();
    let rules =
        [("requests", 100), ("bytes", 1_000)].map(|(name, n)| Rule::new("d", name, Quota::per_day(n)));
    let [one, two] = stores(&redis).map(|store| Gate::new(&store, rules.each_ref()));
    assert!(one.check_n([("ann", 1), ("", 900)]).await?.is_admitted());
    assert!(two.allow(["ann", ""]).await?);
    let refused = two.check_n([("ann", 1), ("", 100)]).await?;
    assert_eq!((refused.is_admitted(), refused.decided_by().map(|said| said.hit)), (false, Some(1)));
    let left = one.peek_n([("ann", 0), ("", 0)]).await?;
    assert_eq!(left.each().iter().map(|said| said.decision.remaining()).collect::<Vec<_>>(), [98, 99]);
    Ok(())
}

#[tokio::test]
async fn whoever_waits_is_admitted_when_redis_says_so() -> Result<(), Denied> {
    let redis = Redis::start();
    let rule = Rule::new("d", "n", Quota::per(1, Duration::from_millis(40)));
    let [one, two] = stores(&redis).map(|store| Limiter::new(&store, &rule));
    for _ in 0..3 {
        assert!(one.wait("k", Duration::from_secs(60)).await?.is_admitted());
        assert!(two.wait("k", Duration::from_secs(60)).await?.is_admitted());
    }
    let hour = Rule::new("d", "hour", Quota::per_hour(1));
    let slow = Limiter::new(&stores(&redis)[0], &hour);
    assert!(slow.allow("k").await?);
    assert!(matches!(slow.wait("k", Duration::from_secs(60)).await, Err(Denied::ByLimit(_))));
    Ok(())
}

#[tokio::test]
async fn leases_and_a_store_that_is_away() {
    let redis = Redis::start();
    let leased = Leased::new(RedisStore::new(&redis.url()).unwrap(), Leases::up_to(10));
    let limiter = Limiter::new(&leased, &Rule::new("d", "n", Quota::per_second(0).burst(50)));
    let mut admitted = 0;
    for _ in 0..60 {
        admitted += u32::from(limiter.allow("k").await.unwrap());
    }
    assert_eq!(admitted, 50);
    leased.close().await.unwrap();
    drop(redis);
    let store = Guarded::new(leased.inner().clone());
    let cut_off = Limiter::new(&store, &Rule::new("d", "other", Quota::per_second(1)));
    assert!(cut_off.allow("k").await.unwrap_err().is_transient());
    assert!(matches!(cut_off.wait("k", Duration::MAX).await, Err(Denied::ByStore(_))));
    assert_eq!(store.nodes(), 1);
}
