//! A service, and somebody who calls it.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use tollgate::ManualClock;
use tollgate::store::{MemoryStore, Store};
use tollgate_tower::{Limit, RateLimit, RateLimitBuilder, RateLimitLayer};
use tower_layer::Layer;
use tower_service::Service;

type Handler = dyn Fn(&Request<()>) -> Response<String> + Send + Sync;

/// A service that counts its calls.
#[derive(Clone)]
pub(crate) struct Counted {
    pub(crate) calls: Arc<AtomicUsize>,
    handler: Arc<Handler>,
}

impl Counted {
    pub(crate) fn new(handler: impl Fn(&Request<()>) -> Response<String> + Send + Sync + 'static) -> Self {
        Self { calls: Arc::default(), handler: Arc::new(handler) }
    }

    pub(crate) fn count(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

impl Service<Request<()>> for Counted {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Ready<Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        self.calls.fetch_add(1, Ordering::SeqCst);
        ready(Ok((self.handler)(&request)))
    }
}

pub(crate) fn hello() -> Counted {
    Counted::new(|_| Response::new("hello".to_owned()))
}

/// Limits by a clock that is moved by hand.
pub(crate) fn by_hand(clock: &ManualClock) -> RateLimitBuilder<MemoryStore<ManualClock>> {
    RateLimitLayer::builder().store(MemoryStore::builder().clock(clock.clone()).build())
}

/// One limit, by a clock that is moved by hand.
pub(crate) fn limited(limit: Limit) -> (RateLimit<Counted, MemoryStore<ManualClock>>, ManualClock) {
    let clock = ManualClock::new();
    (by_hand(&clock).limit(limit).build().unwrap().layer(hello()), clock)
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Got {
    pub(crate) status: StatusCode,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: String,
}

impl Got {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

pub(crate) async fn send<S: Store>(
    service: &mut RateLimit<Counted, S>,
    request: http::request::Builder,
) -> Got {
    let Ok(response) = service.call(request.body(()).unwrap()).await;
    let (head, body) = response.into_parts();
    let Ok(body) = body.collect().await;
    let body = String::from_utf8(body.to_bytes().to_vec()).unwrap();
    Got { status: head.status, headers: head.headers, body }
}

pub(crate) async fn get<S: Store>(service: &mut RateLimit<Counted, S>) -> Got {
    send(service, Request::get("/")).await
}

/// Whether each of some requests passed.
pub(crate) async fn passes<S: Store>(
    service: &mut RateLimit<Counted, S>,
    requests: impl IntoIterator<Item = http::request::Builder>,
) -> Vec<u16> {
    let mut statuses = Vec::new();
    for request in requests {
        statuses.push(send(service, request).await.status.as_u16());
    }
    statuses
}

pub(crate) fn from(address: &str) -> http::request::Builder {
    Request::get("/").extension(address.parse::<IpAddr>().unwrap())
}
