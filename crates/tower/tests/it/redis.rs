//! The layer over a store that several processes share.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{HeaderName, Request};
use tollgate::store::Store;
use tollgate_http::X_RATELIMIT_DEGRADED;
use tollgate_redis::{Guarded, RedisStore};
use tollgate_testkit::Redis;
use tollgate_tower::{Cost, Head, Key, Limit, NoKey, Quota, RateLimitLayer, Unavailable};
use tower_service::Service;

/// One of the machines. It waits for Redis longer than it would: a machine with other things to do may be slow.
fn machine(redis: &Redis, unavailable: Unavailable) -> Router {
    machine_on(&RedisStore::new(&redis.url()).unwrap(), unavailable)
}

fn machine_on(store: &RedisStore, unavailable: Unavailable) -> Router {
    let store = Guarded::new(store.clone()).within(Duration::from_secs(10));
    let per_key = Limit::new("per-key", Quota::per_day(10))
        .per(Key::api_key(HeaderName::from_static("x-api-key")), NoKey::Refuse);
    let layer = RateLimitLayer::builder()
        .store(store)
        .limit(per_key.cost(Cost::of(asked)))
        .if_unavailable(unavailable)
        .build()
        .unwrap();
    Router::new().route("/", get(async || "hello")).layer(layer)
}

fn asked(head: &Head<'_>) -> u64 {
    head.text("x-cost").and_then(|cost| cost.parse().ok()).unwrap_or(1)
}

async fn status(machine: &mut Router, key: &str, cost: u32) -> u16 {
    ask(machine, key, cost).await.0
}

/// The status, and whether it is marked as decided without the store.
async fn ask(machine: &mut Router, key: &str, cost: u32) -> (u16, bool) {
    let request = Request::get("/").header("x-api-key", key).header("x-cost", cost).body(Body::empty());
    let response = machine.call(request.unwrap()).await.unwrap();
    (response.status().as_u16(), response.headers().contains_key(X_RATELIMIT_DEGRADED))
}

/// Waits until as many are seen by all of them.
async fn until_seen(stores: &[RedisStore]) {
    for _ in 0..3_000 {
        if stores.iter().all(|store| store.nodes() as usize == stores.len()) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("they never saw each other");
}

#[tokio::test]
async fn two_machines_admit_the_limit_between_them() {
    let redis = Redis::start();
    let [mut one, mut two] = [(); 2].map(|()| machine(&redis, Unavailable::Local));
    assert_eq!(status(&mut one, "ann", 6).await, 200);
    assert_eq!(status(&mut two, "ann", 5).await, 429, "four are left");
    assert_eq!(status(&mut two, "ann", 4).await, 200);
    assert_eq!(status(&mut one, "ann", 1).await, 429);
    assert_eq!(status(&mut one, "bob", 10).await, 200);
}

#[tokio::test]
async fn without_redis_each_does_what_it_was_told() {
    let redis = Redis::start();
    let stores = [(); 3].map(|()| RedisStore::new(&redis.url()).unwrap());
    let mut local = machine_on(&stores[0], Unavailable::Local);
    let mut open = machine_on(&stores[1], Unavailable::Open);
    let mut closed = machine_on(&stores[2], Unavailable::Closed);
    for machine in [&mut local, &mut open, &mut closed] {
        assert_eq!(ask(machine, "ann", 1).await, (200, false));
    }
    until_seen(&stores).await;
    drop(redis);
    assert_eq!(ask(&mut local, "ann", 3).await, (200, true), "a third of ten");
    assert_eq!(ask(&mut local, "ann", 1).await, (429, true));
    assert_eq!(ask(&mut open, "ann", 9_999).await, (200, true));
    assert_eq!(ask(&mut closed, "ann", 1).await, (503, true));
}
