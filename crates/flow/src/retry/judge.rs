//! Which errors are worth another try, and who wants to hear of them.

use std::io;
use std::time::Duration;

use tollgate::{GateRefused, Refused, WaitError};

use super::Why;
use crate::fault::FaultError;
use crate::{Again, Elapsed, Ended, Fault};

/// An error that says whether trying again can help.
///
/// Implemented by [`Fault`], [`io::Error`] and the errors of this crate and of `tollgate`. For other people's errors, give
/// the policy a closure instead: [`Retry::judge`](crate::Retry::judge).
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate_flow::retry::Transient;
/// use tollgate_flow::Again;
///
/// struct Refusal { status: u16, retry_after: Option<Duration> }
///
/// impl Transient for Refusal {
///     fn again(&self) -> Again {
///         match (self.status, self.retry_after) {
///             (429 | 503, Some(wait)) => Again::After(wait),
///             (408 | 429 | 500.., None) => Again::Later,
///             _ => Again::Never,
///         }
///     }
/// }
/// ```
pub trait Transient {
    /// Whether trying again can help.
    fn again(&self) -> Again;
}

impl Transient for Fault {
    fn again(&self) -> Again {
        self.again()
    }
}

macro_rules! known {
    ($($error:ty),+) => {$(
        impl Transient for $error {
            fn again(&self) -> Again {
                Again::of(self)
            }
        }
    )+};
}

known!(FaultError, io::Error, Elapsed, Ended, WaitError, Refused, GateRefused);

/// Who says whether trying again can help: [`Itself`], or a closure.
pub trait Judge<E> {
    /// Whether trying again can help.
    fn judge(&self, error: &E) -> Again;
}

/// The error says so itself: see [`Transient`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Itself;

impl<E: Transient> Judge<E> for Itself {
    fn judge(&self, error: &E) -> Again {
        error.again()
    }
}

impl<E, F: Fn(&E) -> Again> Judge<E> for F {
    fn judge(&self, error: &E) -> Again {
        self(error)
    }
}

/// One try, as the one who makes it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attempt {
    /// The first is 1.
    pub number: u32,
    /// Since the start of the first.
    pub elapsed: Duration,
}

/// One try that failed.
#[derive(Debug)]
#[non_exhaustive]
pub struct Setback<'a, E> {
    /// Which try it was, the first being 1.
    pub number: u32,
    /// Since the start of the first.
    pub elapsed: Duration,
    /// What went wrong.
    pub error: &'a E,
    /// How long until the next try, or why there is none.
    pub next: Result<Duration, Why>,
}

/// Who hears of each failed try: [`Nobody`], or a closure.
pub trait Notify<E> {
    /// A try failed.
    fn notify(&self, setback: &Setback<'_, E>);
}

/// Nobody wants to hear of failed tries.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nobody;

impl<E> Notify<E> for Nobody {
    fn notify(&self, _: &Setback<'_, E>) {}
}

impl<E, F: Fn(&Setback<'_, E>)> Notify<E> for F {
    fn notify(&self, setback: &Setback<'_, E>) {
        self(setback);
    }
}
