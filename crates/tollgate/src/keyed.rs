//! One state per key.
//!
//! The store keeps no keys, only fingerprints of them: a key costs the same few bytes whether it is a number or a long
//! string. The keys are spread over shards, each behind a lock that is held for one decision; see `shard` for what is in
//! one, and `segment` for the table that it is made of.

mod cap;
mod hash;
mod plans;
mod prefetch;
mod reservation;
mod segment;
mod shard;
mod shifted;
mod snapshot;

use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{AnyAlgorithm, Ask, Decision, Kind, Quota, Tick, TokenBucket};

use crate::cell::Held;
use crate::clock::{Clock, DefaultClock};
use crate::reservation::Refused;
use crate::sync::{Light, LightGuard, Mutex, lock};
pub use cap::AtCap;
use cap::Room;
use hash::Seed;
use plans::{Make, Plans};
pub use reservation::KeyedReservation;
use shard::{Answer, Common, Query, Receipt, Shard};
use shifted::Shifted;
pub use snapshot::{SnapshotError, SnapshotProblem};

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

/// What all clones share.
struct Store<K: ?Sized, A: Held, C> {
    seed: Seed,
    clock: Shifted<C>,
    shards: Box<[Lines<A>]>,
    /// Leaves the bits of a fingerprint that choose the shard.
    shift: u32,
    common: Common<A>,
    quota_of: Option<QuotaOf<K>>,
    /// The quota for keys without one of their own, and the state that new keys share if there is no room for them.
    rest: Mutex<Rest<A>>,
    /// Held while a file is written, and while the quota changes, so that all keys in a file have the same.
    saving: Mutex<()>,
    keys: PhantomData<fn(&K)>,
}

type QuotaOf<K> = Arc<dyn Fn(&K) -> Quota + Send + Sync>;

/// Keeps a shard off its neighbours' cache lines.
#[repr(align(128))]
struct Lines<A: Held>(Light<Shard<A>>);

struct Rest<A: Held> {
    quota: Quota,
    algorithm: A,
    overflow: A::State,
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
        KeyedBuilder {
            quota,
            make: Arc::new(TokenBucket::new),
            clock: DefaultClock::new(),
            quota_of: None,
            max_keys: u64::MAX,
            max_bytes: u64::MAX,
            at_cap: AtCap::default(),
        }
    }
}

impl<K: Hash + ?Sized, A: Held, C: Clock> KeyedLimiter<K, A, C> {
    /// Whether one may happen now for `key`.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a call costs a sixth of it; cargo xtask bench keyed")]
    #[must_use = "what is not allowed should not be done"]
    pub fn allow(&self, key: &K) -> bool {
        self.allow_at(key, self.now())
    }

    /// [`allow`](Self::allow) at an explicit time.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a call costs a sixth of it; cargo xtask bench keyed")]
    pub fn allow_at(&self, key: &K, now: Tick) -> bool {
        let now = self.tick(now);
        let decide = |algorithm: &A, state: &mut A::State| {
            let allowed = algorithm.allow(state, now);
            (allowed, allowed)
        };
        match self.ask(self.store.seed.print(key), now, decide) {
            Some(allowed) => allowed,
            None => self.take(key, now, Ask::now(1)).0.is_allowed(),
        }
    }

    /// Whether `n` may happen now for `key`, all of them or none.
    #[inline]
    #[must_use = "what is not allowed should not be done"]
    pub fn allow_n(&self, key: &K, n: u64) -> bool {
        self.allow_n_at(key, n, self.now())
    }

    /// [`allow_n`](Self::allow_n) at an explicit time.
    #[inline]
    pub fn allow_n_at(&self, key: &K, n: u64, now: Tick) -> bool {
        self.decide(key, self.store.seed.print(key), self.tick(now), Ask::now(n)).is_allowed()
    }

    /// Whether one may happen now for `key`, and everything a caller may want to know with that.
    #[inline]
    pub fn check(&self, key: &K) -> Decision {
        self.check_at(key, self.now())
    }

    /// [`check`](Self::check) at an explicit time.
    #[inline]
    pub fn check_at(&self, key: &K, now: Tick) -> Decision {
        self.check_n_at(key, 1, now)
    }

    /// [`check`](Self::check) for `n`, all of them or none.
    #[inline]
    pub fn check_n(&self, key: &K, n: u64) -> Decision {
        self.check_n_at(key, n, self.now())
    }

    /// [`check_n`](Self::check_n) at an explicit time.
    #[inline]
    pub fn check_n_at(&self, key: &K, n: u64, now: Tick) -> Decision {
        let ask = Ask::within(n, self.store.common.patience);
        self.decide(key, self.store.seed.print(key), self.tick(now), ask)
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
        let (ask, now) = (Ask::within(1, self.store.common.patience), self.tick(now));
        let mut prints = [0; BATCH];
        for (batch, keys) in keys.chunks(BATCH).enumerate() {
            for (print, key) in prints.iter_mut().zip(keys) {
                *print = self.store.seed.print(*key);
                self.store.shard(*print).prefetch(*print);
            }
            for (index, (print, key)) in prints.iter().zip(keys).enumerate() {
                each(batch * BATCH + index, self.decide(key, *print, now, ask));
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
        let ask = Ask::within(n, longest_wait);
        let answer = self.on_shard(key, self.tick(now), ask, Shard::peek);
        match answer {
            Answer::Decided(decision, _) => decision,
            _ => unreachable!("a look needs no room"),
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
        let (decision, receipt) = self.take(key, self.tick(now), ask);
        if !decision.is_admitted() {
            return Err(Refused(decision));
        }
        Ok(KeyedReservation::new(self.clone(), self.store.seed.print(key), decision, receipt, now))
    }

    /// Counts `n` that happened anyway, whether they fit or not; those who come later wait until they are paid off.
    pub fn charge(&self, key: &K, n: u64) {
        self.charge_at(key, n, self.now());
    }

    /// [`charge`](Self::charge) at an explicit time.
    pub fn charge_at(&self, key: &K, n: u64, now: Tick) {
        let now = self.tick(now);
        if let Answer::Overflows = self.on_shard(key, now, Ask::now(n), Shard::charge) {
            lock(&self.store.rest).charge(n, now);
        }
    }

    /// Charges a key of which only the fingerprint is at hand.
    fn charge_known(&self, print: u64, plan: u32, extra: u64, now: Tick) {
        let now = self.tick(now);
        let query = Query { print, plan: Some(plan), now, ask: Ask::now(extra) };
        let answer = self.store.shard(print).charge(&self.store.common, query);
        if let Answer::Overflows = answer {
            lock(&self.store.rest).charge(extra, now);
        }
    }

    fn give_back(&self, print: u64, receipt: Receipt, amount: u64, now: Tick) {
        self.store.shard(print).give_back(&self.store.common, print, receipt, amount, self.tick(now));
    }

    /// Forgets a key: it starts afresh, and what was taken of it can no longer be given back. Whether it was known.
    pub fn reset(&self, key: &K) -> bool {
        let print = self.store.seed.print(key);
        self.store.shard(print).reset(&self.store.common, print)
    }

    /// Changes the quota of all keys that have none of [their own](KeyedBuilder::quota_of). What was used stays used:
    /// nobody gets a free burst and no debt is forgiven.
    pub fn set_quota(&self, quota: Quota) {
        self.set_quota_at(quota, self.now());
    }

    /// [`set_quota`](Self::set_quota) at an explicit time.
    pub fn set_quota_at(&self, quota: Quota, now: Tick) {
        self.set_quota_tick(quota, self.tick(now));
    }

    fn set_quota_tick(&self, quota: Quota, now: Tick) {
        let _not_while_saving = lock(&self.store.saving);
        let mut rest = lock(&self.store.rest);
        rest.set_quota(quota, now, &self.store.common.plans);
        for shard in &self.store.shards {
            shard.0.lock().set_quota(&self.store.common, quota, now);
        }
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
        let print = self.store.seed.print(key);
        if let Some(plan) = self.store.plan(key).filter(|plan| *plan > 0) {
            self.store.shard(print).set_plan(&self.store.common, print, plan, self.tick(now));
        }
    }

    /// Drops what is idle, all at once but holding no shard for long. Not needed: calls do it by the way.
    pub fn sweep(&self) {
        self.sweep_at(self.now());
    }

    /// [`sweep`](Self::sweep) at an explicit time.
    pub fn sweep_at(&self, now: Tick) {
        let now = self.tick(now);
        for shard in &self.store.shards {
            // Locked anew each time, so that callers get in between.
            while !shard.0.lock().sweep(&self.store.common, now, LINES_PER_SWEEP) {}
        }
    }

    /// How many keys are remembered.
    pub fn len(&self) -> usize {
        self.store.common.room.keys() as usize
    }

    /// Whether no key is remembered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How much memory the store takes.
    pub fn bytes(&self) -> usize {
        self.store.common.room.bytes() as usize
    }

    /// What was counted so far.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        for shard in &self.store.shards {
            let counts = shard.0.lock().counts;
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

    /// That time as the states see it.
    #[inline]
    fn tick(&self, now: Tick) -> Tick {
        self.store.clock.tick(now)
    }

    #[inline]
    fn decide(&self, key: &K, print: u64, now: Tick, ask: Ask) -> Decision {
        let decide = |algorithm: &A, state: &mut A::State| {
            let decision = algorithm.step(state, now, ask);
            (decision.is_admitted(), decision)
        };
        match self.ask(print, now, decide) {
            Some(decision) => decision,
            None => self.take(key, now, ask).0,
        }
    }

    /// Asks a key that is known.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a caller that only wants a yes should not pay for the rest")]
    fn ask<T>(
        &self,
        print: u64,
        now: Tick,
        decide: impl FnOnce(&A, &mut A::State) -> (bool, T),
    ) -> Option<T> {
        self.store.shard(print).ask(&self.store.common, print, now, decide)
    }

    #[cold]
    fn take(&self, key: &K, now: Tick, ask: Ask) -> (Decision, Option<Receipt>) {
        match self.on_shard(key, now, ask, Shard::take) {
            Answer::Decided(decision, receipt) => (decision, receipt),
            _ => (lock(&self.store.rest).take(now, ask), None),
        }
    }

    /// Does something to a key, finding out its plan if that is needed.
    fn on_shard(
        &self,
        key: &K,
        now: Tick,
        ask: Ask,
        act: impl Fn(&mut Shard<A>, &Common<A>, Query) -> Answer,
    ) -> Answer {
        let Store { seed, common, .. } = &*self.store;
        let query = Query { print: seed.print(key), plan: common.plan_of_new(), now, ask };
        let answer = act(&mut self.store.shard(query.print), common, query);
        if !matches!(answer, Answer::NeedsPlan) {
            return answer;
        }
        // The caller's function is not called under a lock.
        let query = Query { plan: self.store.plan(key), ..query };
        act(&mut self.store.shard(query.print), common, query)
    }
}

/// How many keys [`KeyedLimiter::check_many`] has under way at a time.
const BATCH: usize = 16;
/// How many lines a sweep looks at while it holds a shard.
const LINES_PER_SWEEP: usize = 64;

impl<K: ?Sized, A: Held, C> Store<K, A, C> {
    #[inline]
    fn shard(&self, print: u64) -> LightGuard<'_, Shard<A>> {
        self.shards[(print >> self.shift) as usize].0.lock()
    }

    /// The number of the plan of a key.
    fn plan(&self, key: &K) -> Option<u32> {
        Some(self.quota_of.as_ref().map_or(0, |quota_of| self.common.plans.number(quota_of(key))))
    }
}

impl<A> Common<A> {
    /// The plan of a key nothing is known about, unless it must be asked for.
    fn plan_of_new(&self) -> Option<u32> {
        (!self.by_key).then_some(0)
    }
}

impl<A: Held> Rest<A> {
    fn take(&mut self, now: Tick, ask: Ask) -> Decision {
        self.algorithm.step(&mut self.overflow, now, ask)
    }

    fn charge(&mut self, extra: u64, now: Tick) {
        if let Some(change) = self.algorithm.charge(&self.overflow, extra, now) {
            self.algorithm.apply(&mut self.overflow, change);
        }
    }

    fn set_quota(&mut self, quota: Quota, now: Tick, plans: &Plans<A>) {
        let new = plans.make(quota);
        self.overflow = self.algorithm.moved(&self.overflow, now, quota, &new);
        (self.algorithm, self.quota) = (new, quota);
    }
}

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

/// Builds a [`KeyedLimiter`].
///
/// # Examples
/// ```
/// use tollgate::{AtCap, KeyedLimiter, Kind, ManualClock, Quota};
///
/// let limiter = KeyedLimiter::<str>::builder(Quota::per_minute(100))
///     .kind(Kind::SlidingCounter)
///     .quota_of(|user: &str| if user == "alice" { Quota::per_minute(1_000) } else { Quota::per_minute(100) })
///     .max_keys(1_000_000)
///     .at_cap(AtCap::Refuse)
///     .clock(ManualClock::new())
///     .build();
/// assert!(limiter.allow_n("alice", 1_000));
/// assert!(!limiter.allow_n("bob", 101));
/// ```
#[must_use = "a builder builds nothing until build() is called"]
pub struct KeyedBuilder<K: ?Sized, A, C> {
    quota: Quota,
    make: Make<A>,
    clock: C,
    quota_of: Option<QuotaOf<K>>,
    max_keys: u64,
    max_bytes: u64,
    at_cap: AtCap,
}

impl<K: Hash + ?Sized, A: Held, C: Clock> KeyedBuilder<K, A, C> {
    /// Uses the algorithm of that kind, chosen at run time.
    pub fn kind(self, kind: Kind) -> KeyedBuilder<K, AnyAlgorithm, C> {
        self.algorithm(move |quota| AnyAlgorithm::new(kind, quota))
    }

    /// Uses the algorithm that `make` makes of a quota, chosen at compile time.
    pub fn algorithm<B: Held>(
        self,
        make: impl Fn(Quota) -> B + Send + Sync + 'static,
    ) -> KeyedBuilder<K, B, C> {
        let Self { quota, clock, quota_of, max_keys, max_bytes, at_cap, .. } = self;
        KeyedBuilder { quota, make: Arc::new(make), clock, quota_of, max_keys, max_bytes, at_cap }
    }

    /// Uses `clock`.
    pub fn clock<D: Clock>(self, clock: D) -> KeyedBuilder<K, A, D> {
        let Self { quota, make, quota_of, max_keys, max_bytes, at_cap, .. } = self;
        KeyedBuilder { quota, make, clock, quota_of, max_keys, max_bytes, at_cap }
    }

    /// Gives each key the quota that `quota_of` says. It is asked when a key is new to the store, and again by
    /// [`refresh`](KeyedLimiter::refresh); a hundred keys with the same quota take no more memory for it than one.
    pub fn quota_of(self, quota_of: impl Fn(&K) -> Quota + Send + Sync + 'static) -> Self {
        Self { quota_of: Some(Arc::new(quota_of)), ..self }
    }

    /// Remembers at most about `keys` keys.
    pub fn max_keys(self, keys: usize) -> Self {
        Self { max_keys: keys as u64, ..self }
    }

    /// Takes at most about `bytes` of memory.
    pub fn max_bytes(self, bytes: usize) -> Self {
        Self { max_bytes: bytes as u64, ..self }
    }

    /// What happens to new keys when there is no room for them.
    pub fn at_cap(self, at_cap: AtCap) -> Self {
        Self { at_cap, ..self }
    }

    /// The limiter.
    pub fn build(self) -> KeyedLimiter<K, A, C> {
        let (clock, quota) = (Shifted::unshifted(self.clock.clone()), self.quota);
        self.build_with(Seed::of_process(), clock, quota)
    }

    /// The algorithm of a quota.
    fn make_algorithm(&self, quota: Quota) -> A {
        (self.make)(quota)
    }

    /// The limiter, on a time of its own and with the quota that it starts out from.
    fn build_with(self, seed: Seed, clock: Shifted<C>, quota: Quota) -> KeyedLimiter<K, A, C> {
        let patience = self.make_algorithm(self.quota).patience();
        let Self { make, quota_of, max_keys, max_bytes, at_cap, .. } = self;
        let algorithm = make(quota);
        let shard_bits = shard_bits(max_keys, max_bytes);
        let common = Common {
            plans: Plans::new(make),
            by_key: quota_of.is_some(),
            patience,
            room: Room::new(max_keys, max_bytes),
            at_cap,
        };
        let shards = (0..1 << shard_bits).map(|_| Lines(Light::new(Shard::new(&common, quota)))).collect();
        let rest = Mutex::new(Rest { quota, algorithm, overflow: A::State::default() });
        KeyedLimiter {
            store: Arc::new(Store {
                seed,
                clock,
                shards,
                shift: 64 - shard_bits,
                common,
                quota_of,
                rest,
                saving: Mutex::new(()),
                keys: PhantomData,
            }),
        }
    }
}

impl<K: ?Sized, A, C: Clone> Clone for KeyedBuilder<K, A, C> {
    /// The same settings again; a clone of the clock is the same clock.
    fn clone(&self) -> Self {
        Self {
            quota: self.quota,
            make: Arc::clone(&self.make),
            clock: self.clock.clone(),
            quota_of: self.quota_of.clone(),
            max_keys: self.max_keys,
            max_bytes: self.max_bytes,
            at_cap: self.at_cap,
        }
    }
}

/// Enough shards that threads seldom meet, but with a bound not so many that some would be empty; two at least.
fn shard_bits(max_keys: u64, max_bytes: u64) -> u32 {
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let wanted = (threads * SHARDS_PER_THREAD).clamp(64, 4_096).ilog2();
    let most = max_keys.min(max_bytes / 64) / KEYS_PER_SHARD;
    wanted.min(most.max(2).ilog2())
}

const SHARDS_PER_THREAD: u64 = 32;
/// The fewest keys a shard should have when the store is full.
const KEYS_PER_SHARD: u64 = 128;

impl<K: ?Sized, A, C> fmt::Debug for KeyedBuilder<K, A, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedBuilder").field("quota", &self.quota).finish_non_exhaustive()
    }
}
