//! How many at once, in tokio's paused time.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use http_body_util::BodyExt;
use tollgate_tower::{
    AdaptiveLimit, Aimd, ConcurrencyLimit, ConcurrencyLimitLayer, ConcurrencyLimited, LoadShed, Time,
};
use tower_layer::Layer;
use tower_service::Service;

/// A service that takes a second, and answers with the status it is asked for.
#[derive(Clone, Debug)]
struct Slow;

impl Service<Request<u16>> for Slow {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<String>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<u16>) -> Self::Future {
        let time = Time::tokio();
        Box::pin(async move {
            time.sleep(Duration::from_secs(1)).await;
            Ok(Response::builder().status(*request.body()).body("done".to_owned()).unwrap())
        })
    }
}

fn call(service: &ConcurrencyLimited<Slow>, status: u16) -> tokio::task::JoinHandle<u16> {
    let call = service.clone().call(Request::new(status));
    tokio::spawn(async move {
        let Ok(response) = call.await;
        response.status().as_u16()
    })
}

async fn statuses(calls: impl IntoIterator<Item = tokio::task::JoinHandle<u16>>) -> Vec<u16> {
    let mut statuses = Vec::new();
    for call in calls {
        statuses.push(call.await.unwrap());
    }
    statuses
}

fn of(limit: u64, longest_wait: Duration) -> (ConcurrencyLimited<Slow>, ConcurrencyLimit) {
    let limit = ConcurrencyLimit::new(limit);
    (ConcurrencyLimitLayer::new(limit.clone(), longest_wait).layer(Slow), limit)
}

#[tokio::test(start_paused = true)]
async fn calls_wait_in_line_as_long_as_they_may() {
    let (service, limit) = of(1, Duration::from_millis(1_500));
    let time = Time::tokio();
    let start = time.now();
    let calls: Vec<_> = (0..3).map(|_| call(&service, 200)).collect();
    // The second begins after one second; the third would after two, and gives up before.
    assert_eq!(statuses(calls).await, [200, 200, 503]);
    assert_eq!(time.now().since(start), Duration::from_secs(2));
    assert_eq!((limit.in_use(), limit.waiting()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn without_a_wait_nobody_lines_up() {
    let (service, limit) = of(2, Duration::ZERO);
    let calls: Vec<_> = (0..3).map(|_| call(&service, 200)).collect();
    assert_eq!(statuses(calls).await, [200, 200, 503]);
    assert_eq!(limit.in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_a_problem_of_capacity() {
    let (mut service, limit) = of(1, Duration::ZERO);
    let _slot = limit.try_acquire().unwrap();
    let Ok(response) = service.call(Request::new(200)).await;
    assert_eq!(response.status(), 503);
    assert_eq!(response.headers()["content-type"], "application/problem+json");
    assert_eq!(response.headers()["retry-after"], "1");
    let Ok(body) = response.into_body().collect().await;
    assert_eq!(
        body.to_bytes(),
        r#"{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Temporary Reduced Capacity","status":503,"violated-policies":[]}"#
    );
    let grpc = Request::builder().header("content-type", "application/grpc").body(200).unwrap();
    let Ok(response) = service.call(grpc).await;
    assert_eq!(
        (response.status().as_u16(), &response.headers()["grpc-status"]),
        (200, &"14".parse().unwrap())
    );
}

#[tokio::test(start_paused = true)]
async fn being_ready_holds_no_slot() {
    let (mut service, limit) = of(1, Duration::ZERO);
    for _ in 0..10 {
        let mut clone = service.clone();
        let Ok(()) = poll_fn(|context| clone.poll_ready(context)).await;
        let Ok(()) = poll_fn(|context| service.poll_ready(context)).await;
        assert_eq!(limit.in_use(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_given_up_leaves_slot_and_line() {
    let (mut service, limit) = of(1, Duration::from_secs(60));
    let first = service.call(Request::new(200));
    let second = call(&service, 200);
    tokio::task::yield_now().await;
    assert_eq!((limit.in_use(), limit.waiting()), (1, 1));
    second.abort();
    assert!(second.await.unwrap_err().is_cancelled());
    assert_eq!((limit.in_use(), limit.waiting()), (1, 0));
    drop(first);
    assert_eq!(limit.in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_closed_limit_refuses_those_who_wait() {
    let (service, limit) = of(1, Duration::from_secs(60));
    let calls = [call(&service, 200), call(&service, 200)];
    limit.close();
    assert_eq!(statuses(calls).await, [200, 503]);
}

#[tokio::test(start_paused = true)]
async fn an_adaptive_limit_learns_and_the_rest_is_shed() {
    let estimator = Aimd::new().starting_at(2);
    let limit = AdaptiveLimit::with_window(estimator, Time::tokio(), Duration::ZERO, 1);
    let service = LoadShed::new(limit.clone()).layer(Slow);
    let calls: Vec<_> = (0..3).map(|_| call(&service, 200)).collect();
    assert_eq!(statuses(calls).await, [200, 200, 503]);
    let learnt = limit.limit();
    assert!(learnt > 2, "{learnt}"); // it was in full use and went well
    assert_eq!(statuses([call(&service, 404), call(&service, 500)]).await, [404, 500]);
    assert_eq!(limit.limit(), learnt); // which says nothing
    assert_eq!(statuses([call(&service, 503)]).await, [503]);
    assert!(limit.limit() < learnt);
    assert_eq!(limit.concurrency().in_use(), 0);
}
