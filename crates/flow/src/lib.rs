//! Being a good client: everything a program needs to call somebody else's limited, slow or failing service and still
//! finish its work. Each piece is usable alone.
//!
//! - [`Scope`]: how long work may take, and who may stop it. [`Preempt`] lets long computations give way, [`Rollback`]
//!   undoes what was half done.
//! - [`Fault`]: what people are told when something goes wrong. [`catch`] makes one of a panic.
//! - [`Retry`]: trying again, with a [`Backoff`], [`Jitter`] and a [`RetryBudget`].
//! - [`Hedge`]: the same request on several handlers; the first success wins.
//! - [`Time`]: whose time everything here goes by.

mod deadline;
mod fault;
mod hedge;
mod retry;
mod time;

pub use deadline::{AsyncRollback, CancelOnDrop, Ended, Preempt, Rollback, Run, Scope};
pub use fault::{Again, Catch, Fault, FaultError, FaultId, NoFaultId, OrFault, Panicked, Place, catch};
pub use hedge::{AllFailed, Hedge, HedgeBudget};
pub use retry::{
    Allowance, Attempt, Backoff, GaveUp, Itself, Jitter, Judge, Nobody, Notify, Retry, RetryBudget, Schedule,
    Setback, Transient, Why,
};
pub use time::{Elapsed, Sleep, Time, Timeout};
