//! Real sockets, with hyper alone.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::Ipv4Addr;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tollgate_tower::{Key, Kind, Limit, NoKey, Quota, RateLimitLayer};
use tower_layer::Layer;
use tower_service::Service;

#[derive(Clone)]
struct Hello;

impl Service<Request<Incoming>> for Hello {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Incoming>) -> Self::Future {
        ready(Ok(Response::new(Full::from("hello"))))
    }
}

/// Serves every connection with a clone of its own, that knows the other end by a layer of this test.
async fn serve(limit: Limit) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let store = tollgate::store::MemoryStore::new();
    tokio::spawn(async move {
        loop {
            let (stream, peer) = listener.accept().await.unwrap();
            // Equal limits in one store are one limit, so a layer for each connection is as good as one for all.
            let layer = RateLimitLayer::builder().store(store.clone()).limit(limit.clone());
            let layer = layer.peer(move |_| Some(peer.ip())).build().unwrap();
            let service = TowerToHyperService::new(layer.layer(Hello));
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    url
}

#[tokio::test]
async fn a_service_of_hyper_is_limited_over_all_connections() {
    let limit =
        Limit::new("daily", Quota::per_day(2)).kind(Kind::FixedWindow).per(Key::client(), NoKey::Refuse);
    let url = serve(limit).await;
    for left in [1, 0] {
        let response = reqwest::Client::new().get(&url).send().await.unwrap(); // a connection for each
        assert_eq!(response.status(), 200);
        let told = response.headers()["ratelimit"].to_str().unwrap().to_owned();
        assert!(told.starts_with(&format!(r#""daily";r={left};t="#)), "{told}");
        assert_eq!(response.text().await.unwrap(), "hello");
    }
    let refused = reqwest::get(&url).await.unwrap();
    assert_eq!(refused.status(), 429);
    assert!(refused.headers().contains_key("retry-after"));
    assert!(refused.text().await.unwrap().contains("#quota-exceeded"));
}
