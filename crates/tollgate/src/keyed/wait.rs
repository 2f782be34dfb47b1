//! Waiting for a turn of one key.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tollgate_core::{Ask, Decision, Tick};

use super::reservation::Slot;
use super::shard::{Answer, Query};
use super::shifted::Shifted;
use super::{KeyedLimiter, KeyedReservation};
use crate::cell::Held;
use crate::clock::Clock;
use crate::reservation::Reservation;
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

/// How a wait begins.
enum Turn<K: ?Sized, A: Held, C: Clock> {
    /// It is over.
    Now(KeyedReservation<K, A, C>),
    /// In line with others who wait for the key.
    Wait(Wait<'static, A, Shifted<C>>),
}

impl<K: Hash + ?Sized, A: Held, C: Clock> KeyedLimiter<K, A, C> {
    /// Waits for one of `key`.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{KeyedLimiter, Quota, WaitError};
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    /// # runtime.block_on(async {
    /// let limiter = KeyedLimiter::<str>::new(Quota::per_second(1_000).burst(1));
    /// limiter.wait("alice").await?;
    /// limiter.wait("bob").await?; // at once: bob has a limit of his own
    /// limiter.wait("alice").await?; // a millisecond later
    /// # Ok::<(), WaitError>(())
    /// # }).unwrap();
    /// ```
    pub fn wait<'a>(&'a self, key: &'a K) -> KeyedWait<'a, K, A, C> {
        self.wait_n(key, 1)
    }

    /// Waits for `n` of `key`, all of them together. Where there is [no room](crate::KeyedBuilder::at_cap) for a new key, or not the
    /// [memory](crate::KeyedBuilder::max_bytes) for somebody to wait for one more, it is refused as if the queue were full.
    pub fn wait_n<'a>(&'a self, key: &'a K, n: u64) -> KeyedWait<'a, K, A, C> {
        KeyedWait::new(self, key, n)
    }

    /// How many keys somebody waits for, or did until a moment ago: those that nobody does any more go back among the others by the way of
    /// other calls.
    pub fn keys_in_line(&self) -> usize {
        self.store.lines.len()
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.store.closed.load(Ordering::SeqCst)
    }

    /// Ends all waiting, as [`Limiter::close`](crate::Limiter::close) does.
    pub fn close(&self) {
        self.store.closed.store(true, Ordering::SeqCst);
        self.store.lines.close();
        self.store.watchers.tell();
    }

    /// Takes without waiting, or lines up.
    fn turn(&self, key: &K, cost: u64) -> Result<Turn<K, A, C>, WaitError> {
        if self.is_closed() {
            return Err(WaitError::Closed);
        }
        let (now, print) = (self.now(), self.store.seed.print(key));
        let tick = self.tick(now);
        let (plan, ask) = (self.store.common.plan_of_new(), Ask::now(cost));
        let mut query = Query { print, plan, now: tick, ask, is_patient: false };
        let limiter = loop {
            match self.store.on_shard(print, |shard| self.store.take_or_line_up(shard, query)) {
                Ok(Answer::Decided(decision, receipt)) => {
                    self.tell(key, &decision);
                    if !decision.is_admitted() {
                        return Err(WaitError::Never { cost, limit: decision.limit() });
                    }
                    let slot = receipt.map_or(Slot::Nothing, Slot::Here);
                    return Ok(Turn::Now(KeyedReservation::new(self.clone(), print, decision, slot, now)));
                }
                Ok(Answer::NeedsPlan) => query.plan = Some(self.store.plan(key)),
                Ok(answer) => {
                    let waiting = self.store.lines.len();
                    if let Answer::Refused(decision) = answer {
                        self.tell(key, &decision);
                    } else {
                        self.store.shard(print).overflowed(false);
                        self.tell(key, &Decision::refusal(self.quota().burst_size(), None));
                    }
                    return Err(WaitError::Full { waiting });
                }
                Err(limiter) => break limiter,
            }
        };
        if self.is_closed() {
            return Err(WaitError::Closed); // it was closed before this line was seen
        }
        Ok(Turn::Wait(Wait::new(Cow::Owned(limiter.shared), cost)))
    }

    /// Counts and reports how waiting in line ended.
    fn waited(&self, key: &K, outcome: &Result<Reservation<A, Shifted<C>>, WaitError>) {
        if let Err(WaitError::Closed) = outcome {
            return; // not an answer to the question
        }
        self.store.shard(self.store.seed.print(key)).count_elsewhere(outcome.is_ok());
        if self.store.watch.is_some() {
            let refusal = |retry_after| Decision::refusal(self.peek_n(key, 0).limit(), retry_after);
            let decision = match outcome {
                Ok(turn) => turn.decision(),
                Err(WaitError::TooLate { would_take }) => refusal(Some(*would_take)),
                Err(_) => refusal(None),
            };
            self.tell(key, &decision);
        }
    }
}

impl<K: ?Sized, A: Held, C: Clock> fmt::Debug for KeyedWait<'_, K, A, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("KeyedWait");
        debug.field("cost", &self.cost).field("deadline", &self.deadline).finish_non_exhaustive()
    }
}
