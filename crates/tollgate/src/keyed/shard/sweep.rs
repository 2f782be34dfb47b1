//! Dropping what is idle, and keeping the segments as many and as large as the keys need.

use std::ops::Range;

use tollgate_core::{Algorithm, Tick};

use super::{Common, Shard, algorithm_of};
use crate::keyed::segment::Segment;
use crate::keyed::segments::Turn;

/// With more keys a segment than this, on average, one of them is split.
pub(super) const MOST_PER_SEGMENT: usize = 768;
/// With fewer, two become one.
const FEWEST_PER_SEGMENT: usize = 256;

/// What came of looking at a few lines.
#[must_use = "what is left over had better be dropped when nobody waits for the shard"]
pub(crate) struct Swept<S> {
    /// Whether that ended a round over all segments.
    pub(crate) ends: bool,
    /// A table that is not needed any more. Giving its memory back may take the system a while.
    pub(crate) leftover: Option<Segment<S>>,
}

impl<A: Algorithm> Shard<A> {
    /// Starts a round over all segments from the beginning, so that the round leaves nothing out.
    pub(crate) fn rewind(&mut self) {
        self.sweeping = 0;
        self.segments.iter_mut().for_each(Segment::rewind);
    }

    /// Looks at the next `lines` lines and drops idle keys; behind the last segment, joins two if there are too many.
    pub(crate) fn sweep(&mut self, common: &Common<A>, now: Tick, lines: usize) -> Swept<A::State> {
        let leftover = if self.sweeping < self.segments.len() {
            self.sweep_lines(common, now, lines)
        } else if self.has_too_many_segments() {
            // Not before all were swept: what has not been could move to where it would be missed.
            self.join(common)
        } else {
            None
        };
        let ends = self.sweeping >= self.segments.len() && !self.has_too_many_segments();
        if ends {
            self.sweeping = 0;
        }
        Swept { ends, leftover }
    }

    /// Looks at the next `lines` lines of the segment that sweeping is at.
    fn sweep_lines(&mut self, common: &Common<A>, now: Tick, lines: usize) -> Option<Segment<A::State>> {
        let number = self.sweeping;
        self.catch_up(number);
        let (places, ends) = self.segments[number].next_places(lines);
        self.drop_idle(common, number, places, now);
        if !ends {
            return None;
        }
        self.sweeping += 1;
        self.shrink_if_sparse(common, number)
    }

    /// Answers the table that is not needed any more, if there is one.
    pub(super) fn shrink_if_sparse(
        &mut self,
        common: &Common<A>,
        number: usize,
    ) -> Option<Segment<A::State>> {
        let is_alone = self.segments.len() == 1;
        let is_sparse = self.segments[number].is_sparse(is_alone);
        is_sparse.then(|| self.resize(common, number, |segment| segment.shrink(is_alone)))
    }

    fn has_too_many_segments(&self) -> bool {
        !self.pinned && self.segments.len() > 1 && self.keys < self.segments.len() * FEWEST_PER_SEGMENT
    }

    /// Drops the idle keys among these places.
    pub(super) fn drop_idle(&mut self, common: &Common<A>, number: usize, places: Range<usize>, now: Tick) {
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

    pub(super) fn resize<T>(
        &mut self,
        common: &Common<A>,
        number: usize,
        resize: impl FnOnce(&mut Segment<A::State>) -> T,
    ) -> T {
        let before = self.segments[number].bytes();
        let answer = resize(&mut self.segments[number]);
        common.room.resized(before, self.segments[number].bytes());
        answer
    }

    /// Splits the segment whose turn it is, if there are too few of them and there is room for another.
    pub(super) fn split_if_due(&mut self, most_bytes: u64, common: &Common<A>) {
        if self.pinned || self.keys < self.segments.len() * MOST_PER_SEGMENT {
            return;
        }
        let turn = self.segments.next_turn();
        if self.has_bytes(most_bytes, common, self.segments[turn.number].growth_by_split()) {
            self.split(common, turn);
        }
    }

    fn split(&mut self, common: &Common<A>, Turn { number, bit }: Turn) {
        self.catch_up(number);
        let other = self.resize(common, number, |segment| segment.split(bit));
        common.room.grown(other.bytes() + size_of_val(&other));
        self.segments.push(other);
    }

    /// Undoes the latest split. Answers the segment that is no more.
    fn join(&mut self, common: &Common<A>) -> Option<Segment<A::State>> {
        let number = self.segments.origin_of_last();
        for number in [number, self.segments.len() - 1] {
            self.catch_up(number);
        }
        let mut last = self.segments.pop()?;
        common.room.shrunk(last.bytes() + size_of_val(&last));
        self.resize(common, number, |segment| segment.take_in(&mut last));
        if self.segments.len() == 1 {
            drop(self.shrink_if_sparse(common, number)); // it was not alone when it was swept
        }
        Some(last)
    }
}
