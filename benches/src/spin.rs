//! A starting line.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Lets threads start together to within a cache miss; a futex would wake them microseconds apart.
#[derive(Debug)]
pub struct SpinBarrier {
    missing: AtomicUsize,
}

impl SpinBarrier {
    /// A barrier for so many threads, to be used once.
    pub fn new(threads: usize) -> Self {
        Self { missing: AtomicUsize::new(threads) }
    }

    /// Waits until everybody is here.
    pub fn wait(&self) {
        self.missing.fetch_sub(1, Ordering::AcqRel);
        while self.missing.load(Ordering::Acquire) > 0 {
            spin_loop();
        }
    }
}
