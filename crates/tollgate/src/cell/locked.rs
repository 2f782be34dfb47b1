//! States of more than a word, behind a lock.

use tollgate_core::{Algorithm, Ask, Claim, Decision, GiveBack, Quota, Tick};

use super::{Cell, Fall, Held, Prepared, Retuned, Taken, Taking};
use crate::sync::{Mutex, MutexGuard, give_way, lock};

/// A cell for algorithms whose state is more than a word.
#[derive(Debug)]
pub struct LockedCell<A: Algorithm> {
    inner: Mutex<Inner<A>>,
}

#[derive(Debug)]
struct Inner<A: Algorithm> {
    algorithm: A,
    state: A::State,
    shut: bool,
    /// A gate is about to write; everybody waits for it. No guard stays with it: it holds other cells too, and two keys
    /// or two gates might then wait for each other.
    held: bool,
    /// Counts the changes, so that a gate can tell whether what it prepared still holds.
    version: u64,
}

impl<A: Algorithm> Inner<A> {
    fn take(&mut self, now: Tick, ask: Ask) -> Taken {
        let step = self.algorithm.decide(&self.state, now, ask);
        let act = now + step.decision.delay();
        let claim = step.change.map(|change| {
            let claim = self.algorithm.claim(&change, ask.cost(), act);
            self.write(Some(change));
            claim
        });
        Taken { decision: step.decision, claim }
    }

    fn prepare(&self, now: Tick, ask: Ask) -> Prepared<LockedPlan<A::Change>> {
        let step = self.algorithm.decide(&self.state, now, ask);
        let act = now + step.decision.delay();
        let taking = step.change.map(|change| {
            let claim = self.algorithm.claim(&change, ask.cost(), act);
            Taking { plan: LockedPlan { version: self.version, change }, rise: 0, claim }
        });
        Prepared { decision: step.decision, taking }
    }

    fn write(&mut self, change: Option<A::Change>) {
        if let Some(change) = change {
            self.algorithm.apply(&mut self.state, change);
            self.version += 1;
        }
    }
}

/// The state that was found, and what to write to it.
#[derive(Clone, Debug)]
pub struct LockedPlan<C> {
    version: u64,
    change: C,
}

impl<A: Algorithm> LockedCell<A> {
    /// Locks the state, once nobody holds it.
    fn enter(&self) -> MutexGuard<'_, Inner<A>> {
        let mut times = 0;
        loop {
            let inner = lock(&self.inner);
            if !inner.held {
                return inner;
            }
            drop(inner);
            give_way(times);
            times += 1;
        }
    }
}

impl<A: Held> Cell<A> for LockedCell<A> {
    type Plan = LockedPlan<A::Change>;

    fn new(algorithm: A) -> Self {
        let state = A::State::default();
        Self { inner: Mutex::new(Inner { algorithm, state, shut: false, held: false, version: 0 }) }
    }

    fn quick_prepare(&self, now: Tick, ask: Ask) -> Option<Prepared<Self::Plan>> {
        let inner = self.enter();
        (!inner.shut).then(|| inner.prepare(now, ask))
    }

    fn prepare(&self, now: Tick, ask: Ask) -> Prepared<Self::Plan> {
        self.enter().prepare(now, ask)
    }

    fn hold(&self, plan: &Self::Plan) -> bool {
        let mut inner = lock(&self.inner);
        let holds = !inner.held && inner.version == plan.version;
        inner.held |= holds;
        holds
    }

    fn commit(&self, plan: Self::Plan) {
        let mut inner = lock(&self.inner);
        inner.write(Some(plan.change));
        inner.held = false;
    }

    fn let_go(&self, _plan: &Self::Plan) {
        lock(&self.inner).held = false;
    }

    fn quick_allow(&self, now: Tick) -> Option<bool> {
        self.quick_take(now, Ask::now(1)).map(|taken| taken.decision.is_allowed())
    }

    fn quick_check_one(&self, now: Tick) -> Option<Decision> {
        self.quick_check(now, 1)
    }

    fn quick_check(&self, now: Tick, cost: u64) -> Option<Decision> {
        let mut inner = self.enter();
        let ask = Ask::within(cost, inner.algorithm.patience());
        (!inner.shut).then(|| inner.take(now, ask).decision)
    }

    fn quick_peek(&self, now: Tick, ask: Ask) -> Option<Decision> {
        let inner = self.enter();
        (!inner.shut).then(|| inner.algorithm.decide(&inner.state, now, ask).decision)
    }

    fn quick_take(&self, now: Tick, ask: Ask) -> Option<Taken> {
        let mut inner = self.enter();
        (!inner.shut).then(|| inner.take(now, ask))
    }

    fn take(&self, now: Tick, ask: Ask) -> Taken {
        self.enter().take(now, ask)
    }

    fn shut(&self) {
        self.enter().shut = true;
    }

    fn open(&self) {
        self.enter().shut = false;
    }

    fn algorithm(&self) -> A {
        self.enter().algorithm.clone()
    }

    fn put(&self, state: A::State) {
        let mut inner = self.enter();
        inner.state = state;
        inner.version += 1;
    }

    fn snapshot(&self) -> (A, A::State) {
        let inner = self.enter();
        (inner.algorithm.clone(), inner.state.clone())
    }

    fn give_back(&self, back: GiveBack, now: impl Fn() -> Tick) -> Option<Fall> {
        let mut inner = self.enter();
        let change = inner.algorithm.give_back(&inner.state, back, now())?;
        let fall = inner.algorithm.fall(&inner.state, &change);
        let was_last = inner.algorithm.is_last(&inner.state, &back.claim);
        inner.write(Some(change));
        Some(Fall { by: fall, was_last })
    }

    /// Not needed: these states keep each claim at its moment, and lose nothing by giving it back.
    fn undo(&self, _claim: Claim, _rise: u64) -> bool {
        false
    }

    /// Not needed: these states give back in any order, and what comes back can be taken again.
    fn holds_all(&self, _claim: Claim, _now: Tick) -> bool {
        false
    }

    fn charge(&self, extra: u64, now: Tick) {
        let mut inner = self.enter();
        let change = inner.algorithm.charge(&inner.state, extra, now);
        inner.write(change);
    }

    fn retune(&self, now: Tick, quota: Quota) -> Retuned<A> {
        let mut inner = self.enter();
        let (new, next) = inner.algorithm.retune(&inner.state, now, quota);
        let before = std::mem::replace(&mut inner.state, next);
        let old = std::mem::replace(&mut inner.algorithm, new);
        inner.version += 1;
        inner.shut = true;
        let kept = old.carries_by_state().then(|| (before, inner.state.clone()));
        let (before, after) = kept.unwrap_or_default();
        Retuned { now, old: (old, before), new: (inner.algorithm.clone(), after) }
    }
}
