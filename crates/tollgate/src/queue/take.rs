//! Taking when somebody may be waiting: whoever is due goes first, and only then it is known whether anybody waits.

use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{Ask, Decision, Tick};

use super::Shared;
use crate::cell::{Cell, Held, Prepared, Taken};
use crate::clock::Clock;
use crate::sync::lock;

impl<A: Held, C: Clock> Shared<A, C> {
    /// What the quick path could not answer: somebody waits, or the quota is just changing.
    #[cold]
    pub(crate) fn slow_take(self: &Arc<Self>, now: Tick, ask: Ask) -> Taken {
        let mut queue = lock(&self.queue);
        // The alarm may be late: whoever is due goes first, and only then it is known whether anybody waits.
        let served = self.pass(&mut queue, now);
        let may_take = queue.waiting == 0 || ask.patience() > Duration::ZERO;
        let taken = if may_take {
            // A promise is made from what is not promised yet, and does not queue.
            self.cell.take(now, ask)
        } else {
            Taken { decision: self.behind_the_line(&mut queue, now, ask), claim: None }
        };
        if queue.waiting > 0 && taken.claim.is_some() {
            self.re_time(queue, now);
        } else {
            drop(queue);
        }
        self.tell(served);
        taken
    }

    /// What a gate would take. A promise is made ahead of those who wait, anything else behind them.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a gate's decisions should stay in registers as a limiter's do")]
    pub(crate) fn prepare(
        self: &Arc<Self>,
        present: Tick,
        then: Tick,
        ask: Ask,
        is_promise: bool,
    ) -> Prepared<<A::Cell as Cell<A>>::Plan> {
        match self.cell.quick_prepare(then, ask) {
            Some(prepared) => prepared,
            None => self.slow_prepare(present, then, ask, is_promise),
        }
    }

    #[cold]
    fn slow_prepare(
        self: &Arc<Self>,
        present: Tick,
        then: Tick,
        ask: Ask,
        is_promise: bool,
    ) -> Prepared<<A::Cell as Cell<A>>::Plan> {
        let mut queue = lock(&self.queue);
        let served = self.pass(&mut queue, present);
        let prepared = if queue.waiting == 0 || is_promise {
            self.cell.prepare(then, ask)
        } else {
            Prepared { decision: self.behind_the_line(&mut queue, then, ask), taking: None }
        };
        drop(queue);
        self.tell(served);
        prepared
    }

    /// After a gate made a promise ahead of those who wait: they are re-timed.
    pub(crate) fn promised(self: &Arc<Self>, now: Tick) {
        let queue = lock(&self.queue);
        if queue.waiting > 0 {
            self.re_time(queue, now);
        }
    }

    #[inline(never)]
    pub(crate) fn allow_the_long_way(self: &Arc<Self>, now: Tick) -> bool {
        let ask = Ask::now(1);
        if let Some(taken) = self.cell.quick_take(now, ask) {
            return taken.decision.is_allowed();
        }
        let mut queue = lock(&self.queue);
        let served = self.pass(&mut queue, now);
        let allowed = queue.waiting == 0 && self.cell.take(now, ask).decision.is_allowed();
        drop(queue);
        self.tell(served);
        allowed
    }

    #[inline(never)]
    pub(crate) fn check_the_long_way(self: &Arc<Self>, now: Tick, cost: u64) -> Decision {
        if let Some(decision) = self.cell.quick_check(now, cost) {
            return decision;
        }
        let mut queue = lock(&self.queue);
        let served = self.pass(&mut queue, now);
        let decision = if queue.waiting == 0 {
            let patience = self.cell.algorithm().patience();
            self.cell.take(now, Ask::within(cost, patience)).decision
        } else {
            self.behind_the_line(&mut queue, now, Ask::now(cost))
        };
        drop(queue);
        self.tell(served);
        decision
    }
}
