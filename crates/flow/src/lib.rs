//! Being a good client: everything a program needs to call somebody else's limited, slow or failing service and still
//! finish its work. Each piece is usable alone.
//!
//! - [`Scope`]: how long work may take, and who may stop it. [`Preempt`] lets long computations give way, [`Rollback`]
//!   undoes what was half done.
//! - [`Fault`]: what people are told when something goes wrong. [`catch`] makes one of a panic.
//! - [`AdaptiveLimit`]: as many calls at once as the other side can take; by [`Aimd`], [`Vegas`] or [`Gradient2`].
//! - [`Pool`]: any number of jobs, in bounded memory, within limits of rate and concurrency.
//! - [`Retry`]: trying again, with a [`Backoff`], [`Jitter`] and a [`RetryBudget`].
//! - [`Hedge`]: the same request on several handlers; the first success wins.
//! - [`Feedback`]: as many calls a second as the other side allows, by what its answers say.
//! - `Manners`: a `tower` or `reqwest` HTTP client that does all of it, by wrapping (features `tower` and `reqwest`).
//! - [`Time`]: whose time everything here goes by.
//! - [`Heart`] and [`Monitor`]: a worker beats, and whoever listens tells healthy, slow and dead apart.
//! - [`Steward`]: looks after a worker, and replaces it when it dies.
//! - [`Steer`]: a limit driven by measured signals: load, lag, errors, latency, anything.

#[cfg(any(feature = "tower", feature = "reqwest"))]
pub mod client;
pub mod concurrency;
pub mod deadline;
pub mod fault;
pub mod feedback;
pub mod heartbeat;
pub mod hedge;
pub mod pool;
pub mod retry;
pub mod steer;
pub mod steward;
mod time;

#[cfg(any(feature = "tower", feature = "reqwest"))]
pub use client::{Manners, Polite};
pub use concurrency::{AdaptiveLimit, Aimd, Estimator, Finish, Gradient2, Vegas};
pub use deadline::{AsyncRollback, Ended, Preempt, Rollback, Scope};
pub use fault::{Again, Fault, FaultId, OrFault, catch};
pub use feedback::{Feedback, RateControl};
pub use heartbeat::{Health, Heart, Monitor, Rhythm};
pub use hedge::{Hedge, HedgeBudget};
pub use pool::{Control, Outcome, Outcomes, Pool};
pub use retry::{Backoff, Jitter, Retry, RetryBudget};
pub use steer::Steer;
pub use steward::Steward;
pub use time::{Elapsed, Sleep, Time, Timeout};
