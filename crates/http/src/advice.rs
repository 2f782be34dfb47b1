//! What an answer tells its caller.

use std::time::Duration;

use crate::budget::Budget;

/// What an answer tells its caller about limits. The default is an answer that says nothing.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Advice {
    /// Why the call was refused, if it was refused for the sake of a limit.
    pub throttled: Option<Throttled>,
    /// How long to send nothing. Also on an answer that was no refusal, if it used up the last of a budget. Never more than
    /// the [`Reader`](crate::Reader) allows.
    pub wait: Option<Duration>,
    /// Whether to try this call again, where the service says so.
    pub should_retry: Option<bool>,
    /// The budgets that the answer speaks of.
    pub budgets: Vec<Budget>,
}

/// Why a call was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Throttled {
    /// Too many calls in a span of time.
    Rate,
    /// Too many calls at once.
    Concurrency,
    /// The service has less capacity than usual.
    Capacity,
}
