//! Being a good client: everything a program needs to call somebody else's limited, slow or failing service and still
//! finish its work. Each piece is usable alone.
//!
//! - [`Time`]: whose time everything here goes by.

mod time;

pub use time::{Elapsed, Sleep, Time, Timeout};
