//! A store that is slow, or away.

use std::convert::Infallible;
use std::future::{Ready, poll_fn, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll};

use http::{Request, Response};
use tollgate::store::{
    Answer, Busy, Hit, MemoryLimit, MemoryPermit, MemoryStore, Mode, Rule, Store, StoreError, Top, Usage,
};
use tollgate_tower::{Cost, Limit, Quota, RateLimitBuilder, RateLimitLayer, Unavailable};
use tower_layer::Layer;
use tower_service::Service;

use super::kit::{Counted, get, hello, send};

/// A store that takes a while, and may be away.
#[derive(Clone, Default)]
struct Remote {
    store: MemoryStore,
    is_away: Arc<AtomicBool>,
    nodes: Arc<AtomicU32>,
}

impl Remote {
    async fn reach(&self) -> Result<&MemoryStore, StoreError> {
        tokio::task::yield_now().await;
        let is_away = self.is_away.load(Ordering::SeqCst);
        if is_away { Err(StoreError::transient("it is away")) } else { Ok(&self.store) }
    }
}

impl Store for Remote {
    type Limit = MemoryLimit;
    type Permit = MemoryPermit;

    fn open(&self, rule: &Rule) -> MemoryLimit {
        self.store.open(rule)
    }

    async fn decide(&self, mode: Mode, hits: &[Hit<'_, MemoryLimit>]) -> Result<Answer, StoreError> {
        self.reach().await?.decide(mode, hits).await
    }

    async fn acquire(
        &self,
        hits: &[Hit<'_, MemoryLimit>],
    ) -> Result<(Answer, Option<MemoryPermit>), StoreError> {
        self.reach().await?.acquire(hits).await
    }

    async fn settle(&self, permit: &mut MemoryPermit, actual: &[u64]) -> Result<(), StoreError> {
        self.reach().await?.settle(permit, actual).await
    }

    async fn reset(&self, limit: &MemoryLimit, key: &[u8]) -> Result<bool, StoreError> {
        self.reach().await?.reset(limit, key).await
    }

    async fn usage(&self) -> Result<Usage, StoreError> {
        self.reach().await?.usage().await
    }

    async fn busiest(&self, top: Top, n: usize) -> Result<Vec<Busy>, StoreError> {
        self.reach().await?.busiest(top, n).await
    }

    fn nodes(&self) -> u32 {
        self.nodes.load(Ordering::SeqCst).max(1)
    }
}

fn remote(limit: Limit) -> (RateLimitBuilder<Remote>, Arc<AtomicBool>) {
    let store = Remote::default();
    let is_away = Arc::clone(&store.is_away);
    (RateLimitLayer::builder().store(store).limit(limit), is_away)
}

fn twice_a_day() -> Limit {
    Limit::new("a", Quota::per_day(2))
}

#[tokio::test]
async fn a_store_that_takes_a_while_decides_all_the_same() {
    let (limits, _) = remote(twice_a_day());
    let mut service = limits.build().unwrap().layer(hello());
    let mut clone = service.clone();
    assert_eq!(get(&mut service).await.status, 200);
    assert_eq!(get(&mut clone).await.status, 200);
    let refused = get(&mut service).await;
    assert_eq!((refused.status.as_u16(), refused.field("retry-after")), (429, Some("43200")));
}

/// A service that may only be called by whoever it told that it is ready.
#[derive(Default)]
struct Strict {
    is_ready: bool,
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Service<Request<()>> for Strict {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Ready<Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.is_ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        assert!(std::mem::take(&mut self.is_ready), "it was not asked whether it is ready");
        ready(Ok(Response::new(String::new())))
    }
}

#[tokio::test]
async fn the_service_that_was_ready_is_the_one_that_is_called() {
    let (limits, _) = remote(twice_a_day());
    let mut service = limits.build().unwrap().layer(Strict::default());
    for status in [200, 200, 429] {
        let Ok(()) = poll_fn(|context| service.poll_ready(context)).await;
        let Ok(response) = service.call(Request::new(())).await;
        assert_eq!(response.status(), status);
    }
}

#[tokio::test]
async fn while_the_store_is_away_calls_pass_or_are_refused_or_this_process_decides() {
    for (unavailable, statuses) in [
        (Unavailable::Open, [200, 200, 200]),
        (Unavailable::Closed, [503, 503, 503]),
        (Unavailable::Local, [200, 200, 429]),
    ] {
        let (limits, is_away) = remote(twice_a_day());
        let mut service = limits.if_unavailable(unavailable).build().unwrap().layer(hello());
        is_away.store(true, Ordering::SeqCst);
        for status in statuses {
            let got = get(&mut service).await;
            assert_eq!(got.status, status, "{unavailable:?}");
            assert_eq!(got.field("x-ratelimit-degraded"), Some("true"), "{unavailable:?}");
        }
        is_away.store(false, Ordering::SeqCst);
        for status in [200, 200, 429] {
            let got = get(&mut service).await;
            assert_eq!(got.status, status, "{unavailable:?}, and back");
            assert_eq!(got.field("x-ratelimit-degraded"), None, "{unavailable:?}, and back");
        }
    }
}

#[tokio::test]
async fn whoever_writes_refusals_knows_that_the_store_was_away_and_callers_who_are_told_nothing_do_not() {
    let (limits, is_away) = remote(twice_a_day());
    let limits = limits.form(tollgate_http::Form::Off).if_unavailable(Unavailable::Local);
    let mut service = limits
        .on_denial(|denial| {
            let mut response = denial.response();
            *response.body_mut() = format!("{}", denial.is_degraded()).into();
            response
        })
        .build()
        .unwrap()
        .layer(hello());
    for away in [true, false] {
        is_away.store(away, Ordering::SeqCst);
        for status in [200, 200, 429] {
            let got = get(&mut service).await;
            assert_eq!((got.status.as_u16(), got.field("x-ratelimit-degraded")), (status, None));
            assert!(status == 200 || got.body == away.to_string(), "{}", got.body);
        }
    }
}

#[tokio::test]
async fn a_closed_store_is_a_problem_of_capacity() {
    let (limits, is_away) = remote(twice_a_day());
    let mut service = limits.if_unavailable(Unavailable::Closed).build().unwrap().layer(hello());
    is_away.store(true, Ordering::SeqCst);
    let refused = get(&mut service).await;
    assert_eq!(refused.field("content-type"), Some("application/problem+json"));
    assert!(refused.body.contains("#temporary-reduced-capacity"), "{}", refused.body);
    assert_eq!(refused.field("ratelimit"), None);
}

#[tokio::test]
async fn a_shadow_limit_does_not_mind_that_the_store_is_away() {
    let (limits, is_away) = remote(twice_a_day().shadow());
    let mut service = limits.if_unavailable(Unavailable::Closed).build().unwrap().layer(hello());
    is_away.store(true, Ordering::SeqCst);
    assert_eq!(get(&mut service).await.status, 200);
}

#[tokio::test]
async fn costs_are_settled_in_a_store_that_takes_a_while_and_locally() {
    for is_away_then in [false, true] {
        let (limits, is_away) = remote(twice_a_day().cost(Cost::fixed(1).settled(|_| Some(0))));
        let mut service = limits.build().unwrap().layer(hello());
        is_away.store(is_away_then, Ordering::SeqCst);
        for _ in 0..5 {
            assert_eq!(get(&mut service).await.status, 200);
        }
    }
}

#[tokio::test]
async fn what_cannot_be_settled_stays_taken() {
    let (limits, is_away) = remote(twice_a_day().cost(Cost::fixed(1).settled(|_| Some(0))));
    let away = Arc::clone(&is_away);
    let leaving = Counted::new(move |_| {
        away.store(true, Ordering::SeqCst);
        Response::new(String::new())
    });
    let mut service = limits.build().unwrap().layer(leaving);
    for status in [200, 200, 429] {
        is_away.store(false, Ordering::SeqCst);
        assert_eq!(get(&mut service).await.status, status);
    }
}

#[tokio::test]
async fn bytes_are_settled_in_a_task_if_the_store_takes_a_while() {
    let limit = Limit::new("a", Quota::per_day(10)).cost(Cost::fixed(1).settled_by_body());
    let (limits, _) = remote(limit);
    let mut service = limits.build().unwrap().layer(hello());
    send(&mut service, Request::get("/")).await;
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    let left = send(&mut service, Request::get("/")).await;
    assert!(left.field("ratelimit").unwrap().starts_with(r#""a";r=4;"#), "{left:?}"); // 10 - 5 - 1
}

#[tokio::test]
async fn a_process_that_decides_alone_has_its_share() {
    // Of six a day, two for each of three.
    let limit = Limit::new("a", Quota::per_day(6)).kind(tollgate_tower::Kind::FixedWindow);
    let (limits, is_away) = remote(limit);
    let mut service = limits.processes(3).build().unwrap().layer(hello());
    is_away.store(true, Ordering::SeqCst);
    for status in [200, 200, 429] {
        assert_eq!(get(&mut service).await.status, status);
    }
    is_away.store(false, Ordering::SeqCst);
    for status in [200, 200, 200, 200, 200, 200, 429] {
        assert_eq!(get(&mut service).await.status, status);
    }
}

#[tokio::test]
async fn there_are_as_many_shares_as_processes_were_seen() {
    let store = Remote::default();
    let limit = Limit::new("a", Quota::per_day(6)).kind(tollgate_tower::Kind::FixedWindow);
    let mut service =
        RateLimitLayer::builder().store(store.clone()).limit(limit).build().unwrap().layer(hello());
    store.is_away.store(true, Ordering::SeqCst);
    for (nodes, statuses) in [(3, &[200, 200, 429][..]), (2, &[200, 200, 200, 429]), (3, &[429])] {
        store.nodes.store(nodes, Ordering::SeqCst);
        for status in statuses {
            assert_eq!(get(&mut service).await.status, *status, "one of {nodes}");
        }
    }
}

#[cfg(feature = "policy")]
#[tokio::test]
async fn each_limit_of_a_policy_says_what_to_do_while_the_store_is_away() {
    let policy = |text: &str| tollgate_policy::Policy::parse("limits.toml", text).unwrap();
    let open = "[limit.open]\nrate = \"1/d\"\non_store_failure = \"allow\"\n";
    let local = "[limit.local]\nrate = \"2/d\"\non_store_failure = \"local\"\n";
    let closed = "[limit.closed]\nmatch.method = \"POST\"\nrate = \"9/d\"\non_store_failure = \"deny\"\n";
    let store = Remote::default();
    let is_away = Arc::clone(&store.is_away);
    let layer =
        RateLimitLayer::builder().store(store).policy(policy(&format!("{open}{local}{closed}"))).build();
    let layer = layer.unwrap();
    let mut service = layer.layer(hello());
    is_away.store(true, Ordering::SeqCst);
    // One that closes decides for all; else those that decide alone do.
    assert_eq!(send(&mut service, Request::post("/")).await.status, 503);
    let got = get(&mut service).await;
    assert_eq!(got.status, 200);
    assert!(got.field("ratelimit").unwrap().starts_with(r#""local";r=1;"#), "{got:?}");
    layer.set_policy(policy(&format!("{open}{local}"))).unwrap();
    for status in [200, 429] {
        assert_eq!(send(&mut service, Request::post("/")).await.status, status); // where it left off
    }
}
