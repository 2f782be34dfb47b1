//! A part of the keys, behind one lock.
//!
//! A shard's keys lie in segments of about a thousand. Some bits of a fingerprint say which segment it belongs to. When there
//! are too many keys for the segments, the next segment in turn is split in two by one more bit; when there are too few, the
//! last one goes back to where it came from (linear hashing). Each segment is as large as its own keys need. So whatever a
//! caller does to the table besides its own business, it touches one segment.
//!
//! A key that is idle equals one that is absent. Calls drop idle keys as they go along: every 64th call looks at one line, a
//! full segment is swept before it grows, and one that has become sparse is made smaller.

use std::cmp::Reverse;
use std::ops::Range;
use std::time::Duration;

use tollgate_core::{Algorithm, Ask, Claim, Decision, GiveBack, Quota, Tick};

use super::cap::{AtCap, Room, Share};
use super::plans::Plans;
use super::segment::{Segment, Slot};

/// Every so many calls one line is swept. A call more often costs more than it frees.
const CALLS_PER_LINE: u64 = 64;
/// How many lines are looked at to make room for a key.
const LINES_PER_EVICTION: usize = 16;
/// With more keys a segment than this, on average, one of them is split.
const MOST_PER_SEGMENT: usize = 1_024;
/// With fewer, two become one.
const FEWEST_PER_SEGMENT: usize = 256;
/// The first of the bits that choose a segment. Those below choose the line in it, those at the top the shard.
const SEGMENT_BITS: u32 = 32;
/// How many accounts of returns a shard keeps.
const ACCOUNTS: usize = 64;

/// What all shards of a store have in common.
#[derive(Debug)]
pub(crate) struct Common<A> {
    pub(crate) plans: Plans<A>,
    /// Whether keys have quotas of their own.
    pub(crate) by_key: bool,
    pub(crate) room: Room,
    pub(crate) at_cap: AtCap,
    /// How long a caller that says nothing about waiting may be delayed.
    pub(crate) patience: Duration,
}

/// A question about one key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Query {
    pub(crate) print: u64,
    /// The number of the key's plan if it is known; it is needed if the key is new.
    pub(crate) plan: Option<u32>,
    pub(crate) now: Tick,
    pub(crate) ask: Ask,
}

/// What came of a question.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The decision, and a receipt if something was taken.
    Decided(Decision, Option<Receipt>),
    /// There was nothing to decide, and it is done.
    Done,
    /// The key is new, and its plan must be known.
    NeedsPlan,
    /// There is no room for this key, and it shares one state with all others like it.
    Overflows,
}

/// Something taken from a key, with what is needed to give it back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receipt {
    pub(crate) claim: Claim,
    pub(crate) plan: u32,
    /// What the key's account said when it was taken.
    account: Account,
    generation: u64,
}

/// How much has come back so far. Many keys share an account, which errs on the safe side: what came back for one counts
/// for all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Account {
    /// How far states fell, all together.
    fallen: u64,
    /// How often a state that still counted was forgotten.
    forgotten: u64,
}

/// A change of quota that not all segments have gone through.
#[derive(Debug)]
struct Change<A> {
    now: Tick,
    quota: Quota,
    old: A,
    new: A,
}

/// What a shard has counted. See [`Stats`](super::Stats).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) calls: u64,
    pub(crate) denied: u64,
    pub(crate) swept: u64,
    pub(crate) evicted: u64,
    pub(crate) refused: u64,
    pub(crate) overflowed: u64,
}

#[derive(Debug)]
pub(crate) struct Shard<A: Algorithm> {
    /// For keys without a plan of their own.
    algorithm: A,
    /// The state of such a key that was never seen. After a change of quota that is not a fresh one until it has refilled:
    /// the others got no free burst either.
    unseen: A::State,
    segments: Vec<Segment<A::State>>,
    /// Masks the bits of a fingerprint that choose a segment: the least power of two that has room for all, less one.
    mask: usize,
    keys: usize,
    /// The segment that sweeping is at.
    sweeping: usize,
    /// The latest time at which anything was found idle and dropped.
    swept_at: Tick,
    /// How often the quota changed.
    generation: u64,
    /// The latest changes, the last of which led to `generation`.
    changes: Vec<Change<A>>,
    accounts: Option<Box<[Account; ACCOUNTS]>>,
    /// How many keys have a line of people waiting, and so a limiter of their own.
    pub(crate) lines: usize,
    /// Whether somebody visits the segments one after the other.
    pinned: bool,
    pub(crate) counts: Counts,
}

impl<A: Algorithm> Shard<A> {
    pub(crate) fn new(common: &Common<A>, quota: Quota) -> Self {
        let segment = Segment::smallest(common.by_key);
        common.room.grown(size_of::<Self>() + segment.bytes() + size_of_val(&segment));
        // Where there is a cap, what an eviction needs must be there before it.
        let accounts = common.room.is_bounded().then(|| Box::new([Account::default(); ACCOUNTS]));
        common.room.grown(accounts.as_deref().map_or(0, size_of_val));
        Self {
            algorithm: common.plans.make(quota),
            unseen: A::State::default(),
            segments: vec![segment],
            mask: 0,
            keys: 0,
            sweeping: 0,
            swept_at: Tick::ZERO,
            generation: 0,
            changes: Vec::new(),
            accounts,
            lines: 0,
            pinned: false,
            counts: Counts::default(),
        }
    }

    /// Which segment a fingerprint belongs to. One whose turn has not come yet is still with the one it will come from.
    #[inline]
    fn segment_of(&self, print: u64) -> usize {
        let bits = (print >> SEGMENT_BITS) as usize & self.mask;
        if bits < self.segments.len() { bits } else { bits & (self.mask >> 1) }
    }

    /// Gets a key's line under way.
    #[inline]
    pub(crate) fn prefetch(&self, print: u64) {
        self.segments[self.segment_of(print)].prefetch(print);
    }

    /// Asks a key that is known: `decide` gets its algorithm and state, and whether it admits is counted. `None` if the key
    /// is new, or [`take`](Self::take) must look after it first.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a caller that only wants a yes should not pay for the rest")]
    pub(crate) fn ask<T>(
        &mut self,
        common: &Common<A>,
        print: u64,
        now: Tick,
        decide: impl FnOnce(&A, &mut A::State) -> (bool, T),
    ) -> Option<T> {
        let number = self.segment_of(print);
        let segment = &mut self.segments[number];
        if segment.generation != self.generation {
            return None;
        }
        let (state, plan) = segment.get_mut(print)?;
        let (admitted, answer) = decide(algorithm_of(&self.algorithm, common, plan), state);
        self.count(common, now, admitted);
        Some(answer)
    }

    #[inline]
    fn count(&mut self, common: &Common<A>, now: Tick, admitted: bool) {
        self.counts.calls += 1;
        if !admitted {
            self.counts.denied += 1;
        }
        if self.counts.calls % CALLS_PER_LINE == 0 {
            self.sweep(common, now, 1);
        }
    }

    /// Decides, takes if it admits, and makes out a receipt.
    pub(crate) fn take(&mut self, common: &Common<A>, query: Query) -> Answer {
        let Query { print, now, ask, .. } = query;
        let number = self.up_to_date(print);
        let Some(place) = self.segments[number].find(print) else {
            return self.take_new(common, query, number);
        };
        let segment = &mut self.segments[number];
        let plan = segment.plan(place);
        let algorithm = algorithm_of(&self.algorithm, common, plan);
        let step = algorithm.decide(&segment.slot(place).state, now, ask);
        let receipt = step.change.map(|change| {
            let claim = algorithm.claim(&change, ask.cost(), now + step.decision.delay());
            algorithm.apply(segment.state_mut(place), change);
            let account = account(self.accounts.as_deref(), print);
            Receipt { claim, plan, account, generation: self.generation }
        });
        self.count(common, now, step.decision.is_admitted());
        Answer::Decided(step.decision, receipt)
    }

    /// The first question about a key.
    #[cold]
    fn take_new(&mut self, common: &Common<A>, query: Query, number: usize) -> Answer {
        let Some(plan) = query.plan else { return Answer::NeedsPlan };
        self.counts.calls += 1;
        // A key that was dropped as idle must not be admitted by a reading from before that.
        let now = query.now.max(self.swept_at);
        let (algorithm, mut state) = self.unseen(common, plan, now);
        let step = algorithm.decide(&state, now, query.ask);
        let Some(change) = step.change else {
            self.counts.denied += u64::from(!step.decision.is_admitted());
            return Answer::Decided(step.decision, None); // nothing to remember
        };
        if let Err(full) = self.make_room(common, number, now) {
            return self.no_room(common, full, step.decision.limit());
        }
        let claim = algorithm.claim(&change, query.ask.cost(), now + step.decision.delay());
        algorithm.apply(&mut state, change);
        let idle_at = now + step.decision.reset_after().unwrap_or(Duration::MAX);
        self.put(common, query.print, state, plan, idle_at);
        let account = account(self.accounts.as_deref(), query.print);
        Answer::Decided(step.decision, Some(Receipt { claim, plan, account, generation: self.generation }))
    }

    /// The algorithm of a plan, and the state of a key that was never seen.
    fn unseen(&mut self, common: &Common<A>, plan: u32, now: Tick) -> (A, A::State) {
        if plan > 0 {
            return (common.plans.get(plan).algorithm.clone(), A::State::default());
        }
        if self.unseen != A::State::default() && self.algorithm.is_idle(&self.unseen, now) {
            self.unseen = A::State::default();
        }
        (self.algorithm.clone(), self.unseen.clone())
    }

    /// Puts in a key that is not there and will not be idle before `idle_at`. There must be room.
    pub(crate) fn put(&mut self, common: &Common<A>, print: u64, state: A::State, plan: u32, idle_at: Tick) {
        let number = self.segment_of(print);
        let segment = &mut self.segments[number];
        segment.put(print, state, plan);
        segment.none_idle_before = segment.none_idle_before.min(idle_at);
        self.keys += 1;
        common.room.added();
    }

    fn no_room(&mut self, common: &Common<A>, full: Full, limit: u64) -> Answer {
        match common.at_cap {
            AtCap::Share => {
                self.counts.overflowed += 1;
                Answer::Overflows
            }
            AtCap::Evict | AtCap::Refuse => {
                self.counts.refused += 1;
                self.counts.denied += 1;
                Answer::Decided(Decision::refusal(limit, full.next_idle), None)
            }
        }
    }

    /// What [`take`](Self::take) would decide.
    pub(crate) fn peek(&mut self, common: &Common<A>, query: Query) -> Answer {
        let number = self.up_to_date(query.print);
        let segment = &self.segments[number];
        let decision = match (segment.find(query.print), query.plan) {
            (Some(place), _) => {
                let algorithm = algorithm_of(&self.algorithm, common, segment.plan(place));
                algorithm.decide(&segment.slot(place).state, query.now, query.ask).decision
            }
            (None, Some(plan)) => {
                let now = query.now.max(self.swept_at);
                let (algorithm, state) = self.unseen(common, plan, now);
                algorithm.decide(&state, now, query.ask).decision
            }
            (None, None) => return Answer::NeedsPlan,
        };
        Answer::Decided(decision, None)
    }

    /// Charges what was used, whether it fits or not.
    pub(crate) fn charge(&mut self, common: &Common<A>, query: Query) -> Answer {
        let (now, extra) = (query.now, query.ask.cost());
        let number = self.up_to_date(query.print);
        if let Some(place) = self.segments[number].find(query.print) {
            let segment = &mut self.segments[number];
            let algorithm = algorithm_of(&self.algorithm, common, segment.plan(place));
            if let Some(change) = algorithm.charge(&segment.slot(place).state, extra, now) {
                algorithm.apply(segment.state_mut(place), change);
            }
            return Answer::Done;
        }
        let Some(plan) = query.plan else { return Answer::NeedsPlan };
        let (algorithm, mut state) = self.unseen(common, plan, now);
        if let Some(change) = algorithm.charge(&state, extra, now.max(self.swept_at)) {
            if let Err(full) = self.make_room(common, number, now) {
                return self.no_room(common, full, 0);
            }
            algorithm.apply(&mut state, change);
            self.put(common, query.print, state, plan, now);
        }
        Answer::Done
    }

    /// Gives back part of what was taken, as far as that is certain not to be handed out twice.
    pub(crate) fn give_back(
        &mut self,
        common: &Common<A>,
        print: u64,
        receipt: Receipt,
        amount: u64,
        now: Tick,
    ) {
        let number = self.up_to_date(print);
        let Some(place) = self.segments[number].find(print) else { return };
        let Some(claim) = self.worth(common, print, receipt, self.segments[number].plan(place)) else {
            return;
        };
        let segment = &mut self.segments[number];
        let algorithm = algorithm_of(&self.algorithm, common, segment.plan(place));
        let state = segment.state_mut(place);
        if let Some(change) = algorithm.give_back(state, GiveBack { claim, amount }, now) {
            let fall = algorithm.fall(state, &change);
            algorithm.apply(state, change);
            segment.none_idle_before = Tick::ZERO;
            self.account_mut(common, print).fallen += fall;
        }
    }

    /// What a claim is worth by now.
    pub(crate) fn worth(&self, common: &Common<A>, print: u64, receipt: Receipt, plan: u32) -> Option<Claim> {
        let account = account(self.accounts.as_deref(), print);
        let still_counts =
            receipt.generation == self.generation && receipt.account.forgotten == account.forgotten;
        let algorithm = algorithm_of(&self.algorithm, common, plan);
        still_counts
            .then(|| algorithm.lowered(receipt.claim, account.fallen - receipt.account.fallen))
            .flatten()
    }

    fn account_mut(&mut self, common: &Common<A>, print: u64) -> &mut Account {
        let accounts = self.accounts.get_or_insert_with(|| {
            common.room.grown(size_of::<[Account; ACCOUNTS]>());
            Box::new([Account::default(); ACCOUNTS])
        });
        &mut accounts[account_of(print)]
    }

    /// Adds what fell while the key had a limiter of its own.
    pub(crate) fn fell(&mut self, common: &Common<A>, print: u64, by: u64) {
        if by > 0 {
            self.account_mut(common, print).fallen += by;
        }
    }

    /// Forgets a key; its plan and state if it was there.
    pub(crate) fn remove(&mut self, common: &Common<A>, print: u64) -> Option<(u32, A::State)> {
        let number = self.up_to_date(print);
        let place = self.segments[number].find(print)?;
        Some(self.remove_at(common, number, place))
    }

    /// Forgets a key, and that anything can be given back to it.
    pub(crate) fn reset(&mut self, common: &Common<A>, print: u64) -> bool {
        self.account_mut(common, print).forgotten += 1;
        self.remove(common, print).is_some()
    }

    fn remove_at(&mut self, common: &Common<A>, number: usize, place: usize) -> (u32, A::State) {
        let segment = &mut self.segments[number];
        let plan = segment.plan(place);
        self.keys -= 1;
        common.room.removed();
        (plan, segment.remove(place))
    }

    /// Goes on with another quota, for keys without a plan of their own.
    pub(crate) fn set_quota(&mut self, common: &Common<A>, quota: Quota, now: Tick) {
        let new = common.plans.make(quota);
        let old = std::mem::replace(&mut self.algorithm, new.clone());
        self.unseen = old.moved(&self.unseen, now, quota, &new);
        self.generation += 1;
        self.changes.push(Change { now, quota, old, new });
    }

    /// The segment of a key, after all changes of quota.
    #[inline]
    fn up_to_date(&mut self, print: u64) -> usize {
        let number = self.segment_of(print);
        if self.segments[number].generation != self.generation {
            self.catch_up(number);
        }
        number
    }

    /// Takes a segment's states through the changes of quota that they have missed.
    #[cold]
    fn catch_up(&mut self, number: usize) {
        let segment = &mut self.segments[number];
        let missed = (self.generation - segment.generation) as usize;
        for change in &self.changes[self.changes.len() - missed..] {
            let Change { now, quota, old, new } = change;
            segment.for_each_mut(|plan, state| {
                if plan == 0 {
                    *state = old.moved(state, *now, *quota, new);
                }
            });
        }
        segment.generation = self.generation;
        segment.none_idle_before = Tick::ZERO;
        let behind = self.segments.iter().map(|segment| self.generation - segment.generation).max();
        let needed = behind.unwrap_or(0) as usize;
        self.changes.drain(..self.changes.len() - needed);
    }

    /// Moves a key to another plan, without a free burst and without forgiving a debt.
    pub(crate) fn set_plan(&mut self, common: &Common<A>, print: u64, plan: u32, now: Tick) {
        let number = self.up_to_date(print);
        let Some(place) = self.segments[number].find(print) else { return };
        let segment = &mut self.segments[number];
        let old = segment.plan(place);
        if old != plan {
            let new = common.plans.get(plan);
            let algorithm = algorithm_of(&self.algorithm, common, old);
            let state = algorithm.moved(&segment.slot(place).state, now, new.quota, &new.algorithm);
            *segment.state_mut(place) = state;
            segment.set_plan(place, plan);
            segment.none_idle_before = Tick::ZERO;
            self.account_mut(common, print).forgotten += 1; // claims under the old plan cannot be given back
        }
    }

    /// Looks at the next `lines` lines and drops idle keys; whether that ended a round over all segments.
    pub(crate) fn sweep(&mut self, common: &Common<A>, now: Tick, lines: usize) -> bool {
        let number = self.sweeping;
        if self.segments[number].generation != self.generation {
            self.catch_up(number);
        }
        let (places, ends) = self.segments[number].next_places(lines);
        self.drop_idle(common, number, places, now);
        if !ends {
            return false;
        }
        self.tidy(common, number);
        let was_last = number + 1 >= self.segments.len();
        self.sweeping = if was_last { 0 } else { number + 1 };
        was_last
    }

    /// Drops the idle keys among these places.
    fn drop_idle(&mut self, common: &Common<A>, number: usize, places: Range<usize>, now: Tick) {
        let mut place = places.start;
        while place < places.end {
            let segment = &self.segments[number];
            let slot = segment.slot(place);
            let is_idle = slot.print != 0
                && algorithm_of(&self.algorithm, common, segment.plan(place)).is_idle(&slot.state, now);
            if is_idle {
                self.remove_at(common, number, place); // another may have moved here
                self.counts.swept += 1;
                self.swept_at = self.swept_at.max(now);
            } else {
                place += 1;
            }
        }
    }

    /// Makes a segment smaller that has become sparse, and joins two if there are too many.
    fn tidy(&mut self, common: &Common<A>, number: usize) {
        if self.segments[number].is_sparse() {
            self.resize(common, number, Segment::shrink);
        }
        if !self.pinned && self.segments.len() > 1 && self.keys < self.segments.len() * FEWEST_PER_SEGMENT {
            self.join(common);
        }
    }

    fn resize(&mut self, common: &Common<A>, number: usize, resize: impl FnOnce(&mut Segment<A::State>)) {
        let before = self.segments[number].bytes();
        resize(&mut self.segments[number]);
        common.room.resized(before, self.segments[number].bytes());
    }

    /// Splits the segment whose turn it is.
    fn split(&mut self, common: &Common<A>) {
        let high = self.segments.len();
        if high > self.mask {
            self.mask = 2 * self.mask + 1;
        }
        let low = high & (self.mask >> 1);
        if self.segments[low].generation != self.generation {
            self.catch_up(low);
        }
        let mut other = None;
        let bit = (high - low) as u64;
        self.resize(common, low, |segment| other = Some(segment.split(bit << SEGMENT_BITS)));
        let other = other.expect("just split off");
        common.room.grown(other.bytes() + size_of_val(&other));
        self.segments.push(other);
    }

    /// Undoes the latest split.
    fn join(&mut self, common: &Common<A>) {
        let last = self.segments.len() - 1;
        let number = last & (self.mask >> 1);
        for number in [number, last] {
            if self.segments[number].generation != self.generation {
                self.catch_up(number);
            }
        }
        let Some(mut last) = self.segments.pop() else { return };
        common.room.shrunk(last.bytes() + size_of_val(&last));
        self.resize(common, number, |segment| segment.take_in(&mut last));
        if self.segments.len() <= self.mask >> 1 {
            self.mask >>= 1;
        }
        if self.sweeping >= self.segments.len() {
            self.sweeping = 0;
        }
    }

    /// Makes room for one more key in a segment.
    fn make_room(&mut self, common: &Common<A>, number: usize, now: Tick) -> Result<(), Full> {
        if !common.room.has_key() {
            self.evict(common, number, now)?;
        }
        if !self.segments[number].is_full() {
            return Ok(());
        }
        if !common.room.has_bytes(self.segments[number].growth()) {
            return self.evict(common, number, now);
        }
        let every = self.segments[number].places();
        self.drop_idle(common, number, every, now);
        if !self.segments[number].has_room() {
            self.resize(common, number, Segment::grow);
        }
        if !self.pinned && self.keys >= self.segments.len() * MOST_PER_SEGMENT {
            self.split(common);
        }
        Ok(())
    }

    /// Makes room by forgetting somebody: whoever is idle, else the one that has most left, and one that has nothing left
    /// only if all have not.
    fn evict(&mut self, common: &Common<A>, number: usize, now: Tick) -> Result<(), Full> {
        let before = self.keys;
        let (near, _) = self.segments[number].next_places(LINES_PER_EVICTION);
        self.drop_idle(common, number, near.clone(), now);
        if self.keys == before && now >= self.segments[number].none_idle_before {
            self.drop_all_idle(common, number, now);
        }
        if self.keys < before || (self.segments[number].len() == 0 && common.at_cap == AtCap::Evict) {
            return Ok(()); // if there is nobody here, the store is full of others: one more does no harm
        }
        let mut best = self.fullest(common, number, near, now);
        if best.as_ref().is_none_or(|best| best.left == 0) {
            best = self.fullest(common, number, self.segments[number].places(), now);
        }
        match best {
            Some(best) if common.at_cap == AtCap::Evict => {
                let print = self.segments[number].slot(best.place).print;
                self.remove_at(common, number, best.place);
                self.account_mut(common, print).forgotten += 1;
                self.counts.evicted += 1;
                Ok(())
            }
            best => {
                Err(Full { next_idle: best.map(|best| best.reset.0).filter(|reset| *reset < Duration::MAX) })
            }
        }
    }

    /// Drops every idle key of a segment, and finds out when the next one will be idle.
    fn drop_all_idle(&mut self, common: &Common<A>, number: usize, now: Tick) {
        let every = self.segments[number].places();
        self.drop_idle(common, number, every.clone(), now);
        let resets = every.filter_map(|place| self.candidate(common, number, place, now));
        let soonest = resets.map(|candidate| candidate.reset.0).min();
        self.segments[number].none_idle_before = now + soonest.unwrap_or(Duration::MAX);
    }

    /// The key among these places that has most left.
    fn fullest(
        &self,
        common: &Common<A>,
        number: usize,
        places: Range<usize>,
        now: Tick,
    ) -> Option<Candidate> {
        places.filter_map(|place| self.candidate(common, number, place, now)).max()
    }

    fn candidate(&self, common: &Common<A>, number: usize, place: usize, now: Tick) -> Option<Candidate> {
        let segment = &self.segments[number];
        let slot = segment.slot(place);
        let algorithm = algorithm_of(&self.algorithm, common, segment.plan(place));
        (slot.print != 0).then(|| {
            let facts = algorithm.decide(&slot.state, now, Ask::now(0)).decision;
            let left = share(facts.remaining(), facts.limit());
            Candidate { left, reset: Reverse(facts.reset_after().unwrap_or(Duration::MAX)), place }
        })
    }

    /// While a shard is pinned it has the same segments, each with the same keys but for those that come and go, so that they
    /// can be visited one after the other. Segments that grow too large meanwhile are split later.
    pub(crate) fn pin(&mut self, pinned: bool) {
        self.pinned = pinned;
    }

    /// Gives `each` every key of a segment: fingerprint, plan, algorithm and state. Whether there is such a segment.
    pub(crate) fn visit(
        &mut self,
        common: &Common<A>,
        number: usize,
        mut each: impl FnMut(u64, u32, &A, &A::State),
    ) -> bool {
        if number >= self.segments.len() {
            return false;
        }
        if self.segments[number].generation != self.generation {
            self.catch_up(number);
        }
        let segment = &self.segments[number];
        for (place, slot) in segment.iter() {
            let plan = segment.plan(place);
            each(slot.print, plan, algorithm_of(&self.algorithm, common, plan), &slot.state);
        }
        true
    }

    /// The state of a key that was never seen and has no plan.
    pub(crate) fn unseen_state(&self) -> A::State {
        self.unseen.clone()
    }

    /// Goes on for a store that was saved. Who is not put back was idle, at `now` or before.
    pub(crate) fn resume(&mut self, unseen: A::State, now: Tick) {
        self.unseen = unseen;
        self.swept_at = now;
    }

    /// Puts back a key that was saved, if there is room or room can be made.
    pub(crate) fn restore(
        &mut self,
        common: &Common<A>,
        share: Share,
        (print, plan, state): (u64, u32, A::State),
        now: Tick,
    ) {
        let number = self.up_to_date(print);
        if let Some(place) = self.segments[number].find(print) {
            *self.segments[number].state_mut(place) = state;
            self.segments[number].set_plan(place, plan);
            return;
        }
        let has_bytes = !self.segments[number].is_full() || self.grown(number) <= share.bytes;
        let room = if has_bytes { Ok(()) } else { self.evict(common, number, now) };
        match room.and_then(|()| self.make_room(common, number, now)) {
            Ok(()) => self.put(common, print, state, plan, Tick::ZERO),
            Err(_) => self.counts.evicted += 1,
        }
    }

    /// What the segments would take in memory if one grew.
    fn grown(&self, number: usize) -> u64 {
        let bytes: usize = self.segments.iter().map(Segment::bytes).sum();
        (bytes + self.segments[number].growth()) as u64
    }

    /// Forgets somebody if this shard has more keys than its share, so that another that has fewer need not; whether it has.
    pub(crate) fn make_way(&mut self, common: &Common<A>, share: Share, print: u64, now: Tick) -> bool {
        let number = self.up_to_date(print);
        self.keys as u64 > share.keys && self.evict(common, number, now).is_ok()
    }

    /// Whether it has its share of the keys.
    pub(crate) fn has_share(&self, share: Share) -> bool {
        self.keys as u64 >= share.keys
    }

    /// What a key takes in memory at least.
    pub(crate) const BYTES_PER_KEY: u64 = (size_of::<Slot<A::State>>() as u64 * 5).div_ceil(4);
}

/// The algorithm of a plan; number zero stands for the shard's own.
#[inline]
fn algorithm_of<'a, A>(own: &'a A, common: &'a Common<A>, plan: u32) -> &'a A {
    if plan == 0 { own } else { &common.plans.get(plan).algorithm }
}

fn account_of(print: u64) -> usize {
    print as usize % ACCOUNTS
}

#[inline]
fn account(accounts: Option<&[Account; ACCOUNTS]>, print: u64) -> Account {
    accounts.map_or(Account::default(), |accounts| accounts[account_of(print)])
}

/// There is no room, and nothing idle.
#[derive(Debug)]
struct Full {
    /// When something will be, if that is known.
    next_idle: Option<Duration>,
}

/// Somebody who could be evicted. The greatest goes first.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    /// How much of its quota it has left, in parts of 2^32.
    left: u64,
    reset: Reverse<Duration>,
    place: usize,
}

/// `left / limit` in parts of 2^32; zero only if nothing is left.
fn share(left: u64, limit: u64) -> u64 {
    let parts = (u128::from(left) << 32) / u128::from(limit.max(1));
    u64::try_from(parts).unwrap_or(u64::MAX).max(u64::from(left > 0))
}
