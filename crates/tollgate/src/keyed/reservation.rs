//! Something taken of a key, which can be given back.

use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use tollgate_core::{Decision, Tick};

use super::KeyedLimiter;
use super::shard::Receipt;
use super::shifted::Shifted;
use crate::cell::Held;
use crate::clock::{Clock, DefaultClock};
use crate::reservation::Reservation;

/// A slot that was taken of one key's quota, now or for later: act at [`act_time`](Self::act_time), not before.
///
/// As a [`Reservation`](crate::Reservation), but of a key. Dropping it keeps the slot.
///
/// # Examples
/// ```
/// use tollgate::{KeyedLimiter, ManualClock, Quota};
///
/// let tokens = KeyedLimiter::<str>::builder(Quota::per_minute(1_000)).clock(ManualClock::new()).build();
/// let estimate = tokens.reserve_n("alice", 600).unwrap();
/// assert_eq!(tokens.peek_n("alice", 0).remaining(), 400);
/// estimate.settle(250); // it was less
/// assert_eq!(tokens.peek_n("alice", 0).remaining(), 750);
/// ```
pub struct KeyedReservation<K: ?Sized, A: Held = tollgate_core::TokenBucket, C: Clock = DefaultClock> {
    limiter: KeyedLimiter<K, A, C>,
    print: u64,
    decision: Decision,
    slot: Slot<A, C>,
    act: Tick,
}

/// What was taken, and where.
#[derive(Debug)]
pub(super) enum Slot<A: Held, C: Clock> {
    /// Nothing that could be given back.
    Nothing,
    /// So many from the state that keys share for which there is no room. They do not come back: whose they were is not known.
    Shared(u64),
    /// From the key's state in the table.
    Here(Receipt),
    /// From the limiter that the key had of its own. In a box, because it is large and rare.
    InLine(Box<Reservation<A, Shifted<C>>>),
}

impl<K: Hash + ?Sized, A: Held, C: Clock> KeyedReservation<K, A, C> {
    pub(super) fn new(
        limiter: KeyedLimiter<K, A, C>,
        print: u64,
        decision: Decision,
        slot: Slot<A, C>,
        now: Tick,
    ) -> Self {
        Self { limiter, print, decision, slot, act: now + decision.delay() }
    }

    pub(super) fn in_line(
        limiter: KeyedLimiter<K, A, C>,
        print: u64,
        turn: Reservation<A, Shifted<C>>,
    ) -> Self {
        let (decision, act) = (turn.decision(), limiter.store.clock.reading(turn.act_time()));
        Self { limiter, print, decision, slot: Slot::InLine(Box::new(turn)), act }
    }

    /// The decision that granted it.
    pub fn decision(&self) -> Decision {
        self.decision
    }

    /// When to act, by the limiter's clock.
    pub fn act_time(&self) -> Tick {
        self.act
    }

    /// How long from now until it is time to act.
    pub fn delay(&self) -> Duration {
        self.delay_at(self.limiter.now())
    }

    /// How long from `now` until it is time to act.
    pub fn delay_at(&self, now: Tick) -> Duration {
        self.act.since(now)
    }

    /// Gives the slot back, as far as others have not already been promised times on top of it. Too late once its time
    /// has passed, which for a slot without delay is at once: for something that was not used after all, [`settle`](Self::settle)
    /// with zero.
    pub fn cancel(self) {
        if self.act >= self.limiter.now() {
            self.refund(u64::MAX);
        }
    }

    /// [`cancel`](Self::cancel) at an explicit time, no older than any by which others were admitted.
    pub fn cancel_at(self, now: Tick) {
        if self.act >= now {
            self.refund_at(u64::MAX, now);
        }
    }

    /// Says what it really cost: what was taken too much comes back, as far as time has not restored it already; what was
    /// taken too little is charged, and those who come later wait for it.
    ///
    /// Less may come back, never more: only what is certain not to be handed out twice does. After a change of the quota it is
    /// nothing; and with many reservations outstanding, of this key or of others, it may be less if they do not come back in the
    /// order in which they were made. What was taken of the state that keys share at a [full store](crate::AtCap::Share) does not
    /// come back.
    ///
    /// A reservation does not know its key. If the key was dropped as idle meanwhile, what is charged brings it back with the
    /// [quota of its own](crate::KeyedBuilder::quota_of) that it had when this was reserved, until it is
    /// [refreshed](KeyedLimiter::refresh). A [`Permit`](crate::Permit) of a [`Gate`](crate::Gate) asks for the quota it has by then.
    pub fn settle(self, actual: u64) {
        self.settle_with(actual, None);
    }

    /// [`settle`](Self::settle) at an explicit time, no older than any by which others were admitted: what time has restored
    /// since would come back again.
    pub fn settle_at(self, actual: u64, now: Tick) {
        self.settle_with(actual, Some(now));
    }

    fn settle_with(self, actual: u64, at: Option<Tick>) {
        let now = || at.unwrap_or_else(|| self.limiter.now());
        match self.slot {
            Slot::Nothing => {}
            Slot::Shared(cost) => self.limiter.charge_shared(actual.saturating_sub(cost), now()),
            Slot::Here(receipt) => {
                let cost = receipt.claim.cost;
                if actual < cost {
                    self.limiter.give_back(self.print, receipt, cost - actual, at);
                } else if actual > cost {
                    self.limiter.charge_known(self.print, receipt.plan, actual - cost, now());
                }
            }
            Slot::InLine(turn) => turn.settle_with(actual, at.map(|at| self.limiter.tick(at))),
        }
    }

    /// Gives `amount` of it back, after it was used for less: `settle` by the difference.
    pub fn refund(self, amount: u64) {
        self.refund_with(amount, None);
    }

    /// [`refund`](Self::refund) at an explicit time, as for [`settle_at`](Self::settle_at).
    pub fn refund_at(self, amount: u64, now: Tick) {
        self.refund_with(amount, Some(now));
    }

    fn refund_with(self, amount: u64, at: Option<Tick>) {
        match self.slot {
            Slot::Nothing | Slot::Shared(_) => {}
            Slot::Here(receipt) => {
                let amount = amount.min(receipt.claim.cost);
                self.limiter.give_back(self.print, receipt, amount, at);
            }
            Slot::InLine(turn) => turn.give_back(amount, at.map(|at| self.limiter.tick(at))),
        }
    }
}

impl<K: ?Sized, A: Held, C: Clock> fmt::Debug for KeyedReservation<K, A, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("KeyedReservation");
        debug.field("act", &self.act).field("decision", &self.decision).finish_non_exhaustive()
    }
}
