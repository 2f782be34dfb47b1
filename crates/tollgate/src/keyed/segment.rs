//! A small open table of states by fingerprint: what a shard splits into, so that nothing ever moves but a thousand slots at
//! a time.
//!
//! Slots lie four to a cache line. A key's home is a slot; if that is taken it goes into another one of the same line, and if
//! the line is full, into the next line that is not. A search ends at the first line with an empty slot. Taking a key out of a
//! full line moves one back that spilled over from there, so there are no tombstones, and a table that was swept is as fast as
//! one that was never full. Whoever has somebody else's home goes elsewhere in the line when that one comes, for the first time or
//! again, so those who come often are at home.

use std::mem;

use allocator_api2::boxed::Box;
use allocator_api2::vec::Vec;
use tollgate_core::Tick;

use super::pages::Pages;
use super::prefetch::prefetch;

/// How many slots share a line. Four of 16 bytes are a cache line.
const SLOTS: usize = 4;
/// The fewest lines of a segment.
const FEWEST: usize = 2;

/// The fingerprint of an empty slot. No key has it.
const EMPTY: u64 = 0;

/// A fingerprint and its state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slot<S> {
    pub(crate) print: u64,
    pub(crate) state: S,
}

#[derive(Clone, Debug, Default)]
#[repr(align(64))]
pub(crate) struct Line<S>([Slot<S>; SLOTS]);

impl<S> Line<S> {
    /// The state of a key that is here. If `SETTLES`, it is at home from then on; that is for tables whose keys have no plans.
    #[inline]
    pub(crate) fn state_of<const SETTLES: bool>(&mut self, print: u64) -> Option<&mut S> {
        // Where it is cannot be foretold, and a wrong guess costs as much as the rest of the search; that it is at home is
        // right for most.
        let home = slot_of(print);
        if self.0[home].print == print {
            return Some(&mut self.0[home].state);
        }
        let slot = self.position(print)?;
        if !SETTLES {
            return Some(&mut self.0[slot].state);
        }
        self.0.swap(slot, home);
        Some(&mut self.0[home].state)
    }

    /// The slot with this fingerprint.
    #[inline]
    fn position(&self, print: u64) -> Option<usize> {
        self.0.iter().position(|slot| slot.print == print)
    }

    #[inline]
    fn is_full(&self) -> bool {
        self.position(EMPTY).is_none()
    }
}

/// A part of a shard's keys. Places are counted over all slots of all lines.
#[derive(Clone, Debug)]
pub(crate) struct Segment<S> {
    lines: Box<[Line<S>], Pages>,
    /// The plan of each slot's key, if keys have plans of their own; else empty.
    plans: Box<[u32], Pages>,
    used: usize,
    /// Where sweeping goes on.
    cursor: usize,
    /// Nothing in it is idle before this; zero if that is not known.
    pub(crate) none_idle_before: Tick,
    /// The change of quota that the states have gone through.
    pub(crate) generation: u64,
}

/// The line of a key and its slot there, beginning with the line in which it should be.
#[inline]
fn search<S>(lines: &[Line<S>], mut line: usize, print: u64) -> Option<(usize, usize)> {
    loop {
        if let Some(index) = lines[line].position(print) {
            return Some((line, index));
        }
        if !lines[line].is_full() {
            return None;
        }
        line = if line + 1 == lines.len() { 0 } else { line + 1 };
    }
}

/// The slot that a key should have in its line. By other bits than those that choose the line; these are where the offset of
/// a slot of 16 bytes has them.
#[inline]
fn slot_of(print: u64) -> usize {
    (print >> 4) as usize % SLOTS
}

/// So many times `content`.
fn table_of<T: Clone>(length: usize, content: T) -> Box<[T], Pages> {
    let mut table = Vec::with_capacity_in(length, Pages);
    table.resize(length, content);
    table.into_boxed_slice()
}

/// The size after `lines`: by turns half and a third more, so that little more than half is ever free.
fn larger(lines: usize) -> usize {
    if lines.is_power_of_two() { lines + lines / 2 } else { lines / 3 * 4 }
}

impl<S: Clone + Default> Segment<S> {
    pub(crate) fn new(lines: usize, has_plans: bool) -> Self {
        let plans = if has_plans { lines * SLOTS } else { 0 };
        Self {
            lines: table_of(lines, Line::default()),
            plans: table_of(plans, 0),
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

    /// Whether one more would make searches long. (At four in five a check takes 4 % longer, and a key two bytes less.)
    pub(crate) fn is_full(&self) -> bool {
        self.used * 10 >= self.slots() * 7
    }

    /// Whether a sweep made enough room that growing can wait.
    pub(crate) fn has_room(&self) -> bool {
        self.used * 10 < self.slots() * 6
    }

    /// Whether it would do with half its size, or with the fewest lines that one of its kind has.
    pub(crate) fn is_sparse(&self, is_alone: bool) -> bool {
        self.lines.len() > fewest(is_alone) && self.used * 4 < self.slots()
    }

    /// The line in which a key should be.
    #[inline]
    fn home(&self, print: u64) -> usize {
        ((u64::from(print as u32) * self.lines.len() as u64) >> 32) as usize
    }

    /// The line in which a key should be. It is under way from memory, so the caller had better do something else first.
    #[inline]
    pub(crate) fn home_of(&mut self, print: u64) -> &mut Line<S> {
        let line = self.home(print);
        prefetch(&self.lines[line]);
        &mut self.lines[line]
    }

    /// The state of a key that is not in its own line.
    #[inline]
    pub(crate) fn state_abroad(&mut self, print: u64) -> Option<&mut S> {
        let home = self.home(print);
        let next = self.after(home);
        let (line, slot) = match self.lines[next].position(print) {
            Some(slot) => (next, slot), // most get no farther
            None => search(&self.lines, home, print)?,
        };
        Some(&mut self.lines[line].0[slot].state)
    }

    /// A key's state and plan.
    #[inline]
    pub(crate) fn get_mut(&mut self, print: u64) -> Option<(&mut S, u32)> {
        let place = self.find(print)?;
        let plan = self.plan(place);
        Some((self.state_mut(place), plan))
    }

    /// Where a key is.
    pub(crate) fn find(&self, print: u64) -> Option<usize> {
        search(&self.lines, self.home(print), print).map(|(line, index)| line * SLOTS + index)
    }

    /// A place for a key that is not there. Whoever has its home and does not belong there makes way, if the line has room.
    fn vacate(&mut self, print: u64) -> usize {
        let mut line = self.home(print);
        let own = line * SLOTS + slot_of(print);
        if let Some(free) = self.lines[line].position(EMPTY) {
            let free = line * SLOTS + free;
            let tenant = self.slot(own).print;
            if tenant == EMPTY {
                return own;
            }
            if self.home(tenant) == line && slot_of(tenant) == slot_of(print) {
                return free;
            }
            self.relocate(own, free);
            return own;
        }
        loop {
            line = self.after(line);
            if let Some(free) = self.lines[line].position(EMPTY) {
                return line * SLOTS + free;
            }
        }
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

    /// Puts in a key that is not there. The segment must not be full. Another one may move within its line.
    pub(crate) fn put(&mut self, print: u64, state: S, plan: u32) {
        let place = self.vacate(print);
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

    /// If the line of `hole` is full but for it, finds one that spilled over from there and moves it in. Answers where that
    /// left a hole.
    fn fill(&mut self, hole: usize) -> Option<usize> {
        let line = hole / SLOTS;
        let others = self.lines[line].0.iter().enumerate().filter(|(index, _)| *index != hole % SLOTS);
        if others.into_iter().any(|(_, slot)| slot.print == EMPTY) {
            return None; // it was not full, so nobody spilled over
        }
        let lines = self.lines.len();
        let mut next = self.after(line);
        while next != line {
            let gap = (next + lines - line) % lines;
            let spilled =
                |slot: &Slot<S>| slot.print != EMPTY && (next + lines - self.home(slot.print)) % lines >= gap;
            if let Some(index) = self.lines[next].0.iter().position(spilled) {
                let from = next * SLOTS + index;
                self.relocate(from, hole);
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
        let slot = mem::take(&mut self.lines[from / SLOTS].0[from % SLOTS]);
        self.lines[to / SLOTS].0[to % SLOTS] = slot;
        self.set_plan(to, self.plan(from));
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
        places.filter(|(_, slot)| slot.print != EMPTY)
    }

    /// Gives every state to `change`.
    pub(crate) fn for_each_mut(&mut self, mut change: impl FnMut(u32, &mut S)) {
        for (place, slot) in self.lines.iter_mut().flat_map(|line| &mut line.0).enumerate() {
            if slot.print != EMPTY {
                change(self.plans.get(place).copied().unwrap_or(0), &mut slot.state);
            }
        }
    }

    /// How many bytes it would take to make it larger.
    pub(crate) fn growth(&self) -> usize {
        self.bytes() / self.lines.len() * (larger(self.lines.len()) - self.lines.len())
    }

    /// How much more memory the two would take that it can be split into.
    pub(crate) fn growth_by_split(&self) -> usize {
        let halves = 2 * self.bytes() / self.lines.len() * lines_for(self.used / 2);
        (halves + size_of::<Self>()).saturating_sub(self.bytes())
    }

    pub(crate) fn grow(&mut self) {
        self.rebuild(larger(self.lines.len()));
    }

    /// Takes the smallest size at which it is not nearly full. Answers the table that it had.
    pub(crate) fn shrink(&mut self, is_alone: bool) -> Self {
        self.rebuild(lines_for(self.used).max(fewest(is_alone)))
    }

    fn rebuild(&mut self, lines: usize) -> Self {
        let mut rebuilt = Self::new(lines, !self.plans.is_empty());
        rebuilt.generation = self.generation;
        rebuilt.take_in(self);
        mem::replace(self, rebuilt)
    }

    /// Moves everything of another segment into this one.
    pub(crate) fn take_in(&mut self, other: &mut Self) {
        self.none_idle_before = self.none_idle_before.min(other.none_idle_before);
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
            if slot.print != EMPTY {
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

/// The fewest lines that a segment is made smaller to. One of several need not be small, since soon it will be joined with another;
/// and what is less than a page would not come from [`Pages`].
fn fewest(is_alone: bool) -> usize {
    if is_alone { FEWEST } else { 64 }
}

/// The smallest size at which so many keys leave some room.
fn lines_for(keys: usize) -> usize {
    let mut lines = FEWEST;
    while keys * 5 >= lines * SLOTS * 3 {
        lines = larger(lines);
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use fastrand::Rng;

    use super::*;

    /// Every key is found, with what the model has.
    fn agrees(segment: &mut Segment<u64>, model: &HashMap<u64, u64>) {
        assert_eq!(segment.len(), model.len());
        assert_eq!(segment.iter().count(), model.len());
        for (print, state) in model {
            let place = segment.find(*print).expect("it is there");
            assert_eq!(segment.slot(place).state, *state);
            let at_home = segment.home_of(*print).state_of::<false>(*print).copied();
            let found = at_home.or_else(|| segment.state_abroad(*print).copied());
            assert_eq!(found, Some(*state));
            assert_eq!(u64::from(segment.plan(place)), print % 7);
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
                        assert_eq!(segment.home_of(print).state_of::<false>(print), None);
                        assert_eq!(segment.state_abroad(print), None);
                        if segment.is_full() {
                            segment.grow();
                        }
                        segment.put(print, step, (print % 7) as u32);
                        model.insert(print, step);
                    }
                }
                if rng.u8(..) == 0 {
                    drop(segment.shrink(rng.bool()));
                }
            }
            agrees(&mut segment, &model);
            let mut high = segment.split(1 << 40);
            assert!(high.iter().all(|(_, slot)| slot.print & 1 << 40 != 0));
            assert!(segment.iter().all(|(_, slot)| slot.print & 1 << 40 == 0));
            segment.take_in(&mut high);
            agrees(&mut segment, &model);
        }
    }

    /// Keys of one line, as many as it has room for, some of them with the same home; none is ever lost on the way there.
    #[test]
    fn whoever_was_asked_for_is_at_home() {
        for seed in 0..200 {
            let mut rng = Rng::with_seed(seed);
            let mut segment = Segment::smallest(false);
            let keys: Vec<u64> = (1..=4_u64).map(|key| key << 32 | rng.u64(..4) << 4).collect();
            keys.iter().for_each(|key| segment.put(*key, *key, 0));
            for _ in 0..20 {
                let key = keys[rng.usize(..4)];
                assert_eq!(segment.home_of(key).state_of::<true>(key).copied(), Some(key));
                assert_eq!(segment.find(key), Some(slot_of(key)), "at home");
                assert!(keys.iter().all(|key| segment.find(*key).is_some()));
            }
        }
    }

    #[test]
    fn a_guest_makes_way_for_whoever_comes_home() {
        let mut segment = Segment::smallest(true);
        let [host, guest, owner] = [1 << 32, 2 << 32, 3 << 32 | 1 << 4];
        segment.put(host, 'h', 1);
        segment.put(guest, 'g', 2); // the home of both is the first slot
        assert_eq!(segment.find(guest), Some(slot_of(owner)));
        segment.put(owner, 'o', 3);
        assert_eq!(segment.find(owner), Some(slot_of(owner)));
        let known = [host, guest, owner].map(|key| segment.get_mut(key).map(|(state, plan)| (*state, plan)));
        assert_eq!(known, [Some(('h', 1)), Some(('g', 2)), Some(('o', 3))]);
    }

    #[test]
    fn a_key_of_a_growing_segment_takes_at_most_35_bytes() {
        let mut segment = Segment::smallest(false);
        for count in 1..=1_200_u64 {
            if segment.is_full() {
                segment.grow();
            }
            segment.put(count << 32 | count.wrapping_mul(0x9E37_79B9) & 0xFFFF_FFFF, 0_u64, 0);
            assert!(count < 16 || segment.bytes() <= 35 * segment.len(), "{} at {count}", segment.bytes());
        }
    }
}
