//! Everything that concerns the store rather than a question: forgetting, quotas, sweeping, counting.

use std::hash::Hash;
use std::task::Waker;

use tollgate_core::{Quota, Tick};

use super::KeyedLimiter;
use crate::cell::Held;
use crate::clock::Clock;
use crate::queue::wake_all;
use crate::sync::{give_way, lock};

/// What a store has counted since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Questions that were answered with yes, now or later.
    pub admitted: u64,
    /// Questions that were answered with no. What a [`Gate`](crate::Gate) refuses counts if the key would not have admitted it by
    /// itself.
    pub denied: u64,
    /// Idle keys that were dropped, which changed no decision.
    pub swept: u64,
    /// Keys that were forgotten although they still counted, because the store was full: each of them may have been
    /// admitted more than its quota allows.
    pub evicted: u64,
    /// New keys that were refused because the store was full.
    pub refused: u64,
    /// Questions about new keys that were decided on the state they share because the store was full.
    pub overflowed: u64,
}

impl<K: Hash + ?Sized, A: Held, C: Clock> KeyedLimiter<K, A, C> {
    /// Forgets a key: it starts afresh, and what was taken of it can no longer be given back. Whether it was known.
    pub fn reset(&self, key: &K) -> bool {
        let (print, now) = (self.store.seed.print(key), self.store.clock.now());
        let mut shard = self.store.free_shard(print);
        let limiter = self.store.own_limiter(&mut shard, print, now);
        let was_known = shard.reset(&self.store.common, print);
        let plan = self.store.lines.plan(print).unwrap_or(0);
        let unseen = shard.unseen(&self.store.common, plan);
        drop(shard);
        if let Some(limiter) = &limiter {
            limiter.shared.reset_to(&unseen, now);
        }
        self.store.watchers.tell();
        was_known || limiter.is_some()
    }

    /// Changes the quota of all keys that have none of [their own](crate::KeyedBuilder::quota_of). What was used stays used:
    /// nobody gets a free burst and no debt is forgiven.
    pub fn set_quota(&self, quota: Quota) {
        self.set_quota_at(quota, self.now());
    }

    /// [`set_quota`](Self::set_quota) at an explicit time.
    pub fn set_quota_at(&self, quota: Quota, now: Tick) {
        let wakers = self.retune(quota, self.tick(now));
        wake_all(wakers);
    }

    /// Changes the quota. Whom to wake: whoever is may ask again, so after the locks are free.
    fn retune(&self, quota: Quota, now: Tick) -> Vec<Waker> {
        let _not_while_saving = lock(&self.store.saving);
        let mut rest = lock(&self.store.rest);
        rest.set_quota(quota, now, &self.store.common.plans);
        for shard in &self.store.shards {
            for times in 0.. {
                let mut shard = shard.0.lock();
                if !shard.holds_any() {
                    shard.set_quota(&self.store.common, quota, now);
                    break;
                }
                drop(shard);
                give_way(times);
            }
        }
        for shard in &self.store.shards {
            while shard.0.lock().catch_up_if_late() {} // locked anew for each
        }
        let mut wakers = self.store.lines.set_quota(quota, now);
        wakers.extend(self.store.watchers.take());
        wakers
    }

    /// The quota of keys that have none of their own.
    pub fn quota(&self) -> Quota {
        lock(&self.store.rest).quota
    }

    /// Asks [`quota_of`](crate::KeyedBuilder::quota_of) again for a key that has a new quota by now. What was used stays used.
    pub fn refresh(&self, key: &K) {
        self.refresh_at(key, self.now());
    }

    /// [`refresh`](Self::refresh) at an explicit time.
    pub fn refresh_at(&self, key: &K, now: Tick) {
        let (print, plan, now) = (self.store.seed.print(key), self.store.plan(key), self.tick(now));
        if plan > 0 {
            let quota = self.store.common.plans.get(plan).quota;
            let mut shard = self.store.free_shard(print);
            shard.set_plan(&self.store.common, print, plan, now);
            let limiter = self.store.lines.set_plan(print, plan);
            if limiter.is_some() {
                shard.forget_claims(&self.store.common, print); // of before: their marks are of another plan
            }
            drop(shard); // a gate may have the state in hand, and want the shard before it lets go
            wake_all(limiter.map_or_else(Vec::new, |limiter| limiter.shared.retune(quota, now)));
            self.store.watchers.tell();
        }
    }

    /// Drops what is idle, all at once but holding no shard for long. Not needed: calls do it by the way.
    pub fn sweep(&self) {
        self.sweep_at(self.now());
    }

    /// [`sweep`](Self::sweep) at an explicit time.
    pub fn sweep_at(&self, now: Tick) {
        let now = self.tick(now);
        self.store.sweep_lines(now);
        for shard in &self.store.shards {
            self.store.sweep(shard, now);
        }
    }

    /// How many keys are remembered.
    pub fn len(&self) -> usize {
        self.store.common.room.keys() as usize
    }

    /// Whether no key is remembered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How much memory the table takes, and what each key needs that somebody waits for. What a sliding log or sub-windows keep for
    /// each key comes on top, and so do the second and further ones who wait for the same key.
    pub fn bytes(&self) -> usize {
        self.store.common.room.bytes() as usize
    }

    /// What was counted so far.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        for shard in &self.store.shards {
            let counts = shard.0.lock().counts();
            stats.admitted += counts.calls - counts.denied;
            stats.denied += counts.denied;
            stats.swept += counts.swept;
            stats.evicted += counts.evicted;
            stats.refused += counts.refused;
            stats.overflowed += counts.overflowed;
        }
        stats
    }
}
