//! The layer over a store that several processes share.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{HeaderName, Request};
use tollgate_redis::{Guarded, RedisStore};
use tollgate_testkit::Redis;
use tollgate_tower::{Cost, Head, Key, Limit, NoKey, Quota, RateLimitLayer, Unavailable};
use tower_service::Service;

/// One of the machines. It waits for Redis longer than it would: a machine with other things to do may be slow.
fn machine(redis: &Redis, unavailable: Unavailable) -> Router {
    let store = Guarded::new(RedisStore::new(&redis.url()).unwrap()).within(Duration::from_secs(10));
    let per_key = Limit::new("per-key", Quota::per_day(10))
        .per(Key::api_key(HeaderName::from_static("x-api-key")), NoKey::Refuse);
    let layer = RateLimitLayer::builder()
        .store(store)
        .limit(per_key.cost(Cost::of(asked)))
        .if_unavailable(unavailable)
        .processes(2)
        .build()
        .unwrap();
    Router::new().route("/", get(async || "hello")).layer(layer)
}

fn asked(head: &Head<'_>) -> u64 {
    head.text("x-cost").and_then(|cost| cost.parse().ok()).unwrap_or(1)
}

async fn status(machine: &mut Router, key: &str, cost: u32) -> u16 {
    let request = Request::get("/").header("x-api-key", key).header("x-cost", cost).body(Body::empty());
    machine.call(request.unwrap()).await.unwrap().status().as_u16()
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
    let [mut local, mut open, mut closed] = [Unavailable::Local, Unavailable::Open, Unavailable::Closed]
        .map(|unavailable| machine(&redis, unavailable));
    for machine in [&mut local, &mut open, &mut closed] {
        assert_eq!(status(machine, "ann", 1).await, 200);
    }
    drop(redis);
    assert_eq!(status(&mut local, "ann", 5).await, 200, "half of ten");
    assert_eq!(status(&mut local, "ann", 1).await, 429);
    assert_eq!(status(&mut open, "ann", 9_999).await, 200);
    assert_eq!(status(&mut closed, "ann", 1).await, 503);
}
