//! Being a good client: everything a program needs to call somebody else's limited, slow or failing service and still
//! finish its work. Each piece is usable alone.
//!
//! - [`Fault`]: what people are told when something goes wrong. [`catch`] makes one of a panic.
//! - [`Pool`]: any number of jobs, in bounded memory, within limits of rate and concurrency.
//! - [`Time`]: whose time everything here goes by.
//! - [`Heart`] and [`Monitor`]: a worker beats, and whoever listens tells healthy, slow and dead apart.
//! - [`Steward`]: looks after a worker, and replaces it when it dies.
//! - [`Steer`]: a limit driven by measured signals: load, lag, errors, latency, anything.

mod fault;
mod heartbeat;
mod pool;
mod steer;
mod steward;
mod time;

pub use fault::{Again, Catch, Fault, FaultError, FaultId, NoFaultId, OrFault, Panicked, Place, catch};
pub use heartbeat::{Health, Heart, Monitor, Pulse, Rhythm};
#[cfg(feature = "signal")]
pub use pool::EndSignals;
pub use pool::{
    Attempted, Control, Iterated, JobContext, Observer, Outcome, Outcomes, Pool, Rest, Stats, Times, Unfinished,
    WaitTimes,
};
pub use steer::{
    Advice, Average, CpuShare, LoadAverage, MemoryShare, Reading, RunQueue, Signal, Steer, SteerBuilder,
    SteerError, Step,
};
pub use steward::{Death, GaveUp, Steward, StewardEvent};
pub use time::{Elapsed, Sleep, Time, Timeout};
