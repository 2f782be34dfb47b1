//! Limiters and concurrency limits as members of a gate.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use tollgate_core::{Ask, Claim, Step};

use super::member::{AnyClock, Call, Id, Part, Reading, Settling, Share};
use super::tally::{Tally, postponed};
use crate::cell::{Cell, Held, LevelPlan, One, Prepared, Taking};
use crate::clock::Clock;
use crate::concurrency::ConcurrencyLimit;
use crate::limiter::Limiter;
use crate::name::Which;
use crate::queue::Epoch;
use crate::timer::Timer;

/// What a limiter is about to give. `None` if it was met before in the same gate.
#[derive(Debug)]
pub struct LimiterPlan<P> {
    taking: Option<Taking<P>>,
    stub: Stub,
}

/// What a limiter gave.
#[derive(Debug)]
pub struct LimiterReceipt {
    /// The claim, and how far the state rose for it.
    claim: Option<(Claim, u64)>,
    stub: Stub,
}

/// What a receipt remembers of the call.
#[derive(Clone, Copy, Debug)]
struct Stub {
    which: Which,
    share: Share,
    cost: u64,
    epoch: Epoch,
    /// Whether it was decided as of a later moment.
    is_postponed: bool,
}

type PlanOf<A> = <<A as Held>::Cell as Cell<A>>::Plan;

impl<A: Held, C: Clock> Limiter<A, C> {
    /// Decides for `call.delay` from now. A promise for the first moment there is, is what a reservation would be. One for
    /// later is taken as of that moment: taken as of now, it would come on top of what time gives until then. Also whether
    /// it was.
    #[inline]
    fn prepare_share(&self, call: &Call<'_>, cost: u64) -> (Prepared<PlanOf<A>>, bool) {
        let now = call.now(&self.shared.clock);
        if call.delay == Duration::ZERO {
            return (self.shared.prepare(now, now, Ask::now(cost), call.is_promise), false);
        }
        let soonest = self.shared.prepare(now, now, Ask::within(cost, call.delay), true);
        if !soonest.decision.is_admitted() || soonest.decision.delay() == call.delay {
            return (soonest, false);
        }
        let Prepared { decision, taking } = self.shared.prepare(now, now + call.delay, Ask::now(cost), true);
        (Prepared { decision: postponed(decision, call.delay), taking }, true)
    }

    fn id(&self) -> Id {
        (Arc::as_ptr(&self.shared).addr(), 0)
    }
}

impl<A: Held, C: Clock> Part for Limiter<A, C> {
    type Plan = Option<LimiterPlan<PlanOf<A>>>;
    type Receipt = Option<LimiterReceipt>;
    type Quick = LevelPlan;
    type Sketch = (A, A::State);

    #[inline]
    fn len(&self) -> usize {
        1
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a gate's decisions should stay in registers as a limiter's do")]
    fn reading(&self) -> Option<Reading<'_>> {
        Some(Reading::of(&self.shared.clock))
    }

    #[inline]
    fn prepare(&self, call: &Call<'_>, position: usize, tally: &mut Tally<'_>) -> Self::Plan {
        let share = call.share_of(|| self.id(), position)?;
        let (which, cost) = (Which::new(self.shared.name, position), share.of(call.n));
        let epoch = self.shared.epoch();
        let (Prepared { decision, taking }, is_postponed) = self.prepare_share(call, cost);
        tally.add(which, cost, decision);
        Some(LimiterPlan { taking, stub: Stub { which, share, cost, epoch, is_postponed } })
    }

    #[inline]
    fn hold(&self, plan: &Self::Plan) -> bool {
        taking(plan.as_ref()).is_none_or(|taking| self.shared.cell.hold(&taking.plan))
    }

    #[inline]
    fn let_go(&self, plan: &Self::Plan) {
        if let Some(taking) = taking(plan.as_ref()) {
            self.shared.cell.let_go(&taking.plan);
        }
    }

    #[inline]
    fn commit(&self, plan: Self::Plan) -> Self::Receipt {
        let LimiterPlan { taking, stub } = plan?;
        let claim = taking.map(|Taking { plan, rise, claim }| {
            if stub.is_postponed {
                self.shared.take_ahead(claim.act);
            }
            self.shared.cell.commit(plan);
            (claim, rise)
        });
        Some(LimiterReceipt { claim, stub })
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a gate's decisions should stay in registers as a limiter's do")]
    fn quick(&self, call: &Call<'_>, position: usize, tally: &mut Tally<'_>) -> Option<LevelPlan> {
        if call.share.of(call.n) != 1 {
            return None;
        }
        let One { decision, plan } = self.shared.cell.quick_one(call.now(&self.shared.clock))?;
        tally.add(Which::new(self.shared.name, position), 1, decision);
        Some(plan)
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a gate's decisions should stay in registers as a limiter's do")]
    fn quick_hold(&self, plan: &LevelPlan) -> bool {
        self.shared.cell.hold_one(plan)
    }

    #[inline]
    fn quick_let_go(&self, plan: &LevelPlan) {
        self.shared.cell.let_go_one(plan);
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a gate's decisions should stay in registers as a limiter's do")]
    fn quick_commit(&self, plan: &LevelPlan) {
        self.shared.cell.commit_one(plan);
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a gate's decisions should stay in registers as a limiter's do")]
    fn quick_take(&self, plan: &LevelPlan) -> bool {
        self.shared.cell.take_one(plan)
    }

    fn promised(&self) {
        self.shared.promised(self.shared.clock.now());
    }

    /// A limiter counts nothing.
    #[inline]
    fn is_watched(&self) -> bool {
        false
    }

    #[inline]
    fn admitted(&self, _receipt: &Self::Receipt) {}

    #[inline]
    fn refused(&self, _plan: &Self::Plan, _patience: Duration) {}

    fn settle(&self, receipt: Self::Receipt, how: &mut Settling<'_>) {
        let Some(LimiterReceipt { claim, stub }) = receipt else {
            return;
        };
        let Stub { which, share, cost, epoch, is_postponed } = stub;
        let actual = how.cost(which, share, cost);
        if actual == cost || (claim.is_none() && cost > 0) {
            return; // nothing to put right, or nothing is counted because nothing is limited
        }
        let now = self.shared.clock.now();
        let is_early = is_postponed && claim.is_some_and(|(claim, _)| now < claim.act);
        match claim {
            _ if actual < cost && is_early && !self.shared.cell.algorithm().can_return_early() => {}
            Some((claim, rise)) if how.is_unused() => self.shared.undo(claim, rise, epoch, now),
            Some((claim, _)) if actual < cost => self.shared.give_back(claim, cost - actual, epoch, None),
            _ => self.shared.charge(actual - cost, now),
        }
    }

    fn sketch(&self) -> Self::Sketch {
        self.shared.sketch(self.shared.clock.now())
    }

    fn foresee(
        &self,
        (algorithm, state): &mut Self::Sketch,
        call: &Call<'_>,
        position: usize,
        takes: bool,
        tally: &mut Tally<'_>,
    ) {
        let Some(share) = call.share_of(|| self.id(), position) else {
            return;
        };
        let (at, cost) = (call.now(&self.shared.clock) + call.delay, share.of(call.n));
        let Step { change, decision } = algorithm.decide(state, at, Ask::now(cost));
        tally.add(Which::new(self.shared.name, position), cost, decision);
        if let Some(change) = change.filter(|_| takes) {
            algorithm.apply(state, change);
        }
    }

    fn visit(&self, share: Share, see: &mut dyn FnMut(Id, Share)) {
        see(self.id(), share);
    }

    fn watch(&self, waker: &Waker) {
        self.shared.watchers.add(waker);
    }

    fn unwatch(&self, waker: &Waker) {
        self.shared.watchers.remove(waker);
    }

    fn clock(&self) -> Option<Box<dyn AnyClock>> {
        Some(Box::new(self.shared.clock.clone()))
    }

    fn timer(&self) -> Option<Arc<dyn Timer>> {
        Some(Arc::clone(&self.shared.timer))
    }

    fn is_closed(&self) -> bool {
        self.shared.is_closed()
    }
}

#[inline]
fn taking<P>(plan: Option<&LimiterPlan<P>>) -> Option<&Taking<P>> {
    plan.and_then(|plan| plan.taking.as_ref())
}

impl Part for ConcurrencyLimit {
    /// How many slots.
    type Plan = u64;
    type Receipt = u64;
    /// When slots come back nobody knows.
    type Quick = u64;
    type Sketch = ();

    fn len(&self) -> usize {
        1
    }

    fn reading(&self) -> Option<Reading<'_>> {
        None
    }

    fn prepare(&self, call: &Call<'_>, position: usize, tally: &mut Tally<'_>) -> u64 {
        let Some(share) = call.share_of(|| (self.address(), 0), position) else {
            return 0;
        };
        let slots = share.of(call.n);
        tally.add(Which::new(self.name(), position), slots, self.peek(slots));
        slots
    }

    fn hold(&self, slots: &u64) -> bool {
        *slots == 0 || ConcurrencyLimit::hold(self, *slots)
    }

    fn let_go(&self, slots: &u64) {
        if *slots > 0 {
            ConcurrencyLimit::let_go(self);
        }
    }

    fn commit(&self, slots: u64) -> u64 {
        if slots > 0 {
            ConcurrencyLimit::commit(self, slots);
        }
        slots
    }

    #[inline]
    fn quick(&self, call: &Call<'_>, position: usize, tally: &mut Tally<'_>) -> Option<u64> {
        Some(self.prepare(call, position, tally))
    }

    #[inline]
    fn quick_hold(&self, slots: &u64) -> bool {
        Part::hold(self, slots)
    }

    #[inline]
    fn quick_let_go(&self, slots: &u64) {
        Part::let_go(self, slots);
    }

    #[inline]
    fn quick_commit(&self, slots: &u64) {
        // Of a check there is no permit by which they could come back.
        Part::let_go(self, slots);
    }

    fn promised(&self) {}

    #[inline]
    fn is_watched(&self) -> bool {
        false
    }

    #[inline]
    fn admitted(&self, _slots: &u64) {}

    #[inline]
    fn refused(&self, _slots: &u64, _patience: Duration) {}

    /// However a permit ends, its slots are free again.
    fn settle(&self, slots: u64, _how: &mut Settling<'_>) {
        if slots > 0 {
            self.give_back(slots);
        }
    }

    fn sketch(&self) {}

    fn foresee(&self, (): &mut (), _call: &Call<'_>, _position: usize, _takes: bool, _tally: &mut Tally<'_>) {
    }

    fn visit(&self, share: Share, see: &mut dyn FnMut(Id, Share)) {
        see((self.address(), 0), share);
    }

    fn watch(&self, waker: &Waker) {
        ConcurrencyLimit::watch(self, waker);
    }

    fn unwatch(&self, waker: &Waker) {
        ConcurrencyLimit::unwatch(self, waker);
    }

    fn clock(&self) -> Option<Box<dyn AnyClock>> {
        None
    }

    fn timer(&self) -> Option<Arc<dyn Timer>> {
        None
    }

    fn is_closed(&self) -> bool {
        ConcurrencyLimit::is_closed(self)
    }
}
