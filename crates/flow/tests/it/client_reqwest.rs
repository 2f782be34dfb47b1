//! A reqwest client with manners, against a real server on loopback.

#![cfg(feature = "reqwest")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::any;
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Error};
use tokio::net::TcpListener;
use tollgate_flow::client::{Effort, NoAnswer, Repeat};
use tollgate_flow::retry::Why;
use tollgate_flow::{Backoff, Ended, Jitter, Manners, Polite, RateControl, Retry, Scope, Time};

const MS: Duration = Duration::from_millis(1);

/// Answers the n-th request, from 0, with what `rule` says.
async fn serve(rule: fn(u32) -> (u16, Option<&'static str>)) -> (SocketAddr, Arc<AtomicU32>) {
    let requests = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&requests);
    let answer = move |body: String| async move {
        let (status, retry_after) = rule(counted.fetch_add(1, Ordering::SeqCst));
        let fields = retry_after.map(|wait| (http::header::RETRY_AFTER, wait.parse().unwrap()));
        (StatusCode::from_u16(status).unwrap(), HeaderMap::from_iter(fields), body)
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(any(answer))).await });
    (address, requests)
}

/// Quick, so that a test takes no time to speak of.
fn manners() -> Manners {
    let backoff = Backoff::new().initial(5 * MS).jitter(Jitter::None);
    Manners::new()
        .rate(RateControl::new().starting_at(1_000.0))
        .retry(move |time| Retry::with_time(time).backoff(backoff).tries(3))
}

fn client(polite: Polite) -> ClientWithMiddleware {
    // Proxies in the environment are not for the loopback.
    ClientBuilder::new(reqwest::Client::builder().no_proxy().build().unwrap()).with(polite).build()
}

fn effort(response: &reqwest::Response) -> Effort {
    *response.extensions().get().expect("every response has one")
}

#[tokio::test]
async fn a_429_with_retry_after_and_then_a_200() {
    let (address, requests) = serve(|n| if n == 0 { (429, Some("1")) } else { (200, None) }).await;
    let time = Time::tokio();
    let client = client(manners().build());
    let response = client.post(format!("http://{address}/a?b")).body("hello").send().await.unwrap();
    assert_eq!((response.status().as_u16(), effort(&response).attempts), (200, 2));
    assert!(effort(&response).waited >= Duration::from_secs(1));
    assert!(time.now().as_nanos() >= 1_000_000_000, "it came back too soon");
    assert_eq!(response.text().await.unwrap(), "hello", "the body is sent again");
    assert_eq!(requests.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_refused_connection_is_tried_again_even_for_a_post_and_reqwests_error_is_kept() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let time = Time::tokio();
    let error = client(manners().build()).post(format!("http://{address}/")).send().await.unwrap_err();
    assert!(matches!(&error, Error::Reqwest(error) if error.is_connect()), "{error:?}");
    assert!(time.now().as_nanos() >= 12_500_000, "two waits of 5 and 7.5 ms");
}

#[tokio::test]
async fn a_post_that_may_have_been_done_is_not_sent_again_unless_allowed() {
    let (address, requests) = serve(|_| (503, None)).await;
    let client = client(manners().build());
    let response = client.post(format!("http://{address}/")).send().await.unwrap();
    assert_eq!((response.status().as_u16(), effort(&response).gave_up), (503, Some(Why::Permanent)));
    assert_eq!(requests.load(Ordering::SeqCst), 1);
    let repeatable = client.post(format!("http://{address}/")).with_extension(Repeat(true));
    let response = repeatable.send().await.unwrap();
    assert_eq!((response.status().as_u16(), effort(&response).gave_up), (503, Some(Why::Tries)));
    assert_eq!(requests.load(Ordering::SeqCst), 4);
}

#[tokio::test]
async fn a_body_that_cannot_be_copied_is_sent_once() {
    let (address, requests) = serve(|_| (503, None)).await;
    let body = reqwest::Body::wrap(reqwest::Body::from("a stream"));
    let response =
        client(manners().build()).put(format!("http://{address}/")).body(body).send().await.unwrap();
    assert_eq!((response.status().as_u16(), effort(&response).gave_up), (503, Some(Why::Permanent)));
    assert_eq!((response.text().await.unwrap().as_str(), requests.load(Ordering::SeqCst)), ("a stream", 1));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_makes_no_sense_is_not_sent_again() {
    let client = client(manners().build());
    let error = client.get("http://").send().await.unwrap_err();
    assert!(error.is_builder(), "{error:?}");
    let time = Time::tokio();
    let error = client.get("other://example.org/").send().await.unwrap_err();
    assert!(error.is_builder(), "{error:?}");
    assert_eq!(time.now().as_nanos(), 0, "it waited before another attempt");
}

#[tokio::test]
async fn the_requests_scope_ends_it() {
    let (address, requests) = serve(|_| (429, Some("60"))).await;
    let polite = manners().build();
    let scope = || Scope::new(Time::tokio()).within(Duration::from_secs(5));
    let get = |scope| client(polite.clone()).get(format!("http://{address}/")).with_extension(scope).send();
    let response = get(scope()).await.unwrap();
    assert_eq!(response.status(), 429);
    assert!(matches!(effort(&response).gave_up, Some(Why::Ended(Ended::TooShort { .. }))));
    // The next one is not even sent, since its turn would come in a minute.
    let error = get(scope()).await.unwrap_err();
    let Error::Middleware(error) = error else { panic!("{error:?}") };
    let no_answer = error.downcast_ref::<NoAnswer>();
    assert!(matches!(no_answer, Some(NoAnswer::Ended(Ended::TooShort { .. }))), "{error:?}");
    assert_eq!(requests.load(Ordering::SeqCst), 1);
    let upstreams: Vec<_> = polite.upstreams().into_iter().map(|upstream| upstream.name).collect();
    assert_eq!(upstreams, [address.to_string()]);
}
