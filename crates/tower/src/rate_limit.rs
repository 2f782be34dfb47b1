//! How many calls in a span of time.
//!
//! Most calls go a short way ([`Rules::judge_call`]): there is one limit, and it admits at once. Any other
//! call is read once ([`Rules::read`]): which limits apply, with which keys and costs. What it wants is then taken from the
//! store ([`Rules::judge`]), all of it or nothing. Mostly the store is in this process and answers at once, so the service is
//! called without another task or clone in between; only if the answer takes a while does a clone wait for it.

mod alone;
#[cfg(feature = "axum")]
mod around;
mod builder;
#[cfg(feature = "policy")]
mod by_policy;
mod current;
mod denial;
mod desk;
mod error;
mod future;
mod judge;
mod layer;
mod local;
mod rules;
mod service;
mod settle;
mod tell;
mod wants;

#[cfg(feature = "axum")]
pub use around::{LimitedRouter, LimitedRouterFuture};
pub use builder::{RateLimitBuilder, Unavailable};
pub use denial::{Denial, Reason};
pub use error::LimitError;
pub use future::RateLimitFuture;
pub use layer::RateLimitLayer;
pub use service::RateLimit;
