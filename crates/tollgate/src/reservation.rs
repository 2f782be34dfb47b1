//! Something taken, which can be given back.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{Decision, Tick};

use crate::cell::Held;
use crate::clock::{Clock, DefaultClock};
use crate::queue::Shared;
use crate::wait::Grant;

/// A slot that was taken, now or for later: act at [`act_time`](Self::act_time), not before.
///
/// The time is a promise: it is kept even if the quota changes. It may be kept and passed around as one likes. Dropping a reservation keeps the slot; to give it back,
/// [`cancel`](Self::cancel) it before its time, or [`settle`](Self::settle) it with what it really cost.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate::{Limiter, ManualClock, Quota};
///
/// let limiter = Limiter::builder(Quota::per_second(10).burst(2)).clock(ManualClock::new()).build();
/// let first = limiter.reserve_n(2).unwrap();
/// assert_eq!(first.delay(), Duration::ZERO);
/// let second = limiter.reserve_n(2).unwrap();
/// assert_eq!(second.delay(), Duration::from_millis(200));
/// second.cancel();
/// assert_eq!(limiter.reserve_n(1).unwrap().delay(), Duration::from_millis(100));
/// ```
pub struct Reservation<A: Held = tollgate_core::TokenBucket, C: Clock = DefaultClock> {
    shared: Arc<Shared<A, C>>,
    grant: Grant,
    act: Tick,
}

impl<A: Held, C: Clock> Reservation<A, C> {
    pub(crate) fn new(shared: &Arc<Shared<A, C>>, grant: Grant, act: Tick) -> Self {
        Self { shared: Arc::clone(shared), grant, act }
    }

    /// The decision that granted it.
    pub fn decision(&self) -> Decision {
        self.grant.decision
    }

    /// When to act, by the limiter's clock.
    pub fn act_time(&self) -> Tick {
        self.act
    }

    /// How long from now until it is time to act.
    pub fn delay(&self) -> Duration {
        self.delay_at(self.shared.clock.now())
    }

    /// How long from `now` until it is time to act.
    pub fn delay_at(&self, now: Tick) -> Duration {
        self.act.since(now)
    }

    /// Gives the slot back, as far as others have not already been promised times on top of it. Too late once its time
    /// has passed, which for a slot without delay is at once: for something that was not used after all, [`settle`](Self::settle)
    /// with zero. (A window in which there was no room counts as full until it ends, though what was promised after it is cancelled.)
    pub fn cancel(self) {
        if self.act >= self.shared.clock.now() {
            self.give_back(u64::MAX, None);
        }
    }

    /// [`cancel`](Self::cancel) at an explicit time, no older than any by which others were admitted.
    pub fn cancel_at(self, now: Tick) {
        if self.act >= now {
            self.give_back(u64::MAX, Some(now));
        }
    }

    /// Says what it really cost: what was taken too much comes back, as far as time has not restored it already; what was
    /// taken too little is charged, and those who come later wait for it: after `settle(u64::MAX)` until the limiter is
    /// [`reset`](crate::Limiter::reset). Of what was taken before a reset nothing comes back.
    ///
    /// Less may come back while others give back too: only what is certain not to be handed out twice does. In the order
    /// in which things were taken, or from a busy limiter, that is all of it. Those that are settled for a part each, the newest
    /// first, may get nothing back in the end: whatever comes back of a later one counts as if it had been theirs. Nothing
    /// comes back of what was taken more than eight [changes of quota](crate::Limiter::set_quota) ago.
    pub fn settle(self, actual: u64) {
        self.settle_with(actual, None);
    }

    /// [`settle`](Self::settle) at an explicit time, no older than any by which others were admitted: what time has restored
    /// since would come back again.
    pub fn settle_at(self, actual: u64, now: Tick) {
        self.settle_with(actual, Some(now));
    }

    pub(crate) fn settle_with(self, actual: u64, at: Option<Tick>) {
        let cost = match self.grant.claim {
            Some(claim) => claim.cost,
            None if self.decision().limit() == u64::MAX => return, // nothing is counted where nothing is limited
            None => 0,
        };
        if actual < cost {
            self.give_back(cost - actual, at);
        } else if actual > cost {
            let now = at.unwrap_or_else(|| self.shared.clock.now());
            self.shared.charge(actual - cost, now);
        }
    }

    /// Gives `amount` of it back, after it was used for less: `settle` by the difference.
    pub fn refund(self, amount: u64) {
        self.give_back(amount, None);
    }

    /// [`refund`](Self::refund) at an explicit time, as for [`settle_at`](Self::settle_at).
    pub fn refund_at(self, amount: u64, now: Tick) {
        self.give_back(amount, Some(now));
    }

    pub(crate) fn give_back(self, amount: u64, at: Option<Tick>) {
        if let Some(claim) = self.grant.claim {
            self.shared.give_back(claim, amount.min(claim.cost), self.grant.epoch, at);
        }
    }
}

/// An error that a reservation is not available in time, or never. Nothing was charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused(pub Decision);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.retry_after() {
            Some(wait) => write!(f, "not available in time: retry after {wait:?}"),
            None => {
                write!(
                    f,
                    "never available: the cost exceeds the limit of {}, or the rate is zero",
                    self.0.limit()
                )
            }
        }
    }
}

impl std::error::Error for Refused {}

impl<A: Held, C: Clock> fmt::Debug for Reservation<A, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Reservation");
        debug.field("act", &self.act).field("decision", &self.grant.decision).finish_non_exhaustive()
    }
}
