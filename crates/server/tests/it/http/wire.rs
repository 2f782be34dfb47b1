//! Connections: what they carry, how much of it, and how they end.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame};
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::sync::oneshot;
use tollgate_server::ConnectionLimits;

use super::support::{Site, eventually};

const POLICY: &str = "[limit.per-ip]\nkey = \"ip\"\nrate = \"1000/h\"\nalgorithm = \"fixed-window\"\n";
const CHECK: &str = r#"{"descriptor":{"ip":"1"}}"#;

fn post(body: &str) -> String {
    format!(
        "POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

#[test]
fn a_connection_carries_many_requests() {
    let site = Site::new(POLICY);
    let mut client = site.client();
    for left in (900..1_000).rev() {
        assert_eq!(client.check(CHECK).json()["remaining"], left);
    }
    assert_eq!(site.connections(), 1);
}

#[test]
fn requests_may_be_sent_before_the_answers_are_read() {
    let site = Site::new(POLICY);
    let mut client = site.client();
    client.send(post(CHECK).repeat(100).as_bytes());
    let left: Vec<u64> = (0..100).map(|_| client.answer().json()["remaining"].as_u64().unwrap()).collect();
    assert_eq!(left, (900..1_000).rev().collect::<Vec<_>>());
}

#[test]
fn a_request_may_come_byte_by_byte() {
    let site = Site::new(POLICY);
    let mut client = site.client();
    for byte in post(CHECK).bytes() {
        client.send(&[byte]);
    }
    assert_eq!(client.answer().json()["remaining"], 999);
}

#[test]
fn a_body_may_come_in_chunks() {
    let site = Site::new(POLICY);
    let chunk = |part: &[u8]| format!("{:x}\r\n{}\r\n", part.len(), str::from_utf8(part).unwrap());
    let chunks = CHECK.as_bytes().chunks(5).map(chunk).collect::<Vec<_>>().concat();
    let request = format!(
        "POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n{chunks}0\r\n\r\n"
    );
    assert_eq!(site.client().ask(&request).json()["remaining"], 999);
}

#[test]
fn whoever_asks_first_whether_to_send_is_told_to() {
    let site = Site::new(POLICY);
    let mut client = site.client();
    let length = CHECK.len();
    client.send(
        format!(
            "POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nexpect: 100-continue\r\ncontent-length: {length}\r\n\r\n"
        )
        .as_bytes(),
    );
    assert_eq!(client.answer().status, 100);
    client.send(CHECK.as_bytes());
    assert_eq!(client.answer().status, 200);
}

#[test]
fn http_1_0_and_close_end_the_connection() {
    let site = Site::new(POLICY);
    let mut client = site.client();
    assert_eq!(client.ask("GET /healthz HTTP/1.0\r\n\r\n").status, 200);
    assert_eq!(client.rest(), "");
    let mut client = site.client();
    assert_eq!(
        client.ask("GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").status,
        200
    );
    assert_eq!(client.rest(), "");
}

#[test]
fn a_head_request_is_answered_without_a_body() {
    let site = Site::new(POLICY);
    let mut client = site.client();
    client.send(b"HEAD /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    let answer = client.rest();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\n"), "{answer}");
}

#[test]
fn a_body_that_is_too_large_is_refused() {
    let site = Site::limited(POLICY, |limits| limits.body_bytes = 100);
    let exactly = format!("{CHECK}{}", " ".repeat(100 - CHECK.len()));
    assert_eq!(site.check(&exactly).status, 200);
    let words = "the body exceeds 100 bytes";
    let told = site.client().ask("POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 101\r\n\r\n");
    assert_eq!((told.problem(413).as_str(), told.field("connection")), (words, Some("close")));
    let huge = site
        .client()
        .ask("POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 9223372036854775807\r\n\r\n");
    assert_eq!(huge.problem(413), words);
    let chunk = format!("33\r\n{}\r\n", " ".repeat(51));
    let mut client = site.client();
    client.send(
        format!(
            "POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n{chunk}{chunk}"
        )
        .as_bytes(),
    );
    assert_eq!(client.answer().problem(413), words);
    assert_eq!(client.rest(), "");
}

#[test]
fn header_fields_that_are_too_large_are_refused() {
    let site = Site::limited(POLICY, |limits| (limits.headers, limits.header_bytes) = (5, 300));
    let fields = |count: usize| "a: b\r\n".repeat(count);
    let get =
        |more: &str| site.client().ask(&format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\n{more}\r\n"));
    assert_eq!(get(&fields(4)).status, 200);
    let many = get(&fields(5));
    assert_eq!(
        (many.problem(431).as_str(), many.field("connection")),
        ("the request has more than 5 header fields", Some("close"))
    );
    let large = get(&format!("a: {}\r\n", "b".repeat(300)));
    assert_eq!(large.problem(431), "the request line and headers exceed 300 bytes");
    let long = site.get(&format!("/v1/limits?after={}", "b".repeat(300)));
    assert_eq!(long.problem(431), "the request line and headers exceed 300 bytes");
    let far_too_many = get(&fields(60));
    assert_eq!(
        far_too_many.problem(431),
        "the request has more than 5 header fields",
        "which are not even read"
    );
    let mut client = site.client();
    client.try_send(
        format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\na: {}", "b".repeat(200_000)).as_bytes(),
    );
    let endless = client.answer();
    assert_eq!(endless.problem(431), "the request line and headers exceed 300 bytes");
    assert_eq!(endless.field("connection"), Some("close"));
    eventually("all of them are gone", || site.connections() == 0);
}

#[test]
fn many_fields_that_are_few_enough_are_read_whole_or_in_parts() {
    let site = Site::new(POLICY);
    let head = format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\n{}", "a: b\r\n".repeat(50));
    assert_eq!(site.client().ask(&format!("{head}\r\n")).status, 200);
    let mut client = site.client();
    client.send(head.as_bytes());
    client.send(b"\r\n");
    assert_eq!(client.answer().status, 200);
    let wrong = site.client().ask(&format!("{head}a b: c\r\n\r\n"));
    assert_eq!(wrong.problem(400), "malformed HTTP/1.1 request: invalid header name");
}

#[test]
fn what_is_no_http_is_refused_and_ended() {
    let site = Site::new(POLICY);
    for garbage in [
        "\r\n\r\nnonsense\r\n\r\n",
        "GET\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "*3\r\n$4\r\nPING\r\n",
        "\x16\x03\x01\x02\0\x01\0\x01\u{7f}\u{3}\u{3}",
    ] {
        let mut client = site.client();
        client.send(garbage.as_bytes());
        client.end();
        let answer = client.answer();
        let told = answer.problem(400);
        assert!(told.starts_with("malformed HTTP/1.1 request: invalid "), "{garbage:?}: {told}");
        assert_eq!((answer.field("connection"), client.rest().as_str()), (Some("close"), ""));
    }
    for smuggled in [
        "POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n12345",
        "POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: -1\r\n\r\n",
        "POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 18446744073709551616\r\n\r\n",
    ] {
        let mut client = site.client();
        client.send(smuggled.as_bytes());
        let told = client.answer().problem(400);
        assert!(told.starts_with("content-length must be one whole number"), "{smuggled}: {told}");
        assert_eq!(client.rest(), "");
    }
    eventually("all of them are gone", || site.connections() == 0);
}

#[test]
fn a_body_that_ends_too_early_is_never_decided() {
    let site = Site::new(POLICY);
    for request in [
        format!("POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{CHECK}"),
        format!(
            "POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n19\r\n{CHECK}\r\n"
        ),
        "POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n".to_owned(),
    ] {
        let mut client = site.client();
        client.send(request.as_bytes());
        client.end();
        let said = client.rest();
        assert!(said.is_empty() || said.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{said}");
    }
    assert_eq!(site.check(CHECK).json()["remaining"], 999, "nothing was taken");
    eventually("all of them are gone", || site.connections() == 0);
}

#[test]
fn a_caller_that_goes_away_leaves_nothing_behind() {
    let site = Site::new(POLICY);
    for sent in [
        "",
        "POST",
        "POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{",
        &post(CHECK),
    ] {
        let mut client = site.client();
        client.send(sent.as_bytes());
        drop(client);
    }
    eventually("all of them are gone", || site.connections() == 0);
    assert_eq!(site.check(CHECK).status, 200);
}

#[test]
fn one_connection_too_many_is_told_so() {
    let mut connections = ConnectionLimits::default();
    connections.total = 1;
    let site = Site::admitting(connections, POLICY, |api| api);
    let mut first = site.client();
    assert_eq!(first.get("/healthz").status, 200);
    let mut second = site.client();
    assert_eq!(second.answer().problem(503), "too many connections; retry later");
    assert_eq!(second.rest(), "");
    drop(first);
    eventually("there is room again", || site.client().try_get("/healthz"));
}

#[test]
fn requests_in_hand_are_finished_before_the_server_stops() {
    let mut site = Site::new(POLICY);
    let (mut idle, mut busy) = (site.client(), site.client());
    for client in [&mut idle, &mut busy] {
        assert_eq!(client.get("/readyz").status, 200);
    }
    let length = CHECK.len();
    busy.send(
        format!(
            "POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nexpect: 100-continue\r\ncontent-length: {length}\r\n\r\n"
        )
        .as_bytes(),
    );
    assert_eq!(busy.answer().status, 100, "it is being answered");
    let drained = site.drain();
    assert_eq!(idle.rest(), "", "who asks for nothing is let go");
    busy.send(CHECK.as_bytes());
    let answer = busy.answer();
    assert_eq!((answer.status, answer.field("connection")), (200, Some("close")));
    assert_eq!(busy.rest(), "");
    assert_eq!(drained.join().unwrap(), 0, "nobody had to be cut off");
}

/// A caller over HTTP/2.
async fn http2<B>(site: &Site) -> SendRequest<B>
where
    B: Body<Data = Bytes, Error = Infallible> + Send + Unpin + 'static,
{
    let stream = tokio::net::TcpStream::connect(site.address).await.unwrap();
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (sender, connection) = handshake.await.unwrap();
    tokio::spawn(connection);
    sender
}

async fn check_http2(sender: &mut SendRequest<Full<Bytes>>, body: &str) -> (u16, serde_json::Value) {
    let request = http::Request::post("http://localhost/v1/check")
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body.to_owned())))
        .unwrap();
    let answer = sender.send_request(request).await.unwrap();
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap())
}

#[tokio::test]
async fn http_2_is_spoken_too() {
    let site = Site::new(POLICY);
    let sender = http2(&site).await;
    let asks = (0..100).map(|_| {
        let mut sender = sender.clone();
        async move { check_http2(&mut sender, CHECK).await }
    });
    let mut left = Vec::new();
    for answer in futures_of(asks).await {
        assert_eq!(answer.0, 200);
        left.push(answer.1["remaining"].as_u64().unwrap());
    }
    left.sort_unstable();
    assert_eq!(left, (900..1_000).collect::<Vec<_>>(), "each was decided once");
    assert_eq!(site.connections(), 1);
    let (status, problem) = check_http2(&mut sender.clone(), "{").await;
    assert_eq!((status, &problem["status"]), (400, &serde_json::json!(400)));
}

/// All of them at once.
async fn futures_of<F: Future<Output: Send + 'static> + Send + 'static>(
    all: impl Iterator<Item = F>,
) -> Vec<F::Output> {
    let tasks: Vec<_> = all.map(tokio::spawn).collect();
    let mut outputs = Vec::new();
    for task in tasks {
        outputs.push(task.await.unwrap());
    }
    outputs
}

/// Guards, item 2: bodies that wait for others leave them the window of the connection.
#[tokio::test]
async fn over_http_2_large_bodies_that_come_at_once_are_all_answered() {
    let site = Site::new(POLICY);
    let sender = http2(&site).await;
    let asks = (0..4).map(|_| {
        let mut sender = sender.clone();
        async move { check_http2(&mut sender, &format!("{CHECK}{}", " ".repeat(1_000_000))).await.0 }
    });
    assert_eq!(futures_of(asks).await, [200; 4]);
}

/// A body that ends when it is told to.
struct Later(oneshot::Receiver<()>);

impl Body for Later {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.0).poll(context).map(|_| None)
    }
}

/// Some clients forget an answer if they are told to stop sending.
#[tokio::test]
async fn over_http_2_who_is_refused_is_answered_when_all_has_come() {
    let site = Site::new(POLICY);
    let sender = http2::<Later>(&site).await;
    let post = |path: &str, kind: &str| {
        let (end, ended) = oneshot::channel();
        let request = http::Request::post(format!("http://localhost{path}")).header("content-type", kind);
        let (mut sender, request) = (sender.clone(), request.body(Later(ended)).unwrap());
        (end, tokio::spawn(async move { sender.send_request(request).await }))
    };
    for (path, kind, status) in [("/v1/chekc", "application/json", 404), ("/v1/check", "text/plain", 415)] {
        let (end, answer) = post(path, kind);
        let (at_once, behind) = post(path, kind);
        at_once.send(()).unwrap();
        assert_eq!(behind.await.unwrap().unwrap().status(), status, "so the one before has been seen");
        assert!(!answer.is_finished());
        end.send(()).unwrap();
        assert_eq!(answer.await.unwrap().unwrap().status(), status);
    }
}

#[tokio::test]
async fn http_2_has_the_same_limits() {
    let site = Site::limited(POLICY, |limits| {
        (limits.body_bytes, limits.body_timeout) = (100, Duration::from_millis(200));
    });
    let mut sender = http2(&site).await;
    let (status, problem) =
        check_http2(&mut sender, &format!("{CHECK}{}", " ".repeat(101 - CHECK.len()))).await;
    assert_eq!((status, problem["detail"].as_str()), (413, Some("the body exceeds 100 bytes")));
    let mut sender = http2(&site).await;
    let request = http::Request::post("http://localhost/v1/check")
        .header("content-type", "application/json")
        .body(Stuck)
        .unwrap();
    let answer = sender.send_request(request).await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.headers().get("connection")), (408, None));
}

/// A body that never comes.
struct Stuck;

impl Body for Stuck {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Pending
    }
}
