//! What no check of one key among many can do without: a hash, a lock, a line from memory, and the time. It knows no keys and
//! limits nothing; what it takes beside the others shows how far down they could come on this machine.

#![allow(clippy::inline_always, reason = "else it is chance whose check becomes part of the loop")]

use std::array;
use std::hash::{BuildHasher, Hash};
use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use foldhash::quality::RandomState;
use tollgate::{Clock, DefaultClock};

use crate::KEYS;
use crate::contenders::Keyed;

/// As much as ours has for a key.
const BYTES_PER_KEY: u64 = 27;
const BITS_OF_A_LOCK: u32 = 6;

pub(crate) struct Floor {
    seed: RandomState,
    clock: DefaultClock,
    locks: Vec<Lock>,
    lines: Vec<Line>,
}

#[repr(align(256))]
struct Lock(AtomicBool);

#[repr(align(64))]
struct Line([AtomicU64; 8]);

impl Floor {
    pub(crate) fn new() -> Self {
        let locks = (0..1 << BITS_OF_A_LOCK).map(|_| Lock(AtomicBool::new(false))).collect();
        let lines =
            (0..KEYS * BYTES_PER_KEY / 64).map(|_| Line(array::from_fn(|_| AtomicU64::new(1)))).collect();
        Self { seed: RandomState::default(), clock: DefaultClock::new(), locks, lines }
    }
}

impl<K: Hash> Keyed<K> for Floor {
    #[inline(always)]
    fn allow(&self, key: &K) -> bool {
        let print = self.seed.hash_one(key);
        let lock = &self.locks[(print >> (64 - BITS_OF_A_LOCK)) as usize].0;
        while lock.swap(true, Ordering::Acquire) {
            spin_loop();
        }
        let line = (u64::from(print as u32) * self.lines.len() as u64) >> 32;
        let line = &self.lines[line as usize];
        prefetch(line);
        let now = self.clock.now().as_nanos();
        let slot = &line.0[(print >> 32) as usize % 8];
        let level = slot.load(Ordering::Relaxed).max(now) + 1;
        slot.store(level, Ordering::Relaxed);
        lock.store(false, Ordering::Release);
        level > now
    }
}

/// Gets a line under way while the clock is read; on some processors that waits for whatever was loaded before.
#[inline]
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "there is no other way to say so")]
fn prefetch(line: &Line) {
    use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a hint. It reads nothing that the program could see, and cannot fault, whatever the address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(line).cast()) }
}

#[cfg(not(target_arch = "x86_64"))]
fn prefetch(_line: &Line) {}
