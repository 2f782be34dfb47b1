//! A part of the keys, behind one lock.
//!
//! A shard's keys lie in segments of about a thousand, which are split and joined one at a time. Each segment is as large as its
//! own keys need. So whatever a caller does to the table besides its own business, it touches one segment.
//!
//! A key that is idle equals one that is absent. Calls drop idle keys as they go along: every 256th call looks at one line,
//! every 32nd where the last look found some, a full segment is swept before it grows, and one that has become sparse is
//! made smaller.

mod account;
mod evict;
mod hold;
mod quota;
mod restore;
mod sweep;

use std::borrow::Cow;
use std::time::Duration;

use tollgate_core::{Algorithm, Ask, Claim, Decision, Quota, Step, Tick};

use super::cap::{AtCap, Room};
use super::line::Start;
use super::observer::Evicted;
use super::plans::Plans;
use super::segment::Segment;
use super::segments::Segments;
use crate::cell::Held;
pub(crate) use account::Receipt;
use account::{ACCOUNTS, Account, account};
use evict::Full;
pub(crate) use hold::Drawn;
use quota::Change;
pub(crate) use sweep::Swept;

/// Every so many calls one line is swept. More often costs more than it frees.
const CALLS_PER_LINE: u64 = 256;
/// Every so many calls where the last line had idle keys in it, so that many that became idle together are soon gone.
const CALLS_PER_IDLE_LINE: u64 = 32;

/// What all shards of a store have in common.
#[derive(Debug)]
pub(crate) struct Common<A> {
    pub(crate) plans: Plans<A>,
    /// Whether keys have quotas of their own.
    pub(crate) by_key: bool,
    /// Whether somebody must be told of everything.
    pub(crate) is_watched: bool,
    pub(crate) room: Room,
    pub(crate) at_cap: AtCap,
}

/// A question about one key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Query {
    pub(crate) print: u64,
    /// The number of the key's plan if it is known; it is needed if the key is new.
    pub(crate) plan: Option<u32>,
    pub(crate) now: Tick,
    pub(crate) ask: Ask,
    /// Whether the algorithm says how long the caller may be delayed.
    pub(crate) is_patient: bool,
}

impl Query {
    pub(crate) fn ask_of<A: Algorithm>(&self, algorithm: &A) -> Ask {
        if self.is_patient { self.ask.with_patience(algorithm.patience()) } else { self.ask }
    }
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

/// How a key that is known is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// All keys have the same plan.
    Quick,
    /// Each key's plan must be looked up.
    ByPlan,
    /// Not here, but by [`Shard::take`]: somebody must be told of everything, or waits for one of the keys or has it in hand,
    /// or a segment is behind.
    Closed,
}

/// In this order, so that what every call looks at lies next to the lock, on two cache lines.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Shard<A: Algorithm> {
    /// How a key that is known is asked.
    way: Way,
    segments: Segments<A::State>,
    /// Calls until the next line is swept; they are in the counts already.
    until_sweep: u64,
    /// For keys without a plan of their own.
    algorithm: A,
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
    accounts: Option<Box<[Account; ACCOUNTS]>>,
    /// How many keys have a line of people waiting, and so a limiter of their own.
    lines: usize,
    /// Whether somebody visits the segments one after the other.
    pinned: bool,
    /// Whether somebody must be told of everything.
    is_watched: bool,
    /// The way as long as nothing closes it.
    open_way: Way,
    counts: Counts,
    aside: Box<Aside<A>>,
}

/// What is seldom needed, out of the way: a shard with its lock fits 256 bytes.
#[derive(Debug)]
struct Aside<A> {
    /// For keys without a plan of their own.
    quota: Quota,
    /// The latest changes of quota, the last of which led to the shard's generation.
    changes: Vec<Change<A>>,
    /// Keys that a gate has in hand.
    held: Vec<u64>,
    /// The latest moment as of which a gate took something.
    ahead: Tick,
    /// Those who were dropped and reported.
    reported: Evicted,
    /// The key in line that was last looked at by the way.
    last_line: u64,
}

impl<A: Algorithm> Shard<A> {
    pub(crate) fn new(common: &Common<A>, quota: Quota) -> Self {
        let segment = Segment::smallest(common.by_key);
        common
            .room
            .grown(size_of::<Self>() + size_of::<Aside<A>>() + segment.bytes() + size_of_val(&segment));
        // Where there is a cap, what an eviction needs must be there before it.
        let accounts = common.room.is_bounded().then(|| Box::new([Account::default(); ACCOUNTS]));
        common.room.grown(accounts.as_deref().map_or(0, size_of_val));
        let way = match (common.is_watched, common.by_key) {
            (true, _) => Way::Closed,
            (false, true) => Way::ByPlan,
            (false, false) => Way::Quick,
        };
        Self {
            algorithm: common.plans.make(quota),
            unseen: A::State::default(),
            segments: Segments::new(segment),
            keys: 0,
            sweeping: 0,
            swept_at: Tick::ZERO,
            generation: 0,
            accounts,
            lines: 0,
            pinned: false,
            way,
            open_way: way,
            is_watched: common.is_watched,
            until_sweep: CALLS_PER_LINE,
            counts: Counts { calls: CALLS_PER_LINE, ..Counts::default() },
            aside: Box::new(Aside {
                quota,
                changes: Vec::new(),
                held: Vec::new(),
                ahead: Tick::ZERO,
                reported: Evicted::default(),
                last_line: 0,
            }),
        }
    }

    /// Gets a key's line under way.
    #[inline]
    pub(crate) fn prefetch(&mut self, print: u64) {
        self.segments.prefetch(print);
    }

    /// Asks a key that is known: `decide` gets its algorithm and state, and whether it admits is counted. `None` if the key
    /// is new, or [`take`](Self::take) must look after it first.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a caller that only wants a yes should not pay for the rest")]
    pub(crate) fn ask<T>(
        &mut self,
        common: &Common<A>,
        print: u64,
        now: impl FnOnce() -> Tick,
        decide: impl FnOnce(&A, &mut A::State, Tick) -> (bool, T),
    ) -> Option<T> {
        if self.way != Way::Quick {
            return self.ask_apart(common, print, now, decide);
        }
        let decide = |state: &mut A::State, now| decide(&self.algorithm, state, now);
        let ((admitted, answer), now) = self.segments.ask_known::<true, _>(print, now, decide)?;
        self.count(common, now, admitted);
        Some(answer)
    }

    /// [`ask`](Self::ask) where the caller knows the key's algorithm, and keeps the answer: only whether it admits comes back.
    #[inline]
    pub(crate) fn ask_by(
        &mut self,
        common: &Common<A>,
        print: u64,
        now: impl FnOnce() -> Tick,
        decide: impl FnOnce(&mut A::State, Tick) -> bool,
    ) -> Option<bool> {
        if self.way == Way::Closed {
            return None;
        }
        let (admitted, now) = self.segments.ask_known::<false, _>(print, now, decide)?;
        self.count(common, now, admitted);
        Some(admitted)
    }

    /// [`ask`](Self::ask) where keys have plans, or where it is closed; apart, so that the way of the others is short.
    #[inline(never)]
    fn ask_apart<T>(
        &mut self,
        common: &Common<A>,
        print: u64,
        now: impl FnOnce() -> Tick,
        decide: impl FnOnce(&A, &mut A::State, Tick) -> (bool, T),
    ) -> Option<T> {
        if self.way == Way::Closed {
            return None;
        }
        let (number, now) = (self.segments.number_of(print), now());
        let (state, plan) = self.segments[number].get_mut(print)?;
        let (admitted, answer) = decide(&algorithm_of(&self.algorithm, common, plan), state, now);
        self.count(common, now, admitted);
        Some(answer)
    }

    /// [`ask`](Self::ask) by the algorithm's own decision, and makes out a receipt if something was taken.
    #[inline]
    pub(crate) fn ask_for_receipt(
        &mut self,
        common: &Common<A>,
        print: u64,
        now: Tick,
        ask: Ask,
    ) -> Option<(Decision, Option<Receipt>)> {
        if self.way == Way::Closed {
            return None;
        }
        let number = self.segments.number_of(print);
        let (state, plan) = self.segments[number].get_mut(print)?;
        let algorithm = algorithm_of(&self.algorithm, common, plan);
        let step = algorithm.decide(state, now, ask);
        let receipt = step.change.map(|change| {
            let claim = algorithm.claim(&change, ask.cost(), now + step.decision.delay());
            algorithm.apply(state, change);
            let account = account(self.accounts.as_deref(), print);
            Receipt { claim, plan, account, generation: self.generation }
        });
        let receipt = receipt.or_else(|| self.of_nothing(&step.decision, print, plan, now, ask));
        self.count(common, now, step.decision.is_admitted());
        Some((step.decision, receipt))
    }

    /// The receipt for a cost of nothing: what it really was may turn out later. None where nothing is limited.
    #[cold]
    fn of_nothing(&self, decision: &Decision, print: u64, plan: u32, now: Tick, ask: Ask) -> Option<Receipt> {
        let claim = Claim { cost: 0, act: now, mark: 0 };
        let account = account(self.accounts.as_deref(), print);
        let receipt = Receipt { claim, plan, account, generation: self.generation };
        (ask.cost() == 0 && decision.limit() < u64::MAX).then_some(receipt)
    }

    /// Counts a question that was answered elsewhere.
    pub(crate) fn count_elsewhere(&mut self, admitted: bool) {
        self.counts.calls += 1;
        self.counts.denied += u64::from(!admitted);
    }

    /// Counts a question to which a gate said no.
    pub(crate) fn refused_elsewhere(&mut self, lacks_room: bool) {
        self.counts.refused += u64::from(lacks_room);
        self.count_elsewhere(false);
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
            self.sweep_by_the_way(common, now);
        }
    }

    #[cold]
    #[inline(never)]
    fn sweep_by_the_way(&mut self, common: &Common<A>, now: Tick) {
        let swept = self.counts.swept;
        drop(self.sweep(common, now, 1));
        self.until_sweep = if self.counts.swept > swept { CALLS_PER_IDLE_LINE } else { CALLS_PER_LINE };
        self.counts.calls += self.until_sweep;
    }

    /// Who was dropped since this was last asked, if somebody must be told.
    pub(crate) fn newly_evicted(&mut self) -> Evicted {
        if !self.is_watched {
            return Evicted::default();
        }
        let all = Evicted { idle: self.counts.swept, active: self.counts.evicted };
        let Evicted { idle, active } = std::mem::replace(&mut self.aside.reported, all);
        Evicted { idle: all.idle - idle, active: all.active - active }
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts { calls: self.counts.calls - self.until_sweep, ..self.counts }
    }

    /// Decides, takes if it admits, and makes out a receipt.
    pub(crate) fn take(&mut self, common: &Common<A>, query: Query) -> Answer {
        let Query { print, now, .. } = query;
        let number = self.up_to_date(print);
        let Some(place) = self.segments[number].find(print) else {
            return self.take_new(common, query, number);
        };
        let segment = &mut self.segments[number];
        let plan = segment.plan(place);
        let algorithm = algorithm_of(&self.algorithm, common, plan);
        let ask = query.ask_of(&*algorithm);
        let step = algorithm.decide(&segment.slot(place).state, now, ask);
        let receipt = step.change.map(|change| {
            let claim = algorithm.claim(&change, ask.cost(), now + step.decision.delay());
            algorithm.apply(segment.state_mut(place), change);
            let account = account(self.accounts.as_deref(), print);
            Receipt { claim, plan, account, generation: self.generation }
        });
        let receipt = receipt.or_else(|| self.of_nothing(&step.decision, print, plan, now, ask));
        self.count(common, now, step.decision.is_admitted());
        Answer::Decided(step.decision, receipt)
    }

    /// The first question about a key. Counts for the sweeping as any other.
    #[cold]
    fn take_new(&mut self, common: &Common<A>, query: Query, number: usize) -> Answer {
        let Some(plan) = query.plan else { return Answer::NeedsPlan };
        // A key that was dropped as idle must not be admitted by a reading from before that.
        let now = query.now.max(self.swept_at);
        let answer = self.take_of_new(common, Query { now, ..query }, number, plan);
        self.count(common, query.now, true); // what was denied is counted there
        match answer {
            Answer::Decided(said, receipt) => {
                Answer::Decided(said.told_before(now.since(query.now)), receipt)
            }
            Answer::Refused(said) => Answer::Refused(said.told_before(now.since(query.now))),
            other => other,
        }
    }

    fn take_of_new(&mut self, common: &Common<A>, query: Query, number: usize, plan: u32) -> Answer {
        let (now, cost) = (query.now, query.ask.cost());
        let (algorithm, mut state) = self.unseen(common, plan);
        let decide = |state: &A::State, then| algorithm.decide(state, then, query.ask_of(&algorithm));
        let step = decide(&state, now);
        let Some(change) = step.change else {
            self.counts.denied += u64::from(!step.decision.is_admitted());
            let asks_for_room = Self::asks_for_room(common, (&algorithm, &state), &step, cost, now);
            let full = if asks_for_room { self.why_full(common, number, now) } else { None };
            if let Some(full) = full {
                let said = full.said(now, cost, |then| decide(&state, then).decision);
                return Full::answer(common.at_cap, &step.decision, said);
            }
            let receipt = self.of_nothing(&step.decision, query.print, plan, now, query.ask);
            return Answer::Decided(step.decision, receipt); // nothing to remember
        };
        if let Err(full) = self.make_room(common, number, now) {
            let said = full.said(now, cost, |then| decide(&state, then).decision);
            let answer = self.no_room(common, said);
            self.counts.denied += u64::from(matches!(answer, Answer::Refused(_)));
            return answer;
        }
        let claim = algorithm.claim(&change, cost, now + step.decision.delay());
        algorithm.apply(&mut state, change);
        let idle_at = now + step.decision.reset_after().unwrap_or(Duration::MAX);
        self.put(common, query.print, state, plan, idle_at);
        let account = account(self.accounts.as_deref(), query.print);
        Answer::Decided(step.decision, Some(Receipt { claim, plan, account, generation: self.generation }))
    }

    /// Decides by `step`, whichever algorithm that is of, and makes out no receipt.
    pub(crate) fn step(
        &mut self,
        common: &Common<A>,
        print: u64,
        now: Tick,
        step: impl Fn(&A::State, Tick) -> Step<A::Change>,
    ) -> Answer {
        let number = self.up_to_date(print);
        if let Some(place) = self.segments[number].find(print) {
            let segment = &mut self.segments[number];
            let Step { change, decision } = step(&segment.slot(place).state, now);
            if let Some(change) = change {
                self.algorithm.apply(segment.state_mut(place), change);
                self.may_be_idle_sooner(common, number, place, now);
            }
            self.count(common, now, decision.is_admitted());
            return Answer::Decided(decision, None);
        }
        self.counts.calls += 1;
        let now = now.max(self.swept_at); // as for any other new key
        let mut state = A::State::default();
        let Step { change, decision } = step(&state, now);
        self.counts.denied += u64::from(!decision.is_admitted());
        let Some(change) = change else { return Answer::Decided(decision, None) };
        if let Err(full) = self.make_room(common, number, now) {
            self.counts.denied += 1;
            let said = full.said(now, 1, |then| step(&state, then).decision);
            return self.no_room(common, said);
        }
        self.algorithm.apply(&mut state, change);
        let idle_at = now + decision.reset_after().unwrap_or(Duration::MAX);
        self.put(common, print, state, 0, idle_at);
        Answer::Decided(decision, None)
    }

    /// The algorithm of a plan, and the state of a key that was never seen.
    pub(crate) fn unseen(&self, common: &Common<A>, plan: u32) -> (A, A::State) {
        if plan > 0 {
            return (common.plans.algorithm(plan).into_owned(), A::State::default());
        }
        (self.algorithm.clone(), self.unseen.clone())
    }

    /// Puts in a key that is not there and will not be idle before `idle_at`. There must be room.
    pub(crate) fn put(&mut self, common: &Common<A>, print: u64, state: A::State, plan: u32, idle_at: Tick) {
        let number = self.segments.number_of(print);
        let segment = &mut self.segments[number];
        segment.put(print, state, plan);
        segment.none_idle_before = segment.none_idle_before.min(idle_at);
        self.keys += 1;
        common.room.added();
        common.plans.key_added(plan);
    }

    /// Puts in a key that is not there, whether there is room or not, because it was promised. Meanwhile the table may have become
    /// smaller, or be behind with a change of quota that the key has gone through.
    pub(crate) fn put_back(
        &mut self,
        common: &Common<A>,
        print: u64,
        state: A::State,
        plan: u32,
        idle_at: Tick,
    ) {
        let number = self.up_to_date(print);
        if self.segments[number].is_full() {
            self.resize(common, number, Segment::grow);
        }
        self.put(common, print, state, plan, idle_at);
    }

    /// What [`take`](Self::take) would decide.
    pub(crate) fn peek(&mut self, common: &Common<A>, query: Query) -> Answer {
        let number = self.up_to_date(query.print);
        let segment = &self.segments[number];
        let decision = match (segment.find(query.print), query.plan) {
            (Some(place), _) => {
                let algorithm = algorithm_of(&self.algorithm, common, segment.plan(place));
                algorithm.decide(&segment.slot(place).state, query.now, query.ask_of(&*algorithm)).decision
            }
            (None, Some(plan)) => {
                let now = query.now.max(self.swept_at);
                let (algorithm, state) = self.unseen(common, plan);
                let decide = |then| algorithm.decide(&state, then, query.ask_of(&algorithm));
                let (step, cost) = (decide(now), query.ask.cost());
                let asks_for_room = Self::asks_for_room(common, (&algorithm, &state), &step, cost, now);
                let full = if asks_for_room { self.why_full(common, number, now) } else { None };
                if let Some(full) = full {
                    let said = full.said(now, cost, |then| decide(then).decision);
                    let said = said.told_before(now.since(query.now));
                    return Full::answer(common.at_cap, &step.decision, said);
                }
                step.decision.told_before(now.since(query.now))
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
        let (algorithm, mut state) = self.unseen(common, plan);
        if let Some(change) = algorithm.charge(&state, extra, now.max(self.swept_at)) {
            if self.make_room(common, number, now).is_err() {
                return self.no_room(common, Decision::refusal(0, None));
            }
            algorithm.apply(&mut state, change);
            self.put(common, query.print, state, plan, now);
        }
        Answer::Done
    }

    /// Forgets a key; its plan and state if it was there.
    pub(crate) fn remove(&mut self, common: &Common<A>, print: u64) -> Option<(u32, A::State)> {
        let number = self.up_to_date(print);
        let place = self.segments[number].find(print)?;
        Some(self.remove_at(common, number, place))
    }

    /// Takes a key out of the table, with all it needs to go on elsewhere, where it will take so many bytes. Its plan is needed if it is
    /// new. If there is no room, what such a key with such a limit is told.
    pub(crate) fn take_out(
        &mut self,
        common: &Common<A>,
        query: Query,
        bytes: usize,
        limit: u64,
    ) -> Result<Start<A>, Answer>
    where
        A: Held,
    {
        if !common.room.has_bytes(bytes) {
            self.count_elsewhere(false);
            return Err(Answer::Refused(Decision::refusal(limit, None)));
        }
        let (plan, state) = match self.remove(common, query.print) {
            Some(known) => known,
            None => self.start_new(common, query)?,
        };
        let quota = self.quota(common, plan);
        Ok(Start { quota, algorithm: self.algorithm(common, plan).into_owned(), state, plan })
    }

    /// The plan and state of a new key that will not be in the table, but counts like one that is.
    fn start_new(&mut self, common: &Common<A>, query: Query) -> Result<(u32, A::State), Answer> {
        let (number, plan) = (self.up_to_date(query.print), query.plan.unwrap_or(0));
        if let Err(full) = self.make_room_for_key(common, number, query.now) {
            self.counts.calls += 1;
            let (algorithm, state) = self.unseen(common, plan);
            let decide = |then| algorithm.decide(&state, then, query.ask_of(&algorithm)).decision;
            let answer = self.no_room(common, full.said(query.now, 1, decide));
            self.counts.denied += u64::from(matches!(answer, Answer::Refused(_)));
            return Err(answer);
        }
        Ok((plan, self.unseen(common, plan).1))
    }

    /// Takes a key back into the table that went on elsewhere, unless it is idle by now. Whether that could be: not where the table
    /// must not grow and nobody may be forgotten.
    pub(crate) fn take_in(
        &mut self,
        common: &Common<A>,
        print: u64,
        state: A::State,
        plan: u32,
        now: Tick,
    ) -> bool {
        if self.algorithm(common, plan).is_idle(&state, now) {
            self.counts.swept += 1;
            self.swept_at = self.swept_at.max(now);
            return true;
        }
        let number = self.up_to_date(print);
        let has_place = self.make_place(u64::MAX, common, number, now).is_ok();
        if has_place {
            self.put(common, print, state, plan, Tick::ZERO);
        }
        has_place
    }

    /// The quota of a plan.
    pub(crate) fn quota(&self, common: &Common<A>, plan: u32) -> Quota {
        if plan == 0 { self.aside.quota } else { common.plans.get(plan).quota }
    }

    /// The algorithm of a plan.
    pub(crate) fn algorithm<'a>(&'a self, common: &'a Common<A>, plan: u32) -> Cow<'a, A> {
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
        common.plans.key_removed(plan);
        (plan, segment.remove(place))
    }

    /// How many keys have a line of people waiting.
    pub(crate) fn lines(&self) -> usize {
        self.lines
    }

    pub(crate) fn line_opened(&mut self, common: &Common<A>, bytes: usize) {
        common.room.line_opened(bytes);
        self.lines += 1;
        self.way = Way::Closed;
    }

    pub(crate) fn line_closed(&mut self, common: &Common<A>, bytes: usize) {
        common.room.line_closed(bytes);
        self.lines -= 1;
        self.open_if_it_can_be();
    }

    /// The key in line that was last looked at by the way.
    pub(crate) fn last_line(&self) -> u64 {
        self.aside.last_line
    }

    pub(crate) fn set_last_line(&mut self, print: u64) {
        self.aside.last_line = print;
    }

    fn open_if_it_can_be(&mut self) {
        let is_closed = self.lines > 0 || self.holds_any() || !self.aside.changes.is_empty();
        self.way = if is_closed { Way::Closed } else { self.open_way };
    }
}

/// Whether there would be something to remember if one were taken.
fn counts_one<A: Algorithm>(algorithm: &A, state: &A::State, now: Tick) -> bool {
    algorithm.decide(state, now, Ask::now(1)).change.is_some()
}

/// The algorithm of a plan; number zero stands for the shard's own.
#[inline]
fn algorithm_of<'a, A: Clone>(own: &'a A, common: &'a Common<A>, plan: u32) -> Cow<'a, A> {
    if plan == 0 { Cow::Borrowed(own) } else { common.plans.algorithm(plan) }
}

#[cfg(all(test, not(loom)))]
mod tests;
