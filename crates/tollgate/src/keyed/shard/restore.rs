//! What saving and restoring a limiter need: see `keyed/snapshot.rs`.

use tollgate_core::{Algorithm, Tick};

use super::evict::Full;
use super::{Common, Shard, algorithm_of};
use crate::keyed::cap::Share;
use crate::keyed::segment::Slot;

impl<A: Algorithm> Shard<A> {
    /// What a key takes in memory at least.
    pub(crate) const BYTES_PER_KEY: u64 = (size_of::<Slot<A::State>>() as u64 * 5).div_ceil(4);

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
            each(slot.print, plan, &algorithm_of(&self.algorithm, common, plan), &slot.state);
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
            self.may_be_idle_sooner(common, number, place, now);
            return;
        }
        // Keys come segment by segment: where not all can stay, the first segments have more than their share.
        let room = if common.room.has_key() { Ok(()) } else { self.evict_from_longest(common, now) };
        match room.and_then(|()| self.make_room_within(share.bytes, common, number, now)) {
            Ok(()) => self.put(common, print, state, plan, Tick::ZERO),
            Err(_) => self.counts.evicted += 1,
        }
    }

    /// Forgets somebody of the segment with the most keys.
    fn evict_from_longest(&mut self, common: &Common<A>, now: Tick) -> Result<(), Full> {
        let longest = (0..self.segments.len()).max_by_key(|number| self.segments[*number].len()).unwrap_or(0);
        self.catch_up(longest);
        self.evict(common, longest, now)
    }

    /// Forgets somebody if this shard has more keys than its share, so that another that has fewer need not; whether it has.
    pub(crate) fn make_way(&mut self, common: &Common<A>, share: Share, now: Tick) -> bool {
        self.keys as u64 > share.keys && self.evict_from_longest(common, now).is_ok()
    }

    /// Whether it has its share of the keys.
    pub(crate) fn has_share(&self, share: Share) -> bool {
        self.keys as u64 >= share.keys
    }
}
