//! The processor's time-stamp counter.

use tollgate_core::Tick;

use super::Clock;

/// The processor's time-stamp counter, by way of [`quanta`], which calibrates it once per process and falls back to the
/// system's clock where the counter is not reliable. About 10 ns a reading where the system's clock takes 23.
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
    /// A clock that starts at zero now. The first one in a process calibrates, which takes some milliseconds.
    pub fn new() -> Self {
        let quanta = quanta::Clock::new();
        Self { scale: scale(&quanta), origin: quanta.raw(), quanta }
    }

    /// Where the counter is not the processor's, or slower than a nanosecond.
    #[cold]
    fn by_quanta(&self) -> Tick {
        Tick::from_nanos(self.quanta.delta_as_nanos(self.origin, self.quanta.raw()))
    }
}

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
}
