//! Turns calls away that are too many.

use std::time::Duration;

use tollgate_flow::AdaptiveLimit;
use tower_layer::Layer;

use super::layer::ConcurrencyLimitLayer;
use super::service::ConcurrencyLimited;

/// Turns calls away at once, with status 503, when there are more than the service can take. How many that are is learnt from how
/// long its answers take.
///
/// # Examples
/// ```
/// use axum::Router;
/// use axum::routing::get;
/// use tollgate_tower::{AdaptiveLimit, Gradient2, LoadShed, Time};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
/// # runtime.block_on(async {
/// let limit = AdaptiveLimit::new(Gradient2::new(), Time::tokio());
/// let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(LoadShed::new(limit));
/// # });
/// ```
#[derive(Clone, Debug)]
pub struct LoadShed {
    layer: ConcurrencyLimitLayer,
}

impl LoadShed {
    /// Turns away what is above this limit.
    pub fn new(limit: AdaptiveLimit) -> Self {
        Self { layer: ConcurrencyLimitLayer::new(limit, Duration::ZERO) }
    }
}

impl<N> Layer<N> for LoadShed {
    type Service = ConcurrencyLimited<N>;

    fn layer(&self, inner: N) -> ConcurrencyLimited<N> {
        self.layer.layer(inner)
    }
}
