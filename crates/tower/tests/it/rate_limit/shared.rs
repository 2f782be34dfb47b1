//! Clones, and being ready.

use std::future::poll_fn;
use std::time::Duration;

use http::Request;
use tollgate::ManualClock;
use tollgate_flow::Time;
use tollgate_tower::{Kind, Limit, Quota};
use tower_layer::Layer;
use tower_service::Service;

use super::kit::{by_hand, get, hello, limited};

#[tokio::test]
async fn clones_of_the_service_and_of_the_layer_share_one_state() {
    let clock = ManualClock::new();
    let layer = by_hand(&clock).limit(Limit::new("a", Quota::per_day(4))).build().unwrap();
    let first = layer.layer(hello());
    let mut services = [first.clone(), first, layer.layer(hello()), layer.clone().layer(hello())];
    for service in &mut services {
        assert_eq!(get(service).await.status, 200);
    }
    for service in &mut services {
        assert_eq!(get(service).await.status, 429);
    }
}

#[tokio::test]
async fn being_ready_takes_nothing() {
    let (mut service, _) = limited(Limit::new("a", Quota::per_day(1)));
    for _ in 0..100 {
        let mut clone = service.clone();
        let Ok(()) = poll_fn(|context| Service::<Request<()>>::poll_ready(&mut clone, context)).await;
        let Ok(()) = poll_fn(|context| Service::<Request<()>>::poll_ready(&mut service, context)).await;
    }
    assert_eq!(get(&mut service).await.status, 200);
    assert_eq!(get(&mut service).await.status, 429);
}

#[tokio::test(start_paused = true)]
async fn a_leaky_queue_delays_calls() {
    let time = Time::tokio();
    let store = tollgate::store::MemoryStore::builder().clock(time.clone()).build();
    let limit = Limit::new("a", Quota::per_second(1).burst(3)).kind(Kind::LeakyQueue);
    let limits = tollgate_tower::RateLimitLayer::builder().store(store).time(time.clone()).limit(limit);
    let mut service = limits.build().unwrap().layer(hello());
    let start = time.now();
    for seconds in [0, 1, 2] {
        assert_eq!(get(&mut service).await.status, 200);
        assert_eq!(time.now().since(start), Duration::from_secs(seconds));
    }
}
