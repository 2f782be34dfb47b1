//! One state per key.
//!
//! The store keeps no keys, only fingerprints of them: a key costs the same few bytes whether it is a number or a long
//! string. The keys are spread over shards, each behind a lock that is held for one decision; see `shard` for what is in
//! one, and `segment` for the table that it is made of.

mod builder;
mod cap;
mod hash;
mod line;
mod member;
mod names;
mod observer;
mod plans;
mod prefetch;
mod reservation;
mod segment;
mod shard;
mod shifted;
mod snapshot;
mod store;
mod sweeper;
mod wait;
mod watch;

use std::borrow::Cow;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tollgate_core::{Ask, Decision, Quota, Step, Tick, TokenBucket};

use crate::cell::{Cell, Held};
use crate::clock::{Clock, DefaultClock};
use crate::queue::Epoch;
use crate::reservation::{Refused, Reservation};
use crate::sync::{give_way, lock};
use crate::wait::{Wait, WaitError};
pub use builder::KeyedBuilder;
pub use cap::AtCap;
pub(crate) use cap::Pool;
pub use member::{KeyOf, OwnedKeyOf};
pub use names::Named;
pub(crate) use names::{Entry, Sketch};
pub use observer::{Evicted, Observer};
pub use reservation::KeyedReservation;
use reservation::Slot;
use shard::{Answer, Common, Query, Receipt, Shard};
use shifted::Shifted;
pub use snapshot::{SnapshotError, SnapshotProblem};
use store::{OwnLimiter, Store};
pub use sweeper::Sweeper;
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

/// How a wait begins.
enum Turn<K: ?Sized, A: Held, C: Clock> {
    /// It is over.
    Now(KeyedReservation<K, A, C>),
    /// In line with others who wait for the key.
    Wait(Wait<'static, A, Shifted<C>>),
}

/// What a store has counted since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Questions that were answered with yes, now or later.
    pub admitted: u64,
    /// Questions that were answered with no.
    pub denied: u64,
    /// Idle keys that were dropped, which changed no decision.
    pub swept: u64,
    /// Keys that were forgotten although they still counted, because the store was full: each of them may have been
    /// admitted more than its quota allows.
    pub evicted: u64,
    /// New keys that were refused because the store was full.
    pub refused: u64,
    /// Questions about new keys that were decided on the state they share because the store was full.
    pub overflowed: u64,
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
    pub fn allow_at(&self, key: &K, now: Tick) -> bool {
        self.allow_when(key, || now)
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a call costs a sixth of it; cargo xtask bench keyed")]
    fn allow_when(&self, key: &K, now: impl Fn() -> Tick) -> bool {
        let decide = |algorithm: &A, state: &mut A::State, now| {
            let allowed = algorithm.allow(state, now);
            (allowed, allowed)
        };
        match self.ask(self.store.seed.print(key), &now, decide) {
            Some(allowed) => allowed,
            None => self.take(key, self.tick(now()), Ask::now(1), false).0.is_allowed(),
        }
    }

    /// Whether `n` may happen now for `key`, all of them or none.
    #[inline]
    #[must_use = "what is not allowed should not be done"]
    pub fn allow_n(&self, key: &K, n: u64) -> bool {
        self.decide(key, self.store.seed.print(key), || self.now(), Ask::now(n), false).is_allowed()
    }

    /// [`allow_n`](Self::allow_n) at an explicit time.
    #[inline]
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
        self.peek_within_at(key, n, Duration::ZERO, now)
    }

    /// What [`reserve_within`](Self::reserve_within) would answer, taking nothing.
    pub fn peek_within_at(&self, key: &K, n: u64, longest_wait: Duration, now: Tick) -> Decision {
        let (ask, now) = (Ask::within(n, longest_wait), self.tick(now));
        match self.on_shard(key, now, ask, Shard::peek) {
            Ok(Answer::Decided(decision, _) | Answer::Refused(decision)) => decision,
            Ok(_) => unreachable!("a look needs no room"),
            Err(limiter) => limiter.peek_within_at(n, longest_wait, now),
        }
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

    /// Waits for `n` of `key`, all of them together. Where there is [no room](KeyedBuilder::at_cap) for a new key it is
    /// refused as if the queue were full.
    pub fn wait_n<'a>(&'a self, key: &'a K, n: u64) -> KeyedWait<'a, K, A, C> {
        KeyedWait::new(self, key, n)
    }

    /// How many keys somebody waits for, or did until a moment ago.
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

    /// Tells whoever looks on what was decided. No lock may be held.
    fn tell(&self, key: &K, decision: &Decision) {
        if let Some(watch) = &self.store.watch {
            watch.decided(key, self.store.seed.print(key), decision);
        }
    }

    /// Counts `n` that happened anyway, whether they fit or not; those who come later wait until they are paid off.
    pub fn charge(&self, key: &K, n: u64) {
        self.charge_at(key, n, self.now());
    }

    /// [`charge`](Self::charge) at an explicit time.
    pub fn charge_at(&self, key: &K, n: u64, now: Tick) {
        let now = self.tick(now);
        self.charge_elsewhere(self.on_shard(key, now, Ask::now(n), Shard::charge), n, now);
    }

    /// Charges a key of which only the fingerprint is at hand.
    fn charge_known(&self, print: u64, plan: u32, extra: u64, now: Tick) {
        let now = self.tick(now);
        let query = Query { print, plan: Some(plan), now, ask: Ask::now(extra), is_patient: false };
        let answer = self.store.on_shard(print, |shard| match self.store.own_limiter(shard, print, now) {
            Some(limiter) => Err(limiter),
            None => Ok(shard.charge(&self.store.common, query)),
        });
        self.charge_elsewhere(answer, extra, now);
    }

    /// Charges where the key's state is, if that is not the table.
    fn charge_elsewhere(&self, answer: Result<Answer, OwnLimiter<A, C>>, extra: u64, now: Tick) {
        match answer {
            Ok(Answer::Overflows) => lock(&self.store.rest).charge(extra, now),
            Ok(_) => {}
            Err(limiter) => limiter.charge_at(extra, now),
        }
    }

    fn give_back(&self, print: u64, receipt: Receipt, amount: u64, now: Tick) {
        let (common, now) = (&self.store.common, self.tick(now));
        let mut shard = self.store.free_shard(print);
        let Some(limiter) = self.store.own_limiter(&mut shard, print, now) else {
            shard.give_back(common, print, receipt, amount, now);
            drop(shard);
            return self.store.watchers.tell();
        };
        let claim = shard.worth(common, print, receipt, receipt.plan);
        drop(shard);
        if let Some(claim) = claim {
            limiter.shared.give_back(claim, amount, Epoch::ORIGIN, now);
        }
    }

    /// Gives back `n` of which there is no receipt: see [`Algorithm::refund`](tollgate_core::Algorithm::refund). Nothing comes
    /// back to a key that somebody waits for.
    pub(crate) fn refund_at(&self, key: &K, n: u64, now: Tick) {
        let (print, now) = (self.store.seed.print(key), self.tick(now));
        let mut shard = self.store.free_shard(print);
        let comes_back = self.store.own_limiter(&mut shard, print, now).is_none()
            && shard.refund(&self.store.common, print, n, now);
        drop(shard);
        if comes_back {
            self.store.watchers.tell();
        }
    }

    /// Decides about a key by `step`, which may be that of another algorithm as long as it means the same by a state. No state
    /// becomes less by it; for that there is [`step_down_at`](Self::step_down_at).
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
        self.ask(print, || now, decide).unwrap_or_else(|| self.step_slowly(print, self.tick(now), step))
    }

    /// [`step_at`](Self::step_at) that gives something back.
    pub(crate) fn step_down_at(
        &self,
        key: &K,
        now: Tick,
        step: impl Fn(&A::State, Tick) -> Step<A::Change>,
    ) -> Decision {
        self.step_slowly(self.store.seed.print(key), self.tick(now), step)
    }

    #[cold]
    fn step_slowly(
        &self,
        print: u64,
        now: Tick,
        step: impl Fn(&A::State, Tick) -> Step<A::Change>,
    ) -> Decision {
        match self.store.on_shard(print, |shard| shard.step(&self.store.common, print, now, step)) {
            Answer::Decided(decision, _) | Answer::Refused(decision) => decision,
            _ => Decision::refusal(0, None), // there is no state that such keys could share
        }
    }

    /// The fingerprint of anything, as this store makes them: another store makes others.
    #[inline]
    pub(crate) fn fingerprint<T: Hash + ?Sized>(&self, of: &T) -> u64 {
        self.store.seed.print(of)
    }

    /// Whether keys may have this quota: not if it would be one of more than `most` that they ever had.
    pub(crate) fn may_have(&self, quota: Quota, most: u32) -> bool {
        self.store.common.plans.number_within(quota, most).is_some()
    }

    /// Forgets a key: it starts afresh, and what was taken of it can no longer be given back. Whether it was known.
    pub fn reset(&self, key: &K) -> bool {
        let (print, now) = (self.store.seed.print(key), self.store.clock.now());
        let mut shard = self.store.free_shard(print);
        let limiter = self.store.own_limiter(&mut shard, print, now);
        let was_known = shard.reset(&self.store.common, print);
        drop(shard);
        if let Some(limiter) = &limiter {
            limiter.shared.reset(now);
        }
        self.store.watchers.tell();
        was_known || limiter.is_some()
    }

    /// Changes the quota of all keys that have none of [their own](KeyedBuilder::quota_of). What was used stays used:
    /// nobody gets a free burst and no debt is forgiven.
    pub fn set_quota(&self, quota: Quota) {
        self.set_quota_at(quota, self.now());
    }

    /// [`set_quota`](Self::set_quota) at an explicit time.
    pub fn set_quota_at(&self, quota: Quota, now: Tick) {
        let now = self.tick(now);
        let _not_while_saving = lock(&self.store.saving);
        let mut rest = lock(&self.store.rest);
        rest.set_quota(quota, now, &self.store.common.plans);
        for shard in &self.store.shards {
            for times in 0.. {
                let mut shard = shard.0.lock();
                if !shard.holds_any() {
                    shard.set_quota(&self.store.common, quota, now);
                    break;
                }
                drop(shard);
                give_way(times);
            }
        }
        self.store.lines.set_quota(quota, now);
        self.store.watchers.tell();
    }

    /// The quota of keys that have none of their own.
    pub fn quota(&self) -> Quota {
        lock(&self.store.rest).quota
    }

    /// Asks [`quota_of`](KeyedBuilder::quota_of) again for a key that has a new quota by now. What was used stays used.
    pub fn refresh(&self, key: &K) {
        self.refresh_at(key, self.now());
    }

    /// [`refresh`](Self::refresh) at an explicit time.
    pub fn refresh_at(&self, key: &K, now: Tick) {
        let (print, plan, now) = (self.store.seed.print(key), self.store.plan(key), self.tick(now));
        if plan > 0 {
            self.store.free_shard(print).set_plan(&self.store.common, print, plan, now);
            self.store.lines.set_plan(print, plan, self.store.common.plans.get(plan).quota, now);
        }
    }

    /// Drops what is idle, all at once but holding no shard for long. Not needed: calls do it by the way.
    pub fn sweep(&self) {
        self.sweep_at(self.now());
    }

    /// [`sweep`](Self::sweep) at an explicit time.
    pub fn sweep_at(&self, now: Tick) {
        let now = self.tick(now);
        self.store.sweep_lines(now);
        for shard in &self.store.shards {
            self.store.sweep(shard, now);
        }
    }

    /// How many keys are remembered.
    pub fn len(&self) -> usize {
        self.store.common.room.keys() as usize + self.store.lines.len()
    }

    /// Whether no key is remembered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How much memory the table takes. What a sliding log or sub-windows keep for each key comes on top.
    pub fn bytes(&self) -> usize {
        self.store.common.room.bytes() as usize
    }

    /// What was counted so far.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        for shard in &self.store.shards {
            let counts = shard.0.lock().counts();
            stats.admitted += counts.calls - counts.denied;
            stats.denied += counts.denied;
            stats.swept += counts.swept;
            stats.evicted += counts.evicted;
            stats.refused += counts.refused;
            stats.overflowed += counts.overflowed;
        }
        stats
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
        if deadline == Tick::MAX { deadline } else { self.tick(deadline) }
    }

    /// That time as the states see it.
    #[inline]
    fn tick(&self, now: Tick) -> Tick {
        self.store.clock.tick(now)
    }

    #[inline]
    fn decide(&self, key: &K, print: u64, now: impl Fn() -> Tick, ask: Ask, is_patient: bool) -> Decision {
        let decide = |algorithm: &A, state: &mut A::State, now| {
            let ask = if is_patient { ask.with_patience(algorithm.patience()) } else { ask };
            let decision = algorithm.step(state, now, ask);
            (decision.is_admitted(), decision)
        };
        match self.ask(print, &now, decide) {
            Some(decision) => decision,
            None => self.take(key, self.tick(now()), ask, is_patient).0,
        }
    }

    /// Asks a key that is known, unless somebody must be told of it. The clock is read while the key's line is under way.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a caller that only wants a yes should not pay for the rest")]
    fn ask<T>(
        &self,
        print: u64,
        now: impl Fn() -> Tick,
        decide: impl FnOnce(&A, &mut A::State, Tick) -> (bool, T),
    ) -> Option<T> {
        let mut shard = self.store.shard(print);
        let answer = shard.ask(&self.store.common, print, || self.tick(now()), decide)?;
        drop(shard);
        Some(answer)
    }

    #[cold]
    fn take(&self, key: &K, now: Tick, ask: Ask, is_patient: bool) -> (Decision, Slot<A, C>) {
        let (decision, slot) = self.take_quietly(key, now, ask, is_patient);
        self.tell(key, &decision);
        (decision, slot)
    }

    fn take_quietly(&self, key: &K, now: Tick, ask: Ask, is_patient: bool) -> (Decision, Slot<A, C>) {
        let take = |shard: &mut Shard<A>, common: &Common<A>, query| {
            shard.take(common, Query { is_patient, ..query })
        };
        match self.on_shard(key, now, ask, take) {
            Ok(Answer::Decided(decision, receipt)) => (decision, receipt.map_or(Slot::Nothing, Slot::Here)),
            Ok(Answer::Refused(decision)) => (decision, Slot::Nothing),
            Ok(_) => {
                let decision = lock(&self.store.rest).take(now, ask, is_patient);
                self.store.shard(self.store.seed.print(key)).overflowed(decision.is_admitted());
                (decision, Slot::Nothing)
            }
            Err(limiter) => {
                let patience =
                    if is_patient { limiter.shared.cell.algorithm().patience() } else { ask.patience() };
                let (decision, slot) = match limiter.reserve_ask(now, ask.with_patience(patience)) {
                    Ok(turn) => (turn.decision(), Slot::InLine(Box::new(turn))),
                    Err(Refused(decision)) => (decision, Slot::Nothing),
                };
                self.store.shard(self.store.seed.print(key)).count_elsewhere(decision.is_admitted());
                (decision, slot)
            }
        }
    }

    /// Does something to a key in the table, finding out its plan if that is needed; or answers with the limiter that the
    /// key has of its own.
    fn on_shard(
        &self,
        key: &K,
        now: Tick,
        ask: Ask,
        act: impl Fn(&mut Shard<A>, &Common<A>, Query) -> Answer,
    ) -> Result<Answer, OwnLimiter<A, C>> {
        let Store { seed, common, .. } = &*self.store;
        let mut query =
            Query { print: seed.print(key), plan: common.plan_of_new(), now, ask, is_patient: false };
        loop {
            let answer = self.store.on_shard(query.print, |shard| {
                let limiter = self.store.own_limiter(shard, query.print, now);
                limiter.map_or_else(|| Ok(act(shard, common, query)), Err)
            })?;
            if !matches!(answer, Answer::NeedsPlan) {
                return Ok(answer);
            }
            query.plan = Some(self.store.plan(key)); // the caller's function is not called under a lock
        }
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
