//! Keys that somebody waits for.
//!
//! Waiting in line takes a queue, an alarm and a good deal more than the sixteen bytes of a slot. So a key gets a limiter of
//! its own when somebody starts to wait for it, and its state moves there; whoever asks about the key meanwhile is sent
//! there too. When nobody needs that limiter any more, the state moves back into the table, by the way of the next calls about
//! keys of the same shard: each looks at one line besides its own. A key in line counts for the cap as if it were in the table, and its
//! limiter's bytes count too.
//!
//! Locks are taken in this order: shard, lines, the limiter's own.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::task::Waker;

use tollgate_core::{Quota, Tick};

use super::shard::{Common, Shard};
use crate::cell::{Cell, Held};
use crate::clock::Clock;
use crate::limiter::Limiter;
use crate::name::Name;
use crate::queue::Shared;
use crate::sync::{Mutex, lock};
use crate::timer::Timer;
use crate::watch::Watchers;

/// The keys with a limiter of their own, by fingerprint.
#[derive(Debug)]
pub(crate) struct Lines<A: Held, C: Clock> {
    /// In order, so that those of a shard lie together.
    by_print: Mutex<BTreeMap<u64, Line<A, C>>>,
    /// The bits of a fingerprint that do not choose the shard.
    low_bits: u64,
    timer: Arc<dyn Timer>,
    longest_queue: usize,
    /// That of the limiter of them all.
    name: Option<Name>,
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
    /// What a line takes in memory.
    pub(crate) const BYTES: usize = Shared::<A, C>::BYTES + size_of::<(u64, Line<A, C>)>();

    pub(crate) fn new(
        timer: Arc<dyn Timer>,
        longest_queue: usize,
        name: Option<Name>,
        low_bits: u64,
    ) -> Self {
        let (by_print, pinned) = (Mutex::default(), AtomicBool::new(false));
        Self { by_print, low_bits, timer, longest_queue, name, pinned }
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
        // A gate may have the state in hand, and want this lock before it lets go.
        let (limiter, plan) = {
            let lines = lock(&self.by_print);
            let line = lines.get(&print)?;
            (line.limiter.clone(), line.plan)
        };
        let (algorithm, state) = limiter.shared.cell.snapshot();
        Some((plan, algorithm, limiter.quota(), state))
    }

    /// The plan of a key with a limiter of its own.
    pub(crate) fn plan(&self, print: u64) -> Option<u32> {
        lock(&self.by_print).get(&print).map(|line| line.plan)
    }

    /// Whether a key has a limiter of its own, needed or not.
    pub(crate) fn has(&self, print: u64) -> bool {
        lock(&self.by_print).contains_key(&print)
    }

    pub(crate) fn len(&self) -> usize {
        lock(&self.by_print).len()
    }

    /// The limiter of a key of this shard, if it needs one. If it does not any more, its state goes back into the table; and so does
    /// that of another key of the shard by the way.
    pub(crate) fn find(
        &self,
        shard: &mut Shard<A>,
        common: &Common<A>,
        print: u64,
        now: Tick,
    ) -> Option<Limiter<A, C>> {
        let mut lines = lock(&self.by_print);
        if !self.pinned.load(Ordering::SeqCst) {
            close_unneeded(&mut lines, shard, common, print, now);
            if let Some(other) = self.next_of_shard(&lines, print, shard.last_line()) {
                shard.set_last_line(other);
                close_unneeded(&mut lines, shard, common, other, now);
            }
        }
        lines.get(&print).map(|line| line.limiter.clone())
    }

    /// The key in line that comes after `last` among those of a key's shard; after the last one, the first.
    fn next_of_shard(&self, lines: &BTreeMap<u64, Line<A, C>>, print: u64, last: u64) -> Option<u64> {
        let (first, end) = (print & !self.low_bits, print | self.low_bits);
        let next = lines.range((Bound::Excluded(last.clamp(first, end)), Bound::Included(end))).next();
        next.or_else(|| lines.range(first..=end).next()).map(|(other, _)| *other)
    }

    /// Gives a key of this shard a limiter of its own, which tells whom the store tells. It must not have one.
    pub(crate) fn open(
        &self,
        shard: &mut Shard<A>,
        common: &Common<A>,
        print: u64,
        start: Start<A>,
        clock: &C,
        watchers: &Arc<Watchers>,
    ) -> Limiter<A, C> {
        let Start { quota, algorithm, state, plan } = start;
        let timer = Arc::clone(&self.timer);
        let mut shared = Shared::new(algorithm, quota, clock.clone(), timer, self.longest_queue, self.name);
        shared.watchers = Arc::clone(watchers);
        shared.cell.put(state);
        shared.take_ahead(shard.ahead());
        let limiter = Limiter { shared: Arc::new(shared) };
        lock(&self.by_print).insert(print, Line { limiter: limiter.clone(), plan });
        shard.line_opened(common, Self::BYTES);
        limiter
    }

    /// The fingerprints of all keys with a limiter of their own.
    pub(crate) fn prints(&self) -> Vec<u64> {
        lock(&self.by_print).keys().copied().collect()
    }

    /// Goes on with another quota, for keys without a plan of their own. Whom to wake: whoever is may ask again, so under no lock.
    #[must_use = "whoever must hear of it has to be woken"]
    pub(crate) fn set_quota(&self, quota: Quota, now: Tick) -> Vec<Waker> {
        let limiters: Vec<_> = {
            let lines = lock(&self.by_print);
            lines.values().filter(|line| line.plan == 0).map(|line| line.limiter.clone()).collect()
        };
        limiters.iter().flat_map(|limiter| limiter.shared.retune(quota, now)).collect()
    }

    /// Moves a key in line to another plan. The limiter, whose quota must change next; for as long as somebody has it, the key stays
    /// in line.
    pub(crate) fn set_plan(&self, print: u64, plan: u32) -> Option<Limiter<A, C>> {
        let mut lines = lock(&self.by_print);
        let line = lines.get_mut(&print)?;
        line.plan = plan;
        Some(line.limiter.clone())
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
        let is_needed = Arc::strong_count(&self.limiter.shared) > 1;
        fence(Ordering::Acquire); // what was done through a handle comes before it is gone
        is_needed
    }

    /// Whether there was a place for it in the table.
    fn move_back(&self, shard: &mut Shard<A>, common: &Common<A>, print: u64, now: Tick) -> bool {
        let shared = &self.limiter.shared;
        let (algorithm, state) = shared.cell.snapshot();
        let (quota, table) = (shard.quota(common, self.plan), shard.algorithm(common, self.plan));
        let state = algorithm.moved(&state, now, quota, &table);
        let is_back = shard.take_in(common, print, state, self.plan, now);
        if is_back {
            shard.fell(common, print, shared.fallen());
            shard.take_ahead(shared.ahead());
            shard.line_closed(common, Lines::<A, C>::BYTES);
        }
        is_back
    }
}

/// Lets a key's state go back into the table if nobody needs its limiter any more. Where there is no place for it, it stays.
fn close_unneeded<A: Held, C: Clock>(
    lines: &mut BTreeMap<u64, Line<A, C>>,
    shard: &mut Shard<A>,
    common: &Common<A>,
    print: u64,
    now: Tick,
) {
    let line = lines.get(&print).filter(|line| !line.is_needed());
    if line.is_some_and(|line| line.move_back(shard, common, print, now)) {
        lines.remove(&print);
    }
}
