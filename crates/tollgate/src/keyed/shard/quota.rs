//! Changes of quota. They reach a segment when it is next looked at.

use tollgate_core::{Algorithm, Quota, Tick};

use super::{Common, Shard, Way, algorithm_of};

/// A change of quota that not all segments have gone through.
#[derive(Debug)]
pub(super) struct Change<A> {
    now: Tick,
    quota: Quota,
    old: A,
    new: A,
}

impl<A: Algorithm> Shard<A> {
    /// Goes on with another quota, for keys without a plan of their own.
    pub(crate) fn set_quota(&mut self, common: &Common<A>, quota: Quota, now: Tick) {
        let new = common.plans.make(quota);
        let old = std::mem::replace(&mut self.algorithm, new.clone());
        self.unseen = old.moved(&self.unseen, now, quota, &new);
        self.aside.quota = quota;
        self.generation += 1;
        if self.keys == 0 {
            // Nobody has to go through it.
            self.aside.changes.clear();
            self.segments.iter_mut().for_each(|segment| segment.generation = self.generation);
            return self.open_if_it_can_be();
        }
        self.aside.changes.push(Change { now, quota, old, new });
        self.way = Way::Closed;
    }

    /// Takes one segment through what it has missed, if there are many changes; whether there was one.
    pub(crate) fn catch_up_if_late(&mut self) -> bool {
        const MOST_CHANGES: u64 = 8;
        let late = self.segments.iter().position(|s| self.generation - s.generation >= MOST_CHANGES);
        late.inspect(|number| self.catch_up(*number)).is_some()
    }

    /// The segment of a key, after all changes of quota.
    #[inline]
    pub(super) fn up_to_date(&mut self, print: u64) -> usize {
        let number = self.segments.number_of(print);
        if !self.aside.changes.is_empty() {
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
    pub(super) fn catch_up(&mut self, number: usize) {
        let segment = &mut self.segments[number];
        if segment.generation == self.generation {
            return;
        }
        let missed = (self.generation - segment.generation) as usize;
        for change in &self.aside.changes[self.aside.changes.len() - missed..] {
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
        self.aside.changes.drain(..self.aside.changes.len() - needed);
        self.open_if_it_can_be();
    }

    /// What was taken of a key under another plan, elsewhere, cannot be given back.
    pub(crate) fn forget_claims(&mut self, common: &Common<A>, print: u64) {
        self.account_mut(common, print).forgotten += 1;
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
            self.may_be_idle_sooner(common, number, place, now);
            self.account_mut(common, print).forgotten += 1; // claims under the old plan cannot be given back
        }
    }
}
