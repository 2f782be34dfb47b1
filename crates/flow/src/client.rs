//! An HTTP client with manners: rate, concurrency, retries, hedging and deadlines, by wrapping an ordinary one.
//!
//! A [`Manners`] is a recipe; [`Polite`] is made by it and keeps what is known of each upstream. It wraps tower services
//! (`tower.rs`) and is a middleware of reqwest's (`reqwest.rs`). Both are a few lines around a `Wire` (`wire.rs`): how a
//! request is sent and copied. All else is the same for both:
//!
//! ```text
//! request ─▶ errand ─▶ host ─▶ pass: slot and turn ─▶ exchange ─▶ verdict ─▶ response
//!                                ▲                  (hedged)        │
//!                                └──── next turn ◀─── backoff ◀─────┘ the slot is kept
//! ```

mod call;
mod effort;
mod errand;
mod error;
mod host;
mod hosts;
mod manners;
mod pass;
mod polite;
#[cfg(feature = "reqwest")]
mod reqwest;
#[cfg(feature = "tower")]
mod tower;
mod verdict;
mod wire;

pub use effort::Effort;
pub use errand::Repeat;
pub use error::NoAnswer;
pub use host::Upstream;
pub use manners::Manners;
pub use polite::Polite;
#[cfg(feature = "tower")]
pub use tower::PoliteService;
