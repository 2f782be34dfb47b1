//! Real sockets, with axum.
#![cfg(feature = "axum")]

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use axum::routing::get;
use axum::{Router, ServiceExt};
use http_body_util::BodyExt;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tollgate::ManualClock;
use tollgate::store::MemoryStore;
use tollgate_tower::{Cost, Key, Kind, Limit, NoKey, Quota, RateLimitLayer};
use tower_service::Service;

async fn serve<A>(app: A) -> String
where
    A: Service<Request, Response = Response, Error = Infallible, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static,
{
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = ServiceExt::<Request>::into_make_service_with_connect_info::<SocketAddr>(app);
    tokio::spawn(async move { axum::serve(listener, service).await });
    format!("http://{address}")
}

fn daily(count: u64) -> Limit {
    Limit::new("daily", Quota::per_day(count)).kind(Kind::FixedWindow)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_connections_share_one_limit() {
    const CONNECTIONS: usize = 100;
    let layer = RateLimitLayer::new(daily(250).per(Key::client(), NoKey::Refuse)).unwrap();
    let url = serve(Router::new().route("/", get(async || "hello")).layer(layer)).await;
    let mut calls = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let url = url.clone();
        calls.spawn(async move {
            let client = reqwest::Client::new(); // with connections of its own
            let mut passed = 0;
            for _ in 0..5 {
                let response = client.get(&url).send().await.unwrap();
                assert!(response.headers().contains_key("ratelimit"));
                let is_refused = response.status() == 429;
                assert_eq!(response.headers().contains_key("retry-after"), is_refused);
                passed += u32::from(!is_refused);
                response.bytes().await.unwrap();
            }
            passed
        });
    }
    assert_eq!(calls.join_all().await.into_iter().sum::<u32>(), 250);
}

#[tokio::test]
async fn a_refusal_over_a_socket_has_its_fields_and_its_body() {
    let layer = RateLimitLayer::new(daily(1).per(Key::client(), NoKey::Refuse)).unwrap();
    let url = serve(Router::new().route("/", get(async || "hello")).layer(layer)).await;
    assert_eq!(reqwest::get(&url).await.unwrap().text().await.unwrap(), "hello");
    let refused = reqwest::get(&url).await.unwrap();
    assert_eq!(refused.status(), 429);
    assert_eq!(refused.headers()["content-type"], "application/problem+json");
    assert!(refused.headers()["ratelimit"].to_str().unwrap().starts_with(r#""daily";r=0;t="#));
    let wait: u64 = refused.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=86_400).contains(&wait));
    let body = refused.text().await.unwrap();
    assert!(body.contains(r#""violated-policies":["daily"]"#), "{body}");
}

#[tokio::test]
async fn over_a_socket_fields_count_down_and_retry_after_is_true_to_the_tick() {
    let clock = ManualClock::new();
    let layer = RateLimitLayer::builder()
        .store(MemoryStore::builder().clock(clock.clone()).build())
        .limit(Limit::new("minute", Quota::per_minute(3)).per(Key::client(), NoKey::Refuse))
        .build()
        .unwrap();
    let url = serve(Router::new().route("/", get(async || "hello")).layer(layer)).await;
    let call = async || {
        let response = reqwest::get(&url).await.unwrap();
        let field = |name: &str| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(field("ratelimit-policy").unwrap(), r#""minute";q=3;w=60"#);
        (response.status().as_u16(), field("ratelimit").unwrap(), field("retry-after"))
    };
    // One comes back every twenty seconds: as long until it is full as are missing, and when none is left, until the next.
    for left in [r#""minute";r=2;t=20"#, r#""minute";r=1;t=40"#, r#""minute";r=0;t=20"#] {
        assert_eq!(call().await, (200, left.to_owned(), None));
    }
    let refused = (429, r#""minute";r=0;t=20"#.to_owned(), Some("20".to_owned()));
    assert_eq!(call().await, refused);
    clock.advance(Duration::from_secs(20) - Duration::from_nanos(1));
    assert_eq!(call().await, (429, r#""minute";r=0;t=1"#.to_owned(), Some("1".to_owned())));
    clock.advance(Duration::from_nanos(1));
    assert_eq!(call().await, (200, r#""minute";r=0;t=20"#.to_owned(), None));
}

#[tokio::test]
async fn a_matched_route_is_one_key_whatever_is_in_it() {
    let layer = RateLimitLayer::new(daily(1).per(Key::matched_route(), NoKey::Refuse)).unwrap();
    let app = Router::new().route("/users/{id}", get(async || "a user")).route("/", get(async || "hello"));
    let url = serve(app.layer(layer)).await;
    let status = async |path: &str| reqwest::get(format!("{url}{path}")).await.unwrap().status().as_u16();
    assert_eq!(status("/users/1").await, 200);
    assert_eq!(status("/users/2").await, 429);
    assert_eq!(status("/").await, 200);
}

#[tokio::test]
async fn around_a_whole_router_every_call_is_limited() {
    let layer = RateLimitLayer::new(daily(3).per(Key::client(), NoKey::Refuse)).unwrap();
    let url = serve(layer.around(Router::new().route("/", get(async || "hello")))).await;
    let get = async |path: &str| reqwest::get(format!("{url}{path}")).await.unwrap();
    let left = |response: &reqwest::Response| -> String {
        let field = response.headers()["ratelimit"].to_str().unwrap();
        field.split(";t=").next().unwrap().to_owned()
    };

    let hello = get("/").await;
    assert_eq!((hello.status().as_u16(), left(&hello)), (200, r#""daily";r=2"#.to_owned()));
    assert_eq!(hello.headers()["content-length"], "5");
    assert_eq!(hello.text().await.unwrap(), "hello");
    let nowhere = get("/nowhere").await;
    assert_eq!((nowhere.status().as_u16(), left(&nowhere)), (404, r#""daily";r=1"#.to_owned()));
    assert_eq!(get("/").await.status(), 200);

    let refused = get("/").await;
    assert_eq!((refused.status().as_u16(), left(&refused)), (429, r#""daily";r=0"#.to_owned()));
    assert_eq!(refused.headers()["content-type"], "application/problem+json");
    let length: usize = refused.headers()["content-length"].to_str().unwrap().parse().unwrap();
    let body = refused.text().await.unwrap();
    assert!(body.contains(r#""violated-policies":["daily"]"#), "{body}");
    assert_eq!(body.len(), length);
}

#[tokio::test]
async fn around_a_whole_router_bodies_are_counted_and_clones_share_one_state() {
    let bytes = daily(100).cost(Cost::fixed(1).settled_by_body()).per(Key::client(), NoKey::Refuse);
    let app = RateLimitLayer::new(bytes).unwrap().around(Router::new().route("/", get(async || "hello")));
    // What is left is told before the body is sent.
    for left in [r#""daily";r=99;"#, r#""daily";r=94;"#, r#""daily";r=89;"#] {
        let mut request = Request::new(Body::empty());
        request.extensions_mut().insert(IpAddr::from(Ipv4Addr::LOCALHOST));
        let response = app.clone().call(request).await.unwrap();
        let field = response.headers()["ratelimit"].to_str().unwrap();
        assert!(field.starts_with(left), "{field}");
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "hello");
    }
}

#[tokio::test]
async fn around_a_whole_router_no_route_is_known_yet() {
    let layer = RateLimitLayer::new(daily(1).per(Key::matched_route(), NoKey::Refuse)).unwrap();
    let url = serve(layer.around(Router::new().route("/", get(async || "hello")))).await;
    assert_eq!(reqwest::get(&url).await.unwrap().status(), 400);
}

#[tokio::test]
async fn nothing_in_the_corpus_of_spoofed_fields_changes_a_key_over_a_socket() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/client-addresses.jsonl");
    let corpus = std::fs::read_to_string(path).unwrap();
    let layer = RateLimitLayer::new(daily(1).per(Key::client(), NoKey::Refuse)).unwrap();
    let url = serve(Router::new().route("/", get(async || "hello")).layer(layer)).await;
    let client = reqwest::Client::new();
    assert_eq!(client.get(&url).send().await.unwrap().status(), 200);
    assert!(corpus.lines().count() >= 200);
    for line in corpus.lines() {
        let case: serde_json::Value = serde_json::from_str(line).unwrap();
        let mut request = client.get(&url);
        for value in case["lines"].as_array().unwrap() {
            let bytes: Vec<u8> = value.as_str().unwrap().chars().map(|c| u8::try_from(c).unwrap()).collect();
            request = request.header(case["field"].as_str().unwrap(), bytes);
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 429, "{line}");
        response.bytes().await.unwrap(); // so that the connection can be used again
    }
}
