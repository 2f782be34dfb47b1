//! Envoy's rate limit service, version 3.
//!
//! ```text
//! gRPC ─┐
//!       ├─▶ messages ─▶ call: what is asked ─▶ clerk ─▶ reply: what was decided ─▶ messages
//! JSON ─┘
//! ```
//!
//! What a descriptor asks becomes an [`Ask`](crate::Ask); its entries are the fields, in their order. All of a call is decided
//! together: if a limit refuses, nothing is taken of any. Whoever wants refused calls to count, as the counters of others do, says
//! so in the policy.
//!
//! - A cost of zero looks and takes nothing; it is over the limit if one more would be. Envoy looks so before responses whose cost
//!   is counted when they are done, and what is counted then never goes beyond the limit: so what is used up must stop whoever looks.
//! - A negative cost gives back, and is never over the limit.
//! - In shadow mode every call is counted and passes; in quota mode it is refused only if all of its limits refuse.
//! - A descriptor that brings its own limit is counted by that one, in a fixed window; in a domain without limits it is not.
//! - If the store cannot tell and a limit says to refuse then, the call fails with `UNAVAILABLE`: what becomes of it is for
//!   Envoy's `failure_mode_deny` to say.

mod call;
mod connection;
mod decide;
mod health;
mod json;
pub mod messages;
mod metadata;
mod reflection;
mod reply;
mod unary;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tollgate::store::Store;

pub(crate) use json::answer_json;
pub use json::{healthcheck, should_rate_limit_json};

use crate::metrics::{Meter, Metrics};
use crate::server::{Connection, Protocol};
use reflection::Reflection;

/// What answers say beyond the decision, and what holds for every limit.
///
/// # Examples
/// ```
/// use tollgate_server::{Metrics, RlsOptions, RlsProtocol};
///
/// let options = RlsOptions { headers: true, ..RlsOptions::default() };
/// let protocol = RlsProtocol::new(&Metrics::new()).options(options);
/// assert!(format!("{protocol:?}").contains("headers: true"));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a setting of its own")]
pub struct RlsOptions {
    /// Has Envoy add `RateLimit-Limit`, `RateLimit-Remaining` and `RateLimit-Reset` to responses; and `X-RateLimit-Degraded` if
    /// something was decided without the store.
    pub headers: bool,
    /// Tells other filters of Envoy what was asked, and what limits say of themselves; and that it is `degraded`, if something was
    /// decided without the store.
    pub dynamic_metadata: bool,
    /// Counts every call and refuses none, as if each limit were in shadow mode.
    pub shadow_mode: bool,
    /// Refuses a call only if every limit that applies to one of its descriptors does, as if each of them were in quota mode.
    pub quota_mode: bool,
}

/// `envoy.service.ratelimit.v3.RateLimitService` over gRPC, with health checks and reflection.
///
/// It is spoken in HTTP/2 from the first byte, as gRPC does.
#[derive(Clone, Debug)]
pub struct RlsProtocol {
    options: RlsOptions,
    meter: Arc<Meter>,
    reflection: Reflection,
}

impl RlsProtocol {
    /// A service that says no more than it must, measured by these.
    pub fn new(metrics: &Metrics) -> Self {
        Self { options: RlsOptions::default(), meter: metrics.meter("rls"), reflection: Reflection::new() }
    }

    /// The same, saying more.
    #[must_use]
    pub fn options(self, options: RlsOptions) -> Self {
        Self { options, ..self }
    }
}

impl<S: Store> Protocol<S> for RlsProtocol {
    fn name(&self) -> &'static str {
        "rls"
    }

    fn serve(&self, connection: Connection<S>) -> Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(connection::serve(connection, self.clone()))
    }

    /// Nothing: a connection that is closed before it has begun is one that HTTP/2 tries again.
    fn full(&self) -> &'static [u8] {
        b""
    }
}
