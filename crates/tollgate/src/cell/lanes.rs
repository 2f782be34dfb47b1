//! Lanes: tokens that were leased from the bucket and lie ready to be spent.
//!
//! A lane is one word: the tokens, and three flags. Whoever *holds* a lane has it to itself; nobody waits for a held lane, and
//! others go to the bucket meanwhile. There are three reasons to hold one:
//!
//! * to fill it, when it is empty (`0` → `HELD` → the lease);
//! * to note that it is empty (`0` → `HELD` → `0`);
//! * to take from several lanes at once (`v` → `HELD | v` → the rest), for the holder of the limiter's lock.
//!
//! The lane's allowance is in use from the moment it is held, so that what lies in a lane and what its holder has in hand
//! for it never come to more than one lease.
//!
//! One more word says which lanes may hold something, so that a refusal need not look into each. Only whoever holds a lane
//! changes its bit: set before the lease is laid down, cleared only while the lane is empty.

use super::atomic::Lines;
use crate::sync::{AtomicU64, Ordering, next_ticket, thread_local};

/// Somebody has the lane to itself.
const HELD: u64 = 1 << 63;
/// The cell is shut: only the holder of the limiter's lock may take something.
const SHUT: u64 = 1 << 62;
/// The quota changed while the lane was held for filling: the new one may not allow for so large a lease.
const VOID: u64 = 1 << 61;
const TOKENS: u64 = VOID - 1;

/// At most 64 lanes, and which of them may hold something.
#[derive(Debug)]
pub(super) struct Lanes {
    /// Their number is a power of two.
    lanes: Box<[Lane]>,
    /// A bit for each lane.
    filled: Lines<AtomicU64>,
}

/// A word of its own, for whoever sits here.
#[derive(Debug)]
struct Lane(Lines<AtomicU64>);

thread_local! {
    /// Where this thread sits; taken modulo the number of lanes.
    static SEAT: u64 = next_ticket();
}

impl Lanes {
    /// Empty lanes; `count` is a power of two, up to 64.
    pub(super) fn new(count: u64) -> Self {
        debug_assert!(count.is_power_of_two() && count <= 64);
        let lanes = (0..count).map(|_| Lane(Lines(AtomicU64::new(0)))).collect();
        Self { lanes, filled: Lines(AtomicU64::new(0)) }
    }

    pub(super) fn count(&self) -> u64 {
        self.lanes.len() as u64
    }

    /// The lane of this thread.
    #[inline]
    fn own(&self) -> usize {
        let seat = SEAT.with(|seat| *seat) as usize;
        seat & (self.lanes.len() - 1)
    }

    /// Whether any lane may hold something. Near the limit none does, and a caller need not even look for its own.
    #[inline]
    pub(super) fn may_hold_some(&self) -> bool {
        // Acquire: who is told that a lane was filled finds it so.
        self.filled.0.load(Ordering::Acquire) != 0
    }

    /// Takes `n` out of this thread's lane, if they are there.
    #[inline]
    pub(super) fn spend_own(&self, n: u64) -> bool {
        self.lanes[self.own()].spend(n)
    }

    /// Takes `n` out of any one lane that has them. Writes nothing if all are known to be empty.
    #[inline]
    pub(super) fn spend_any(&self, n: u64) -> bool {
        self.may_hold_some() && self.spend_any_filled(n)
    }

    #[cold]
    fn spend_any_filled(&self, n: u64) -> bool {
        self.filled().any(|index| self.lanes[index].spend(n) || self.note_if_empty(index))
    }

    /// Clears the bit of a lane that is empty. Always false: nothing was had.
    fn note_if_empty(&self, index: usize) -> bool {
        if let Some(_hold) = self.hold(index) {
            self.filled.0.fetch_and(!(1 << index), Ordering::AcqRel);
        }
        false
    }

    /// What lies in lanes and is not in anybody's hand.
    pub(super) fn tokens(&self) -> u64 {
        self.filled().map(|index| self.lanes[index].tokens()).sum()
    }

    /// The lanes that may hold something.
    fn filled(&self) -> impl Iterator<Item = usize> {
        bits(self.filled.0.load(Ordering::Acquire))
    }

    /// Holds this thread's lane if it is empty and open.
    pub(super) fn hold_own(&self) -> Option<Hold<'_>> {
        self.hold(self.own())
    }

    fn hold(&self, index: usize) -> Option<Hold<'_>> {
        self.lanes[index].hold_if_empty().then(|| Hold { lanes: self, index })
    }

    /// Takes from all lanes together as much as `decide` says when it is told how much there is. For the holder of the limiter's
    /// lock.
    pub(super) fn take<T>(&self, decide: impl FnOnce(u64) -> (u64, T)) -> T {
        let (mut held, mut tokens) = (0_u64, 0);
        for index in self.filled() {
            if let Some(more) = self.lanes[index].hold_to_take() {
                held |= 1 << index;
                tokens += more;
            }
        }
        let (mut wanted, answer) = decide(tokens);
        for index in bits(held) {
            wanted -= self.lanes[index].let_go(wanted);
        }
        answer
    }

    pub(super) fn shut(&self) {
        for lane in &self.lanes {
            lane.word().fetch_or(SHUT, Ordering::AcqRel);
        }
    }

    pub(super) fn open(&self) {
        for lane in &self.lanes {
            if lane.word().load(Ordering::Relaxed) & SHUT != 0 {
                lane.word().fetch_and(!SHUT, Ordering::AcqRel);
            }
        }
    }

    /// Leaves at most `most` in each lane, now and when whoever is filling one comes back. They are shut.
    pub(super) fn trim(&self, most: u64) {
        for lane in &self.lanes {
            lane.trim(most);
        }
    }
}

/// The numbers of the bits that are set.
fn bits(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lowest = mask.trailing_zeros();
        mask &= mask.checked_sub(1)?;
        Some(lowest as usize)
    })
}

/// What became of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filled {
    /// It lies in the lane, less the part that was kept.
    Kept,
    /// The cell was shut meanwhile: all of it lies in the lane, for those who wait.
    Shut,
    /// The quota changed meanwhile: all but the part that was kept is lost.
    Void,
}

impl Lane {
    fn word(&self) -> &AtomicU64 {
        &self.0.0
    }

    /// Takes `n` if they are there for everybody.
    #[inline]
    fn spend(&self, n: u64) -> bool {
        let mut seen = self.word().load(Ordering::Relaxed);
        while n <= seen && seen <= TOKENS {
            // Acquire: whatever the one who leased them had seen counts as seen.
            let swapped =
                self.word().compare_exchange_weak(seen, seen - n, Ordering::Acquire, Ordering::Relaxed);
            match swapped {
                Ok(_) => return true,
                Err(other) => seen = other,
            }
        }
        false
    }

    /// What lies here and is not in anybody's hand.
    #[inline]
    fn tokens(&self) -> u64 {
        match self.word().load(Ordering::Relaxed) {
            seen if seen & HELD == 0 => seen & TOKENS,
            _ => 0,
        }
    }

    /// Holds the lane if it is empty and open.
    fn hold_if_empty(&self) -> bool {
        // The load spares others a write where there is nothing to hold. AcqRel, because what is done with the lane in hand
        // must not seem to happen before it was.
        let is_empty = self.word().load(Ordering::Relaxed) == 0;
        is_empty && self.word().compare_exchange(0, HELD, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Holds the lane if something lies here; how much.
    fn hold_to_take(&self) -> Option<u64> {
        let mut seen = self.word().load(Ordering::Relaxed);
        while seen & HELD == 0 && seen & TOKENS > 0 {
            match self.word().compare_exchange(seen, seen | HELD, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Some(seen & TOKENS),
                Err(other) => seen = other,
            }
        }
        None
    }

    /// Takes up to `most` of a lane that is held to take from, and lets go of it; how much.
    fn let_go(&self, most: u64) -> u64 {
        let n = most.min(self.word().load(Ordering::Relaxed) & TOKENS);
        self.word().fetch_sub(HELD + n, Ordering::AcqRel);
        n
    }

    /// Leaves at most `most` in a lane that is shut, now and when whoever fills it comes back.
    fn trim(&self, most: u64) {
        let mut seen = self.word().load(Ordering::Relaxed);
        loop {
            let next = if seen & HELD == 0 { SHUT | (seen & TOKENS).min(most) } else { seen | VOID };
            match self.word().compare_exchange(seen, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => seen = other,
            }
        }
    }
}

/// An empty lane in hand. Dropped without a lease, also by a panic, it is empty again.
#[derive(Debug)]
pub(super) struct Hold<'a> {
    lanes: &'a Lanes,
    index: usize,
}

impl Hold<'_> {
    /// Lets go of the lane with a lease of `tokens` in it, keeping `n` of them.
    pub(super) fn fill(self, tokens: u64, n: u64) -> Filled {
        let (filled, bit) = (&self.lanes.filled.0, 1 << self.index);
        if filled.load(Ordering::Relaxed) & bit == 0 {
            filled.fetch_or(bit, Ordering::AcqRel);
        }
        let word = self.word();
        std::mem::forget(self);
        let mut seen = HELD;
        loop {
            let (next, filled) = match seen & (SHUT | VOID) {
                0 => (tokens - n, Filled::Kept),
                SHUT => (SHUT | tokens, Filled::Shut),
                flags => (flags & SHUT, Filled::Void),
            };
            match word.compare_exchange(seen, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return filled,
                Err(other) => seen = other,
            }
        }
    }
}

impl<'a> Hold<'a> {
    fn word(&self) -> &'a AtomicU64 {
        self.lanes.lanes[self.index].word()
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.word().fetch_and(SHUT, Ordering::AcqRel);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// One lane with a lease of eight, of which one was kept.
    fn filled() -> Lanes {
        let lanes = Lanes::new(1);
        assert_eq!(lanes.hold_own().expect("it is empty").fill(8, 1), Filled::Kept);
        lanes
    }

    #[test]
    fn a_lane_is_filled_only_when_it_is_empty_and_in_nobodys_hand() {
        let lanes = filled();
        assert!(lanes.hold_own().is_none());
        assert_eq!(lanes.tokens(), 7, "and whoever tried took nothing");
        assert!((0..7).all(|_| lanes.spend_own(1)) && !lanes.spend_own(1));
        let hold = lanes.hold_own().expect("it is empty");
        assert!(lanes.hold_own().is_none() && !lanes.spend_any(1));
        drop(hold);
        assert!(lanes.hold_own().is_some(), "empty as before");
    }

    #[test]
    fn what_is_held_to_take_is_for_nobody_else() {
        let lanes = filled();
        let seen = lanes.take(|tokens| {
            assert!(!lanes.spend_own(1) && lanes.hold_own().is_none());
            assert_eq!(lanes.take(|others| (0, others)), 0);
            (3, tokens)
        });
        assert_eq!((seen, lanes.tokens()), (7, 4));
    }

    #[test]
    fn an_empty_lane_is_looked_into_once() {
        let lanes = filled();
        assert!(lanes.spend_any(7) && !lanes.spend_any(1));
        assert_eq!(lanes.filled().count(), 0);
        assert_eq!(lanes.hold_own().expect("it is empty").fill(8, 0), Filled::Kept);
        assert!(lanes.spend_any(8), "and again when it was filled");
    }

    #[test]
    fn a_shut_lane_serves_those_with_the_lock() {
        let lanes = filled();
        lanes.shut();
        assert!(!lanes.spend_own(1) && !lanes.spend_any(1) && lanes.hold_own().is_none());
        assert_eq!(lanes.take(|tokens| (2, tokens)), 7);
        lanes.open();
        assert!(lanes.spend_own(5) && lanes.hold_own().is_some());
    }

    #[test]
    fn a_lease_that_finds_the_lane_shut_is_laid_down_whole() {
        let lanes = Lanes::new(1);
        let hold = lanes.hold_own().expect("it is empty");
        lanes.shut();
        assert_eq!(hold.fill(8, 1), Filled::Shut);
        assert_eq!(lanes.take(|tokens| (8, tokens)), 8);
        assert!(lanes.hold_own().is_none(), "still shut");
    }

    #[test]
    fn a_new_quota_trims_what_lies_there_and_what_is_on_its_way() {
        let lanes = filled();
        lanes.shut();
        lanes.trim(5);
        lanes.open();
        assert!(lanes.spend_own(5) && !lanes.spend_own(1));
        let hold = lanes.hold_own().expect("it is empty");
        lanes.shut();
        lanes.trim(5);
        lanes.open();
        assert_eq!(hold.fill(8, 1), Filled::Void);
        assert_eq!(lanes.tokens(), 0);
        assert!(lanes.hold_own().is_some(), "and the lane is of use again");
    }
}

#[cfg(all(test, loom))]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn fill_and_trim_keep_no_old_lease() {
        loom::model(|| {
            let (lanes, lease) = (Arc::new(Lanes::new(1)), Arc::new(AtomicU64::new(8)));
            let (others, other) = (Arc::clone(&lanes), Arc::clone(&lease));
            let thread = loom::thread::spawn(move || {
                if let Some(hold) = others.hold_own() {
                    hold.fill(other.load(Ordering::Relaxed), 1);
                }
            });
            lanes.shut();
            lease.store(3, Ordering::Relaxed);
            lanes.trim(3);
            lanes.open();
            assert!(lanes.tokens() <= 3);
            thread.join().unwrap();
            assert!(lanes.tokens() <= 3, "{}", lanes.tokens());
        });
    }

    #[test]
    fn fill_and_note_hide_nothing() {
        loom::model(|| {
            let lanes = Arc::new(Lanes::new(1));
            assert_eq!(lanes.hold_own().expect("it is empty").fill(2, 1), Filled::Kept);
            let others = Arc::clone(&lanes);
            let thread = loom::thread::spawn(move || {
                let spent = u64::from(others.spend_own(1));
                let filled = others.hold_own().is_some_and(|hold| hold.fill(2, 1) == Filled::Kept);
                (spent, if filled { 1 } else { 0 })
            });
            let spent = u64::from(lanes.spend_any(1)) + u64::from(lanes.spend_any(1));
            let (other, more) = thread.join().unwrap();
            assert_eq!(spent + other + lanes.tokens(), 1 + more);
        });
    }
}
