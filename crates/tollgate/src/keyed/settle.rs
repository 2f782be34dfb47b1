//! Charging for what happened anyway, and giving back.

use std::hash::Hash;

use tollgate_core::{Ask, Tick};

use super::KeyedLimiter;
use super::shard::{Answer, Query, Receipt, Shard};
use super::store::OwnLimiter;
use crate::cell::Held;
use crate::clock::Clock;
use crate::queue::Epoch;
use crate::sync::lock;

impl<K: Hash + ?Sized, A: Held, C: Clock> KeyedLimiter<K, A, C> {
    /// Counts `n` that happened anyway, whether they fit or not; those who come later wait until they are paid off. Whether it
    /// is remembered: not if the key is new to a full store that [refuses](crate::AtCap::Refuse) it.
    pub fn charge(&self, key: &K, n: u64) -> bool {
        self.charge_at(key, n, self.now())
    }

    /// [`charge`](Self::charge) at an explicit time.
    pub fn charge_at(&self, key: &K, n: u64, now: Tick) -> bool {
        let now = self.tick(now);
        self.charge_elsewhere(self.on_shard(key, now, Ask::now(n), Shard::charge), n, now)
    }

    /// Charges a key of which only the fingerprint is at hand.
    pub(super) fn charge_known(&self, print: u64, plan: u32, extra: u64, now: Tick) {
        let now = self.tick(now);
        let query = Query { print, plan: Some(plan), now, ask: Ask::now(extra), is_patient: false };
        let answer = self.store.on_shard(print, |shard| match self.store.own_limiter(shard, print, now) {
            Some(limiter) => Err(limiter),
            None => Ok(shard.charge(&self.store.common, query)),
        });
        self.charge_elsewhere(answer, extra, now);
    }

    /// Charges where the key's state is, if that is not the table. Whether it is remembered.
    fn charge_elsewhere(&self, answer: Result<Answer, OwnLimiter<A, C>>, extra: u64, now: Tick) -> bool {
        match answer {
            Ok(Answer::Refused(_)) => return false,
            Ok(Answer::Overflows) => lock(&self.store.rest).charge(extra, now),
            Ok(_) => {}
            Err(limiter) => limiter.charge_at(extra, now),
        }
        true
    }

    pub(super) fn give_back(&self, print: u64, receipt: Receipt, amount: u64, now: Tick) {
        let (common, now) = (&self.store.common, self.tick(now));
        let mut shard = self.store.free_shard(print);
        let Some(limiter) = self.store.own_limiter(&mut shard, print, now) else {
            shard.give_back(common, print, receipt, amount, now);
            drop(shard);
            return self.store.watchers.tell();
        };
        let claim = shard.worth(common, print, receipt, receipt.plan);
        drop(shard);
        if let Some(claim) = claim {
            limiter.shared.give_back(claim, amount, Epoch::ORIGIN, now);
        }
    }

    /// Says what it really was that cost so much of the state that keys share.
    pub(super) fn settle_shared(&self, cost: u64, actual: u64, now: Tick) {
        let now = self.tick(now);
        let mut rest = lock(&self.store.rest);
        if actual > cost {
            rest.charge(actual - cost, now);
        } else {
            rest.refund(cost - actual, now);
        }
    }

    /// Gives back `n` of which there is no receipt: see [`Algorithm::refund`](tollgate_core::Algorithm::refund). Nothing comes
    /// back to a key that somebody waits for.
    pub(crate) fn refund_at(&self, key: &K, n: u64, now: Tick) {
        let (print, now) = (self.store.seed.print(key), self.tick(now));
        let mut shard = self.store.free_shard(print);
        let comes_back = self.store.own_limiter(&mut shard, print, now).is_none()
            && shard.refund(&self.store.common, print, n, now);
        drop(shard);
        if comes_back {
            self.store.watchers.tell();
        }
    }
}
