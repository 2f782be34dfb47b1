//! Limits in front of a service: layers for axum, tonic, hyper and any other tower service of HTTP requests.
//!
//! ```
//! use tollgate_tower::{Key, Limit, NoKey, Quota, RateLimitLayer};
//!
//! let per_client = Limit::new("per-client", Quota::per_minute(100)).per(Key::client(), NoKey::Refuse);
//! let layer = RateLimitLayer::new(per_client)?;
//! # Ok::<(), tollgate_tower::LimitError>(())
//! ```
//!
//! - [`RateLimitLayer`]: any number of [`Limit`]s, decided together, in this process or by any
//!   [store](tollgate::store::Store). A [`Key`] says what calls are told apart by, a [`Cost`] what each takes, before or after
//!   it was answered. Every answer tells its caller how it stands.
//! - [`ConcurrencyLimitLayer`]: how many calls at once, as many as are allowed or as many as the service can take; others wait
//!   a while. [`LoadShed`] turns them away at once.
#![cfg_attr(
    feature = "client",
    doc = "- [`client`]: the other way round, for services that call others: limits, retries and hedges as a layer."
)]
//!
//! # Features
//! - `axum`: knows callers by axum's `ConnectInfo`, and routes by its `MatchedPath`; limits around a whole router.
//! - `metrics`: what is decided, by the `metrics` facade.
//! - `client`: the client layer of `tollgate-flow`.
//! - `policy`: limits from policy files, which can be replaced while the service runs.

mod body;
mod client_address;
mod concurrency;
mod cost;
mod head;
mod key;
mod limit;
mod observe;
mod rate_limit;

/// Outgoing calls with manners: `tollgate-flow`'s layer for HTTP clients.
#[cfg(feature = "client")]
pub mod client {
    pub use tollgate_flow::client::*;
}

pub use body::LimitedBody;
pub use concurrency::{ConcurrencyFuture, ConcurrencyLimitLayer, ConcurrencyLimited, LoadShed, Slots};
pub use cost::{ActualCost, Cost};
pub use head::{Head, Reply};
pub use key::{Key, NoKey};
pub use limit::Limit;
pub use rate_limit::{
    Denial, LimitError, RateLimit, RateLimitBuilder, RateLimitFuture, RateLimitLayer, Reason, Unavailable,
};
#[cfg(feature = "axum")]
pub use rate_limit::{LimitedRouter, LimitedRouterFuture};
pub use tollgate::{ConcurrencyLimit, Kind, Quota};
pub use tollgate_flow::{AdaptiveLimit, Aimd, Gradient2, Time, Vegas};
pub use tollgate_http::{AddressField, ClientAddress, Form, IpNet, Unit};

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/redis.md")]
struct SharedByMany;

#[cfg(all(doctest, feature = "axum"))]
#[doc = include_str!("../../../docs/recipes.md")]
struct Recipes;
