//! States of more than a word, behind a lock.

use tollgate_core::{Algorithm, Ask, Claim, Decision, GiveBack, Quota, Tick};

use super::{Cell, Held, Retuned, Taken};
use crate::sync::{Mutex, lock};

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
}

impl<A: Algorithm> Inner<A> {
    fn take(&mut self, now: Tick, ask: Ask) -> Taken {
        let step = self.algorithm.decide(&self.state, now, ask);
        let act = now + step.decision.delay();
        let claim = step.change.map(|change| {
            let claim = self.algorithm.claim(&change, ask.cost(), act);
            self.algorithm.apply(&mut self.state, change);
            claim
        });
        Taken { decision: step.decision, claim }
    }

    fn write(&mut self, change: Option<A::Change>) {
        if let Some(change) = change {
            self.algorithm.apply(&mut self.state, change);
        }
    }
}

impl<A: Held> Cell<A> for LockedCell<A> {
    fn new(algorithm: A) -> Self {
        Self { inner: Mutex::new(Inner { algorithm, state: A::State::default(), shut: false }) }
    }

    fn quick_allow(&self, now: Tick) -> Option<bool> {
        self.quick_take(now, Ask::now(1)).map(|taken| taken.decision.is_allowed())
    }

    fn quick_check_one(&self, now: Tick) -> Option<Decision> {
        self.quick_check(now, 1)
    }

    fn quick_check(&self, now: Tick, cost: u64) -> Option<Decision> {
        let mut inner = lock(&self.inner);
        let ask = Ask::within(cost, inner.algorithm.patience());
        (!inner.shut).then(|| inner.take(now, ask).decision)
    }

    fn quick_peek(&self, now: Tick, ask: Ask) -> Option<Decision> {
        let inner = lock(&self.inner);
        (!inner.shut).then(|| inner.algorithm.decide(&inner.state, now, ask).decision)
    }

    fn quick_take(&self, now: Tick, ask: Ask) -> Option<Taken> {
        let mut inner = lock(&self.inner);
        (!inner.shut).then(|| inner.take(now, ask))
    }

    fn take(&self, now: Tick, ask: Ask) -> Taken {
        lock(&self.inner).take(now, ask)
    }

    fn shut(&self) {
        lock(&self.inner).shut = true;
    }

    fn open(&self) {
        lock(&self.inner).shut = false;
    }

    fn algorithm(&self) -> A {
        lock(&self.inner).algorithm.clone()
    }

    fn put(&self, state: A::State) {
        lock(&self.inner).state = state;
    }

    fn snapshot(&self) -> (A, A::State) {
        let inner = lock(&self.inner);
        (inner.algorithm.clone(), inner.state.clone())
    }

    fn give_back(&self, back: GiveBack, now: Tick) -> Option<u64> {
        let mut inner = lock(&self.inner);
        let change = inner.algorithm.give_back(&inner.state, back, now)?;
        let fall = inner.algorithm.fall(&inner.state, &change);
        inner.write(Some(change));
        Some(fall)
    }

    /// Not needed: these states give back in any order, and what comes back can be taken again.
    fn holds_all(&self, _claim: Claim, _now: Tick) -> bool {
        false
    }

    fn charge(&self, extra: u64, now: Tick) {
        let mut inner = lock(&self.inner);
        let change = inner.algorithm.charge(&inner.state, extra, now);
        inner.write(change);
    }

    fn retune(&self, now: Tick, quota: Quota) -> Retuned<A> {
        let mut inner = lock(&self.inner);
        let new = inner.algorithm.retune(&inner.state, now, quota);
        let old = (inner.algorithm.clone(), std::mem::take(&mut inner.state));
        (inner.algorithm, inner.state) = new.clone();
        inner.shut = true;
        Retuned { now, old, new }
    }
}
