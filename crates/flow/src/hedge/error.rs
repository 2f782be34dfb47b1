//! What a call comes to when no copy of it succeeds.

use std::error::Error;
use std::fmt;

use crate::retry::Transient;
use crate::{Again, Fault};

/// No copy of a call succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AllFailed<E> {
    /// What each copy failed with, in the order in which they failed; empty if there was no handler.
    pub errors: Vec<E>,
}

impl<E> AllFailed<E> {
    /// The error of the copy that failed last.
    pub fn into_last(mut self) -> Option<E> {
        self.errors.pop()
    }
}

impl<E: Transient> Transient for AllFailed<E> {
    /// What the last error says that does not rule it out.
    fn again(&self) -> Again {
        let told = self.errors.iter().rev().map(Transient::again);
        told.fold(Again::Never, |told, again| if told == Again::Never { again } else { told })
    }
}

impl<E> fmt::Display for AllFailed<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.errors.len() {
            0 => f.write_str("no handler for the request"),
            1 => f.write_str("the only copy of the request failed"),
            copies => write!(f, "all {copies} copies of the request failed"),
        }
    }
}

impl<E: Error + 'static> Error for AllFailed<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.errors.last().map(|error| error as _)
    }
}

impl From<AllFailed<Fault>> for Fault {
    /// The fault of the copy that failed last, which now knows how many there were.
    fn from(failed: AllFailed<Fault>) -> Self {
        let copies = failed.errors.len();
        let none = || Self::new("no handler for the request").try_again(Again::Never);
        failed.into_last().map_or_else(none, |fault| fault.with("copies", copies))
    }
}
