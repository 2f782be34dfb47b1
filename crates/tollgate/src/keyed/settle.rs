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

    /// Gives back part of what was taken, at an explicit time or now. That is read when the shard is at hand, so that nothing in
    /// it was taken later: by an older time, what time has restored would come back again.
    pub(super) fn give_back(&self, print: u64, receipt: Receipt, amount: u64, at: Option<Tick>) {
        let common = &self.store.common;
        let mut shard = self.store.free_shard(print);
        let now = self.tick(at.unwrap_or_else(|| self.now()));
        let Some(limiter) = self.store.own_limiter(&mut shard, print, now) else {
            shard.give_back(common, print, receipt, amount, now);
            drop(shard);
            return self.store.watchers.tell();
        };
        let claim = shard.worth(common, print, receipt, receipt.plan);
        drop(shard);
        if let Some(claim) = claim {
            limiter.shared.give_back(claim, amount, Epoch::ORIGIN, at.map(|_| now));
        }
    }

    /// Charges the state that keys share.
    pub(super) fn charge_shared(&self, extra: u64, now: Tick) {
        lock(&self.store.rest).charge(extra, self.tick(now));
    }

    /// Gives back `n` of which there is no [reservation](crate::KeyedReservation), for what did not happen after all. What is
    /// admitted in any span stays within the bound plus what was given back so, and a key never becomes better than a fresh one; a
    /// reservation is settled without that "plus". Nothing comes back to a key that somebody waits for.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{KeyedLimiter, ManualClock, Quota};
    ///
    /// let limiter = KeyedLimiter::<str>::builder(Quota::per_minute(10)).clock(ManualClock::new()).build();
    /// assert!(limiter.allow_n("alice", 10));
    /// limiter.refund("alice", 4); // it was answered from a cache
    /// assert_eq!(limiter.remaining("alice"), 4);
    /// ```
    pub fn refund(&self, key: &K, n: u64) {
        self.refund_with(key, n, None);
    }

    /// [`refund`](Self::refund) at an explicit time, no older than any by which others were admitted.
    pub fn refund_at(&self, key: &K, n: u64, now: Tick) {
        self.refund_with(key, n, Some(now));
    }

    fn refund_with(&self, key: &K, n: u64, at: Option<Tick>) {
        let print = self.store.seed.print(key);
        let mut shard = self.store.free_shard(print);
        let now = self.tick(at.unwrap_or_else(|| self.now()));
        let comes_back = self.store.own_limiter(&mut shard, print, now).is_none()
            && shard.refund(&self.store.common, print, n, now);
        drop(shard);
        if comes_back {
            self.store.watchers.tell();
        }
    }
}
