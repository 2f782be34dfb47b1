//! Why a call has no answer.

use std::error::Error;
use std::fmt;

use tollgate::WaitError;

use super::wire::BoxError;
use crate::retry::Transient;
use crate::{Again, Elapsed, Ended};

/// Why a call has no answer. What the server answers is never one of these, whatever its status.
///
/// [`source`](Error::source) is the error itself.
#[derive(Debug)]
#[non_exhaustive]
pub enum NoAnswer {
    /// The client failed, as when there is no connection. This is the error of the last attempt.
    Failed(BoxError),
    /// The last attempt took longer than one may.
    TimedOut,
    /// The deadline passed, or would have before there was a turn; or the scope was cancelled. If an attempt had
    /// failed before, the caller is told of that instead, unless it was cancelled.
    Ended(Ended),
    /// Too many are waiting for a turn already.
    NoTurn(WaitError),
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Failed(_) => "request failed",
            Self::TimedOut => "no response in time",
            Self::Ended(Ended::Cancelled) => "request cancelled",
            Self::Ended(_) => "deadline exceeded",
            Self::NoTurn(_) => "no permit for the request",
        })
    }
}

impl Error for NoAnswer {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Failed(error) => Some(&**error),
            Self::TimedOut => Some(&Elapsed),
            Self::Ended(ended) => Some(ended),
            Self::NoTurn(error) => Some(error),
        }
    }
}

impl Transient for NoAnswer {
    fn again(&self) -> Again {
        Again::of(self)
    }
}
