//! Whichever server is the primary.

use std::time::Duration;

use tollgate::Quota;
use tollgate::store::{Hit, Mode, Rule, Store};
use tollgate_redis::RedisStore;
use tollgate_testkit::RedisSentinel;

#[tokio::test]
async fn the_primary_is_found_and_found_again_when_another_takes_over() {
    let servers = RedisSentinel::start();
    let store = RedisStore::new(&servers.url()).unwrap();
    let limit = store.open(&Rule::new("d", "n", Quota::per_second(0).burst(100)));
    let hit = [Hit::new(&limit, b"k")];
    for _ in 0..10 {
        assert!(store.decide(Mode::Take, &hit).await.unwrap().is_admitted());
    }
    assert_eq!(servers.servers()[0].ask(&["WAIT", "1", "5000"]), "1");
    servers.fail_over();
    let found = tokio::time::timeout(Duration::from_secs(20), async {
        loop {
            match store.decide(Mode::Take, &hit).await {
                Ok(answer) => return answer,
                Err(error) => assert!(error.is_transient(), "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    let answer = found.await.expect("the new primary is found");
    assert_eq!(answer.decision().remaining(), 89, "what was replicated is remembered");
}

/// Answers, item 24: sentinels that ask for a password are given theirs, which is not that of the servers.
#[tokio::test]
async fn sentinels_are_given_their_password() {
    let servers = RedisSentinel::start();
    assert_eq!(servers.ask(&["ACL", "SETUSER", "default", "resetpass", ">hunter2"]), "OK");
    let rule = Rule::new("d", "n", Quota::per_second(0).burst(100));
    let take = async |store: RedisStore| {
        let limit = store.open(&rule);
        store.decide(Mode::Take, &[Hit::new(&limit, b"k")]).await.map(|answer| answer.is_admitted())
    };
    let builder = || RedisStore::builder(&servers.url());
    assert!(take(builder().build().unwrap()).await.is_err());
    assert!(take(builder().sentinel_password("hunter2").build().unwrap()).await.expect("decided"));
    let named = builder().sentinel_user("default").sentinel_password("hunter2");
    assert!(take(named.build().unwrap()).await.expect("decided"));
}
