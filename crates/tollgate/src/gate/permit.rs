//! Something held.

use std::fmt;
use std::time::Duration;

use tollgate_core::Tick;

use super::member::{Member, Settling};
use super::tally::GateDecision;
use super::time_by;
use crate::name::Which;

/// What becomes of a [`Permit`] that is dropped and neither settled, released nor cancelled. The slots of concurrency limits
/// come back either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDrop {
    /// It counts as used: what was taken stays taken. The default, because it can never admit too much.
    #[default]
    Keep,
    /// It counts as not used: everything goes back.
    GiveBack,
}

/// What was taken of the limits of a [`Gate`](super::Gate).
///
/// End it by [`settle`](Self::settle), [`release`](Self::release) or [`cancel`](Self::cancel); dropping it does what the gate
/// was told by [`on_drop`](super::Gate::on_drop).
///
/// # Examples
/// ```
/// use tollgate::{ConcurrencyLimit, GateRefused, Limiter, OnDrop, Quota};
///
/// let bytes = Limiter::new(Quota::per_hour(3_600).burst(1_000));
/// let uploads = ConcurrencyLimit::new(4);
/// let gate = bytes.and(uploads.costing(1)).on_drop(OnDrop::GiveBack);
///
/// let upload = gate.acquire_n(400)?;
/// assert_eq!((bytes.remaining(), uploads.in_use()), (600, 1));
/// upload.settle(150);
/// assert_eq!((bytes.remaining(), uploads.in_use()), (850, 0));
/// drop(gate.acquire_n(400)?); // it failed, or its task was cancelled
/// assert_eq!((bytes.remaining(), uploads.in_use()), (850, 0));
/// # Ok::<(), GateRefused>(())
/// ```
#[must_use = "dropping a permit ends it"]
pub struct Permit<M: Member> {
    members: M,
    decision: GateDecision,
    receipt: Option<M::Receipt>,
    act: Tick,
    on_drop: OnDrop,
}

impl<M: Member> Permit<M> {
    pub(super) fn new(
        members: M,
        decision: GateDecision,
        receipt: M::Receipt,
        act: Tick,
        on_drop: OnDrop,
    ) -> Self {
        let permit = Self { members, decision, receipt: Some(receipt), act, on_drop };
        // What was taken is in good hands: whoever is told of it may panic.
        if let Some(receipt) = &permit.receipt {
            permit.members.admitted(receipt);
        }
        permit
    }

    /// The decision that granted it.
    pub fn decision(&self) -> GateDecision {
        self.decision
    }

    /// When to act, by the first clock among the limits.
    pub fn act_time(&self) -> Tick {
        self.act
    }

    /// How long from now until it is time to act: zero unless it was reserved for later.
    pub fn delay(&self) -> Duration {
        self.act.since(time_by(&self.members))
    }

    /// It was used, and what was asked for as `n` was really `actual`: what was taken too much comes back, as far as time has
    /// not restored it already; what was taken too little is charged, and those who come later wait for it. Limits with a
    /// fixed cost keep what they took. Slots are free again.
    ///
    /// Less may come back if permits are not settled in the order in which they were had, or the quota has changed: only what is
    /// certain not to be handed out twice does.
    pub fn settle(mut self, actual: u64) {
        self.end(&mut Settling::Actual(actual));
    }

    /// It was used, and cost each limit what `actual` says: it is given the limit and what was taken of it. Slots are free
    /// again, and not asked for.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{GateRefused, Limiter, Quota};
    ///
    /// let [disk, network] = ["disk", "network"]
    ///     .map(|name| Limiter::builder(Quota::per_hour(3_600).burst(100)).name(name).build());
    /// let permit = disk.costing(50).and(&network).acquire_n(10)?;
    /// permit.settle_each(|limit, estimate| if limit.name() == "disk" { 20 } else { estimate });
    /// assert_eq!((disk.remaining(), network.remaining()), (80, 90));
    /// # Ok::<(), GateRefused>(())
    /// ```
    pub fn settle_each(mut self, mut actual: impl FnMut(Which, u64) -> u64) {
        self.end(&mut Settling::Each(&mut actual));
    }

    /// It was used, and cost what was asked for. Slots are free again.
    pub fn release(mut self) {
        self.end(&mut Settling::Used);
    }

    /// It was not used: everything comes back, as far as time has not restored it already and it is certain not to be handed out
    /// twice. Windows that slide have nothing to give back of what was reserved for later.
    pub fn cancel(mut self) {
        self.end(&mut Settling::Unused);
    }

    fn end(&mut self, how: &mut Settling<'_>) {
        if let Some(receipt) = self.receipt.take() {
            self.members.settle(receipt, how);
        }
    }
}

impl<M: Member> Drop for Permit<M> {
    fn drop(&mut self) {
        self.end(&mut match self.on_drop {
            OnDrop::Keep => Settling::Used,
            OnDrop::GiveBack => Settling::Unused,
        });
    }
}

impl<M: Member> fmt::Debug for Permit<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Permit");
        debug.field("act", &self.act).field("decision", &self.decision).finish_non_exhaustive()
    }
}
