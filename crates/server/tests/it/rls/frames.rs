//! What a caller of HTTP/2 may ask of a connection, frame by frame.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use tollgate::ManualClock;
use tollgate::store::MemoryStore;
use tollgate_server::{Keyring, RlsOptions};
use tonic::Request;

use super::rig::{Rig, descriptor, request, rig};

const ONE: &str = "domain = \"web\"\n[limit.a]\nkey = \"ip\"\nrate = \"9/h\"\n";

/// Kinds of frames.
pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;

/// The caller sends no more.
pub(super) const END_STREAM: u8 = 1;
/// All headers of a request are in this frame.
const END_HEADERS: u8 = 4;
/// The caller does not want it any more.
const CANCEL: u32 = 8;
/// The caller does too much.
const ENHANCE_YOUR_CALM: u32 = 11;

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The beginning of a call.
pub(super) fn call(stream: u32) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    let path = text("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit");
    // `POST` and `http` have numbers of their own; a path and an authority are written out.
    let head = [&[0x83, 0x86, 0x04][..], &path, &[0x01], &text("test")].concat();
    frame(HEADERS, END_HEADERS, stream, &head)
}

pub(super) fn opening() -> Vec<u8> {
    [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(SETTINGS, 0, 0, &[])].concat()
}

/// The kind and the payload of the next frame.
pub(super) fn any(stream: &mut TcpStream) -> (u8, Vec<u8>) {
    let mut head = [0; 9];
    stream.read_exact(&mut head).unwrap();
    let mut payload = vec![0; usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2])];
    stream.read_exact(&mut payload).unwrap();
    (head[3], payload)
}

/// The payload of the next frame of a kind.
pub(super) fn next(stream: &mut TcpStream, kind: u8) -> Vec<u8> {
    loop {
        let (of_kind, payload) = any(stream);
        if of_kind == kind {
            return payload;
        }
    }
}

pub(super) fn number(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes.try_into().unwrap())
}

#[tokio::test]
async fn callers_are_told_how_much_may_be_under_way_and_how_long_heads_may_be() {
    let rig = rig(ONE);
    let mut stream = TcpStream::connect(rig.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(&opening()).unwrap();
    let settings: Vec<(u8, u32)> =
        next(&mut stream, SETTINGS).chunks(6).map(|setting| (setting[1], number(&setting[2..]))).collect();
    let (max_concurrent_streams, max_header_list_size) = (3, 6);
    assert!(settings.contains(&(max_concurrent_streams, 256)), "{settings:?}");
    assert!(settings.contains(&(max_header_list_size, 16 * 1024)), "{settings:?}");
}

#[tokio::test]
async fn whoever_takes_back_calls_without_end_is_sent_away_and_others_are_not() {
    let rig = rig(ONE);
    let mut stream = TcpStream::connect(rig.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let taken_back =
        |number: u32| [call(number), frame(RST_STREAM, 0, number, &CANCEL.to_be_bytes())].concat();
    let calls: Vec<u8> = (0..1_000).flat_map(|call| taken_back(2 * call + 1)).collect();
    let _ = stream.write_all(&[opening(), calls].concat()); // of which the other end need not read all
    let farewell = next(&mut stream, GOAWAY);
    assert_eq!(number(&farewell[4..8]), ENHANCE_YOUR_CALM);
    rig.ask(request("web", &[descriptor(&[("ip", "1")])])).await.unwrap();
}

/// Some clients forget an answer if they are told to stop sending.
#[tokio::test]
async fn who_may_not_ask_is_answered_when_all_has_come_and_not_told_to_stop() {
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let rig = Rig::start(store, clock, ONE, RlsOptions::default(), Keyring::new());
    let mut stream = TcpStream::connect(rig.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let ping = |number: u8| frame(PING, 0, 0, &[number; 8]);
    stream.write_all(&[opening(), call(1), ping(1)].concat()).unwrap();
    while next(&mut stream, PING) != [1; 8] {} // by then the call has been seen
    stream.write_all(&[frame(DATA, END_STREAM, 1, &[0; 5]), ping(2)].concat()).unwrap();
    let (mut kinds, mut is_answered, mut is_seen) = (Vec::new(), false, false);
    while !is_answered || !is_seen {
        let (kind, payload) = any(&mut stream);
        is_answered |= kind == HEADERS;
        is_seen |= kind == PING && payload == [2; 8];
        kinds.push(kind);
    }
    stream.write_all(&ping(3)).unwrap();
    loop {
        let (kind, payload) = any(&mut stream);
        kinds.push(kind);
        if kind == PING && payload == [3; 8] {
            break;
        }
    }
    assert!(!kinds.contains(&RST_STREAM), "{kinds:?}");
}

/// Guards, item 2: messages that wait for others leave them the window of the connection.
#[tokio::test]
async fn large_messages_that_come_at_once_are_all_answered() {
    let rig = rig(ONE);
    let value = "x".repeat(1_000_000);
    let ask = || rig.ask(request("web", &[descriptor(&[("ip", &value)])]));
    let (a, b, c, d) = tokio::join!(ask(), ask(), ask(), ask());
    for answer in [a, b, c, d] {
        answer.unwrap();
    }
}

#[tokio::test]
async fn a_head_that_is_too_long_is_refused_and_the_connection_goes_on() {
    let rig = rig(ONE);
    let ask = || Request::new(request("web", &[descriptor(&[("ip", "1")])]));
    let with = |length: usize| {
        let mut request = ask();
        request.metadata_mut().insert("x-long", "x".repeat(length).parse().unwrap());
        request
    };
    assert!(rig.ask_with(with(15 * 1024)).await.is_ok());
    assert!(rig.ask_with(with(17 * 1024)).await.is_err());
    assert!(rig.ask_with(ask()).await.is_ok());
}
