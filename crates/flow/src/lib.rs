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
mod client;
mod concurrency;
mod deadline;
mod fault;
mod feedback;
mod heartbeat;
mod hedge;
mod pool;
mod retry;
mod steer;
mod steward;
mod time;

#[cfg(feature = "tower")]
pub use client::PoliteService;
#[cfg(any(feature = "tower", feature = "reqwest"))]
pub use client::{Effort, Manners, NoAnswer, Polite, Repeat, Upstream};
pub use concurrency::{
    AdaptiveLimit, AdaptivePermit, Aimd, Estimator, Finish, Fixed, Gradient2, Sample, Vegas,
};
pub use deadline::{AsyncRollback, CancelOnDrop, Ended, Preempt, Rollback, Run, Scope};
pub use fault::{Again, Catch, Fault, FaultError, FaultId, NoFaultId, OrFault, Panicked, Place, catch};
pub use feedback::{Feedback, Heard, RateControl, Sent};
pub use heartbeat::{Health, Heart, Monitor, Pulse, Rhythm};
pub use hedge::{AllFailed, Hedge, HedgeBudget};
#[cfg(feature = "signal")]
pub use pool::EndSignals;
pub use pool::{
    Attempted, Control, Iterated, JobContext, Observer, Outcome, Outcomes, Pool, Rest, Stats, Times,
    Unfinished, WaitTimes,
};
pub use retry::{
    Allowance, Attempt, Backoff, GaveUp, Itself, Jitter, Judge, Nobody, Notify, Retry, RetryBudget, Schedule,
    Setback, Transient, Why,
};
pub use steer::{
    Advice, Average, CpuShare, LoadAverage, MemoryShare, Reading, RunQueue, Signal, Steer, SteerBuilder,
    SteerError, SteerStep,
};
pub use steward::{Death, Steward, StewardEvent, StewardGaveUp};
pub use time::{Elapsed, Sleep, Time, Timeout};
