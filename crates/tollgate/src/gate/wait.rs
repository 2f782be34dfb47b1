//! Waiting for a turn at a gate.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tollgate_core::Tick;

use super::line::{Line, Standing};
use super::member::Member;
use super::permit::Permit;
use super::tally::{GateDecision, GateRefused};
use super::{Gate, time_by};
use crate::wait::{WaitError, block_on};

/// A turn at a [`Gate`] to wait for: a future, or [`block`](Self::block) on it from a thread.
///
/// First come, first served. Nothing happens before the first poll.
///
/// # Cancel safety
/// Dropping it at any moment loses nothing: nothing is taken before it is seen. So whoever is first in line must be polled when it is
/// woken, or dropped: one that is kept and not polled (after a `select!` by reference, in a task that does something else) stands in
/// the way of all who wait behind it at this gate, until its deadline if it has one. At a [`Limiter`](crate::Limiter) it would not.
#[must_use = "a wait does nothing unless it is awaited or blocked on"]
pub struct GateWait<'a, M: Member> {
    gate: &'a Gate<M>,
    n: u64,
    deadline: Tick,
    place: Option<Place>,
}

/// A place in the line.
#[derive(Debug)]
struct Place {
    line: Arc<Line>,
    ticket: u64,
    since: Tick,
    /// What the limits wake when something comes back.
    waker: Waker,
    is_watching: bool,
}

impl<'a, M: Member> GateWait<'a, M> {
    pub(super) fn new(gate: &'a Gate<M>, n: u64) -> Self {
        Self { gate, n, deadline: Tick::MAX, place: None }
    }

    /// Waits no longer than `patience` from now. What cannot be had by then is refused at once, with the time it would
    /// have taken.
    pub fn within(self, patience: Duration) -> Self {
        let deadline = self.gate.now() + patience;
        self.until(deadline)
    }

    /// Waits no longer than until `deadline`, by the first clock among the limits.
    pub fn until(mut self, deadline: Tick) -> Self {
        self.deadline = deadline;
        self
    }

    /// Waits on this thread.
    ///
    /// # Errors
    /// As for the future: see [`WaitError`].
    pub fn block(self) -> Result<Permit<M>, WaitError> {
        block_on(self)
    }

    /// Takes without waiting, or lines up.
    fn begin(&mut self) -> Result<Option<Permit<M>>, WaitError> {
        let now = self.gate.now();
        let line = self.gate.line();
        if self.gate.members.is_closed() {
            return Err(WaitError::Closed);
        }
        if line.len() == 0 {
            match self.gate.acquire_waiting(self.n) {
                Ok(permit) => return Ok(Some(permit)),
                Err(GateRefused(decision)) => self.may_wait(&decision, now)?,
            }
        } else {
            self.may_wait_behind(&line.costs(), &self.gate.peek_n(self.n), now)?;
        }
        if now >= self.deadline {
            return Err(WaitError::TooLate { would_take: Duration::ZERO }); // nobody knows when a slot is free
        }
        let ticket = line.join(self.n, now, self.deadline)?;
        let (line, waker) = (Arc::clone(line), Waker::from(Arc::clone(line)));
        self.place = Some(Place { line, ticket, since: now, waker, is_watching: false });
        Ok(None)
    }

    /// Whether it makes sense to wait after this answer.
    fn may_wait(&self, decision: &GateDecision, now: Tick) -> Result<(), WaitError> {
        self.has_time_for(self.wait_after(decision)?, now)
    }

    /// Whether its turn can come before its deadline, after this answer and after those who are in line already.
    fn may_wait_behind(&self, ahead: &[u64], decision: &GateDecision, now: Tick) -> Result<(), WaitError> {
        let alone = self.wait_after(decision)?;
        if self.deadline == Tick::MAX {
            return Ok(());
        }
        // What can never be had by one ahead is refused when its turn comes.
        let in_line = self.gate.foreseen(ahead, self.n).unwrap_or_default();
        self.has_time_for(alone.max(in_line), now)
    }

    /// How long to wait after this answer, if that makes sense.
    fn wait_after(&self, decision: &GateDecision) -> Result<Duration, WaitError> {
        decision.retry_after().ok_or_else(|| {
            let cost = self.gate.cost_for(decision.decided_by(), self.n);
            WaitError::Never { cost, limit: decision.limit() }
        })
    }

    /// Whether somebody in line stays though as things are it never gets there: at rate zero the next change may help. Above
    /// the limit nothing will, and where it is room for a key that is missing nobody would tell.
    fn may_stay(&self, error: WaitError) -> bool {
        let is_at_rest = matches!(error, WaitError::Never { cost, limit } if cost <= limit);
        is_at_rest && self.deadline == Tick::MAX && self.gate.foreseen(&[], self.n).is_none()
    }

    fn has_time_for(&self, would_take: Duration, now: Tick) -> Result<(), WaitError> {
        if now + would_take > self.deadline { Err(WaitError::TooLate { would_take }) } else { Ok(()) }
    }

    /// Tries if it is its turn. `None`: it goes on waiting.
    fn step(&mut self, waker: &Waker) -> Option<Result<Permit<M>, WaitError>> {
        let gate = self.gate;
        let now = time_by(&gate.members);
        let place = self.place.as_mut().expect("in line since the first poll");
        match place.line.standing(place.ticket, now, waker) {
            Standing::Head => {}
            Standing::Behind if now <= self.deadline => {
                place.line.ring_in_time(now);
                return None;
            }
            Standing::Behind | Standing::TurnedAway => {
                return Some(Err(WaitError::TooLate { would_take: now.since(place.since) }));
            }
        }
        // First watch, then look: whatever comes back from now on is heard of.
        place.is_watching = true;
        gate.members.watch(&place.waker);
        if gate.members.is_closed() {
            return Some(Err(WaitError::Closed));
        }
        let decision = match gate.acquire_waiting(self.n) {
            Ok(permit) => return Some(Ok(permit)),
            Err(GateRefused(decision)) => decision,
        };
        if let Err(error) = self.may_wait(&decision, now)
            && !self.may_stay(error)
        {
            return Some(Err(error));
        }
        let place = self.place.as_ref().expect("still in line");
        let wait = decision.retry_after().filter(|wait| *wait > Duration::ZERO);
        place.line.try_again(now, wait.map(|wait| now + wait));
        None
    }

    /// Counts how it ended, unless that is no answer to the question.
    fn refused(&self, error: WaitError) -> WaitError {
        if error != WaitError::Closed {
            self.gate.count_turned_away(self.n, self.deadline.since(self.gate.now()));
        }
        error
    }

    fn leave(&mut self) {
        if let Some(place) = self.place.take() {
            if place.is_watching {
                self.gate.members.unwatch(&place.waker);
            }
            place.line.leave(place.ticket);
        }
    }
}

impl<M: Member> Future for GateWait<'_, M> {
    type Output = Result<Permit<M>, WaitError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.place.is_none() {
            match self.begin() {
                Ok(Some(permit)) => return Poll::Ready(Ok(permit)),
                Ok(None) => {}
                Err(error) => return Poll::Ready(Err(self.refused(error))),
            }
        }
        match self.step(context.waker()) {
            None => Poll::Pending,
            Some(outcome) => {
                self.leave();
                Poll::Ready(outcome.map_err(|error| self.refused(error)))
            }
        }
    }
}

impl<M: Member> Drop for GateWait<'_, M> {
    fn drop(&mut self) {
        self.leave();
    }
}

impl<M: Member> fmt::Debug for GateWait<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("GateWait");
        debug.field("n", &self.n).field("deadline", &self.deadline).finish_non_exhaustive()
    }
}
