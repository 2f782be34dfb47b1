//! How a question gets to its key: quickly if the key is known and nobody must be told, else step by step.

use std::hash::Hash;

use tollgate_core::{Ask, Decision, Quota, Tick};

use super::KeyedLimiter;
use super::reservation::Slot;
use super::shard::{Answer, Common, Query, Shard};
use super::store::{OwnLimiter, Store};
use crate::cell::Held;
use crate::clock::Clock;
use crate::reservation::Refused;
use crate::sync::lock;

impl<K: Hash + ?Sized, A: Held, C: Clock> KeyedLimiter<K, A, C> {
    #[inline]
    pub(super) fn decide(
        &self,
        key: &K,
        print: u64,
        now: impl Fn() -> Tick,
        ask: Ask,
        is_patient: bool,
    ) -> Decision {
        match self.ask(print, &now, step(ask, is_patient)) {
            Some(decision) => decision,
            None => self.take(key, self.tick(now()), ask, is_patient).0,
        }
    }

    /// The algorithm of keys that have this quota of their own.
    pub(crate) fn algorithm_of(&self, quota: Quota) -> A {
        let plans = &self.store.common.plans;
        plans.algorithm(plans.number(quota)).into_owned()
    }

    /// [`check_n_at`](Self::check_n_at) of a key whose [algorithm](Self::algorithm_of) the caller knows, so that nobody need
    /// look it up.
    #[inline]
    pub(crate) fn check_by_at(&self, algorithm: &A, key: &K, n: u64, now: Tick) -> Decision {
        let (print, ask) = (self.store.seed.print(key), Ask::now(n));
        let mut decision = None;
        let step = |state: &mut A::State, now| {
            let said = algorithm.step(state, now, ask.with_patience(algorithm.patience()));
            decision.insert(said).is_admitted()
        };
        self.store.shard(print).ask_by(&self.store.common, print, || self.tick(now), step);
        match decision {
            Some(decision) => decision,
            None => self.take(key, self.tick(now), ask, true).0,
        }
    }

    /// Asks a key that is known, unless somebody must be told of it. The clock is read while the key's line is under way.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a caller that only wants a yes should not pay for the rest")]
    pub(super) fn ask<T>(
        &self,
        print: u64,
        now: impl Fn() -> Tick,
        decide: impl FnOnce(&A, &mut A::State, Tick) -> (bool, T),
    ) -> Option<T> {
        let mut shard = self.store.shard(print);
        let answer = shard.ask(&self.store.common, print, move || self.tick(now()), decide)?;
        drop(shard);
        Some(answer)
    }

    #[cold]
    pub(super) fn take(&self, key: &K, now: Tick, ask: Ask, is_patient: bool) -> (Decision, Slot<A, C>) {
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
                (decision, if decision.is_admitted() { Slot::Shared(ask.cost()) } else { Slot::Nothing })
            }
            Err(limiter) => {
                let (decision, slot) = take_elsewhere(&limiter, now, ask, is_patient);
                self.store.shard(self.store.seed.print(key)).count_elsewhere(decision.is_admitted());
                (decision, slot)
            }
        }
    }

    /// Decides, and takes nothing.
    pub(super) fn foresee(&self, key: &K, ask: Ask, is_patient: bool, now: Tick) -> Decision {
        let now = self.tick(now);
        let peek = |shard: &mut Shard<A>, common: &Common<A>, query| {
            shard.peek(common, Query { is_patient, ..query })
        };
        match self.on_shard(key, now, ask, peek) {
            Ok(Answer::Decided(decision, _) | Answer::Refused(decision)) => decision,
            Ok(_) => lock(&self.store.rest).peek(now, ask, is_patient),
            Err(limiter) if is_patient => limiter.peek_n_at(ask.cost(), now),
            Err(limiter) => limiter.peek_within_at(ask.cost(), ask.patience(), now),
        }
    }

    /// Does something to a key in the table, finding out its plan if that is needed; or answers with the limiter that the
    /// key has of its own.
    pub(super) fn on_shard(
        &self,
        key: &K,
        now: Tick,
        ask: Ask,
        act: impl Fn(&mut Shard<A>, &Common<A>, Query) -> Answer,
    ) -> Result<Answer, OwnLimiter<A, C>> {
        let Store { seed, common, .. } = &*self.store;
        let mut query =
            Query { print: seed.print(key), plan: common.plan_of_new(), now, ask, is_patient: false };
        // Whoever asks about a time to come must not drop those who count until then.
        let present = now.min(self.store.clock.now());
        let mut has_swept = false;
        loop {
            let answer = self.store.on_shard(query.print, |shard| {
                let limiter = self.store.own_limiter(shard, query.print, present);
                limiter.map_or_else(|| Ok(act(shard, common, query)), Err)
            })?;
            if matches!(answer, Answer::Refused(_)) && !has_swept && common.room.is_full_of_lines() {
                has_swept = true;
                self.store.sweep_lines(present); // nobody may wait for some of them any more
                continue;
            }
            if !matches!(answer, Answer::NeedsPlan) {
                return Ok(answer);
            }
            query.plan = Some(self.store.plan(key)); // the caller's function is not called under a lock
        }
    }
}

/// Takes from the limiter that a key has of its own.
fn take_elsewhere<A: Held, C: Clock>(
    limiter: &OwnLimiter<A, C>,
    now: Tick,
    ask: Ask,
    is_patient: bool,
) -> (Decision, Slot<A, C>) {
    if is_patient {
        // Not a reservation with the same patience: that would go ahead of those who wait.
        return (limiter.check_n_at(ask.cost(), now), Slot::Nothing);
    }
    match limiter.reserve_ask(now, ask) {
        Ok(turn) => (turn.decision(), Slot::InLine(Box::new(turn))),
        Err(Refused(decision)) => (decision, Slot::Nothing),
    }
}

/// Decides as the algorithm does, and says whether that admits.
#[inline]
fn step<A: Held>(ask: Ask, is_patient: bool) -> impl FnOnce(&A, &mut A::State, Tick) -> (bool, Decision) {
    move |algorithm, state, now| {
        let ask = if is_patient { ask.with_patience(algorithm.patience()) } else { ask };
        let decision = algorithm.step(state, now, ask);
        (decision.is_admitted(), decision)
    }
}
