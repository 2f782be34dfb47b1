//! One state per key.
//!
//! The store keeps no keys, only fingerprints of them: a key costs the same few bytes whether it is a number or a long
//! string. The keys are spread over shards, each behind a lock that is held for one decision; see `shard` for what is in
//! one, and `segment` for the table that it is made of. Here are the questions; `decide` has how they get to their key,
//! `wait`, `settle` and `upkeep` the other things that a limiter can do.

mod builder;
mod cap;
mod decide;
mod hash;
mod line;
mod member;
mod names;
mod observer;
mod pages;
mod plans;
mod prefetch;
mod reservation;
mod segment;
mod segments;
mod settle;
mod shard;
mod shifted;
mod snapshot;
mod store;
mod sweeper;
mod upkeep;
mod wait;
mod watch;

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{Ask, Decision, Quota, Step, Tick, TokenBucket};

use crate::cell::Held;
use crate::clock::{Clock, DefaultClock};
use crate::reservation::Refused;
use crate::sync::lock;
pub use builder::KeyedBuilder;
pub use cap::AtCap;
pub(crate) use cap::Pool;
pub(crate) use hash::Seed;
pub use member::{KeyOf, OwnedKeyOf};
pub use names::Named;
pub(crate) use names::{Entry, Sketch};
pub use observer::{Evicted, Observer};
pub(crate) use plans::{NoPlan, Supply};
pub use reservation::KeyedReservation;
use reservation::Slot;
use shard::{Answer, Shard};
pub use snapshot::{SnapshotError, SnapshotProblem};
use store::Store;
pub use sweeper::Sweeper;
pub use upkeep::Stats;
pub use wait::KeyedWait;

/// Limits how often something happens for each key: an address, a user, an API key.
///
/// Every key has a state of its own that behaves like a [`Limiter`](crate::Limiter) with the same quota. Any hashable key
/// will do; write `KeyedLimiter<str>` or `KeyedLimiter<[u8]>` for borrowed ones. Clones share one store.
///
/// Keys come and go by themselves: one that is idle, so that it decides like a new one, is dropped by the way. With
/// [`max_keys`](KeyedBuilder::max_keys) or [`max_bytes`](KeyedBuilder::max_bytes) the store stays within bounds whatever
/// the callers do.
///
/// # Examples
/// ```
/// use std::net::IpAddr;
/// use tollgate::{KeyedLimiter, Quota};
///
/// let per_address: KeyedLimiter<IpAddr> = KeyedLimiter::new(Quota::per_second(10).burst(20));
/// let address: IpAddr = "192.0.2.1".parse().unwrap();
/// if per_address.allow(&address) {
///     // serve it
/// }
/// assert_eq!(per_address.len(), 1);
/// ```
pub struct KeyedLimiter<K: ?Sized, A: Held = TokenBucket, C: Clock = DefaultClock> {
    store: Arc<Store<K, A, C>>,
}

impl<K: Hash + ?Sized> KeyedLimiter<K> {
    /// A token bucket for each key, on the default clock.
    pub fn new(quota: Quota) -> Self {
        Self::builder(quota).build()
    }

    /// A limiter with other than the usual algorithm, clock or bounds.
    pub fn builder(quota: Quota) -> KeyedBuilder<K, TokenBucket, DefaultClock> {
        KeyedBuilder::new(quota, TokenBucket::new, DefaultClock::new())
    }
}

impl<K: Hash + ?Sized, A: Held, C: Clock> KeyedLimiter<K, A, C> {
    /// Whether one may happen now for `key`.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a call costs a sixth of it; cargo xtask bench keyed")]
    #[must_use = "what is not allowed should not be done"]
    pub fn allow(&self, key: &K) -> bool {
        self.allow_when(key, || self.now())
    }

    /// [`allow`](Self::allow) at an explicit time.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a call costs a sixth of it; cargo xtask bench keyed")]
    #[must_use = "what is not allowed should not be done"]
    pub fn allow_at(&self, key: &K, now: Tick) -> bool {
        self.allow_when(key, move || now)
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a call costs a sixth of it; cargo xtask bench keyed")]
    fn allow_when(&self, key: &K, now: impl Fn() -> Tick + Copy) -> bool {
        let decide = |algorithm: &A, state: &mut A::State, now| {
            let allowed = algorithm.allow(state, now);
            (allowed, allowed)
        };
        match self.ask(self.store.seed.print(key), now, decide) {
            Some(allowed) => allowed,
            None => self.allow_slowly(key, now),
        }
    }

    /// Apart, so that the way of most is short.
    #[cold]
    #[inline(never)]
    fn allow_slowly(&self, key: &K, now: impl Fn() -> Tick) -> bool {
        self.take(key, self.tick(now()), Ask::now(1), false).0.is_allowed()
    }

    /// Whether `n` may happen now for `key`, all of them or none.
    #[inline]
    #[must_use = "what is not allowed should not be done"]
    pub fn allow_n(&self, key: &K, n: u64) -> bool {
        self.decide(key, self.store.seed.print(key), || self.now(), Ask::now(n), false).is_allowed()
    }

    /// [`allow_n`](Self::allow_n) at an explicit time.
    #[inline]
    #[must_use = "what is not allowed should not be done"]
    pub fn allow_n_at(&self, key: &K, n: u64, now: Tick) -> bool {
        self.decide(key, self.store.seed.print(key), || now, Ask::now(n), false).is_allowed()
    }

    /// Whether one may happen now for `key`, and everything a caller may want to know with that.
    #[inline]
    pub fn check(&self, key: &K) -> Decision {
        self.check_n(key, 1)
    }

    /// [`check`](Self::check) at an explicit time.
    #[inline]
    pub fn check_at(&self, key: &K, now: Tick) -> Decision {
        self.check_n_at(key, 1, now)
    }

    /// [`check`](Self::check) for `n`, all of them or none.
    #[inline]
    pub fn check_n(&self, key: &K, n: u64) -> Decision {
        self.decide(key, self.store.seed.print(key), || self.now(), Ask::now(n), true)
    }

    /// [`check_n`](Self::check_n) at an explicit time.
    #[inline]
    pub fn check_n_at(&self, key: &K, n: u64, now: Tick) -> Decision {
        self.decide(key, self.store.seed.print(key), || now, Ask::now(n), true)
    }

    /// [`check`](Self::check) for many keys with one reading of the clock, each on its own; `each` gets the answers in
    /// order, with the index of the key. Waiting for memory happens for several keys at a time, so with many keys in the
    /// store this costs less than half of single checks.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{KeyedLimiter, Quota};
    ///
    /// let limiter = KeyedLimiter::<str>::new(Quota::per_hour(1));
    /// let mut passed = Vec::new();
    /// limiter.check_many(&["a", "b", "a"], |index, decision| {
    ///     if decision.is_allowed() {
    ///         passed.push(index);
    ///     }
    /// });
    /// assert_eq!(passed, [0, 1]);
    /// ```
    pub fn check_many(&self, keys: &[&K], each: impl FnMut(usize, Decision)) {
        self.check_many_at(keys, self.now(), each);
    }

    /// [`check_many`](Self::check_many) at an explicit time.
    pub fn check_many_at(&self, keys: &[&K], now: Tick, mut each: impl FnMut(usize, Decision)) {
        let ask = Ask::now(1);
        let mut prints = [0; BATCH];
        for (batch, keys) in keys.chunks(BATCH).enumerate() {
            for (print, key) in prints.iter_mut().zip(keys) {
                *print = self.store.seed.print(*key);
                self.store.shard(*print).prefetch(*print);
            }
            for (index, (print, key)) in prints.iter().zip(keys).enumerate() {
                each(batch * BATCH + index, self.decide(key, *print, || now, ask, true));
            }
        }
    }

    /// What [`check`](Self::check) would answer, taking nothing.
    pub fn peek(&self, key: &K) -> Decision {
        self.peek_n(key, 1)
    }

    /// [`peek`](Self::peek) at an explicit time.
    pub fn peek_at(&self, key: &K, now: Tick) -> Decision {
        self.peek_n_at(key, 1, now)
    }

    /// What [`check_n`](Self::check_n) would answer, taking nothing.
    pub fn peek_n(&self, key: &K, n: u64) -> Decision {
        self.peek_n_at(key, n, self.now())
    }

    /// [`peek_n`](Self::peek_n) at an explicit time.
    pub fn peek_n_at(&self, key: &K, n: u64, now: Tick) -> Decision {
        self.foresee(key, Ask::now(n), true, now)
    }

    /// What is left for `key` at this moment.
    pub fn remaining(&self, key: &K) -> u64 {
        self.peek_n(key, 0).remaining()
    }

    /// What [`reserve_within`](Self::reserve_within) would answer, taking nothing.
    pub fn peek_within(&self, key: &K, n: u64, longest_wait: Duration) -> Decision {
        self.peek_within_at(key, n, longest_wait, self.now())
    }

    /// [`peek_within`](Self::peek_within) at an explicit time.
    pub fn peek_within_at(&self, key: &K, n: u64, longest_wait: Duration, now: Tick) -> Decision {
        self.foresee(key, Ask::within(n, longest_wait), false, now)
    }

    /// Takes one, now or for the first moment it can be had.
    ///
    /// # Errors
    /// The refusal, if it can never be had.
    pub fn reserve(&self, key: &K) -> Result<KeyedReservation<K, A, C>, Refused> {
        self.reserve_n(key, 1)
    }

    /// Takes `n`, now or for the first moment they can be had.
    ///
    /// # Errors
    /// The refusal, if they can never be had.
    pub fn reserve_n(&self, key: &K, n: u64) -> Result<KeyedReservation<K, A, C>, Refused> {
        self.reserve_n_at(key, n, self.now())
    }

    /// [`reserve_n`](Self::reserve_n) at an explicit time.
    ///
    /// # Errors
    /// The refusal, if they can never be had.
    pub fn reserve_n_at(&self, key: &K, n: u64, now: Tick) -> Result<KeyedReservation<K, A, C>, Refused> {
        self.reserve_ask(key, now, Ask::whenever(n))
    }

    /// Takes `n` if they can be had within `longest_wait`.
    ///
    /// # Errors
    /// The refusal; its `retry_after` says when the same question will be answered better.
    pub fn reserve_within(
        &self,
        key: &K,
        n: u64,
        longest_wait: Duration,
    ) -> Result<KeyedReservation<K, A, C>, Refused> {
        self.reserve_within_at(key, n, longest_wait, self.now())
    }

    /// [`reserve_within`](Self::reserve_within) at an explicit time.
    ///
    /// # Errors
    /// The refusal; its `retry_after` says when the same question will be answered better.
    pub fn reserve_within_at(
        &self,
        key: &K,
        n: u64,
        longest_wait: Duration,
        now: Tick,
    ) -> Result<KeyedReservation<K, A, C>, Refused> {
        self.reserve_ask(key, now, Ask::within(n, longest_wait))
    }

    fn reserve_ask(&self, key: &K, now: Tick, ask: Ask) -> Result<KeyedReservation<K, A, C>, Refused> {
        let (print, tick) = (self.store.seed.print(key), self.tick(now));
        let quick = self.store.shard(print).ask_for_receipt(&self.store.common, print, tick, ask);
        let (decision, slot) = match quick {
            Some((decision, receipt)) => (decision, receipt.map_or(Slot::Nothing, Slot::Here)),
            None => self.take(key, tick, ask, false),
        };
        if !decision.is_admitted() {
            return Err(Refused(decision));
        }
        Ok(KeyedReservation::new(self.clone(), print, decision, slot, now))
    }

    /// Tells whoever looks on what was decided. No lock may be held.
    fn tell(&self, key: &K, decision: &Decision) {
        if let Some(watch) = &self.store.watch {
            watch.decided(key, self.store.seed.print(key), decision);
        }
    }

    /// Decides about a key by `step`, which may be that of another algorithm as long as it means the same by a state. No state
    /// becomes less by it; for that there is [`step_down`](Self::step_down).
    #[inline]
    pub(crate) fn step_at(
        &self,
        key: &K,
        now: Tick,
        step: impl Fn(&A::State, Tick) -> Step<A::Change>,
    ) -> Decision {
        let print = self.store.seed.print(key);
        let decide = |algorithm: &A, state: &mut A::State, now| {
            let Step { change, decision } = step(state, now);
            if let Some(change) = change {
                algorithm.apply(state, change);
            }
            (decision.is_admitted(), decision)
        };
        self.ask(print, || now, decide).unwrap_or_else(|| self.step_slowly(print, || now, step))
    }

    /// [`step_at`](Self::step_at) that gives something back, by a reading that is no older than what was taken.
    pub(crate) fn step_down(&self, key: &K, step: impl Fn(&A::State, Tick) -> Step<A::Change>) -> Decision {
        self.step_slowly(self.store.seed.print(key), || self.now(), step)
    }

    #[cold]
    fn step_slowly(
        &self,
        print: u64,
        now: impl Fn() -> Tick,
        step: impl Fn(&A::State, Tick) -> Step<A::Change>,
    ) -> Decision {
        let step = |shard: &mut Shard<A>| shard.step(&self.store.common, print, self.tick(now()), step);
        match self.store.on_shard(print, step) {
            Answer::Decided(decision, _) | Answer::Refused(decision) => decision,
            _ => Decision::refusal(0, None), // there is no state that such keys could share
        }
    }

    /// Has a key's line come from memory, for whoever will ask about it soon.
    #[inline]
    pub(crate) fn prepare(&self, key: &K) {
        let print = self.store.seed.print(key);
        self.store.shard(print).prefetch(print);
    }

    /// The seed of its fingerprints.
    pub(crate) fn seed(&self) -> &Seed {
        &self.store.seed
    }

    /// Whether keys may have this quota: not if it would be one of more than `most` that they ever had.
    pub(crate) fn may_have(&self, quota: Quota, most: u32) -> bool {
        self.store.common.plans.number_within(quota, most).is_some()
    }

    /// Opens a limit with a quota that was supplied, until [`close_quota`](Self::close_quota).
    pub(crate) fn open_quota(&self, quota: Quota, supply: Supply) -> Result<(), NoPlan> {
        self.store.common.plans.open(quota, supply).map(drop)
    }

    /// Closes a limit that was [opened](Self::open_quota).
    pub(crate) fn close_quota(&self, quota: Quota) {
        self.store.common.plans.close(quota);
    }

    /// The clock.
    pub fn clock(&self) -> &C {
        self.store.clock.clock()
    }

    /// The time by the limiter's clock, as the callers see it.
    #[inline]
    fn now(&self) -> Tick {
        self.clock().now()
    }

    /// The end of somebody's patience as the states see it.
    fn deadline(&self, deadline: Tick) -> Tick {
        self.store.clock.deadline(deadline)
    }

    /// That time as the states see it.
    #[inline]
    fn tick(&self, now: Tick) -> Tick {
        self.store.clock.tick(now)
    }
}

/// How many keys [`KeyedLimiter::check_many`] has under way at a time.
const BATCH: usize = 16;

impl<K: ?Sized, A: Held, C: Clock> Clone for KeyedLimiter<K, A, C> {
    /// Another handle on the same store.
    fn clone(&self) -> Self {
        Self { store: Arc::clone(&self.store) }
    }
}

impl<K: ?Sized, A: Held, C: Clock> fmt::Debug for KeyedLimiter<K, A, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedLimiter")
            .field("quota", &lock(&self.store.rest).quota)
            .field("keys", &self.store.common.room.keys())
            .finish_non_exhaustive()
    }
}
