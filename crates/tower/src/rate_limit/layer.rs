//! Puts limits in front of services.

use std::fmt;

use tollgate::store::{MemoryStore, Store};
use tower_layer::Layer;

use super::builder::RateLimitBuilder;
use super::current::Current;
use super::error::LimitError;
use super::service::RateLimit;
use crate::limit::Limit;

/// Puts limits in front of services. All services that it wraps, and all their clones, share one state.
///
/// # Examples
/// ```
/// use axum::Router;
/// use axum::routing::get;
/// use tollgate_tower::{Key, Limit, NoKey, Quota, RateLimitLayer};
///
/// let layer = RateLimitLayer::builder()
///     .limit(Limit::new("everybody", Quota::per_second(1_000)))
///     .limit(Limit::new("per-client", Quota::per_minute(100)).per(Key::client(), NoKey::Refuse))
///     .allow("10.0.0.0/8".parse()?) // our own
///     .build()?;
/// let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(layer);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// With axum, serve it with `into_make_service_with_connect_info::<SocketAddr>()`, and use the feature `axum`, to know callers by
/// their addresses.
#[cfg_attr(
    feature = "axum",
    doc = "Where all routes have the same limits, [`around`](Self::around) is the cheaper way."
)]
pub struct RateLimitLayer<S: Store = MemoryStore> {
    pub(super) current: Current<S>,
}

impl RateLimitLayer {
    /// One limit, in this process.
    ///
    /// # Errors
    /// [`LimitError`], if callers cannot be told of its name.
    pub fn new(limit: Limit) -> Result<Self, LimitError> {
        Self::builder().limit(limit).build()
    }

    /// Any number of limits, and everything else there is to say.
    pub fn builder() -> RateLimitBuilder {
        RateLimitBuilder::new()
    }
}

#[cfg(feature = "policy")]
impl<S: Store> RateLimitLayer<S> {
    /// Goes on with another policy, in all clones of this layer and all services that it wraps. Limits that stayed the same go on
    /// with their states. A call that has begun ends by the policy that it began by.
    ///
    /// # Errors
    /// [`LimitError`]; the policy that was in force then stays in force.
    pub fn set_policy(&self, policy: tollgate_policy::Policy) -> Result<(), LimitError> {
        let rules = self.current.rules().with_policy(policy)?;
        self.current.replace(rules);
        Ok(())
    }
}

impl<S: Store, N> Layer<N> for RateLimitLayer<S> {
    type Service = RateLimit<N, S>;

    fn layer(&self, inner: N) -> RateLimit<N, S> {
        RateLimit { current: self.current.clone(), inner }
    }
}

impl<S: Store> Clone for RateLimitLayer<S> {
    /// The same limits, with the same state.
    fn clone(&self) -> Self {
        Self { current: self.current.clone() }
    }
}

impl<S: Store> fmt::Debug for RateLimitLayer<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer")
            .field("limits", &self.current.rules().limits())
            .finish_non_exhaustive()
    }
}
