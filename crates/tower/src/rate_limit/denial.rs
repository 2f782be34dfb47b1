//! What a refused caller is told.

use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Response, StatusCode};
use tollgate_http::{Problem, ProblemType, Standing};

use crate::head::Head;

/// Why a call was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// A limit was reached.
    LimitReached,
    /// It has no key, and [is refused](crate::NoKey::Refuse) without.
    NoKey,
    /// A limit of the policy cannot use one of its values, and denies such calls (`on_bad_value = "deny"`).
    BadValue,
    /// No limit of the policy applies to it, and the policy denies such calls (`unmatched = "deny"`).
    Unmatched,
    /// The store could not tell, and [closes](crate::Unavailable::Closed) then.
    StoreUnavailable,
    /// There are too many calls at once.
    TooManyAtOnce,
}

/// A refusal, for whoever writes [an answer of their own](crate::RateLimitBuilder::on_denial).
#[derive(Debug)]
pub struct Denial<'a> {
    pub(super) head: Head<'a>,
    pub(super) reason: Reason,
    pub(super) standings: &'a [Standing<'a>],
    /// The limit that refused whatever is left.
    pub(super) by: Option<&'a str>,
    pub(super) is_degraded: bool,
}

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

impl<'a> Denial<'a> {
    /// One that is not about limits of rate.
    pub(crate) fn of(head: Head<'a>, reason: Reason) -> Self {
        Self { head, reason, standings: &[], by: None, is_degraded: false }
    }

    /// What was asked for.
    pub fn head(&self) -> Head<'a> {
        self.head
    }

    /// Why it was refused.
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// Whether it was decided without the store, which could not tell.
    pub fn is_degraded(&self) -> bool {
        self.is_degraded
    }

    /// The names of the limits that refused.
    pub fn limits(&self) -> impl Iterator<Item = &'a str> {
        let refused = self.standings.iter().filter(|standing| standing.is_refusal());
        refused.map(|standing| standing.limit().name()).chain(self.by)
    }

    /// When the same call would be admitted; `None` if that is not known, or will never be.
    pub fn retry_after(&self) -> Option<Duration> {
        let mut refused = self.standings.iter().filter(|standing| standing.is_refusal());
        refused.try_fold(None, |longest, standing| {
            standing.effective_window().map(|wait| longest.max(Some(wait)))
        })?
    }

    /// The usual answer: `application/problem+json` with status 429, 400 or 503; for calls of gRPC, its status
    /// `RESOURCE_EXHAUSTED`, `INVALID_ARGUMENT` or `UNAVAILABLE`. `RateLimit` fields and `Retry-After` are added later.
    pub fn response(&self) -> Response<Bytes> {
        if self.is_grpc() { self.grpc() } else { self.problem() }
    }

    fn problem(&self) -> Response<Bytes> {
        match self.reason {
            Reason::LimitReached | Reason::Unmatched => {
                Problem::refused_by(self.standings).response::<String>().map(Bytes::from)
            }
            Reason::StoreUnavailable | Reason::TooManyAtOnce => {
                Problem::new(ProblemType::TemporaryReducedCapacity).response::<String>().map(Bytes::from)
            }
            Reason::NoKey => malformed(NO_KEY),
            Reason::BadValue => malformed(BAD_VALUE),
        }
    }

    fn is_grpc(&self) -> bool {
        let content_type = self.head.headers.get(CONTENT_TYPE);
        content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
    }

    /// An answer without a body, whose trailers are in its head.
    fn grpc(&self) -> Response<Bytes> {
        let (status, message) = match self.reason {
            Reason::LimitReached => ("8", "limit reached"),
            Reason::Unmatched => ("8", "no limit applies"),
            Reason::NoKey => ("3", NO_KEY),
            Reason::BadValue => ("3", BAD_VALUE),
            Reason::StoreUnavailable => ("14", "store unavailable"),
            Reason::TooManyAtOnce => ("14", "concurrency limit reached"),
        };
        let mut response = Response::new(Bytes::new());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(GRPC_STATUS, HeaderValue::from_static(status));
        headers.insert(GRPC_MESSAGE, HeaderValue::from_static(message));
        if let Some(wait) = self.retry_after().filter(|_| self.reason == Reason::LimitReached) {
            let millis = u64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
            headers.insert(GRPC_PUSHBACK, millis.into());
        }
        response
    }
}

const NO_KEY: &str = "the request lacks the key of a limit";
const BAD_VALUE: &str = "invalid cost or value in the request";

fn malformed(detail: &str) -> Response<Bytes> {
    let json = format!(r#"{{"type":"about:blank","title":"Bad Request","status":400,"detail":"{detail}"}}"#);
    let mut response = Response::new(Bytes::from(json));
    *response.status_mut() = StatusCode::BAD_REQUEST;
    response.headers_mut().insert(CONTENT_TYPE, Problem::CONTENT_TYPE);
    response
}
