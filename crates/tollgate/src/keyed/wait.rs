//! Waiting for a turn of one key.

use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tollgate_core::Tick;

use super::shifted::Shifted;
use super::{KeyedLimiter, KeyedReservation, Turn};
use crate::cell::Held;
use crate::clock::Clock;
use crate::wait::{Wait, WaitError, block_on};

/// A turn of one key to wait for: a future, or [`block`](Self::block) on it from a thread.
///
/// As a [`Wait`](crate::Wait): first come, first served among those who wait for the same key; nothing happens before the
/// first poll; dropping it at any moment loses nothing.
#[must_use = "a wait does nothing unless it is awaited or blocked on"]
pub struct KeyedWait<'a, K: ?Sized, A: Held, C: Clock> {
    limiter: &'a KeyedLimiter<K, A, C>,
    key: &'a K,
    cost: u64,
    deadline: Tick,
    in_line: Option<Wait<'static, A, Shifted<C>>>,
}

impl<'a, K: Hash + ?Sized, A: Held, C: Clock> KeyedWait<'a, K, A, C> {
    pub(super) fn new(limiter: &'a KeyedLimiter<K, A, C>, key: &'a K, cost: u64) -> Self {
        Self { limiter, key, cost, deadline: Tick::MAX, in_line: None }
    }

    /// Waits no longer than `patience` from now. What cannot be had by then is refused at once, with the time it would
    /// have taken.
    pub fn within(self, patience: Duration) -> Self {
        let deadline = self.limiter.now() + patience;
        self.until(deadline)
    }

    /// Waits no longer than until `deadline`, by the limiter's clock.
    pub fn until(self, deadline: Tick) -> Self {
        Self { deadline, ..self }
    }

    /// Waits on this thread.
    ///
    /// # Errors
    /// As for the future: see [`WaitError`].
    pub fn block(self) -> Result<KeyedReservation<K, A, C>, WaitError> {
        block_on(self)
    }
}

impl<K: Hash + ?Sized, A: Held, C: Clock> Future for KeyedWait<'_, K, A, C> {
    type Output = Result<KeyedReservation<K, A, C>, WaitError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let limiter = self.limiter;
        if self.in_line.is_none() {
            match limiter.turn(self.key, self.cost)? {
                Turn::Now(reservation) => return Poll::Ready(Ok(reservation)),
                Turn::Wait(wait) => self.in_line = Some(wait.until(limiter.deadline(self.deadline))),
            }
        }
        let wait = self.in_line.as_mut().expect("in line since the first poll");
        let turn = ready!(Pin::new(wait).poll(context));
        limiter.waited(self.key, &turn);
        let print = limiter.store.seed.print(self.key);
        Poll::Ready(turn.map(|turn| KeyedReservation::in_line(limiter.clone(), print, turn)))
    }
}

impl<K: ?Sized, A: Held, C: Clock> fmt::Debug for KeyedWait<'_, K, A, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("KeyedWait");
        debug.field("cost", &self.cost).field("deadline", &self.deadline).finish_non_exhaustive()
    }
}
