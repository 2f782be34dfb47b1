//! The listeners, the protocols that each speaks, and requests of all sizes to them.

use std::net::SocketAddr;

use super::http2::Http2;
use super::wire::{Over, Place, Wire};
use crate::support::Service;
use crate::support::certificates::Caller;

/// A listener, and one of its protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Http1,
    Http2,
    AdminHttp1,
    AdminHttp2,
    Grpc,
    Resp,
}

const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";

/// The length of a body that is never sent to its end.
pub(super) const LENGTH: usize = 1_000_000;

/// An HTTP request.
pub(super) struct Request {
    pub(super) path: &'static str,
    pub(super) is_post: bool,
    pub(super) is_grpc: bool,
    /// Its body, or the beginning of it.
    pub(super) body: Vec<u8>,
    length: usize,
}

impl Request {
    fn get(path: &'static str) -> Self {
        Self { path, is_post: false, is_grpc: false, body: Vec::new(), length: 0 }
    }

    fn call(path: &'static str, message: &[u8], length: usize) -> Self {
        let prefix = (length as u32).to_be_bytes();
        Self { path, is_post: true, is_grpc: true, body: [&[0], &prefix[..], message].concat(), length }
    }

    /// As HTTP/1.1 has it.
    fn text(&self) -> Vec<u8> {
        let method = if self.is_post { "POST" } else { "GET" };
        let (path, length) = (self.path, self.length);
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        );
        [head.as_bytes(), &self.body].concat()
    }
}

impl Way {
    pub(super) const ALL: [Self; 6] =
        [Self::Http1, Self::Http2, Self::AdminHttp1, Self::AdminHttp2, Self::Grpc, Self::Resp];
    /// One for each listener.
    pub(super) const LISTENERS: [Self; 4] = [Self::Http1, Self::AdminHttp1, Self::Grpc, Self::Resp];

    pub(super) fn is_http2(self) -> bool {
        matches!(self, Self::Http2 | Self::AdminHttp2 | Self::Grpc)
    }

    pub(super) fn address(self, service: &Service) -> SocketAddr {
        match self {
            Self::Http1 | Self::Http2 => service.http,
            Self::AdminHttp1 | Self::AdminHttp2 => service.admin,
            Self::Grpc => service.grpc,
            Self::Resp => service.resp,
        }
    }

    pub(super) fn place(self, service: &Service, caller: Option<Caller>) -> Place {
        let alpn: &[&str] = if self.is_http2() { &["h2"] } else { &[] };
        Place { alpn, ..Place::new(self.address(service), caller) }
    }

    /// A request with a small answer.
    pub(super) fn small(self) -> Request {
        match self {
            Self::Grpc => Request::call("/grpc.health.v1.Health/Check", &[], 0),
            _ => Request::get("/healthz"),
        }
    }

    /// A request with a large answer.
    pub(super) fn large(self) -> Request {
        if self == Self::Grpc {
            // The domain "default", and 20 times the descriptor (user, ann).
            let descriptor = b"\x12\x0d\x0a\x0b\x0a\x04user\x12\x03ann".repeat(20);
            let message = [b"\x0a\x07default", &descriptor[..]].concat();
            return Request::call(SHOULD_RATE_LIMIT, &message, message.len());
        }
        Request::get("/openapi.json")
    }

    /// A request to the admin listener whose answer is as large as the policy.
    pub(super) fn list() -> Request {
        Request::get("/v1/limits?count=1000")
    }

    /// The beginning of a call that is answered before its first message is complete.
    pub(super) fn streaming_call() -> Request {
        Request::call(REFLECTION, b"\x0a", 4_000)
    }

    /// The beginning of a request with a large body. For gRPC there are two, of which the index chooses.
    pub(super) fn upload(self, index: usize) -> Request {
        let path = match self {
            Self::Grpc if index % 2 == 1 => REFLECTION,
            Self::Grpc => SHOULD_RATE_LIMIT,
            Self::AdminHttp1 | Self::AdminHttp2 => "/v1/reset",
            _ => "/v1/check",
        };
        if self == Self::Grpc {
            return Request::call(path, b"\x0a", LENGTH);
        }
        let body = br#"{"descriptor": {"user": ""#.to_vec();
        Request { path, is_post: true, is_grpc: false, body, length: LENGTH }
    }

    /// [`small`](Self::small) as a text, for RESP as well.
    pub(super) fn small_text(self) -> Vec<u8> {
        if self == Self::Resp { b"PING\r\n".to_vec() } else { self.small().text() }
    }

    pub(super) fn large_text(self) -> Vec<u8> {
        if self == Self::Resp {
            return [&b"*2\r\n$4\r\nPING\r\n$60000\r\n"[..], &b"a".repeat(60_000)[..], b"\r\n"].concat();
        }
        self.large().text()
    }

    pub(super) fn upload_text(self, index: usize) -> Vec<u8> {
        if self == Self::Resp {
            b"*2\r\n$4\r\nPING\r\n$60000\r\naaa".to_vec()
        } else {
            self.upload(index).text()
        }
    }

    /// Makes a small request and waits for a good answer.
    pub(super) fn exchange(self, wire: &mut Wire) -> Result<(), Over> {
        if self.is_http2() {
            let mut client = Http2::begin(wire, 65_535)?;
            client.exchange(&self.small())?;
            // gRPC: the status SERVING.
            let good: &[u8] = if self == Self::Grpc { &[8, 1] } else { br#""ok"}"# };
            return if client.data.ends_with(good) { Ok(()) } else { Err(Over::Refused) };
        }
        wire.send(&self.small_text())?;
        let (good, end): (&[u8], &[u8]) =
            if self == Self::Resp { (b"+PONG", b"\r\n") } else { (b"HTTP/1.1 200 ", b"\r\n\r\n") };
        while !wire.received.windows(end.len()).any(|part| part == end) {
            wire.wait()?;
        }
        if wire.received.starts_with(good) { Ok(()) } else { Err(Over::Refused) }
    }

    /// Opens a connection on which a request has been answered well.
    pub(super) fn served(self, place: &Place) -> Option<Wire> {
        let mut wire = place.open().ok()?;
        self.exchange(&mut wire).is_ok().then_some(wire)
    }

    /// Whether an honest client that opens a connection there gets a good answer.
    pub(super) fn answers(self, place: &Place) -> bool {
        self.served(place).is_some()
    }
}
