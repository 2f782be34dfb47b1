//! The segments of a shard, and which of them a key belongs to.
//!
//! Some bits of a fingerprint say which segment it belongs to. When there are too many keys for the segments, the next one in
//! turn is split in two by one more bit; when there are too few, the last one goes back to where it came from (linear hashing).

use std::hint::select_unpredictable;
use std::ops::{Deref, DerefMut};

use tollgate_core::Tick;

use super::segment::Segment;

/// The first of the bits that choose a segment. Those below choose the line in it, those at the top the shard.
const FIRST_BIT: u32 = 32;

#[derive(Debug)]
pub(crate) struct Segments<S> {
    each: Vec<Segment<S>>,
    /// Masks the bits that choose a segment, without the highest of them; that one counts only for segments that have been split
    /// already.
    low_mask: usize,
}

/// The segment whose turn it is to be split, and by which bit of fingerprints.
pub(crate) struct Turn {
    pub(crate) number: usize,
    pub(crate) bit: u64,
}

impl<S> Segments<S> {
    pub(crate) fn new(first: Segment<S>) -> Self {
        Self { each: vec![first], low_mask: 0 }
    }

    /// Which segment a fingerprint belongs to. One whose turn has not come yet is still with the one it will come from.
    #[inline]
    pub(crate) fn number_of(&self, print: u64) -> usize {
        let bits = (print >> FIRST_BIT) as usize;
        let number = bits & (2 * self.low_mask + 1);
        // As good as tossing a coin, so no branch.
        select_unpredictable(number < self.each.len(), number, bits & self.low_mask)
    }

    /// The segment that is to be split next.
    pub(crate) fn next_turn(&self) -> Turn {
        let high = self.each.len();
        let number = high & self.low_mask_with(high);
        Turn { number, bit: ((high - number) as u64) << FIRST_BIT }
    }

    /// Adds what was split off by the [next turn](Self::next_turn).
    pub(crate) fn push(&mut self, split_off: Segment<S>) {
        self.low_mask = self.low_mask_with(self.each.len());
        self.each.push(split_off);
    }

    /// The mask when there is a segment with this number, which is the next one.
    fn low_mask_with(&self, number: usize) -> usize {
        if number > 2 * self.low_mask + 1 { 2 * self.low_mask + 1 } else { self.low_mask }
    }

    /// The segment that the last one was split off from.
    pub(crate) fn origin_of_last(&self) -> usize {
        (self.each.len() - 1) & self.low_mask
    }

    /// Takes out the last one, whose keys must then go to its [origin](Self::origin_of_last).
    pub(crate) fn pop(&mut self) -> Option<Segment<S>> {
        let last = self.each.pop();
        if self.each.len() <= self.low_mask + 1 {
            self.low_mask >>= 1;
        }
        if self.each.capacity() >= 4 * self.each.len() {
            self.each.shrink_to(2 * self.each.len());
        }
        last
    }
}

impl<S: Clone + Default> Segments<S> {
    /// Gets a key's line under way.
    #[inline]
    pub(crate) fn prefetch(&mut self, print: u64) {
        let number = self.number_of(print);
        let _under_way = self.each[number].home_of(print);
    }

    /// What `decide` makes of the state of a key that is known, and when. Reading the clock takes a tenth as long as getting the
    /// key's line from memory, so `now` is asked for while that is under way. `SETTLES` is for [`state_of`](super::segment::Line::state_of).
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a caller that only wants a yes should not pay for the rest")]
    pub(crate) fn ask_known<const SETTLES: bool, T>(
        &mut self,
        print: u64,
        now: impl FnOnce() -> Tick,
        decide: impl FnOnce(&mut S, Tick) -> T,
    ) -> Option<(T, Tick)> {
        let number = self.number_of(print);
        let home = self.each[number].home_of(print);
        let now = now();
        let state = match home.state_of::<SETTLES>(print) {
            Some(state) => state,
            None => self.state_abroad(print)?,
        };
        Some((decide(state, now), now))
    }

    /// The state of a key that is not in its own line. Apart, so that the way of most is short; the segment is found anew, so that
    /// they need not remember it.
    #[inline(never)]
    fn state_abroad(&mut self, print: u64) -> Option<&mut S> {
        let number = self.number_of(print);
        self.each[number].state_abroad(print)
    }
}

impl<S> Deref for Segments<S> {
    type Target = [Segment<S>];

    #[inline]
    fn deref(&self) -> &[Segment<S>] {
        &self.each
    }
}

impl<S> DerefMut for Segments<S> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Segment<S>] {
        &mut self.each
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys that differ in the bits that choose a segment.
    fn prints() -> impl Iterator<Item = u64> {
        (0..64_u64).map(|bits| bits << FIRST_BIT | 1)
    }

    fn numbers(segments: &Segments<u64>) -> Vec<usize> {
        prints().map(|print| segments.number_of(print)).collect()
    }

    /// The low half of the segments are as many as a power of two, and there are others for some or all of them.
    fn check_mask(segments: &Segments<u64>) {
        let (low, len) = (segments.low_mask + 1, segments.len());
        assert!(low.is_power_of_two() && low <= len && len <= 2 * low, "{low} of {len}");
    }

    #[test]
    fn a_turn_moves_keys_of_one_segment_and_only_those_with_its_bit() {
        let mut segments = Segments::new(Segment::<u64>::smallest(false));
        for size in 1..40 {
            let before = numbers(&segments);
            let Turn { number, bit } = segments.next_turn();
            segments.push(Segment::smallest(false));
            check_mask(&segments);
            assert_eq!(segments.origin_of_last(), number);
            for ((print, old), new) in prints().zip(before).zip(numbers(&segments)) {
                let moves = old == number && print & bit != 0;
                assert_eq!(new, if moves { size } else { old }, "{print:x} with {size} segments");
            }
        }
    }

    #[test]
    fn what_was_split_is_joined_in_reverse() {
        let mut segments = Segments::new(Segment::<u64>::smallest(false));
        let mut before = Vec::new();
        for _ in 1..40 {
            before.push(numbers(&segments));
            segments.push(Segment::smallest(false));
        }
        while let Some(before) = before.pop() {
            assert!(segments.pop().is_some());
            check_mask(&segments);
            assert_eq!(numbers(&segments), before);
        }
        assert_eq!((segments.len(), segments.low_mask), (1, 0));
    }
}
