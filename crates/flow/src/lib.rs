//! Being a good client: everything a program needs to call somebody else's limited, slow or failing service and still
//! finish its work. Each piece is usable alone.
//!
//! - [`Fault`]: what people are told when something goes wrong. [`catch`] makes one of a panic.
//! - [`Time`]: whose time everything here goes by.

mod fault;
mod time;

pub use fault::{Again, Catch, Fault, FaultError, FaultId, NoFaultId, OrFault, Panicked, Place, catch};
pub use time::{Elapsed, Sleep, Time, Timeout};
