//! Keys that somebody waits for.
//!
//! Waiting in line takes a queue, an alarm and a good deal more than the sixteen bytes of a slot. So a key gets a limiter of
//! its own when somebody starts to wait for it, and its state moves there; whoever asks about the key meanwhile is sent
//! there too. When nobody needs that limiter any more, the state moves back into the table.
//!
//! Locks are taken in this order: shard, lines, the limiter's own.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tollgate_core::{Quota, Tick};

use super::shard::{Common, Shard};
use crate::cell::{Cell, Held};
use crate::clock::Clock;
use crate::limiter::Limiter;
use crate::queue::Shared;
use crate::sync::{Mutex, lock};
use crate::timer::Timer;

/// The keys with a limiter of their own, by fingerprint.
#[derive(Debug)]
pub(crate) struct Lines<A: Held, C: Clock> {
    by_print: Mutex<HashMap<u64, Line<A, C>>>,
    timer: Arc<dyn Timer>,
    longest_queue: usize,
    /// Whether everybody must stay.
    pinned: AtomicBool,
}

#[derive(Debug)]
struct Line<A: Held, C: Clock> {
    limiter: Limiter<A, C>,
    plan: u32,
}

/// Where a key starts out when it gets a limiter of its own.
pub(crate) struct Start<A: Held> {
    pub(crate) quota: Quota,
    pub(crate) algorithm: A,
    pub(crate) state: A::State,
    pub(crate) plan: u32,
}

impl<A: Held, C: Clock> Lines<A, C> {
    pub(crate) fn new(timer: Arc<dyn Timer>, longest_queue: usize) -> Self {
        Self { by_print: Mutex::default(), timer, longest_queue, pinned: AtomicBool::new(false) }
    }

    /// What wakes those who wait.
    pub(crate) fn timer(&self) -> Arc<dyn Timer> {
        Arc::clone(&self.timer)
    }

    /// While they are pinned, keys come but do not go, so that none is missed by whoever looks at the table first.
    pub(crate) fn pin(&self, pinned: bool) {
        self.pinned.store(pinned, Ordering::SeqCst);
    }

    /// The plan of a key with a limiter of its own, that limiter's algorithm and quota, and the state.
    pub(crate) fn look(&self, print: u64) -> Option<(u32, A, Quota, A::State)> {
        let lines = lock(&self.by_print);
        let Line { limiter, plan } = lines.get(&print)?;
        let (algorithm, state) = limiter.shared.cell.snapshot();
        Some((*plan, algorithm, limiter.quota(), state))
    }

    /// Whether a key has a limiter of its own, needed or not.
    pub(crate) fn has(&self, print: u64) -> bool {
        lock(&self.by_print).contains_key(&print)
    }

    pub(crate) fn len(&self) -> usize {
        lock(&self.by_print).len()
    }

    /// The limiter of a key of this shard, if it needs one. If it does not any more, its state goes back into the table.
    pub(crate) fn find(
        &self,
        shard: &mut Shard<A>,
        common: &Common<A>,
        print: u64,
        now: Tick,
    ) -> Option<Limiter<A, C>> {
        let mut lines = lock(&self.by_print);
        let line = lines.get(&print)?;
        if line.is_needed() || self.pinned.load(Ordering::SeqCst) {
            return Some(line.limiter.clone());
        }
        let line = lines.remove(&print)?;
        line.move_back(shard, common, print, now);
        None
    }

    /// Gives a key of this shard a limiter of its own. It must not have one.
    pub(crate) fn open(&self, shard: &mut Shard<A>, print: u64, start: Start<A>, clock: &C) -> Limiter<A, C> {
        let Start { quota, algorithm, state, plan } = start;
        let timer = Arc::clone(&self.timer);
        let shared = Shared::new(algorithm, quota, clock.clone(), timer, self.longest_queue, None);
        shared.cell.put(state);
        let limiter = Limiter { shared: Arc::new(shared) };
        lock(&self.by_print).insert(print, Line { limiter: limiter.clone(), plan });
        shard.line_opened();
        limiter
    }

    /// The fingerprints of all keys with a limiter of their own.
    pub(crate) fn prints(&self) -> Vec<u64> {
        lock(&self.by_print).keys().copied().collect()
    }

    /// Goes on with another quota, for keys without a plan of their own.
    pub(crate) fn set_quota(&self, quota: Quota, now: Tick) {
        for line in lock(&self.by_print).values().filter(|line| line.plan == 0) {
            line.limiter.set_quota_at(quota, now);
        }
    }

    /// Moves a key to another plan.
    pub(crate) fn set_plan(&self, print: u64, plan: u32, quota: Quota, now: Tick) {
        if let Some(line) = lock(&self.by_print).get_mut(&print) {
            line.plan = plan;
            line.limiter.set_quota_at(quota, now);
        }
    }

    /// Ends all waiting.
    pub(crate) fn close(&self) {
        // Whoever is woken may ask again, so not under the lock.
        let limiters: Vec<_> = lock(&self.by_print).values().map(|line| line.limiter.clone()).collect();
        for limiter in limiters {
            limiter.close();
        }
    }
}

impl<A: Held, C: Clock> Line<A, C> {
    /// Whether anybody waits, or may give something back. Handles are only made under the lock of the lines.
    fn is_needed(&self) -> bool {
        Arc::strong_count(&self.limiter.shared) > 1
    }

    fn move_back(self, shard: &mut Shard<A>, common: &Common<A>, print: u64, now: Tick) {
        let shared = &self.limiter.shared;
        let (algorithm, state) = shared.cell.snapshot();
        let state = algorithm.moved(&state, now, shared.quota(), shard.algorithm(common, self.plan));
        shard.put_back(common, print, state, self.plan);
        shard.fell(common, print, shared.fallen());
        shard.line_closed();
    }
}
