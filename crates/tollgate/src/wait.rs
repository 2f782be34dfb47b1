//! Waiting for a turn.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tollgate_core::{Ask, Claim, Decision, Tick};

use crate::cell::Held;
use crate::clock::Clock;
use crate::queue::{Epoch, Shared};
use crate::reservation::Reservation;
use crate::sync::{Mutex, lock};

/// Why a wait was refused. A refused wait took nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitError {
    /// It can never be had: it costs more than the limit ever holds, the rate is zero, or more is owed than time can tell.
    Never {
        /// What was asked for.
        cost: u64,
        /// The most that can be had at once.
        limit: u64,
    },
    /// It cannot be had before the deadline: not as things stand, or not any more after others reserved, were charged for, or
    /// lowered the quota.
    TooLate {
        /// How long it would have taken, from when it began to wait: at a gate, at least so long if the deadline has passed by then;
        /// zero if nobody knows.
        would_take: Duration,
    },
    /// Too many are waiting already.
    Full {
        /// How many.
        waiting: usize,
    },
    /// The limiter was closed.
    Closed,
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Never { cost, limit } if cost > limit => {
                write!(f, "cost {cost} exceeds the limit of {limit}")
            }
            Self::Never { cost, .. } => {
                write!(f, "cost {cost} can never be allowed: the rate is zero, or the debt is too large")
            }
            Self::TooLate { would_take: Duration::ZERO } => {
                f.write_str("deadline too soon: not available now")
            }
            Self::TooLate { would_take } => {
                write!(f, "deadline too soon: needs {would_take:?}")
            }
            Self::Full { waiting } => write!(f, "queue is full: {waiting} waiting"),
            Self::Closed => f.write_str("the limiter was closed"),
        }
    }
}

impl std::error::Error for WaitError {}

/// A turn to wait for: a future, or [`block`](Self::block) on it from a thread.
///
/// First come, first served. Nothing happens before the first poll.
///
/// # Cancel safety
/// Dropping it at any moment loses nothing: its place goes to those behind, and so does a turn that was granted
/// but not yet seen. A turn that lay unseen for longer than an empty bucket takes to fill goes to the next in line as long as the
/// bound allows: in a busy line with a burst of four or more, up to a quarter of the burst at a time. What is beyond that, and
/// what was granted more than eight changes of quota ago, may be lost.
#[must_use = "a wait does nothing unless it is awaited or blocked on"]
#[derive(Debug)]
pub struct Wait<'a, A: Held, C: Clock> {
    shared: Cow<'a, Arc<Shared<A, C>>>,
    cost: u64,
    deadline: Tick,
    waiter: Option<Arc<Waiter>>,
}

impl<'a, A: Held, C: Clock> Wait<'a, A, C> {
    pub(crate) fn new(shared: Cow<'a, Arc<Shared<A, C>>>, cost: u64) -> Self {
        Self { shared, cost, deadline: Tick::MAX, waiter: None }
    }

    /// Waits no longer than `patience` from now. What cannot be had by then is refused at once, with the time it would
    /// have taken.
    pub fn within(self, patience: Duration) -> Self {
        let deadline = self.shared.clock.now() + patience;
        self.until(deadline)
    }

    /// Waits no longer than until `deadline`, by the limiter's clock.
    pub fn until(mut self, deadline: Tick) -> Self {
        self.deadline = deadline;
        self
    }

    /// Waits on this thread.
    ///
    /// # Errors
    /// As for the future: see [`WaitError`].
    pub fn block(self) -> Result<Reservation<A, C>, WaitError> {
        block_on(self)
    }

    /// Takes without waiting, or lines up.
    fn begin(&mut self) -> Result<Option<Grant>, WaitError> {
        if self.shared.is_closed() {
            return Err(WaitError::Closed);
        }
        let now = self.shared.clock.now();
        let epoch = self.shared.epoch();
        let ask = Ask::now(self.cost);
        if let Some(taken) = crate::cell::Cell::quick_take(&self.shared.cell, now, ask)
            && taken.decision.is_allowed()
        {
            return Ok(Some(Grant { decision: taken.decision, claim: taken.claim, epoch }));
        }
        let waiter = Waiter::new(self.cost, self.deadline, now);
        self.shared.line_up(waiter, &mut self.waiter, now)?;
        Ok(None)
    }

    fn reservation(&self, grant: Grant) -> Reservation<A, C> {
        let act = grant.claim.map_or_else(|| self.shared.clock.now(), |claim| claim.act);
        Reservation::new(&self.shared, grant, act)
    }
}

impl<A: Held, C: Clock> Future for Wait<'_, A, C> {
    type Output = Result<Reservation<A, C>, WaitError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.waiter.is_none() {
            match self.begin() {
                Ok(Some(grant)) => return Poll::Ready(Ok(self.reservation(grant))),
                Ok(None) => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        let waiter = self.waiter.as_ref().expect("in line since the first poll");
        match waiter.poll(context.waker()) {
            None => Poll::Pending,
            Some(outcome) => {
                self.waiter = None;
                Poll::Ready(outcome.map(|grant| self.reservation(grant)))
            }
        }
    }
}

impl<A: Held, C: Clock> Drop for Wait<'_, A, C> {
    fn drop(&mut self) {
        if let Some(waiter) = self.waiter.take() {
            self.shared.leave(&waiter);
        }
    }
}

/// Somebody in line for a `G`.
#[derive(Debug)]
pub(crate) struct Waiter<G = Grant> {
    pub(crate) cost: u64,
    pub(crate) deadline: Tick,
    /// When it lined up.
    pub(crate) since: Tick,
    phase: Mutex<Phase<G>>,
}

/// How far a waiter has come.
#[derive(Debug)]
pub(crate) enum Phase<G = Grant> {
    /// In line; whom to wake.
    Waiting(Option<Waker>),
    /// Its turn has come.
    Granted(G),
    /// It was turned away.
    Refused(WaitError),
    /// It has left.
    Gone,
}

/// A turn that has come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    pub(crate) decision: Decision,
    pub(crate) claim: Option<Claim>,
    pub(crate) epoch: Epoch,
}

impl<G: Copy> Waiter<G> {
    pub(crate) fn new(cost: u64, deadline: Tick, since: Tick) -> Self {
        Self { cost, deadline, since, phase: Mutex::new(Phase::Waiting(None)) }
    }

    pub(crate) fn is_waiting(&self) -> bool {
        matches!(*lock(&self.phase), Phase::Waiting(_))
    }

    /// Ends the wait; whom to wake.
    pub(crate) fn resolve(&self, outcome: Phase<G>) -> Option<Waker> {
        match std::mem::replace(&mut *lock(&self.phase), outcome) {
            Phase::Waiting(waker) => waker,
            Phase::Granted(_) | Phase::Refused(_) | Phase::Gone => None,
        }
    }

    pub(crate) fn take_phase(&self) -> Phase<G> {
        std::mem::replace(&mut *lock(&self.phase), Phase::Gone)
    }

    pub(crate) fn poll(&self, waker: &Waker) -> Option<Result<G, WaitError>> {
        let mut phase = lock(&self.phase);
        match &mut *phase {
            Phase::Waiting(known) => {
                if !known.as_ref().is_some_and(|known| known.will_wake(waker)) {
                    let old = known.replace(waker.clone());
                    drop(phase);
                    drop(old); // the last waker of a task may drop the task, and with it who knows what
                }
                None
            }
            Phase::Granted(grant) => Some(Ok(*grant)),
            Phase::Refused(error) => Some(Err(*error)),
            Phase::Gone => Some(Err(WaitError::Closed)),
        }
    }
}

/// Polls a future on this thread, which sleeps in between.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(outcome) => return outcome,
            Poll::Pending => std::thread::park(),
        }
    }
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
