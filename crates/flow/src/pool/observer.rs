//! Whoever wants to know of each attempt.

use std::sync::Arc;
use std::time::Duration;

use super::control::Control;
use crate::Fault;

/// Hears of every attempt of a pool, to learn from it: whether its worker is alive, how fast an upstream may be asked.
///
/// It is called on the worker's task, so it must not block. A [`Heart`](crate::Heart), a [`Feedback`](crate::Feedback) and an
/// [`AdaptiveLimit`](crate::AdaptiveLimit) are observers. For a closure, there is
/// [`Pool::on_attempt`](super::Pool::on_attempt).
pub trait Observer: Send + Sync {
    /// An attempt begins.
    fn begins(&self) {}

    /// An attempt has ended. The run can be steered from here: a refusal may [`hold`](Control::hold) all of it.
    fn ended(&self, attempt: &Attempted<'_>, run: &Control) {
        let _ = (attempt, run);
    }
}

impl<O: Observer + ?Sized> Observer for Arc<O> {
    fn begins(&self) {
        (**self).begins();
    }

    fn ended(&self, attempt: &Attempted<'_>, run: &Control) {
        (**self).ended(attempt, run);
    }
}

/// A closure that hears how attempts went.
pub(super) struct OnAttempt<F>(pub(super) F);

impl<F: Fn(&Attempted<'_>, &Control) + Send + Sync> Observer for OnAttempt<F> {
    fn ended(&self, attempt: &Attempted<'_>, run: &Control) {
        (self.0)(attempt, run);
    }
}

/// How an attempt went.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Attempted<'a> {
    /// Which one of its job, from 1.
    pub number: u32,
    /// What it paid at the gate, if there is one.
    pub cost: u64,
    /// Why it failed, if it did.
    pub fault: Option<&'a Fault>,
    /// How long it took, without the wait for the gate.
    pub took: Duration,
}
