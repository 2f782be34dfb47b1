//! The HTTP API, with JSON bodies.
//!
//! | request | purpose |
//! | --- | --- |
//! | `POST /v1/check` | decide one request, or up to 1 000 in a list |
//! | `POST /v1/settle` | replace the estimated cost of a hold by the actual cost |
//! | `POST /v1/reset` | reset the counters of a descriptor or key |
//! | `GET /v1/limits` | list the limits of the policy and their counters, in pages |
//! | `GET /v1/keys/top` | list the busiest keys, or those that are denied most often |
//! | `GET /v1/policy` | show the active policy and the last reload error |
//! | `GET /openapi.json` | describe the API for programs |
//! | `GET /healthz`, `GET /readyz` | liveness and readiness probes |
//! | `GET /metrics` | metrics for Prometheus |
//! | `POST /json`, `GET /healthcheck` | the JSON form of Envoy's rate limit service, [if enabled](HttpApi::rls) |
//! | `GET /rlconfig`, `GET /stats` | the debug port of Envoy's rate limit service, [if enabled](HttpApi::rls_debug) |
//!
//! A listener may serve [limitador's API](HttpApi::limitador) in place of these.
//!
//! A check is an object such as `{"descriptor": {"ip": "10.0.0.7"}}`. It can have these members besides:
//!
//! - `domain`, if it is not `default`;
//! - `cost`, if it is not 1;
//! - `mode`, if it is not `take`; `charge` and `refund` need the scope `settle`;
//! - `hold`, a duration such as `"30s"`, if the actual cost is known later; it needs the scope `hold`;
//! - `limit` and `key` in place of `descriptor`, as in `{"limit": {"rate": "10/s burst 20"}, "key": "alice"}`.
//!
//! Values of fields are strings; whole numbers and booleans count as text. The response has status 200 or 429, the limit that
//! decided, and the state of every limit. A list gets status 200 and a list of decisions in the same order. An error has the
//! content type `application/problem+json`, and says where it is in the body.
//!
//! A hold is settled by `{"id": "…", "actual": 640}`, or by cost fields: `{"id": "…", "actual": {"tokens": 640}}`; see
//! [`Actual`](crate::Actual).
//!
//! A listener can serve [some scopes](HttpApi::scopes) only. A path of another scope gets status 404 and the setting of the listener
//! that serves it. If the server requires authentication, clients send `authorization: Bearer TOKEN` or a certificate.

mod api;
mod body;
mod caller;
mod check;
mod connection;
mod decision;
mod express;
mod hosts;
mod json;
mod limitador;
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

/// The response to a connection that the listener refuses.
const FULL: &str = concat!(
    "HTTP/1.1 503 Service Unavailable\r\n",
    "content-type: application/problem+json\r\n",
    "content-length: 110\r\n",
    "retry-after: 1\r\n",
    "connection: close\r\n",
    "\r\n",
    r#"{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"too many connections; retry later"}"#,
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
