//! Between faults and errors.

use std::borrow::Cow;
use std::error::Error;
use std::panic::Location;
use std::{fmt, io, iter};

use tollgate::{GateRefused, Refused, WaitError};

use super::Fault;
use crate::hedge::AllFailed;
use crate::retry::GaveUp;
use crate::{Elapsed, Ended};

/// A fault as a [`std::error::Error`], which [`Fault`] itself cannot be, because `?` makes a fault of every error; made
/// by [`Fault::into_error`], and by turning a fault into a `Box<dyn Error>`.
///
/// It is shown as the fault is. Its sources are the fault's causes.
///
/// # Examples
/// ```
/// use std::error::Error;
/// use tollgate_flow::Fault;
///
/// let fault = Fault::new("could not save the order").because(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
/// let id = fault.id();
/// let error: Box<dyn Error + Send + Sync> = fault.into();
/// assert_eq!(error.source().unwrap().to_string(), "broken pipe");
/// assert_eq!(Fault::unexpected(error).id(), id);
/// ```
pub struct FaultError(Fault);

impl FaultError {
    pub(super) fn new(fault: Fault) -> Self {
        Self(fault)
    }

    /// The fault.
    pub fn fault(&self) -> &Fault {
        &self.0
    }

    /// The fault, back.
    pub fn into_fault(self) -> Fault {
        self.0
    }
}

impl fmt::Display for FaultError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for FaultError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl Error for FaultError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.cause().map(|cause| cause as _)
    }
}

impl From<Fault> for Box<dyn Error + Send + Sync> {
    fn from(fault: Fault) -> Self {
        Box::new(fault.into_error())
    }
}

impl From<Fault> for Box<dyn Error> {
    fn from(fault: Fault) -> Self {
        Box::new(fault.into_error())
    }
}

/// Says what it means for the user that something failed.
///
/// # Examples
/// ```
/// use tollgate_flow::{Again, Fault, OrFault};
///
/// fn port(text: &str) -> Result<u16, Fault> {
///     text.parse().or_fault("the port is not a number").map_err(|fault| fault.with("port", text).try_again(Again::Never))
/// }
///
/// let fault = port("80x").or_fault("could not start the server").unwrap_err();
/// let line = "could not start the server: the port is not a number; trying again will not help";
/// assert!(fault.to_string().starts_with(line));
/// ```
pub trait OrFault<T> {
    /// Wraps the error, if it is one. An error becomes the cause of a new fault that says `message`, and is worth
    /// another try if [`Again::of`](crate::Again::of) it says so; a fault keeps its id, time, place and all it knows,
    /// and says `message` before what it said so far.
    ///
    /// # Errors
    /// The fault.
    fn or_fault(self, message: impl Into<Cow<'static, str>>) -> Result<T, Fault>;
}

impl<T, E: IntoFault> OrFault<T> for Result<T, E> {
    #[track_caller]
    fn or_fault(self, message: impl Into<Cow<'static, str>>) -> Result<T, Fault> {
        match self {
            Ok(value) => Ok(value),
            Err(error) => Err(error.into_fault(message.into(), Location::caller())),
        }
    }
}

/// A fault, or an error. Not to be implemented elsewhere.
pub trait IntoFault {
    #[doc(hidden)]
    fn into_fault(self, message: Cow<'static, str>, location: &'static Location<'static>) -> Fault;
}

impl IntoFault for Fault {
    fn into_fault(self, message: Cow<'static, str>, location: &'static Location<'static>) -> Fault {
        self.saying(message, location)
    }
}

impl IntoFault for GaveUp<Fault> {
    fn into_fault(self, message: Cow<'static, str>, location: &'static Location<'static>) -> Fault {
        Fault::from(self).saying(message, location)
    }
}

impl IntoFault for AllFailed<Fault> {
    fn into_fault(self, message: Cow<'static, str>, location: &'static Location<'static>) -> Fault {
        Fault::from(self).saying(message, location)
    }
}

impl<E: Error + Send + Sync + 'static> IntoFault for E {
    fn into_fault(self, message: Cow<'static, str>, location: &'static Location<'static>) -> Fault {
        Fault::wrapped_at(Box::new(self), message, location)
    }
}

/// The error and its causes, outermost first. An [`io::Error`] hides the error it was made of from `source`; here it is
/// seen.
pub(super) fn causes<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    iter::successors(Some(error), |&error| match error.downcast_ref::<io::Error>() {
        Some(error) => error.get_ref().map(|inner| inner as &(dyn Error + 'static)),
        None => error.source(),
    })
}

/// Whether the error was made for people. Such errors say enough, and come in numbers.
pub(super) fn speaks_for_itself(error: &(dyn Error + 'static)) -> bool {
    let is_wait = error.is::<Ended>() || error.is::<Elapsed>() || error.is::<WaitError>();
    is_wait || is_refusal(error) || is_no_answer(error)
}

#[cfg(any(feature = "tower", feature = "reqwest"))]
fn is_no_answer(error: &(dyn Error + 'static)) -> bool {
    error.is::<crate::client::NoAnswer>()
}

#[cfg(not(any(feature = "tower", feature = "reqwest")))]
fn is_no_answer(_: &(dyn Error + 'static)) -> bool {
    false
}

/// What the user reads of an error that speaks for itself.
pub(super) fn said_by(error: &(dyn Error + 'static)) -> Cow<'static, str> {
    // Its own words say when to try again, and so does every fault.
    if is_refusal(error) { "a limit is reached".into() } else { error.to_string().into() }
}

fn is_refusal(error: &(dyn Error + 'static)) -> bool {
    error.is::<Refused>() || error.is::<GateRefused>()
}
