//! Whoever wants to know of each attempt.

use std::time::Duration;

use super::control::Control;
use crate::Fault;

/// Hears of every attempt of a pool, to learn from it: when a worker was last busy, how fast an upstream may be asked.
///
/// Called on the worker's task, so it must not block. Any `Fn(&Attempted<'_>, &Control)` is an observer of
/// [`ended`](Self::ended).
pub trait Observer: Send + Sync {
    /// An attempt begins.
    fn begins(&self) {}

    /// An attempt has ended. The run can be steered from here: a refusal may [`hold`](Control::hold) all of it.
    fn ended(&self, attempt: &Attempted<'_>, run: &Control) {
        let _ = (attempt, run);
    }
}

impl<F: Fn(&Attempted<'_>, &Control) + Send + Sync> Observer for F {
    fn ended(&self, attempt: &Attempted<'_>, run: &Control) {
        self(attempt, run);
    }
}

/// How an attempt went.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Attempted<'a> {
    /// Which one of its job, from 1.
    pub attempt: u32,
    /// Why it failed, if it did.
    pub fault: Option<&'a Fault>,
    /// How long it took, without the wait for the gate.
    pub took: Duration,
}
