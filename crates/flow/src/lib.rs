//! Being a good client: everything a program needs to call somebody else's limited, slow or failing service and still
//! finish its work. Each piece is usable alone.
//!
//! - [`Time`]: whose time everything here goes by.
//! - [`Heart`] and [`Monitor`]: a worker beats, and whoever listens tells healthy, slow and dead apart.
//! - [`Steward`]: looks after a worker, and replaces it when it dies.
//! - [`Steer`]: a limit driven by measured signals: load, lag, errors, latency, anything.

mod heartbeat;
mod steer;
mod steward;
mod time;

pub use heartbeat::{Health, Heart, Monitor, Pulse, Rhythm};
pub use steer::{
    Advice, Average, CpuShare, LoadAverage, MemoryShare, Reading, RunQueue, Signal, Steer, SteerBuilder,
    SteerError, SteerStep,
};
pub use steward::{Death, Steward, StewardEvent, StewardGaveUp};
pub use time::{Elapsed, Sleep, Time, Timeout};
