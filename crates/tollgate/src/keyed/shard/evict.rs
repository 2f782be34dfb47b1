//! Making room for a key when there is none.

use std::cmp::Reverse;
use std::ops::Range;
use std::time::Duration;

use tollgate_core::{Algorithm, Ask, Decision, Step, Tick};

use super::{Answer, Common, Shard, algorithm_of, counts_one};
use crate::keyed::cap::AtCap;
use crate::keyed::segment::Segment;

/// How many lines are looked at to make room for a key.
const LINES_PER_EVICTION: usize = 16;

impl<A: Algorithm> Shard<A> {
    /// Why there is no room for a new key and none can be made, if so. Nobody who counts is forgotten for the asking.
    pub(crate) fn is_full_for(&mut self, common: &Common<A>, print: u64, now: Tick) -> Option<Full> {
        let number = self.up_to_date(print);
        self.why_full(common, number, now)
    }

    pub(super) fn why_full(&mut self, common: &Common<A>, number: usize, now: Tick) -> Option<Full> {
        if common.at_cap != AtCap::Evict {
            return self.foresee_room(common, number, now).err();
        }
        let is_stuck =
            !common.room.has_key() && self.segments[number].len() == 0 && common.room.is_full_of_lines();
        is_stuck.then_some(Full { next_idle: None })
    }

    /// Whether what a new key is told depends on whether there is room: if something is taken, or would be if it cost anything, or where it
    /// must come back anyway and somebody may be idle only after that.
    pub(super) fn asks_for_room(
        common: &Common<A>,
        (algorithm, state): (&A, &A::State),
        step: &Step<A::Change>,
        cost: u64,
        now: Tick,
    ) -> bool {
        let comes_back = !step.decision.is_admitted() && !step.decision.is_never();
        step.change.is_some()
            || (cost == 0 && counts_one(algorithm, state, now))
            || (comes_back && common.at_cap == AtCap::Refuse)
    }

    /// Whether [`make_room`](Self::make_room) would, where nobody who counts is forgotten. Drops nobody.
    fn foresee_room(&mut self, common: &Common<A>, number: usize, now: Tick) -> Result<(), Full> {
        let segment = &self.segments[number];
        let has_place = !segment.is_full() || self.has_bytes(u64::MAX, common, segment.growth());
        if common.room.has_key() && has_place || segment.len() == 0 && may_exceed(common) {
            return Ok(());
        }
        let known = segment.none_idle_before;
        let next = if now < known { known } else { self.find_next_idle(common, number, now) };
        if next <= now { Ok(()) } else { Err(Full::until(next)) }
    }

    /// Makes room for one more key in a segment.
    pub(super) fn make_room(&mut self, common: &Common<A>, number: usize, now: Tick) -> Result<(), Full> {
        self.make_room_within(u64::MAX, common, number, now)
    }

    /// The same, where all segments of this shard together may have so many bytes. Of growing and splitting, a call does one at
    /// most.
    pub(super) fn make_room_within(
        &mut self,
        most_bytes: u64,
        common: &Common<A>,
        number: usize,
        now: Tick,
    ) -> Result<(), Full> {
        self.make_room_for_key(common, number, now)?;
        self.make_place(most_bytes, common, number, now)
    }

    /// Makes sure that one more key may come, wherever it will be.
    pub(super) fn make_room_for_key(
        &mut self,
        common: &Common<A>,
        number: usize,
        now: Tick,
    ) -> Result<(), Full> {
        if !common.room.has_key() {
            self.evict(common, number, now)?;
            if common.room.is_over() {
                let _ = self.evict(common, number, now); // there is room already: this is for others
            }
        }
        Ok(())
    }

    /// Makes sure that a segment has a place for one of the keys that may be there.
    pub(super) fn make_place(
        &mut self,
        most_bytes: u64,
        common: &Common<A>,
        number: usize,
        now: Tick,
    ) -> Result<(), Full> {
        if !self.segments[number].is_full() {
            self.split_if_due(most_bytes, common);
            return Ok(());
        }
        if !self.has_bytes(most_bytes, common, self.segments[number].growth()) {
            return self.evict(common, number, now);
        }
        let every = self.segments[number].places();
        self.drop_idle(common, number, every, now);
        if self.segments[number].has_room() {
            drop(self.shrink_if_sparse(common, number)); // nobody else may come by to do so
        } else {
            self.resize(common, number, Segment::grow);
        }
        Ok(())
    }

    /// Whether the segments may have so many bytes more.
    pub(super) fn has_bytes(&self, most_bytes: u64, common: &Common<A>, more: usize) -> bool {
        let bytes = || self.segments.iter().map(Segment::bytes).sum::<usize>();
        common.room.has_bytes(more) && (most_bytes == u64::MAX || (bytes() + more) as u64 <= most_bytes)
    }

    /// What becomes of a key that is told this.
    pub(super) fn no_room(&mut self, common: &Common<A>, said: Decision) -> Answer {
        if common.at_cap == AtCap::Share {
            return Answer::Overflows;
        }
        self.counts.refused += 1;
        Answer::Refused(said)
    }

    /// Makes room by forgetting somebody: whoever is idle, else the one that has most left, and one that has nothing left
    /// only if all have not.
    pub(super) fn evict(&mut self, common: &Common<A>, number: usize, now: Tick) -> Result<(), Full> {
        let Some(next_idle) = self.drop_some_idle(common, number, now) else {
            return Ok(());
        };
        if self.segments[number].len() == 0 && may_exceed(common) {
            return Ok(()); // if there is nobody here, the store is full of others: one more does no harm
        }
        let best =
            if common.at_cap == AtCap::Evict { self.fullest_of_some(common, number, now) } else { None };
        let Some(best) = best else {
            return Err(Full::until(next_idle));
        };
        let print = self.segments[number].slot(best.place).print;
        self.remove_at(common, number, best.place);
        self.account_mut(common, print).forgotten += 1;
        self.counts.evicted += 1;
        Ok(())
    }

    /// Drops idle keys of a segment: a few if there are some near where it was last looked, else all. If there are none, when the
    /// first one will be idle. As long as that has not come nobody is looked at: a flood of new keys must be cheap to refuse.
    fn drop_some_idle(&mut self, common: &Common<A>, number: usize, now: Tick) -> Option<Tick> {
        let known = self.segments[number].none_idle_before;
        if now < known {
            return Some(known);
        }
        let before = self.keys;
        let (near, _) = self.segments[number].next_places(LINES_PER_EVICTION);
        self.drop_idle(common, number, near, now);
        if self.keys < before {
            return None;
        }
        self.drop_idle(common, number, self.segments[number].places(), now);
        let next = self.find_next_idle(common, number, now);
        (self.keys == before).then_some(next)
    }

    /// Finds out when the first key of a segment will be idle, and remembers it; `now` if one is by then.
    fn find_next_idle(&mut self, common: &Common<A>, number: usize, now: Tick) -> Tick {
        let places = self.segments[number].places();
        let soonest = places.filter_map(|place| self.reset_of(common, number, place, now)).min();
        let next = now + soonest.unwrap_or(Duration::MAX);
        if next > now {
            self.segments[number].none_idle_before = next; // else it may have been idle before
        }
        next
    }

    /// After a state has become less: it may be idle before all others.
    pub(super) fn may_be_idle_sooner(&mut self, common: &Common<A>, number: usize, place: usize, now: Tick) {
        if self.segments[number].none_idle_before > Tick::ZERO {
            let reset = self.reset_of(common, number, place, now).unwrap_or(Duration::MAX);
            let segment = &mut self.segments[number];
            segment.none_idle_before = segment.none_idle_before.min(now + reset);
        }
    }

    /// How long until the key at `place` is idle, if there is one. Whoever a gate has in hand cannot be dropped yet.
    fn reset_of(&self, common: &Common<A>, number: usize, place: usize, now: Tick) -> Option<Duration> {
        let slot = self.segments[number].slot(place);
        (slot.print != 0).then(|| {
            let reset = self.facts(common, number, place, now).reset_after().unwrap_or(Duration::MAX);
            if self.is_held(slot.print) { reset.max(Duration::from_nanos(1)) } else { reset }
        })
    }

    /// The key that has most left, among a few if one of them has something left.
    fn fullest_of_some(&mut self, common: &Common<A>, number: usize, now: Tick) -> Option<Candidate> {
        let (near, _) = self.segments[number].next_places(LINES_PER_EVICTION);
        let best = self.fullest(common, number, near, now).filter(|best| best.left > 0);
        best.or_else(|| self.fullest(common, number, self.segments[number].places(), now))
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
        let slot = self.segments[number].slot(place);
        (slot.print != 0 && !self.is_held(slot.print)).then(|| {
            let facts = self.facts(common, number, place, now);
            let left = share(facts.remaining(), facts.limit());
            Candidate { left, reset: Reverse(facts.reset_after().unwrap_or(Duration::MAX)), place }
        })
    }

    /// How things stand with the key at `place`.
    fn facts(&self, common: &Common<A>, number: usize, place: usize, now: Tick) -> Decision {
        let segment = &self.segments[number];
        let algorithm = algorithm_of(&self.algorithm, common, segment.plan(place));
        algorithm.decide(&segment.slot(place).state, now, Ask::now(0)).decision
    }
}

/// Whether a key may come to where nobody is, though the store is full. It would otherwise never come to one that refuses: only
/// keys of the same place make room for it. But keys in line leave their place to the next without making room.
fn may_exceed<A>(common: &Common<A>) -> bool {
    if common.room.is_full_of_lines() {
        return false;
    }
    match common.at_cap {
        AtCap::Evict => true,
        AtCap::Refuse => common.room.keys() > 0,
        AtCap::Share => false,
    }
}

/// There is no room, and nothing idle.
#[derive(Debug)]
pub(crate) struct Full {
    /// When something will be; `None` if never.
    next_idle: Option<Tick>,
}

impl Full {
    fn until(next_idle: Tick) -> Self {
        Self { next_idle: Some(next_idle).filter(|next| *next < Tick::MAX) }
    }

    /// What becomes of a key that is told this where it would have been told `otherwise`. If that is no either, the store need not be to
    /// blame.
    pub(super) fn answer(at_cap: AtCap, otherwise: &Decision, said: Decision) -> Answer {
        match at_cap {
            AtCap::Share => Answer::Overflows,
            _ if said.is_admitted() || !otherwise.is_admitted() => Answer::Decided(said, None),
            AtCap::Evict | AtCap::Refuse => Answer::Refused(said),
        }
    }

    /// What a key is told about which `decide` says what would be decided if there were room: to come when there is and it is admitted,
    /// too. Nothing is always admitted, but nothing is left.
    pub(super) fn said(&self, now: Tick, cost: u64, decide: impl FnOnce(Tick) -> Decision) -> Decision {
        let then = self.next_idle.unwrap_or(now);
        let decision = decide(then);
        let wait =
            self.next_idle.and(decision.retry_after()).map(|wait| then.since(now).saturating_add(wait));
        let refusal = Decision::refusal(decision.limit(), wait);
        if cost == 0 { refusal.allowed() } else { refusal }
    }
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
