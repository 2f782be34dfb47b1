//! Being a good client: everything a program needs to call somebody else's limited, slow or failing service and still
//! finish its work. Each piece is usable alone.
//!
//! - [`AdaptiveLimit`]: as many calls at once as the other side can take; by [`Aimd`], [`Vegas`] or [`Gradient2`].
//! - [`Feedback`]: as many calls a second as the other side allows, by what its answers say.
//! - [`Time`]: whose time everything here goes by.

mod concurrency;
mod feedback;
mod time;

pub use concurrency::{
    AdaptiveLimit, AdaptivePermit, Aimd, Estimator, Finish, Fixed, Gradient2, Sample, Vegas,
};
pub use feedback::{Feedback, Heard, RateControl, Sent};
pub use time::{Elapsed, Sleep, Time, Timeout};
