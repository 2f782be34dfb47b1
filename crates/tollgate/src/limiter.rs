//! The limiter.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{AnyAlgorithm, Ask, Decision, Kind, Quota, Sharded, Tick, TokenBucket};

use crate::cell::{Cell, Held, Taken};
use crate::clock::{Clock, DefaultClock};
use crate::gate::{And, Costing, Gate, Member};
use crate::name::{Name, intern};
use crate::queue::{LONGEST_QUEUE, Shared};
use crate::reservation::{Refused, Reservation};
use crate::timer::Timer;
use crate::wait::{Grant, Wait};

/// Limits how often something happens.
///
/// In any span of length T it admits at most `burst + rate·T` (for the default algorithm; the others state theirs), from
/// any number of threads, whatever the clock does. A quota of zero never refills; [`Quota::UNLIMITED`] admits
/// everything; a cost above the limit (the burst; for windows, the count) is refused for good, and says so.
///
/// Most callers want [`allow`](Self::allow) to drop what is too much, [`wait`](Self::wait) to slow down,
/// [`reserve_n`](Self::reserve_n) to plan ahead, [`check`](Self::check) to tell a client when to come back. Each but `wait` has
/// a twin that takes the time as an argument.
///
/// Clones share one state. Where the algorithm's state is one word, a check takes no lock (unless somebody waits, or a gate
/// has it in hand for a moment), and a refusal writes nothing.
///
/// # Examples
/// Drop what is too much:
/// ```
/// use tollgate::{Limiter, Quota};
///
/// let limiter = Limiter::new(Quota::per_second(50).burst(200));
/// if limiter.allow() {
///     // serve it
/// }
/// ```
/// Tell a client when to come back:
/// ```
/// use std::time::Duration;
/// use tollgate::{Limiter, ManualClock, Quota};
///
/// let limiter = Limiter::builder(Quota::per_minute(6).burst(1)).clock(ManualClock::new()).build();
/// assert!(limiter.check().is_allowed());
/// let refused = limiter.check();
/// assert_eq!(refused.retry_after(), Some(Duration::from_secs(10)));
/// ```
pub struct Limiter<A: Held = TokenBucket, C: Clock = DefaultClock> {
    pub(crate) shared: Arc<Shared<A, C>>,
}

impl Limiter {
    /// A token bucket on the default clock.
    pub fn new(quota: Quota) -> Self {
        Self::builder(quota).build()
    }

    /// A limiter with other than the usual clock, algorithm, timer or queue.
    pub fn builder(quota: Quota) -> Builder<TokenBucket, DefaultClock> {
        let algorithm = TokenBucket::new(quota);
        let clock = DefaultClock::new();
        Builder { quota, algorithm, clock, timer: None, longest_queue: LONGEST_QUEUE, name: None }
    }
}

impl<A: Held, C: Clock> Limiter<A, C> {
    /// Whether one may happen now.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a call costs 20 instructions of 54; cargo xtask bench direct")]
    #[must_use = "what is not allowed should not be done"]
    pub fn allow(&self) -> bool {
        if let Some(allowed) = self.shared.cell.quick_lease(1, || self.shared.clock.now()) {
            return allowed;
        }
        self.allow_at(self.shared.clock.now())
    }

    /// [`allow`](Self::allow) at an explicit time.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a call costs 20 instructions of 54; cargo xtask bench direct")]
    #[must_use = "what is not allowed should not be done"]
    pub fn allow_at(&self, now: Tick) -> bool {
        match self.shared.cell.quick_allow(now) {
            Some(allowed) => allowed,
            None => self.shared.allow_the_long_way(now),
        }
    }

    /// Whether `n` may happen now, all of them or none.
    #[inline]
    #[must_use = "what is not allowed should not be done"]
    pub fn allow_n(&self, n: u64) -> bool {
        if let Some(allowed) = self.shared.cell.quick_lease(n, || self.shared.clock.now()) {
            return allowed;
        }
        self.allow_n_at(n, self.shared.clock.now())
    }

    /// [`allow_n`](Self::allow_n) at an explicit time.
    #[inline]
    #[must_use = "what is not allowed should not be done"]
    pub fn allow_n_at(&self, n: u64, now: Tick) -> bool {
        self.take(now, Ask::now(n)).decision.is_allowed()
    }

    /// Whether one may happen now, and everything a caller may want to know with that.
    ///
    /// With [`LeakyBucket::queue`](tollgate_core::LeakyBucket::queue) the answer may be to go ahead after a delay.
    #[inline(always)]
    #[allow(
        clippy::inline_always,
        reason = "a decision returned through memory costs 2 ns of 11; cargo xtask bench direct"
    )]
    pub fn check(&self) -> Decision {
        self.check_at(self.shared.clock.now())
    }

    /// [`check`](Self::check) at an explicit time.
    #[inline(always)]
    #[allow(
        clippy::inline_always,
        reason = "a decision returned through memory costs 2 ns of 11; cargo xtask bench direct"
    )]
    pub fn check_at(&self, now: Tick) -> Decision {
        match self.shared.cell.quick_check_one(now) {
            Some(decision) => decision,
            None => self.shared.check_the_long_way(now, 1),
        }
    }

    /// [`check`](Self::check) for `n`, all of them or none.
    #[inline]
    pub fn check_n(&self, n: u64) -> Decision {
        self.check_n_at(n, self.shared.clock.now())
    }

    /// [`check_n`](Self::check_n) at an explicit time.
    #[inline]
    pub fn check_n_at(&self, n: u64, now: Tick) -> Decision {
        self.shared.check_the_long_way(now, n)
    }

    /// What [`check_n`](Self::check_n) would answer, taking nothing.
    pub fn peek_n(&self, n: u64) -> Decision {
        self.peek_n_at(n, self.shared.clock.now())
    }

    /// [`peek_n`](Self::peek_n) at an explicit time.
    pub fn peek_n_at(&self, n: u64, now: Tick) -> Decision {
        let ask = Ask::within(n, self.shared.cell.algorithm().patience());
        self.shared.cell.quick_peek(now, ask).unwrap_or_else(|| self.shared.slow_peek_of_check(now, n))
    }

    /// What [`reserve_within`](Self::reserve_within) would answer, taking nothing.
    pub fn peek_within(&self, n: u64, longest_wait: Duration) -> Decision {
        self.peek_within_at(n, longest_wait, self.shared.clock.now())
    }

    /// [`peek_within`](Self::peek_within) at an explicit time.
    pub fn peek_within_at(&self, n: u64, longest_wait: Duration, now: Tick) -> Decision {
        let ask = Ask::within(n, longest_wait);
        self.shared.cell.quick_peek(now, ask).unwrap_or_else(|| self.shared.slow_peek(now, ask))
    }

    /// What [`check`](Self::check) would answer, taking nothing.
    pub fn peek(&self) -> Decision {
        self.peek_n(1)
    }

    /// [`peek`](Self::peek) at an explicit time.
    pub fn peek_at(&self, now: Tick) -> Decision {
        self.peek_n_at(1, now)
    }

    /// Takes one, now or for the first moment it can be had: [`reserve_n`](Self::reserve_n) of one.
    ///
    /// # Errors
    /// The refusal, if it can never be had.
    pub fn reserve(&self) -> Result<Reservation<A, C>, Refused> {
        self.reserve_n(1)
    }

    /// [`reserve`](Self::reserve) at an explicit time.
    ///
    /// # Errors
    /// The refusal, if it can never be had.
    pub fn reserve_at(&self, now: Tick) -> Result<Reservation<A, C>, Refused> {
        self.reserve_n_at(1, now)
    }

    /// Takes `n`, now or for the first moment they can be had. A reservation does not queue: it is made from what is not
    /// promised yet, ahead of those who [`wait`](Self::wait).
    ///
    /// # Errors
    /// The refusal, if they can never be had.
    pub fn reserve_n(&self, n: u64) -> Result<Reservation<A, C>, Refused> {
        self.reserve_n_at(n, self.shared.clock.now())
    }

    /// [`reserve_n`](Self::reserve_n) at an explicit time.
    ///
    /// # Errors
    /// The refusal, if they can never be had.
    pub fn reserve_n_at(&self, n: u64, now: Tick) -> Result<Reservation<A, C>, Refused> {
        self.reserve_ask(now, Ask::whenever(n))
    }

    /// Takes `n` if they can be had within `longest_wait`.
    ///
    /// # Errors
    /// The refusal; its `retry_after` says when the same question will be answered better.
    pub fn reserve_within(&self, n: u64, longest_wait: Duration) -> Result<Reservation<A, C>, Refused> {
        self.reserve_within_at(n, longest_wait, self.shared.clock.now())
    }

    /// [`reserve_within`](Self::reserve_within) at an explicit time.
    ///
    /// # Errors
    /// The refusal; its `retry_after` says when the same question will be answered better.
    pub fn reserve_within_at(
        &self,
        n: u64,
        longest_wait: Duration,
        now: Tick,
    ) -> Result<Reservation<A, C>, Refused> {
        self.reserve_ask(now, Ask::within(n, longest_wait))
    }

    /// Counts `n` that happened anyway, whether they fit or not; those who come later wait until they are paid off. That may take
    /// for ever: a charge of `u64::MAX` shuts the limiter until it is [`reset`](Self::reset).
    pub fn charge(&self, n: u64) {
        self.charge_at(n, self.shared.clock.now());
    }

    /// [`charge`](Self::charge) at an explicit time.
    pub fn charge_at(&self, n: u64, now: Tick) {
        self.shared.charge(n, now);
    }

    /// Waits for one.
    ///
    /// The full rate can only be had if the burst covers the time a timer is late: about a millisecond's worth, `rate / 1000`,
    /// on an idle machine. What falls beyond a full bucket is lost, as it is for everybody.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Limiter, Quota, WaitError};
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    /// # runtime.block_on(async {
    /// let limiter = Limiter::new(Quota::per_second(1_000).burst(1));
    /// limiter.wait().await?;
    /// limiter.wait().within(Duration::from_millis(100)).await?; // a millisecond later
    /// # Ok::<(), WaitError>(())
    /// # }).unwrap();
    /// # let limiter = Limiter::new(Quota::per_second(1_000).burst(1));
    /// limiter.wait().block()?; // from a thread
    /// # Ok::<(), WaitError>(())
    /// ```
    pub fn wait(&self) -> Wait<'_, A, C> {
        self.wait_n(1)
    }

    /// Waits for `n`, all of them together. Whoever waits behind is not let past, so a large `n` does get its turn.
    pub fn wait_n(&self, n: u64) -> Wait<'_, A, C> {
        Wait::new(Cow::Borrowed(&self.shared), n)
    }

    /// Changes the quota. What was used stays used: nobody gets a free burst, no debt is forgiven, reservations keep
    /// their times, and everybody who waits is re-timed. Those whose deadline can no longer be kept are told at once. Only under
    /// an unlimited quota may it be forgotten what was used: most algorithms then have nothing to count by.
    ///
    /// What was taken before can still be [given back](Reservation::settle) during the next eight changes, and not after that; by a
    /// sliding window counter or sub-windows not after a change of the period either.
    pub fn set_quota(&self, quota: Quota) {
        self.set_quota_at(quota, self.shared.clock.now());
    }

    /// [`set_quota`](Self::set_quota) at an explicit time.
    pub fn set_quota_at(&self, quota: Quota, now: Tick) {
        self.shared.set_quota(quota, now);
    }

    /// Starts afresh, as if nothing had ever been taken, and forgives what is owed. Those who wait are served at once, as far as a
    /// fresh limiter admits them; the others are re-timed. What was taken before stays taken, reservations keep their times,
    /// and nothing of it can be given back any more.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Limiter, ManualClock, Quota};
    ///
    /// let limiter = Limiter::builder(Quota::per_second(10).burst(5)).clock(ManualClock::new()).build();
    /// limiter.charge(u64::MAX); // by mistake
    /// assert!(limiter.check().is_never());
    /// limiter.reset();
    /// assert_eq!(limiter.remaining(), 5);
    /// ```
    pub fn reset(&self) {
        self.reset_at(self.shared.clock.now());
    }

    /// [`reset`](Self::reset) at an explicit time.
    pub fn reset_at(&self, now: Tick) {
        self.shared.reset(now);
    }

    /// The quota in force.
    pub fn quota(&self) -> Quota {
        self.shared.quota()
    }

    /// How many are waiting.
    pub fn waiting(&self) -> usize {
        self.shared.waiting()
    }

    /// Ends all waiting: everybody in line, and whoever comes to [`wait`](Self::wait) later, gets
    /// [`WaitError::Closed`](crate::WaitError::Closed). The other verbs go on as before.
    pub fn close(&self) {
        self.shared.close();
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.shared.is_closed()
    }

    /// This limit and another, which admit together or not at all: see [`Gate`].
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Limiter, Quota};
    ///
    /// let (api, disk) = (Limiter::new(Quota::per_second(50)), Limiter::new(Quota::per_minute(600)));
    /// if api.and(&disk).allow() {
    ///     // one of each was taken
    /// }
    /// ```
    #[inline]
    pub fn and<M: Member>(&self, other: M) -> Gate<And<&Self, M>> {
        Gate::new(And::new(self, other))
    }

    /// This limit, of which a [`Gate`] takes `cost` whatever else it is asked for.
    #[inline]
    pub fn costing(&self, cost: u64) -> Costing<&Self> {
        Costing::new(self, cost)
    }

    /// What is left at this moment.
    pub fn remaining(&self) -> u64 {
        self.peek_n(0).remaining()
    }

    /// [`remaining`](Self::remaining) at an explicit time.
    pub fn remaining_at(&self, now: Tick) -> u64 {
        self.peek_n_at(0, now).remaining()
    }

    /// The clock.
    pub fn clock(&self) -> &C {
        &self.shared.clock
    }

    #[inline]
    fn take(&self, now: Tick, ask: Ask) -> Taken {
        match self.shared.cell.quick_take(now, ask) {
            Some(taken) => taken,
            None => self.shared.slow_take(now, ask),
        }
    }

    pub(crate) fn reserve_ask(&self, now: Tick, ask: Ask) -> Result<Reservation<A, C>, Refused> {
        let epoch = self.shared.epoch();
        let Taken { decision, claim } = self.take(now, ask);
        if !decision.is_admitted() {
            return Err(Refused(decision));
        }
        let act = now + decision.delay();
        Ok(Reservation::new(&self.shared, Grant { decision, claim, epoch }, act))
    }
}

impl<A: Held, C: Clock> Clone for Limiter<A, C> {
    /// Another handle on the same state.
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<A: Held, C: Clock> fmt::Debug for Limiter<A, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter")
            .field("quota", &self.quota())
            .field("waiting", &self.waiting())
            .finish_non_exhaustive()
    }
}

/// Builds a [`Limiter`].
///
/// # Examples
/// ```
/// use tollgate::{Kind, Limiter, ManualClock, Quota};
///
/// let limiter = Limiter::builder(Quota::per_minute(100))
///     .kind(Kind::SlidingLog)
///     .clock(ManualClock::new())
///     .longest_queue(1_000)
///     .build();
/// assert!(limiter.allow_n(100));
/// assert!(!limiter.allow());
/// ```
#[derive(Debug)]
#[must_use = "a builder builds nothing until build() is called"]
pub struct Builder<A, C> {
    quota: Quota,
    algorithm: A,
    clock: C,
    timer: Option<Arc<dyn Timer>>,
    longest_queue: usize,
    name: Option<Name>,
}

impl<A: Held, C: Clock> Builder<A, C> {
    /// Uses the algorithm of that kind, chosen at run time.
    pub fn kind(self, kind: Kind) -> Builder<AnyAlgorithm, C> {
        let algorithm = AnyAlgorithm::new(kind, self.quota);
        self.algorithm(|_| algorithm)
    }

    /// Uses the algorithm that `make` makes of the quota, chosen at compile time.
    pub fn algorithm<B: Held>(self, make: impl FnOnce(Quota) -> B) -> Builder<B, C> {
        let Self { quota, clock, timer, longest_queue, name, .. } = self;
        Builder { quota, algorithm: make(quota), clock, timer, longest_queue, name }
    }

    /// Uses `clock`, and its timer unless another is set.
    pub fn clock<D: Clock>(self, clock: D) -> Builder<A, D> {
        let Self { quota, algorithm, timer, longest_queue, name, .. } = self;
        Builder { quota, algorithm, clock, timer, longest_queue, name }
    }

    /// Wakes those who wait by `timer`.
    pub fn timer(self, timer: impl Timer + 'static) -> Self {
        Self { timer: Some(Arc::new(timer)), ..self }
    }

    /// Lets at most `waiters` wait; further ones are refused at once. The default is 65 536.
    pub fn longest_queue(self, waiters: usize) -> Self {
        Self { longest_queue: waiters, ..self }
    }

    /// Names it, so that the decision of a [`Gate`] can say which of its limits decided. Names are kept for good.
    pub fn name(self, name: &str) -> Self {
        Self { name: Some(intern(name)), ..self }
    }

    /// The limiter.
    pub fn build(self) -> Limiter<A, C> {
        let Self { quota, algorithm, clock, timer, longest_queue, name } = self;
        let timer = timer.unwrap_or_else(|| clock.timer());
        Limiter { shared: Arc::new(Shared::new(algorithm, quota, clock, timer, longest_queue, name)) }
    }
}

impl<C: Clock> Builder<TokenBucket, C> {
    /// Shards the state, for a limiter that many threads hit at once.
    ///
    /// Threads that share one word slow each other down, however short a check is. A sharded limiter lets each take a small
    /// block of tokens at a time, a *lease*, into a lane of its own; most calls of [`allow`](Limiter::allow) and
    /// [`allow_n`](Limiter::allow_n) then touch nothing that is shared, and do not even read the clock. Nearer to the limit
    /// leases shrink, and before anybody is refused all lanes are emptied.
    ///
    /// The bound stays what it was: in any span of length T at most `burst + rate·T`, to the token. (By a clock that may step
    /// back by d, `burst + rate·(T + d)`, since a lease does not notice.)
    ///
    /// What it costs:
    /// - The lanes keep a part of the burst for themselves: a 16th at most, less for bursts above 16 384 a lane. What is left
    ///   is the largest single cost, and is what [`limit`](Decision::limit) says. With leases in the lanes,
    ///   [`remaining`](Limiter::remaining) counts them too and may be above that.
    /// - What came out of lanes does not come back when it is [settled](Reservation::settle) for less or a wait for it is dropped.
    ///   Reservations and waits use the lanes only where they would otherwise be refused or have to wait.
    /// - In a [`Gate`] only the shared word counts, not what lies in lanes.
    /// - A call that comes at the very moment at which another has a lease in hand may be refused though it would just fit;
    ///   and of a lease that is in hand when the quota changes, the rest is lost.
    ///
    /// There is a lane for each thread that the machine can run at once, rounded up to a power of two: at least 2, at most 64.
    /// With a burst below 128 a lane there are no leases, and the limiter is exactly as without. The other verbs
    /// work as ever. Those that are given the time (`allow_at` and so on), and those that tell more than yes or no, go to the
    /// shared word and gain nothing.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Limiter, Quota};
    ///
    /// let limiter = Limiter::builder(Quota::per_second(10_000_000).burst(1_000_000)).sharded().build();
    /// std::thread::scope(|scope| {
    ///     for _ in 0..4 {
    ///         scope.spawn(|| (0..10_000).all(|_| limiter.allow()));
    ///     }
    /// });
    /// let most = limiter.check_n(0).limit();
    /// assert!(most < 1_000_000 && most >= 1_000_000 / 16 * 15);
    /// ```
    pub fn sharded(self) -> Builder<Sharded, C> {
        self.algorithm(|quota| Sharded::new(quota, lanes()))
    }
}

/// One for each thread that can run at once.
fn lanes() -> u64 {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    threads.max(2) as u64
}
