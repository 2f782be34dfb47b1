//! How one question is asked many times, by one thread or by two.

use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::{SpinBarrier, pin_to_core};

/// A way to ask a question many times.
#[derive(Clone, Copy, Debug)]
pub enum Load {
    /// On one thread.
    Alone {
        /// How many times.
        turns: u64,
    },
    /// From two threads on a core each.
    Together {
        /// How many times on each.
        turns: u64,
    },
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// How many questions there were.
    pub asked: u64,
    /// How many of them were answered with yes.
    pub allowed: u64,
    /// From the first question to the last answer.
    pub wall: Duration,
}

impl Load {
    /// Asks.
    pub fn ask(self, ask: impl Fn() -> bool + Sync) -> Asked {
        match self {
            Self::Alone { turns } => {
                let (allowed, began, ended) = on_core(1, || timed(turns, &ask));
                Asked { asked: turns, allowed, wall: ended - began }
            }
            Self::Together { turns } => {
                let [one, other] = on_both_cores(|_| timed(turns, &ask));
                let wall = one.2.max(other.2) - one.1.min(other.1);
                Asked { asked: 2 * turns, allowed: one.0 + other.0, wall }
            }
        }
    }
}

impl Asked {
    /// Nanoseconds per question.
    pub fn nanos(&self) -> f64 {
        self.wall.as_secs_f64() * 1e9 / self.asked as f64
    }

    /// Million questions per second.
    pub fn millions_per_second(&self) -> f64 {
        self.asked as f64 / self.wall.as_secs_f64() / 1e6
    }
}

/// The loop that is timed; how many were allowed, and its two ends.
#[inline(never)]
fn timed(turns: u64, ask: impl Fn() -> bool) -> (u64, Instant, Instant) {
    let mut allowed = 0;
    let began = Instant::now();
    for _ in 0..turns {
        allowed += u64::from(black_box(ask()));
    }
    (allowed, began, Instant::now())
}

/// Works on a thread of its own, so that threads which contenders start are not pinned with it.
pub fn on_core<T: Send>(core: usize, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            pin_to_core(core);
            work()
        });
        worker.join().expect("a measurement that does not panic")
    })
}

/// Works on two threads that start together; `work` is told which of the two it is.
pub fn on_both_cores<T: Send>(work: impl Fn(usize) -> T + Sync) -> [T; 2] {
    let start = SpinBarrier::new(2);
    let work = |core| {
        pin_to_core(core);
        start.wait();
        work(core)
    };
    std::thread::scope(|scope| {
        let workers = [scope.spawn(|| work(0)), scope.spawn(|| work(1))];
        workers.map(|worker| worker.join().expect("a measurement that does not panic"))
    })
}
