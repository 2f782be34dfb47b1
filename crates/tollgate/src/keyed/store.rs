//! What all handles on a keyed limiter share.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tollgate_core::{Ask, Decision, Quota, Tick};

use super::hash::Seed;
use super::line::Lines;
use super::observer::Evicted;
use super::plans::Plans;
use super::shard::{Answer, Common, Query, Shard, Swept};
use super::shifted::Shifted;
use super::watch::Watch;
use crate::cell::Held;
use crate::clock::Clock;
use crate::limiter::Limiter;
use crate::name::Name;
use crate::sync::{Light, LightGuard, Mutex, give_way};
use crate::watch::Watchers;

/// What all clones share.
pub(super) struct Store<K: ?Sized, A: Held, C: Clock> {
    pub(super) seed: Seed,
    pub(super) clock: Shifted<C>,
    pub(super) shards: Box<[Padded<A>]>,
    /// Leaves the bits of a fingerprint that choose the shard, after a shift by one: all 64 may have to go, where there is one shard.
    pub(super) shift: u32,
    pub(super) common: Common<A>,
    pub(super) quota_of: Option<QuotaOf<K>>,
    /// Whoever must be told what happens.
    pub(super) watch: Option<Arc<Watch<K>>>,
    /// The quota for keys without one of their own, and the state that new keys share if there is no room for them.
    pub(super) rest: Mutex<Rest<A>>,
    /// Keys that somebody waits for.
    pub(super) lines: Lines<A, Shifted<C>>,
    /// Held while a file is written, and while the quota changes, so that all keys in a file have the same.
    pub(super) saving: Mutex<()>,
    pub(super) closed: AtomicBool,
    /// The gates that wait for something to come back.
    pub(super) watchers: Arc<Watchers>,
    pub(super) name: Option<Name>,
    pub(super) keys: PhantomData<fn(&K)>,
}

pub(super) type QuotaOf<K> = Arc<dyn Fn(&K) -> Quota + Send + Sync>;

/// Keeps a shard off its neighbours' cache lines, and its lock next to what it guards.
#[repr(C, align(128))]
pub(super) struct Padded<A: Held>(pub(super) Light<Shard<A>>);

/// The limiter that a key has of its own while somebody waits for it.
pub(super) type OwnLimiter<A, C> = Limiter<A, Shifted<C>>;

/// What is not in the table: the quota of keys without one of their own, and the state that keys share for which there is
/// no room.
pub(super) struct Rest<A: Held> {
    pub(super) quota: Quota,
    pub(super) algorithm: A,
    pub(super) overflow: A::State,
}

/// How many lines a sweep looks at while it holds a shard.
const LINES_PER_SWEEP: usize = 64;

impl<K: ?Sized, A: Held, C: Clock> Store<K, A, C> {
    #[inline]
    pub(super) fn shard(&self, print: u64) -> LightGuard<'_, Shard<A>> {
        self.shards[(print >> 1 >> self.shift) as usize].0.lock()
    }

    /// The shard of a key that nobody has in hand.
    pub(super) fn free_shard(&self, print: u64) -> LightGuard<'_, Shard<A>> {
        for times in 0.. {
            let shard = self.shard(print);
            if !shard.is_held(print) {
                return shard;
            }
            drop(shard);
            give_way(times);
        }
        unreachable!("it is tried for as long as it takes")
    }

    /// Does something to a shard, and reports who was dropped by the way when the shard is free again.
    pub(super) fn on_shard<T>(&self, print: u64, act: impl FnOnce(&mut Shard<A>) -> T) -> T {
        let mut shard = self.free_shard(print);
        let done = act(&mut shard);
        let evicted = shard.newly_evicted();
        drop(shard);
        self.report(evicted);
        done
    }

    /// Drops everything in a shard that is idle.
    pub(super) fn sweep(&self, shard: &Padded<A>, now: Tick) {
        shard.0.lock().rewind();
        // Locked anew each time, after a while in which callers get in: whoever waits only looks now and then.
        while !self.sweep_some(shard, now) {
            give_way(4);
        }
        let evicted = shard.0.lock().newly_evicted();
        self.report(evicted);
    }

    /// Looks at a few lines of a shard; whether that ended a round.
    fn sweep_some(&self, shard: &Padded<A>, now: Tick) -> bool {
        let Swept { ends, leftover } = shard.0.lock().sweep(&self.common, now, LINES_PER_SWEEP);
        drop(leftover); // the shard is free again
        ends
    }

    /// Puts those back into the table whom nobody waits for any more.
    pub(super) fn sweep_lines(&self, now: Tick) {
        for print in self.lines.prints() {
            self.own_limiter(&mut self.free_shard(print), print, now);
        }
    }

    pub(super) fn report(&self, evicted: Evicted) {
        if let Some(watch) = self.watch.as_ref().filter(|_| !evicted.is_none()) {
            watch.evicted(evicted);
        }
    }

    /// Takes without waiting if that can be, or never will be; else the limiter in which to wait.
    pub(super) fn take_or_line_up(
        &self,
        shard: &mut Shard<A>,
        query: Query,
    ) -> Result<Answer, OwnLimiter<A, C>> {
        let Query { print, now, .. } = query;
        if let Some(limiter) = self.own_limiter(shard, print, now) {
            return Err(limiter);
        }
        // A look first: whoever lines up has not been denied.
        match shard.peek(&self.common, query) {
            Answer::NeedsPlan => Ok(Answer::NeedsPlan),
            Answer::Decided(decision, _) if !decision.is_admitted() && !decision.is_never() => {
                let bytes = Lines::<A, Shifted<C>>::BYTES;
                let start = match shard.take_out(&self.common, query, bytes, decision.limit()) {
                    Ok(start) => start,
                    Err(answer) => return Ok(answer),
                };
                Err(self.lines.open(shard, &self.common, print, start, &self.clock, &self.watchers))
            }
            _ => Ok(shard.take(&self.common, query)),
        }
    }

    /// The number of the plan of a key.
    pub(super) fn plan(&self, key: &K) -> u32 {
        self.quota_of.as_ref().map_or(0, |quota_of| self.common.plans.number(quota_of(key)))
    }

    /// The limiter that a key has of its own while somebody waits for it.
    pub(super) fn own_limiter(
        &self,
        shard: &mut Shard<A>,
        print: u64,
        now: Tick,
    ) -> Option<OwnLimiter<A, C>> {
        if shard.lines() == 0 { None } else { self.lines.find(shard, &self.common, print, now) }
    }
}

impl<A> Common<A> {
    /// The plan of a key nothing is known about, unless it must be asked for.
    pub(super) fn plan_of_new(&self) -> Option<u32> {
        (!self.by_key).then_some(0)
    }
}

impl<A: Held> Rest<A> {
    pub(super) fn take(&mut self, now: Tick, ask: Ask, is_patient: bool) -> Decision {
        let ask = self.ask_of(ask, is_patient);
        self.algorithm.step(&mut self.overflow, now, ask)
    }

    pub(super) fn peek(&self, now: Tick, ask: Ask, is_patient: bool) -> Decision {
        self.algorithm.decide(&self.overflow, now, self.ask_of(ask, is_patient)).decision
    }

    fn ask_of(&self, ask: Ask, is_patient: bool) -> Ask {
        if is_patient { ask.with_patience(self.algorithm.patience()) } else { ask }
    }

    pub(super) fn charge(&mut self, extra: u64, now: Tick) {
        if let Some(change) = self.algorithm.charge(&self.overflow, extra, now) {
            self.algorithm.apply(&mut self.overflow, change);
        }
    }

    pub(super) fn set_quota(&mut self, quota: Quota, now: Tick, plans: &Plans<A>) {
        let new = plans.make(quota);
        self.overflow = self.algorithm.moved(&self.overflow, now, quota, &new);
        (self.algorithm, self.quota) = (new, quota);
    }
}
