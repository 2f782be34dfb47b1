//! Callers that are slow, or are there no more. Each is given little time, and the tests wait for what comes of it.

use std::time::Duration;

use super::support::{Site, eventually};

const POLICY: &str = "[limit.per-ip]\nkey = \"ip\"\nrate = \"1000/h\"\n";
const SOON: Duration = Duration::from_millis(100);

#[test]
fn a_slow_head_is_refused() {
    let site = Site::limited(POLICY, |limits| limits.head_timeout = SOON);
    for start in ["G", "GET /healthz HTTP/1.1\r\nhost: localhost\r\n", "PRI * HTTP/2.0\r\n"] {
        let mut client = site.client();
        client.send(start.as_bytes());
        let answer = client.answer();
        assert_eq!(answer.problem(408), "request headers not complete in time");
        assert_eq!((answer.field("connection"), client.rest().as_str()), (Some("close"), ""));
    }
    let mut second = site.client();
    assert_eq!(second.get("/healthz").status, 200);
    second.send(b"GET /healthz HTTP/1.1\r\n");
    assert_eq!(second.answer().problem(408), "request headers not complete in time");
    eventually("all of them are gone", || site.connections() == 0);
}

#[test]
fn dripping_does_not_help() {
    let site = Site::limited(POLICY, |limits| limits.head_timeout = SOON);
    let mut client = site.client();
    client.send(b"GET /healthz HTTP/1.1\r\n");
    let mut drops = 0;
    while client.try_send(b"a: b\r\n") && drops < 1_000 {
        std::thread::park_timeout(Duration::from_millis(10));
        drops += 1;
    }
    assert!(drops < 1_000, "it went on for ten seconds");
    eventually("it is gone", || site.connections() == 0);
}

#[test]
fn a_slow_body_is_refused() {
    let site = Site::limited(POLICY, |limits| limits.body_timeout = SOON);
    let start = "POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 26\r\n\r\n";
    for body in ["", "{\"descriptor\":{\"ip\":\"1\"}}"] {
        let mut client = site.client();
        client.send(format!("{start}{body}").as_bytes());
        let answer = client.answer();
        assert_eq!(answer.problem(408), "request body not complete in time");
        assert_eq!((answer.field("connection"), client.rest().as_str()), (Some("close"), ""));
    }
    eventually("all of them are gone", || site.connections() == 0);
}

#[test]
fn who_asks_for_nothing_is_let_go() {
    let site = Site::limited(POLICY, |limits| limits.idle_timeout = SOON);
    let (mut never, mut once) = (site.client(), site.client());
    assert_eq!(once.get("/healthz").status, 200);
    assert_eq!((never.rest().as_str(), once.rest().as_str()), ("", ""));
    let mut preface = site.client();
    preface.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0");
    eventually("all of them are gone, the one with HTTP/2 too", || site.connections() == 0);
}

#[test]
fn who_does_not_read_is_cut_off() {
    let site = Site::limited(POLICY, |limits| limits.write_timeout = SOON);
    let mut client = site.client();
    let request = "GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(100);
    // Five gigabytes of answers, which nobody has room for.
    let _ = (0..1_000).all(|_| client.try_send(request.as_bytes()));
    eventually("it is gone", || site.connections() == 0);
}

#[test]
fn who_is_quick_is_never_too_slow() {
    let site = Site::limited(POLICY, |limits| {
        (limits.head_timeout, limits.body_timeout) = (Duration::from_secs(20), Duration::from_secs(20));
        limits.write_timeout = Duration::from_secs(20);
        limits.idle_timeout = Duration::from_secs(20);
    });
    let mut client = site.client();
    for _ in 0..1_000 {
        assert_eq!(client.check(r#"{"descriptor":{"ip":"1"},"mode":"peek"}"#).status, 200);
    }
}
