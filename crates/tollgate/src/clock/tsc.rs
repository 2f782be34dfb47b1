//! The processor's time-stamp counter.

use std::sync::LazyLock;

use tollgate_core::Tick;

use super::Clock;

/// The processor's time-stamp counter, by way of [`quanta`], which calibrates it once per process and falls back to the
/// system's clock where the counter is not reliable. About 10 ns a reading where the system's clock takes 23.
///
/// All of a process are the same, and begin when the first one is made.
///
/// Guarded against stepping back: a reading is never before the clock's origin, and one that is behind another
/// core's makes a limiter refuse, never admit too much (see [`Clock`]).
///
/// # Examples
/// ```
/// use tollgate::{Clock, TscClock};
///
/// let clock = TscClock::new();
/// assert!(clock.now() <= clock.now());
/// ```
#[derive(Clone, Debug)]
pub struct TscClock {
    /// Nanoseconds a count, times 2^64; zero if quanta must be asked each time.
    scale: u64,
    origin: u64,
    quanta: quanta::Clock,
}

impl TscClock {
    /// The process's clock. The first time it calibrates, which takes some milliseconds.
    pub fn new() -> Self {
        SHARED.clone()
    }

    /// Where the counter is not the processor's, or slower than a nanosecond.
    #[cold]
    fn by_quanta(&self) -> Tick {
        Tick::from_nanos(self.quanta.delta_as_nanos(self.origin, self.quanta.raw()))
    }
}

static SHARED: LazyLock<TscClock> = LazyLock::new(|| {
    let quanta = quanta::Clock::new();
    TscClock { scale: scale(&quanta), origin: quanta.raw(), quanta }
});

/// The factor by which counts of the processor's own counter become nanoseconds. quanta keeps it to itself, so it is asked
/// what a long span comes to.
fn scale(quanta: &quanta::Clock) -> u64 {
    const SPAN: u32 = 62;
    let nanos = quanta.delta_as_nanos(0, 1 << SPAN);
    let is_counter = counts_like(quanta.raw(), counter());
    if is_counter && nanos < 1 << SPAN { nanos << (64 - SPAN) } else { 0 }
}

/// Whether two readings taken together are of one counter: those of another clock would be far apart.
fn counts_like(first: u64, second: u64) -> bool {
    second.wrapping_sub(first) < 1 << 32
}

#[cfg(target_arch = "x86_64")]
#[inline]
#[allow(
    unsafe_code,
    reason = "quanta's own reading is a call into another crate: 10 more instructions in every check"
)]
fn counter() -> u64 {
    // SAFETY: the instruction exists on every x86-64 processor and only writes registers.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn counter() -> u64 {
    0
}

impl Default for TscClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TscClock {
    #[inline]
    fn now(&self) -> Tick {
        if self.scale == 0 {
            return self.by_quanta();
        }
        let passed = counter().saturating_sub(self.origin);
        Tick::from_nanos(((u128::from(passed) * u128::from(self.scale)) >> 64) as u64)
    }

    #[inline]
    fn is_same(&self, _other: &Self) -> bool {
        true
    }
}
