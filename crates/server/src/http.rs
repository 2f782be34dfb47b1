//! HTTP/JSON: the API for every language.
//!
//! | request | what |
//! | --- | --- |
//! | `POST /v1/check` | decides: one check, or up to 1 000 in a list |
//! | `POST /v1/settle` | settles something held at its actual cost |
//! | `POST /v1/reset` | forgets what a descriptor or a key has used |
//! | `GET /v1/limits` | the policy's limits and what was counted of them, in pages |
//! | `GET /v1/keys/top` | the keys that come most often, or are refused most often |
//! | `GET /v1/policy` | where the policy comes from, and what went wrong since |
//! | `GET /openapi.json` | all of this for programs |
//! | `GET /healthz`, `GET /readyz` | whether the server runs; whether it takes more |
//! | `GET /metrics` | what was measured, as Prometheus reads it |
//! | `POST /json`, `GET /healthcheck` | as Envoy's own rate limit service has them, [if wanted](HttpApi::rls) |
//! | `GET /rlconfig`, `GET /stats` | as its debug port has them, [if wanted](HttpApi::rls_debug) |
//!
//! A check is `{"descriptor": {"ip": "10.0.0.7"}}`, with a `domain` if it is not `default`, a `cost` if it is not 1, a `mode` if it
//! is not `take`, and `"hold": "30s"` if the real cost will be known later. `{"limit": {"rate": "10/s burst 20"}, "key": "alice"}`
//! brings its own limit along. Values of fields are strings; whole numbers and booleans are taken by their digits and words; whatever else is
//! refused. The answer is 200 or 429, and says which limit decided and how all of them stand; a list is answered 200 with a
//! list, in the same order, each decided by itself. Whatever is wrong with a request is told as `application/problem+json`,
//! with the place.
//!
//! What was held is settled by `{"id": "…", "actual": 640}`, or by cost fields: `{"id": "…", "actual": {"tokens": 640}}`; see
//! [`Actual`](crate::Actual).
//!
//! A listener may serve [some of it](HttpApi::scopes) only; what it does not serve is answered 404, with a word where to ask.
//!
//! Where callers must say who they are, they send `authorization: Bearer TOKEN`, or have a certificate. Modes that give back or
//! charge need the scope `settle`.

mod api;
mod body;
mod caller;
mod check;
mod connection;
mod decision;
mod express;
mod hosts;
mod json;
mod limits;
mod listing;
mod query;
pub(crate) mod receive;
mod refusal;
mod route;
mod text;
mod watch;
mod watched;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tollgate::store::Store;

pub use api::{HttpApi, ReadyNeeds};
pub use hosts::Hosts;
pub use limits::HttpLimits;

use crate::metrics::Meter;
use crate::server::{Connection, Protocol, Timeouts};

/// HTTP/JSON as a [`Protocol`]: HTTP/1.1 with keep-alive and pipelining, and HTTP/2 without TLS for those who begin with it.
///
/// # Examples
/// ```
/// use tollgate_server::{HttpApi, HttpProtocol, Metrics, Scope, Scopes};
///
/// let metrics = Metrics::new();
/// let for_services = HttpProtocol::new(HttpApi::new(metrics.clone()).scopes(Scopes::of(&[Scope::Check, Scope::Hold, Scope::Settle])));
/// let for_operators = HttpProtocol::new(HttpApi::new(metrics).scopes(Scopes::of(&[Scope::Admin])));
/// ```
#[derive(Clone, Debug)]
pub struct HttpProtocol {
    api: Arc<HttpApi>,
}

impl HttpProtocol {
    /// Serves an API.
    pub fn new(api: HttpApi) -> Self {
        Self { api: Arc::new(api) }
    }
}

impl<S: Store> Protocol<S> for HttpProtocol {
    fn meter(&self) -> &Arc<Meter> {
        self.api.meter()
    }

    fn serve(&self, connection: Connection<S>) -> Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(connection::serve(Arc::clone(&self.api), connection))
    }

    fn timeouts(&self) -> Timeouts {
        self.api.limited_to().timeouts()
    }

    fn full(&self) -> &'static [u8] {
        FULL.as_bytes()
    }
}

/// What is said when there are too many connections.
const FULL: &str = concat!(
    "HTTP/1.1 503 Service Unavailable\r\n",
    "content-type: application/problem+json\r\n",
    "content-length: 118\r\n",
    "retry-after: 1\r\n",
    "connection: close\r\n",
    "\r\n",
    r#"{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"there are too many connections; try again"}"#,
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn being_full_is_told_with_its_true_length() {
        let (head, body) = FULL.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("\r\ncontent-length: {}\r\n", body.len())), "{}", body.len());
    }
}
