//! What a piece of work comes to when it is given up.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::retry::Transient;
use crate::{Again, Ended, Fault};

/// Why there was no further try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// The error says that trying again will not help.
    Permanent,
    /// There were as many tries as there may be.
    Tries,
    /// The next try would have been later than the total allows.
    Elapsed,
    /// The [`RetryBudget`](crate::RetryBudget) is used up.
    Budget,
    /// The [`Scope`](crate::Scope) has ended, or would have before the next try.
    Ended(Ended),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Permanent => f.write_str("trying again will not help"),
            Self::Tries => f.write_str("no tries left"),
            Self::Elapsed => f.write_str("no time left"),
            Self::Budget => f.write_str("too many calls are being retried"),
            Self::Ended(ended) => ended.fmt(f),
        }
    }
}

/// The work was given up: its last error, and why there was no further try.
///
/// Of a [`Fault`], `?` makes the last fault again, which then knows in its context how often it was tried and why not again.
///
/// # Examples
/// ```
/// use tollgate_flow::{Again, Fault, Retry};
///
/// async fn fetch(retry: &Retry) -> Result<String, Fault> {
///     Ok(retry.run(|_| async { Err(Fault::new("the shop does not answer").try_again(Again::Later)) }).await?)
/// }
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
/// # runtime.block_on(async {
/// let fault = fetch(&Retry::new().tries(2)).await.unwrap_err();
/// assert!(fault.to_string().starts_with("the shop does not answer; trying again later can help"));
/// assert!(fault.context().any(|(key, value)| key == "tries" && value == "2"));
/// # });
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GaveUp<E> {
    /// Why.
    pub why: Why,
    /// What the last try that was finished failed with; none if the scope ended before one was.
    pub error: Option<E>,
    /// How many tries were begun.
    pub tries: u32,
    /// How long it took, waits included.
    pub took: Duration,
}

impl<E: Transient> Transient for GaveUp<E> {
    /// What the last error says; if there is none, what the scope says.
    fn again(&self) -> Again {
        match (&self.error, self.why) {
            (Some(error), _) => error.again(),
            (None, Why::Ended(ended)) => ended.again(),
            (None, _) => Again::Unknown,
        }
    }
}

impl<E> fmt::Display for GaveUp<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { why, tries, took, .. } = self;
        let plural = if *tries == 1 { "try" } else { "tries" };
        write!(f, "gave up after {tries} {plural} in {took:.1?}: {why}")
    }
}

impl<E: Error + 'static> Error for GaveUp<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match (&self.error, &self.why) {
            (Some(error), _) => Some(error),
            (None, Why::Ended(ended)) => Some(ended),
            (None, _) => None,
        }
    }
}

impl From<GaveUp<Fault>> for Fault {
    /// The last fault, or what the scope says if there was none; either knows how often it was tried.
    fn from(gave_up: GaveUp<Fault>) -> Self {
        let GaveUp { why, error, tries, took } = gave_up;
        let fault = match (error, why) {
            (Some(fault), _) => fault,
            (None, Why::Ended(ended)) => ended.into(),
            (None, _) => Self::untraced(why.to_string()),
        };
        fault.with("tries", tries).with("took", format_args!("{took:.1?}")).with("gave up because", why)
    }
}
