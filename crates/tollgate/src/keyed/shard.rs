//! A part of the keys, behind one lock.
//!
//! A shard's keys lie in segments of about a thousand. Some bits of a fingerprint say which segment it belongs to. When there
//! are too many keys for the segments, the next segment in turn is split in two by one more bit; when there are too few, the
//! last one goes back to where it came from (linear hashing). Each segment is as large as its own keys need. So whatever a
//! caller does to the table besides its own business, it touches one segment.
//!
//! A key that is idle equals one that is absent. Calls drop idle keys as they go along: every 128th call looks at one line, a
//! full segment is swept before it grows, and one that has become sparse is made smaller.

use std::cmp::Reverse;
use std::ops::Range;
use std::time::Duration;

use tollgate_core::{Algorithm, Ask, Claim, Decision, GiveBack, Quota, Step, Tick};

use super::cap::{AtCap, Room, Share};
use super::line::Start;
use super::observer::Evicted;
use super::plans::Plans;
use super::segment::{Segment, Slot};
use crate::cell::Held;

/// Every so many calls one line is swept. A call more often costs more than it frees.
const CALLS_PER_LINE: u64 = 128;
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
    /// There is no room for this key, and it is refused.
    Refused(Decision),
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

/// What taking something of a key would write.
#[derive(Debug)]
pub(crate) struct Drawn<A: Algorithm> {
    plan: u32,
    generation: u64,
    /// The state that was found; `None` if the key is new.
    before: Option<A::State>,
    /// The state to write, and the claim; `None` if nothing is taken.
    after: Option<(A::State, Claim)>,
    now: Tick,
}

impl<A: Algorithm> Drawn<A> {
    pub(crate) fn takes(&self) -> bool {
        self.after.is_some()
    }

    /// Whether a key must be put in.
    pub(crate) fn is_new(&self) -> bool {
        self.before.is_none() && self.takes()
    }
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

impl Counts {
    /// Who was dropped since the counts stood as in `before`.
    pub(crate) fn evicted_since(&self, before: &Self) -> Evicted {
        Evicted { idle: self.swept - before.swept, active: self.evicted - before.evicted }
    }
}

/// In this order, so that what every call looks at lies next to the lock, on two cache lines.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Shard<A: Algorithm> {
    /// Whether the quick way is closed: somebody waits for one of the keys or has it in hand, or a segment is behind.
    takes_detour: bool,
    segments: Vec<Segment<A::State>>,
    /// Masks the bits of a fingerprint that choose a segment: the least power of two that has room for all, less one.
    mask: usize,
    /// Calls until the next line is swept; those since the last one are not in the counts yet.
    until_sweep: u64,
    /// For keys without a plan of their own.
    algorithm: A,
    quota: Quota,
    /// The state of such a key that was never seen. After a change of quota that is not a fresh one until it has refilled:
    /// the others got no free burst either.
    unseen: A::State,
    keys: usize,
    /// The segment that sweeping is at; behind the last one while there are too many.
    sweeping: usize,
    /// The latest time at which anything was found idle and dropped.
    swept_at: Tick,
    /// How often the quota changed.
    generation: u64,
    /// The latest changes, the last of which led to `generation`.
    changes: Vec<Change<A>>,
    accounts: Option<Box<[Account; ACCOUNTS]>>,
    /// How many keys have a line of people waiting, and so a limiter of their own.
    lines: usize,
    /// Keys that a gate has in hand.
    held: Vec<u64>,
    /// Whether somebody visits the segments one after the other.
    pinned: bool,
    counts: Counts,
}

impl<A: Algorithm> Shard<A> {
    pub(crate) fn new(common: &Common<A>, quota: Quota) -> Self {
        let segment = Segment::smallest(common.by_key);
        common.room.grown(size_of::<Self>() + segment.bytes() + size_of_val(&segment));
        // Where there is a cap, what an eviction needs must be there before it.
        let accounts = common.room.is_bounded().then(|| Box::new([Account::default(); ACCOUNTS]));
        common.room.grown(accounts.as_deref().map_or(0, size_of_val));
        Self {
            quota,
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
            held: Vec::new(),
            pinned: false,
            takes_detour: false,
            until_sweep: CALLS_PER_LINE,
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
        if self.takes_detour {
            return None;
        }
        let number = self.segment_of(print);
        let (state, plan) = self.segments[number].get_mut(print, common.by_key)?;
        let (admitted, answer) = decide(algorithm_of(&self.algorithm, common, plan), state);
        self.count(common, now, admitted);
        Some(answer)
    }

    /// Counts a question that was answered elsewhere.
    pub(crate) fn count_elsewhere(&mut self, admitted: bool) {
        self.counts.calls += 1;
        self.counts.denied += u64::from(!admitted);
    }

    /// Counts a question that was answered on the state that new keys share.
    pub(crate) fn overflowed(&mut self, admitted: bool) {
        self.counts.overflowed += 1;
        self.counts.denied += u64::from(!admitted);
    }

    #[inline]
    fn count(&mut self, common: &Common<A>, now: Tick, admitted: bool) {
        if !admitted {
            self.counts.denied += 1;
        }
        self.until_sweep -= 1;
        if self.until_sweep == 0 {
            self.counts.calls += CALLS_PER_LINE;
            self.until_sweep = CALLS_PER_LINE;
            self.sweep(common, now, 1);
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts { calls: self.counts.calls + (CALLS_PER_LINE - self.until_sweep), ..self.counts }
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
            let answer = self.no_room(common, &full, step.decision.limit());
            self.counts.denied += u64::from(matches!(answer, Answer::Refused(_)));
            return answer;
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

    /// Puts back a key that was taken out. Meanwhile the table may have become smaller, or be behind with a change of quota
    /// that the key has gone through.
    pub(crate) fn put_back(&mut self, common: &Common<A>, print: u64, state: A::State, plan: u32) {
        let number = self.up_to_date(print);
        if self.segments[number].is_full() {
            self.resize(common, number, Segment::grow);
            self.split_if_due(common);
        }
        self.put(common, print, state, plan, Tick::ZERO);
    }

    fn no_room(&mut self, common: &Common<A>, full: &Full, limit: u64) -> Answer {
        match common.at_cap {
            AtCap::Share => Answer::Overflows,
            AtCap::Evict | AtCap::Refuse => {
                self.counts.refused += 1;
                Answer::Refused(Decision::refusal(limit, full.next_idle))
            }
        }
    }

    /// What [`take`](Self::take) would decide, if there is room.
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
                return self.no_room(common, &full, 0);
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

    /// Takes a key out of the table, with all it needs to go on elsewhere. Its plan is needed if it is new.
    pub(crate) fn take_out(&mut self, common: &Common<A>, print: u64, plan: u32, now: Tick) -> Start<A>
    where
        A: Held,
    {
        let (plan, state) = match self.remove(common, print) {
            Some(known) => known,
            None => (plan, self.unseen(common, plan, now).1),
        };
        let quota = if plan == 0 { self.quota } else { common.plans.get(plan).quota };
        Start { quota, algorithm: self.algorithm(common, plan).clone(), state, plan }
    }

    /// The algorithm of a plan.
    pub(crate) fn algorithm<'a>(&'a self, common: &'a Common<A>, plan: u32) -> &'a A {
        algorithm_of(&self.algorithm, common, plan)
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
        self.quota = quota;
        self.generation += 1;
        self.changes.push(Change { now, quota, old, new });
        self.takes_detour = true;
    }

    /// How many keys have a line of people waiting.
    pub(crate) fn lines(&self) -> usize {
        self.lines
    }

    pub(crate) fn line_opened(&mut self) {
        self.lines += 1;
        self.takes_detour = true;
    }

    pub(crate) fn line_closed(&mut self) {
        self.lines -= 1;
        self.open_if_it_can_be();
    }

    fn open_if_it_can_be(&mut self) {
        self.takes_detour = self.lines > 0 || !self.held.is_empty() || !self.changes.is_empty();
    }

    /// Whether a gate has a key in hand. Then nobody else may do anything to it.
    pub(crate) fn is_held(&self, print: u64) -> bool {
        self.held.contains(&print)
    }

    pub(crate) fn holds_any(&self) -> bool {
        !self.held.is_empty()
    }

    /// A copy of a key's algorithm and state, and whether it is known. `None` if it is new and its plan must be known.
    pub(crate) fn look(
        &mut self,
        common: &Common<A>,
        print: u64,
        plan: Option<u32>,
        now: Tick,
    ) -> Option<(A, A::State, Option<u32>)> {
        let number = self.up_to_date(print);
        let segment = &self.segments[number];
        if let Some(place) = segment.find(print) {
            let plan = segment.plan(place);
            let algorithm = algorithm_of(&self.algorithm, common, plan).clone();
            return Some((algorithm, segment.slot(place).state.clone(), Some(plan)));
        }
        let (algorithm, state) = self.unseen(common, plan?, now.max(self.swept_at));
        Some((algorithm, state, None))
    }

    /// Decides, and says what taking it would write. `None` if the key is new and its plan must be known.
    pub(crate) fn draw(
        &mut self,
        common: &Common<A>,
        print: u64,
        plan: Option<u32>,
        now: Tick,
        cost: u64,
        decide: impl Fn(&A, &A::State) -> Step<A::Change>,
    ) -> Option<(Decision, Drawn<A>)> {
        let (algorithm, mut state, known) = self.look(common, print, plan, now)?;
        let Step { change, decision } = decide(&algorithm, &state);
        let before = known.map(|_| state.clone());
        let after = change.map(|change| {
            let claim = algorithm.claim(&change, cost, now + decision.delay());
            algorithm.apply(&mut state, change);
            (state, claim)
        });
        let plan = known.or(plan).unwrap_or(0);
        Some((decision, Drawn { plan, generation: self.generation, before, after, now }))
    }

    /// Takes a key in hand, if its state is still the one that was found.
    pub(crate) fn hold(&mut self, print: u64, drawn: &Drawn<A>) -> bool {
        if self.is_held(print) || self.generation != drawn.generation {
            return false;
        }
        let segment = &self.segments[self.segment_of(print)];
        let state = segment.find(print).map(|place| &segment.slot(place).state);
        let is_as_found = state == drawn.before.as_ref();
        if is_as_found {
            self.held.push(print);
            self.takes_detour = true;
        }
        is_as_found
    }

    pub(crate) fn let_go(&mut self, print: u64) {
        self.held.retain(|held| *held != print);
        self.open_if_it_can_be();
    }

    /// Writes what was drawn, of a key that is held.
    pub(crate) fn commit(&mut self, common: &Common<A>, print: u64, drawn: Drawn<A>) -> Option<Receipt> {
        let Drawn { plan, before, after, now, .. } = drawn;
        let (state, claim) = after?;
        let number = self.segment_of(print);
        if before.is_some() {
            let place = self.segments[number].find(print).expect("nobody moves a key that is held");
            *self.segments[number].state_mut(place) = state;
        } else {
            // Whether there is room was asked before: by now it cannot be refused any more.
            let _ = self.make_room(common, number, now);
            self.put(common, print, state, plan, now);
        }
        self.count(common, now, true);
        let account = account(self.accounts.as_deref(), print);
        Some(Receipt { claim, plan, account, generation: self.generation })
    }

    /// The segment of a key, after all changes of quota.
    #[inline]
    fn up_to_date(&mut self, print: u64) -> usize {
        let number = self.segment_of(print);
        if !self.changes.is_empty() {
            self.catch_up(number);
            // Another one by the way, so that after so many calls as there are segments nobody is behind.
            let behind = self.segments.iter().position(|segment| segment.generation != self.generation);
            if let Some(other) = behind {
                self.catch_up(other);
            }
        }
        number
    }

    /// Takes a segment's states through the changes of quota that they have missed.
    fn catch_up(&mut self, number: usize) {
        let segment = &mut self.segments[number];
        if segment.generation == self.generation {
            return;
        }
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
        self.open_if_it_can_be();
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

    /// Starts a round over all segments from the beginning, so that the round leaves nothing out.
    pub(crate) fn rewind(&mut self) {
        self.sweeping = 0;
        self.segments.iter_mut().for_each(Segment::rewind);
    }

    /// Looks at the next `lines` lines and drops idle keys; behind the last segment, joins two if there are too many.
    /// Whether that ended a round.
    pub(crate) fn sweep(&mut self, common: &Common<A>, now: Tick, lines: usize) -> bool {
        if self.sweeping < self.segments.len() {
            self.sweep_lines(common, now, lines);
        } else {
            // Not before all were swept: what has not been could move to where it would be missed.
            self.join(common);
        }
        let ends = self.sweeping >= self.segments.len() && !self.has_too_many_segments();
        if ends {
            self.sweeping = 0;
        }
        ends
    }

    /// Looks at the next `lines` lines of the segment that sweeping is at.
    fn sweep_lines(&mut self, common: &Common<A>, now: Tick, lines: usize) {
        let number = self.sweeping;
        self.catch_up(number);
        let (places, ends) = self.segments[number].next_places(lines);
        self.drop_idle(common, number, places, now);
        if !ends {
            return;
        }
        if self.segments[number].is_sparse() {
            self.resize(common, number, Segment::shrink);
        }
        self.sweeping += 1;
    }

    fn has_too_many_segments(&self) -> bool {
        !self.pinned && self.segments.len() > 1 && self.keys < self.segments.len() * FEWEST_PER_SEGMENT
    }

    /// Drops the idle keys among these places.
    fn drop_idle(&mut self, common: &Common<A>, number: usize, places: Range<usize>, now: Tick) {
        let mut place = places.start;
        while place < places.end {
            let segment = &self.segments[number];
            let slot = segment.slot(place);
            let is_idle = slot.print != 0
                && !self.is_held(slot.print)
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
        self.catch_up(low);
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
            self.catch_up(number);
        }
        let Some(mut last) = self.segments.pop() else { return };
        common.room.shrunk(last.bytes() + size_of_val(&last));
        self.resize(common, number, |segment| segment.take_in(&mut last));
        if self.segments.len() <= (self.mask >> 1) + 1 {
            self.mask >>= 1;
        }
        if self.segments.capacity() >= 4 * self.segments.len() {
            self.segments.shrink_to(2 * self.segments.len());
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
        self.split_if_due(common);
        Ok(())
    }

    fn split_if_due(&mut self, common: &Common<A>) {
        if !self.pinned && self.keys >= self.segments.len() * MOST_PER_SEGMENT {
            self.split(common);
        }
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
        (slot.print != 0 && !self.is_held(slot.print)).then(|| {
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
        self.catch_up(number);
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

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::HashSet;
    use std::sync::Arc;

    use fastrand::Rng;
    use tollgate_core::TokenBucket;

    use super::*;

    fn common(by_key: bool) -> Common<TokenBucket> {
        Common {
            plans: Plans::new(Arc::new(TokenBucket::new)),
            by_key,
            room: Room::new(u64::MAX, u64::MAX),
            at_cap: AtCap::Evict,
            patience: Duration::ZERO,
        }
    }

    const QUOTA: Quota = Quota::per_second(1).burst(2);

    fn take(shard: &mut Shard<TokenBucket>, common: &Common<TokenBucket>, print: u64, now: Tick) -> bool {
        let query = Query { print, plan: Some(0), now, ask: Ask::now(1) };
        matches!(shard.take(common, query), Answer::Decided(decision, _) if decision.is_allowed())
    }

    /// Every segment holds just the keys that belong there.
    fn check(shard: &Shard<TokenBucket>, common: &Common<TokenBucket>) {
        assert!(shard.mask + 1 >= shard.segments.len() && shard.mask / 2 < shard.segments.len());
        for (number, segment) in shard.segments.iter().enumerate() {
            assert!(segment.iter().all(|(_, slot)| shard.segment_of(slot.print) == number));
        }
        let keys: usize = shard.segments.iter().map(Segment::len).sum();
        let bytes: usize = shard.segments.iter().map(|segment| segment.bytes() + size_of_val(segment)).sum();
        assert_eq!((keys, keys as u64), (shard.keys, common.room.keys()));
        assert_eq!((bytes + size_of_val(shard)) as u64, common.room.bytes());
    }

    /// Sweeps until a round changes nothing.
    fn sweep(shard: &mut Shard<TokenBucket>, common: &Common<TokenBucket>, now: Tick) {
        for _ in 0..50 {
            while !shard.sweep(common, now, 7) {}
        }
    }

    #[test]
    fn segments_split_and_join_and_nothing_is_lost() {
        let (common, mut rng) = (common(false), Rng::with_seed(1));
        let mut shard = Shard::new(&common, QUOTA);
        let mut now = Tick::ZERO;
        for round in 0..12 {
            let prints: HashSet<u64> = (0..rng.usize(1..30_000)).map(|_| rng.u64(1..)).collect();
            for print in &prints {
                assert!(take(&mut shard, &common, *print, now) && take(&mut shard, &common, *print, now));
            }
            assert!(shard.segments.len() * MOST_PER_SEGMENT * 2 >= shard.keys, "round {round}");
            check(&shard, &common);
            now = now + Duration::from_secs(1);
            for print in prints.iter().filter(|print| *print % 8 == 0) {
                assert!(take(&mut shard, &common, *print, now), "one came back");
                assert!(!take(&mut shard, &common, *print, now), "and no more");
            }
            now = now + Duration::from_secs(1);
            sweep(&mut shard, &common, now);
            assert_eq!(shard.keys, prints.iter().filter(|print| *print % 8 == 0).count());
            check(&shard, &common);
            now = now + Duration::from_secs(1);
            sweep(&mut shard, &common, now);
            assert_eq!((shard.keys, shard.segments.len(), shard.mask), (0, 1, 0), "round {round}");
            check(&shard, &common);
        }
    }

    #[test]
    fn a_change_of_quota_reaches_every_segment() {
        let (common, mut rng) = (common(true), Rng::with_seed(2));
        let mut shard = Shard::new(&common, QUOTA);
        let prints: Vec<u64> = (0..20_000).map(|_| rng.u64(1..)).collect();
        for print in &prints {
            assert!(take(&mut shard, &common, *print, Tick::ZERO));
        }
        shard.set_quota(&common, Quota::per_second(1).burst(9), Tick::ZERO);
        assert!(shard.takes_detour);
        shard.set_quota(&common, Quota::per_second(1).burst(5), Tick::ZERO);
        let calls = shard.segments.len();
        for print in &prints {
            assert!(take(&mut shard, &common, *print, Tick::ZERO), "one was left");
            assert!(!take(&mut shard, &common, *print, Tick::ZERO), "and no more");
        }
        assert!(prints.len() > calls && !shard.takes_detour && shard.changes.is_empty());
    }
}
