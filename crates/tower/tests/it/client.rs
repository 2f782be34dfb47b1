//! A client with manners calls a service with limits, in tokio's paused time.
#![cfg(feature = "client")]

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use tollgate::store::MemoryStore;
use tollgate_tower::client::Manners;
use tollgate_tower::{Kind, Limit, Quota, RateLimitLayer, Time};
use tower_layer::Layer;
use tower_service::Service;

#[derive(Clone)]
struct Hello;

impl Service<Request<()>> for Hello {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Ready<Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        ready(Ok(Response::new("hello".to_owned())))
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_layer_tells_the_client_keeps_to() {
    let time = Time::tokio();
    let store = MemoryStore::builder().clock(time.clone()).build();
    let limit = Limit::new("a", Quota::per(1, Duration::from_secs(10))).kind(Kind::FixedWindow);
    let service = RateLimitLayer::builder().store(store).limit(limit).build().unwrap().layer(Hello);
    let mut client = Manners::new().build().layer(service);
    let start = time.now();
    for _ in 0..3 {
        let request = Request::get("http://example.org/").body(()).unwrap();
        assert_eq!(client.call(request).await.unwrap().status(), 200);
    }
    let took = time.now().since(start);
    assert!((Duration::from_secs(20)..Duration::from_secs(60)).contains(&took), "{took:?}");
}
