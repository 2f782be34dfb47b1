//! Puts a limit on how many at once in front of services.

use std::time::Duration;

use tollgate_flow::Time;
use tower_layer::Layer;

use super::service::ConcurrencyLimited;
use super::slots::Slots;

/// Puts a limit on how many calls there are at once in front of services. All services that it wraps, and all their clones,
/// share one limit.
///
/// A call that finds no slot waits in line, first come, first served, for as long as the queue's time-out says. Then it is
/// refused with status 503 and the problem type `temporary-reduced-capacity`; gRPC gets `UNAVAILABLE`. A slot comes back when
/// the head of the answer is there: slow readers hold none.
///
/// An adaptive limit learns from how long answers took. 503 and 504 say that it was too much; other errors say nothing.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use axum::Router;
/// use axum::routing::get;
/// use tollgate_tower::{ConcurrencyLimit, ConcurrencyLimitLayer};
///
/// let layer = ConcurrencyLimitLayer::new(ConcurrencyLimit::new(64), Duration::from_millis(200));
/// let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(layer);
/// ```
#[derive(Clone, Debug)]
pub struct ConcurrencyLimitLayer {
    pub(super) slots: Slots,
    pub(super) longest_wait: Duration,
    pub(super) time: Option<Time>,
}

impl ConcurrencyLimitLayer {
    /// A limit, and how long calls wait in line for it. Without a wait, they do not line up.
    pub fn new(slots: impl Into<Slots>, longest_wait: Duration) -> Self {
        Self { slots: slots.into(), longest_wait, time: None }
    }

    /// Whose time calls wait by; unless this says otherwise, tokio's.
    #[must_use]
    pub fn time(self, time: Time) -> Self {
        Self { time: Some(time), ..self }
    }
}

impl<N> Layer<N> for ConcurrencyLimitLayer {
    type Service = ConcurrencyLimited<N>;

    fn layer(&self, inner: N) -> ConcurrencyLimited<N> {
        ConcurrencyLimited { layer: self.clone(), inner }
    }
}
