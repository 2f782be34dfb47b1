//! A lane: tokens that were leased from the bucket and lie ready to be spent.
//!
//! One word: the tokens, and three flags. Whoever *holds* a lane has it to itself; nobody waits for a held lane, and others
//! go to the bucket meanwhile. There are two reasons to hold one:
//!
//! * to fill it, when it is empty (`0` → `HELD` → the lease), by anybody;
//! * to take from several lanes at once (`v` → `HELD | v` → the rest), by the holder of the limiter's lock.
//!
//! Either way the lane's allowance is in use from the moment it is held, so that what lies in a lane and what its holder
//! has in hand for it never come to more than one lease.

use super::atomic::Lines;
use crate::sync::{AtomicU64, Ordering, next_ticket, thread_local};

/// Somebody has the lane to itself.
const HELD: u64 = 1 << 63;
/// The cell is shut: only the holder of the limiter's lock may take something.
const SHUT: u64 = 1 << 62;
/// The quota changed while the lane was held for filling: the new one may not allow for so large a lease.
const VOID: u64 = 1 << 61;
const TOKENS: u64 = VOID - 1;

/// Tokens for whoever sits here.
#[derive(Debug)]
pub(super) struct Lane(Lines<AtomicU64>);

thread_local! {
    /// Where this thread sits; taken modulo the number of lanes.
    static SEAT: u64 = next_ticket();
}

/// The lane of this thread. There is at least one, and their number is a power of two.
#[inline]
pub(super) fn own(lanes: &[Lane]) -> &Lane {
    let seat = SEAT.with(|seat| *seat) as usize;
    &lanes[seat & (lanes.len() - 1)]
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
    pub(super) fn new() -> Self {
        Self(Lines(AtomicU64::new(0)))
    }

    fn word(&self) -> &AtomicU64 {
        &self.0.0
    }

    /// Takes `n` if they are there for everybody.
    #[inline]
    pub(super) fn spend(&self, n: u64) -> bool {
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
    pub(super) fn tokens(&self) -> u64 {
        match self.word().load(Ordering::Relaxed) {
            seen if seen & HELD == 0 => seen & TOKENS,
            _ => 0,
        }
    }

    /// Holds the lane if it is empty and open.
    pub(super) fn hold_to_fill(&self) -> Option<Hold<'_>> {
        // The load spares others a write where there is nothing to hold. AcqRel, because what is done with the lane in hand must
        // not seem to happen before it was.
        let is_empty = self.word().load(Ordering::Relaxed) == 0;
        let held =
            is_empty && self.word().compare_exchange(0, HELD, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        held.then_some(Hold { lane: self })
    }

    /// Holds the lane if something lies here; how much.
    pub(super) fn hold_to_take(&self) -> Option<u64> {
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
    pub(super) fn let_go(&self, most: u64) -> u64 {
        let n = most.min(self.word().load(Ordering::Relaxed) & TOKENS);
        self.word().fetch_sub(HELD + n, Ordering::AcqRel);
        n
    }

    pub(super) fn shut(&self) {
        self.word().fetch_or(SHUT, Ordering::AcqRel);
    }

    pub(super) fn open(&self) {
        if self.word().load(Ordering::Relaxed) & SHUT != 0 {
            self.word().fetch_and(!SHUT, Ordering::AcqRel);
        }
    }

    /// Leaves at most `most` in a lane that is shut, now and when whoever fills it comes back.
    pub(super) fn trim(&self, most: u64) {
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
    lane: &'a Lane,
}

impl Hold<'_> {
    /// Lets go of the lane with a lease of `tokens` in it, keeping `n` of them.
    pub(super) fn fill(self, tokens: u64, n: u64) -> Filled {
        let word = self.lane.word();
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

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.lane.word().fetch_and(SHUT, Ordering::AcqRel);
    }
}
