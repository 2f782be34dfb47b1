//! Why a scope ended.

use std::fmt;
use std::time::Duration;

use crate::Again;

/// Why work was not done, or not finished. `?` makes a [`Fault`](crate::Fault) of it that says the same to the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// The scope was cancelled: nobody wants the work any more.
    Cancelled,
    /// The deadline passed.
    Deadline,
    /// The deadline has not passed, but the work would not be done by then.
    TooShort {
        /// How long the work takes.
        needed: Duration,
        /// How long there is.
        left: Duration,
    },
}

impl Ended {
    /// Whether trying again, with time of its own, can help: it can unless it was cancelled.
    pub fn again(self) -> Again {
        match self {
            Self::Cancelled => Again::Never,
            Self::Deadline | Self::TooShort { .. } => Again::Later,
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cancelled => f.write_str("cancelled"),
            Self::Deadline => f.write_str("deadline exceeded"),
            Self::TooShort { needed, left } => {
                write!(f, "not enough time: needs {needed:?}, {left:?} left")
            }
        }
    }
}

impl std::error::Error for Ended {}
