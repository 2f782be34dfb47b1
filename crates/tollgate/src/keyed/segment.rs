//! A small open table of states by fingerprint: what a shard splits into, so that nothing ever moves but a thousand slots at
//! a time.
//!
//! Slots lie four to a cache line. A key's home is a line; if that is full it goes into the next one that is not. Lines fill
//! from the front and are never left with a gap: a search ends at the first empty slot. Taking a key out moves later ones
//! back, so there are no tombstones, and a table that was swept is as fast as one that was never full.

use std::mem;

use tollgate_core::Tick;

use super::prefetch::prefetch;

/// How many slots share a line. Four of 16 bytes are a cache line.
const SLOTS: usize = 4;
/// The fewest lines of a segment.
const FEWEST: usize = 2;

/// A fingerprint and its state. A fingerprint of zero marks an empty slot.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slot<S> {
    pub(crate) print: u64,
    pub(crate) state: S,
}

#[derive(Clone, Debug, Default)]
#[repr(align(64))]
struct Line<S>([Slot<S>; SLOTS]);

impl<S> Line<S> {
    fn is_full(&self) -> bool {
        self.0[SLOTS - 1].print != 0
    }
}

/// A part of a shard's keys. Places are counted over all slots of all lines.
#[derive(Clone, Debug)]
pub(crate) struct Segment<S> {
    lines: Box<[Line<S>]>,
    /// The plan of each slot's key, if keys have plans of their own; else empty.
    plans: Box<[u32]>,
    used: usize,
    /// Where sweeping goes on.
    cursor: usize,
    /// Nothing in it is idle before this; zero if that is not known.
    pub(crate) none_idle_before: Tick,
    /// The change of quota that the states have gone through.
    pub(crate) generation: u64,
}

/// The size after `lines`: by turns half and a third more, so that a third is free at most.
fn larger(lines: usize) -> usize {
    if lines.is_power_of_two() { lines + lines / 2 } else { lines / 3 * 4 }
}

impl<S: Clone + Default> Segment<S> {
    pub(crate) fn new(lines: usize, has_plans: bool) -> Self {
        let plans = if has_plans { lines * SLOTS } else { 0 };
        Self {
            lines: vec![Line::default(); lines].into_boxed_slice(),
            plans: vec![0; plans].into_boxed_slice(),
            used: 0,
            cursor: 0,
            none_idle_before: Tick::ZERO,
            generation: 0,
        }
    }

    pub(crate) fn smallest(has_plans: bool) -> Self {
        Self::new(FEWEST, has_plans)
    }

    pub(crate) fn len(&self) -> usize {
        self.used
    }

    fn slots(&self) -> usize {
        self.lines.len() * SLOTS
    }

    /// What it takes in memory.
    pub(crate) fn bytes(&self) -> usize {
        mem::size_of_val(&*self.lines) + mem::size_of_val(&*self.plans)
    }

    /// Whether one more would make searches long.
    pub(crate) fn is_full(&self) -> bool {
        self.used * 5 >= self.slots() * 4
    }

    /// Whether a sweep made enough room that growing can wait.
    pub(crate) fn has_room(&self) -> bool {
        self.used * 10 < self.slots() * 7
    }

    /// Whether it would do with half its size.
    pub(crate) fn is_sparse(&self) -> bool {
        self.lines.len() > FEWEST && self.used * 4 < self.slots()
    }

    #[inline]
    fn home(&self, print: u64) -> usize {
        ((u64::from(print as u32) * self.lines.len() as u64) >> 32) as usize
    }

    /// Gets a key's line under way.
    #[inline]
    pub(crate) fn prefetch(&self, print: u64) {
        prefetch(&self.lines[self.home(print)]);
    }

    /// A key's state and plan.
    #[inline]
    pub(crate) fn get_mut(&mut self, print: u64, has_plans: bool) -> Option<(&mut S, u32)> {
        let lines = self.lines.len();
        let mut line = self.home(print);
        loop {
            // Looked at twice, because a borrow that may be returned cannot be given up.
            let slots = &self.lines[line].0;
            if let Some(index) = slots.iter().position(|slot| slot.print == print) {
                let plan = if has_plans { self.plans[line * SLOTS + index] } else { 0 };
                return Some((&mut self.lines[line].0[index].state, plan));
            }
            if slots[SLOTS - 1].print == 0 {
                return None;
            }
            line = if line + 1 == lines { 0 } else { line + 1 };
        }
    }

    /// Where a key is.
    pub(crate) fn find(&self, print: u64) -> Option<usize> {
        let mut line = self.home(print);
        loop {
            let slots = &self.lines[line].0;
            if let Some(index) = slots.iter().position(|slot| slot.print == print) {
                return Some(line * SLOTS + index);
            }
            if slots[SLOTS - 1].print == 0 {
                return None;
            }
            line = self.after(line);
        }
    }

    /// Where a key that is not there would go.
    fn vacancy(&self, print: u64) -> usize {
        let mut line = self.home(print);
        while self.lines[line].is_full() {
            line = self.after(line);
        }
        let used = self.lines[line].0.iter().take_while(|slot| slot.print != 0).count();
        line * SLOTS + used
    }

    #[inline]
    fn after(&self, line: usize) -> usize {
        if line + 1 == self.lines.len() { 0 } else { line + 1 }
    }

    #[inline]
    pub(crate) fn slot(&self, place: usize) -> &Slot<S> {
        &self.lines[place / SLOTS].0[place % SLOTS]
    }

    #[inline]
    pub(crate) fn state_mut(&mut self, place: usize) -> &mut S {
        &mut self.lines[place / SLOTS].0[place % SLOTS].state
    }

    /// The plan of the key at `place`; zero if keys have none of their own.
    #[inline]
    pub(crate) fn plan(&self, place: usize) -> u32 {
        self.plans.get(place).copied().unwrap_or(0)
    }

    pub(crate) fn set_plan(&mut self, place: usize, plan: u32) {
        if let Some(known) = self.plans.get_mut(place) {
            *known = plan;
        }
    }

    /// Puts in a key that is not there. The segment must not be full.
    pub(crate) fn put(&mut self, print: u64, state: S, plan: u32) {
        let place = self.vacancy(print);
        self.lines[place / SLOTS].0[place % SLOTS] = Slot { print, state };
        self.set_plan(place, plan);
        self.used += 1;
    }

    /// Takes a key out. Others may move to lower places, but never to one before `place`, except from the far end around.
    pub(crate) fn remove(&mut self, place: usize) -> S {
        let taken = mem::take(&mut self.lines[place / SLOTS].0[place % SLOTS]);
        self.used -= 1;
        let mut hole = place;
        while let Some(from) = self.fill(hole) {
            hole = from;
        }
        taken.state
    }

    /// Closes the gap at `hole`, which leaves the line's last slot empty; then finds one that spilled over from there
    /// and moves it in. Answers where that left a gap.
    fn fill(&mut self, hole: usize) -> Option<usize> {
        let (line, index) = (hole / SLOTS, hole % SLOTS);
        let behind = self.lines[line].0[index + 1..].iter().take_while(|slot| slot.print != 0).count();
        let last = index + behind;
        self.relocate(line * SLOTS + last, hole);
        if last < SLOTS - 1 {
            return None; // it was not full, so nobody spilled over
        }
        let lines = self.lines.len();
        let mut next = self.after(line);
        while next != line {
            let gap = (next + lines - line) % lines;
            let spilled =
                |slot: &Slot<S>| slot.print != 0 && (next + lines - self.home(slot.print)) % lines >= gap;
            if let Some(index) = self.lines[next].0.iter().position(spilled) {
                let from = next * SLOTS + index;
                self.relocate(from, line * SLOTS + SLOTS - 1);
                return Some(from);
            }
            if !self.lines[next].is_full() {
                return None;
            }
            next = self.after(next);
        }
        None
    }

    /// Moves a slot, leaving its place empty.
    fn relocate(&mut self, from: usize, to: usize) {
        if from != to {
            let slot = mem::take(&mut self.lines[from / SLOTS].0[from % SLOTS]);
            self.lines[to / SLOTS].0[to % SLOTS] = slot;
            self.set_plan(to, self.plan(from));
        }
    }

    /// All places.
    pub(crate) fn places(&self) -> std::ops::Range<usize> {
        0..self.slots()
    }

    /// Has [`next_places`](Self::next_places) begin at the first line again.
    pub(crate) fn rewind(&mut self) {
        self.cursor = 0;
    }

    /// The places of the next `lines` lines to look at, and whether they end a round over the segment.
    pub(crate) fn next_places(&mut self, lines: usize) -> (std::ops::Range<usize>, bool) {
        let from = if self.cursor >= self.lines.len() { 0 } else { self.cursor };
        let to = (from + lines).min(self.lines.len());
        self.cursor = to;
        (from * SLOTS..to * SLOTS, to == self.lines.len())
    }

    /// Everything in it.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &Slot<S>)> {
        let places = self.lines.iter().flat_map(|line| &line.0).enumerate();
        places.filter(|(_, slot)| slot.print != 0)
    }

    /// Gives every state to `change`.
    pub(crate) fn for_each_mut(&mut self, mut change: impl FnMut(u32, &mut S)) {
        for (place, slot) in self.lines.iter_mut().flat_map(|line| &mut line.0).enumerate() {
            if slot.print != 0 {
                change(self.plans.get(place).copied().unwrap_or(0), &mut slot.state);
            }
        }
    }

    /// How many bytes it would take to make it larger.
    pub(crate) fn growth(&self) -> usize {
        self.bytes() / self.lines.len() * (larger(self.lines.len()) - self.lines.len())
    }

    pub(crate) fn grow(&mut self) {
        self.rebuild(larger(self.lines.len()));
    }

    /// Takes the smallest size at which it is not nearly full.
    pub(crate) fn shrink(&mut self) {
        self.rebuild(lines_for(self.used));
    }

    fn rebuild(&mut self, lines: usize) {
        let mut rebuilt = Self::new(lines, !self.plans.is_empty());
        rebuilt.generation = self.generation;
        rebuilt.take_in(self);
        *self = rebuilt;
    }

    /// Moves everything of another segment into this one.
    pub(crate) fn take_in(&mut self, other: &mut Self) {
        other.drain(|print, state, plan| self.put_growing(print, state, plan));
    }

    /// Splits off those with `bit` set in their fingerprint.
    pub(crate) fn split(&mut self, bit: u64) -> Self {
        let has_plans = !self.plans.is_empty();
        let lines = lines_for(self.used / 2);
        let [mut low, mut high] = [(); 2].map(|()| Self::new(lines, has_plans));
        (low.generation, high.generation) = (self.generation, self.generation);
        self.drain(|print, state, plan| {
            let half = if print & bit == 0 { &mut low } else { &mut high };
            half.put_growing(print, state, plan);
        });
        *self = low;
        high
    }

    /// Gives away all states.
    fn drain(&mut self, mut take: impl FnMut(u64, S, u32)) {
        for (place, slot) in self.lines.iter_mut().flat_map(|line| &mut line.0).enumerate() {
            if slot.print != 0 {
                let plan = self.plans.get(place).copied().unwrap_or(0);
                take(slot.print, mem::take(&mut slot.state), plan);
            }
        }
    }

    fn put_growing(&mut self, print: u64, state: S, plan: u32) {
        if self.is_full() {
            self.grow();
        }
        self.put(print, state, plan);
    }
}

/// The smallest size at which so many keys leave some room.
fn lines_for(keys: usize) -> usize {
    let mut lines = FEWEST;
    while keys * 3 >= lines * SLOTS * 2 {
        lines = larger(lines);
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use fastrand::Rng;

    use super::*;

    /// Every key is found where the model has it, and lines have no gaps.
    fn agrees(segment: &Segment<u64>, model: &HashMap<u64, u64>) {
        assert_eq!(segment.len(), model.len());
        assert_eq!(segment.iter().count(), model.len());
        for (print, state) in model {
            let place = segment.find(*print).expect("it is there");
            assert_eq!(segment.slot(place).state, *state);
            assert_eq!(u64::from(segment.plan(place)), print % 7);
        }
        for line in &segment.lines {
            let used = line.0.iter().take_while(|slot| slot.print != 0).count();
            assert!(line.0[used..].iter().all(|slot| slot.print == 0), "a gap");
        }
    }

    /// Prints that agree in the bits that choose their line, more often than not.
    fn print(rng: &mut Rng) -> u64 {
        let home = if rng.bool() { rng.u64(..3) << 30 } else { rng.u64(..1 << 32) };
        rng.u64(1..200) << 32 | home
    }

    #[test]
    fn it_agrees_with_a_hash_map() {
        for seed in 0..200 {
            let mut rng = Rng::with_seed(seed);
            let (mut segment, mut model) = (Segment::smallest(true), HashMap::new());
            for step in 0..600 {
                let print = print(&mut rng);
                match segment.find(print) {
                    Some(place) if rng.bool() => {
                        assert_eq!(Some(segment.remove(place)), model.remove(&print));
                    }
                    Some(place) => {
                        *segment.state_mut(place) = step;
                        model.insert(print, step);
                    }
                    None => {
                        if segment.is_full() {
                            segment.grow();
                        }
                        segment.put(print, step, (print % 7) as u32);
                        model.insert(print, step);
                    }
                }
                if rng.u8(..) == 0 {
                    segment.shrink();
                }
            }
            agrees(&segment, &model);
            let mut high = segment.split(1 << 40);
            assert!(high.iter().all(|(_, slot)| slot.print & 1 << 40 != 0));
            assert!(segment.iter().all(|(_, slot)| slot.print & 1 << 40 == 0));
            segment.take_in(&mut high);
            agrees(&segment, &model);
        }
    }

    #[test]
    fn at_least_half_of_a_growing_segment_is_used() {
        let mut segment = Segment::smallest(false);
        for count in 1..=1_200_u64 {
            if segment.is_full() {
                segment.grow();
            }
            segment.put(count << 32 | count.wrapping_mul(0x9E37_79B9) & 0xFFFF_FFFF, 0_u64, 0);
            assert!(count < 16 || segment.bytes() <= 31 * segment.len(), "{} at {count}", segment.bytes());
        }
    }
}
