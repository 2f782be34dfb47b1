//! Errors of the HTTP API: what was wrong, where, and what would be right.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use tollgate::store::StoreError;
use tollgate_flow::Fault;
use tollgate_http::Problem;

use super::json::{push_bool, push_number, push_string};
use super::limits::HttpLimits;
use crate::access::Scope;
use crate::engine::{AskError, SettleError};
use crate::metrics::{ErrorReason, Meter};

/// An error of the HTTP API, sent as `application/problem+json`. It is one pointer wide, because most requests succeed.
#[derive(Debug)]
pub(super) struct Refusal(Box<Reason>);

#[derive(Debug)]
struct Reason {
    status: StatusCode,
    detail: Cow<'static, str>,
    place: Option<Place>,
    fault: Option<String>,
    /// Whether a retry is safe, if the request may have had an effect.
    is_retry_safe: Option<bool>,
    /// A field of the answer that goes with the status.
    field: Option<(HeaderName, HeaderValue)>,
}

/// Where the mistake is.
#[derive(Debug)]
pub(super) enum Place {
    /// In the text of the body, both counted from one.
    Text { line: usize, column: usize },
    /// In the body, as a JSON pointer.
    Pointer(String),
    /// In a parameter of the query.
    Parameter(String),
}

impl Refusal {
    pub(super) fn new(status: StatusCode, detail: impl Into<Cow<'static, str>>) -> Self {
        let detail = detail.into();
        Self(Box::new(Reason { status, detail, place: None, fault: None, is_retry_safe: None, field: None }))
    }

    /// Returns the error for a malformed request.
    pub(super) fn bad(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    /// Returns the error for a path that does not support the method.
    pub(super) fn method(allowed: &'static str) -> Self {
        let refusal = Self::new(StatusCode::METHOD_NOT_ALLOWED, format!("method not allowed; use {allowed}"));
        refusal.with_field(ALLOW, allowed)
    }

    /// Returns an error after which the connection is closed.
    pub(super) fn last(status: StatusCode, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(status, detail).with_field(CONNECTION, "close")
    }

    /// Returns the error for a request line and headers that are too large.
    pub(super) fn large_head(limits: &HttpLimits) -> Self {
        let most = limits.header_bytes;
        Self::last(
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            format!("the request line and headers exceed {most} bytes"),
        )
    }

    /// Returns the error for too many header fields.
    pub(super) fn many_fields(limits: &HttpLimits) -> Self {
        let most = limits.headers;
        Self::last(
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            format!("the request has more than {most} header fields"),
        )
    }

    /// Returns the error for a known caller without the required scope.
    pub(super) fn needs(scope: Scope) -> Self {
        Self::new(StatusCode::FORBIDDEN, format!("the scope {scope} is required"))
    }

    /// Returns the error for a caller that must authenticate.
    pub(super) fn who(challenge: &'static str, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, detail).with_field(WWW_AUTHENTICATE, challenge)
    }

    /// Returns a temporary error.
    fn not_now(detail: String) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, detail).with_field(RETRY_AFTER, "1")
    }

    /// Returns the error for a check that was not decided; `check` is its place in the body.
    pub(super) fn ask(error: &AskError, check: &str) -> Self {
        match error {
            AskError::Unavailable { is_without_effect: true } => {
                Self::not_now(error.to_string()).retry_safe(true)
            }
            AskError::Unavailable { is_without_effect: false } => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string()).retry_safe(false)
            }
            AskError::BadValue { .. } => {
                Self::bad(error.to_string()).at(Place::Pointer(format!("{check}/descriptor")))
            }
            AskError::TooManyHeld { .. } | AskError::Supplied { .. } => Self::not_now(error.to_string()),
        }
    }

    /// Returns the error for a hold that was not settled.
    pub(super) fn settle(error: SettleError) -> Self {
        match error {
            SettleError::Store(error) => Self::store(error),
            SettleError::NoSuchField { ref field, .. } => {
                Self::bad(error.to_string()).at(Place::Pointer(format!("/actual/{}", token(field))))
            }
            _ => Self::bad(error.to_string()).at(Place::Pointer("/actual".to_owned())),
        }
    }

    /// Returns the error for an unavailable store.
    pub(super) fn store(error: StoreError) -> Self {
        let fault = Fault::untraced("store unavailable; a retry is safe").because(error);
        Self::not_now(fault.report()).known_as(&fault).retry_safe(true)
    }

    /// Returns the error for a panic. The log has the details.
    pub(super) fn fault(fault: &Fault) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, fault.report()).known_as(fault)
    }

    fn retry_safe(mut self, is_safe: bool) -> Self {
        self.0.is_retry_safe = Some(is_safe);
        self
    }

    fn known_as(mut self, fault: &Fault) -> Self {
        self.0.fault = Some(fault.id().to_string());
        self
    }

    fn with_field(mut self, name: HeaderName, value: &'static str) -> Self {
        self.0.field = Some((name, HeaderValue::from_static(value)));
        self
    }

    pub(super) fn at(mut self, place: Place) -> Self {
        self.0.place = Some(place);
        self
    }

    pub(super) fn status(&self) -> StatusCode {
        self.0.status
    }

    pub(super) fn detail(&self) -> &str {
        &self.0.detail
    }

    /// Counts a failed request.
    pub(super) fn note(&self, meter: &Meter) {
        if let Some(reason) = ErrorReason::of_status(self.0.status) {
            meter.failed(reason);
        }
    }

    pub(super) fn answer(self) -> Response<Bytes> {
        let mut json = Vec::with_capacity(256);
        self.write(&mut json);
        let mut answer = Response::new(Bytes::from(json));
        *answer.status_mut() = self.0.status;
        answer.headers_mut().insert(CONTENT_TYPE, Problem::CONTENT_TYPE);
        if let Some((name, value)) = self.0.field {
            answer.headers_mut().insert(name, value);
        }
        answer
    }

    /// The body.
    pub(super) fn write(&self, json: &mut Vec<u8>) {
        let Reason { status, detail, place, fault, is_retry_safe, .. } = &*self.0;
        json.extend_from_slice(br#"{"type":"about:blank","title":"#);
        push_string(json, status.canonical_reason().unwrap_or_default());
        json.extend_from_slice(br#","status":"#);
        push_number(json, status.as_u16().into());
        json.extend_from_slice(br#","detail":"#);
        push_string(json, detail);
        match place {
            None => {}
            Some(Place::Text { line, column }) => {
                json.extend_from_slice(br#","line":"#);
                push_number(json, *line as u64);
                json.extend_from_slice(br#","column":"#);
                push_number(json, *column as u64);
            }
            Some(Place::Pointer(pointer)) => push_member(json, br#","pointer":"#, pointer),
            Some(Place::Parameter(name)) => push_member(json, br#","parameter":"#, name),
        }
        if let Some(is_safe) = is_retry_safe {
            json.extend_from_slice(br#","retry_safe":"#);
            push_bool(json, *is_safe);
        }
        if let Some(id) = fault {
            push_member(json, br#","fault":"#, id);
        }
        json.push(b'}');
    }
}

fn push_member(json: &mut Vec<u8>, name: &[u8], value: &str) {
    json.extend_from_slice(name);
    push_string(json, value);
}

/// A step of a JSON pointer.
fn token(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::HoldBound;

    fn body(refusal: Refusal) -> String {
        String::from_utf8(refusal.answer().into_body().to_vec()).unwrap()
    }

    #[test]
    fn a_refusal_says_what_and_where() {
        let refusal = Refusal::bad("too \"odd\"").at(Place::Text { line: 2, column: 7 });
        assert_eq!(
            body(refusal),
            r#"{"type":"about:blank","title":"Bad Request","status":400,"detail":"too \"odd\"","line":2,"column":7}"#
        );
    }

    #[test]
    fn too_much_held_is_a_matter_of_time() {
        let answer = Refusal::ask(&AskError::TooManyHeld { bound: HoldBound::All, most: 7 }, "").answer();
        assert_eq!(
            (answer.status().as_u16(), &answer.headers()["retry-after"]),
            (503, &HeaderValue::from(1))
        );
    }
}
