//! The time since the machine was started.

use tollgate_core::Tick;

use super::Clock;

/// The time since the machine was started, which goes on while the machine is suspended: for what ends elsewhere at the same
/// time. Where the system has no such clock of its own (Linux, Android and Apple's have), it is the
/// [system's monotonic clock](super::MonotonicClock).
///
/// # Examples
/// ```
/// use tollgate::{BootClock, Clock};
///
/// let clock = BootClock::new();
/// assert!(clock.now() <= clock.now());
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct BootClock {
    #[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
    monotonic: super::MonotonicClock,
}

impl BootClock {
    /// The machine's clock.
    pub fn new() -> Self {
        Self::default()
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOCK: libc::clockid_t = libc::CLOCK_BOOTTIME;
/// Which goes on there, unlike that of Linux.
#[cfg(target_vendor = "apple")]
const CLOCK: libc::clockid_t = libc::CLOCK_MONOTONIC;

impl Clock for BootClock {
    #[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
    #[inline]
    #[allow(unsafe_code, reason = "the standard library does not read this clock")]
    fn now(&self) -> Tick {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: it writes one timespec, to which the pointer leads.
        let answer = unsafe { libc::clock_gettime(CLOCK, &raw mut time) };
        debug_assert_eq!(answer, 0, "the system has this clock");
        // Neither is negative: the machine was started before.
        Tick::from_nanos(
            (time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64),
        )
    }

    #[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
    #[inline]
    fn now(&self) -> Tick {
        self.monotonic.now()
    }

    #[inline]
    fn is_same(&self, _other: &Self) -> bool {
        true
    }
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::*;

    /// Answers, item 20: the clock by which leases end goes on while the machine is suspended, as the uptime does that Linux tells.
    #[test]
    fn it_tells_the_uptime() {
        let uptime = || {
            let text = std::fs::read_to_string("/proc/uptime").expect("Linux tells its uptime");
            let seconds: f64 = text.split_whitespace().next().expect("a number").parse().expect("seconds");
            seconds
        };
        let (before, now, after) = (uptime(), BootClock::new().now().since(Tick::ZERO), uptime());
        let now = now.as_secs_f64();
        assert!(before - 0.02 <= now && now <= after + 0.02, "{before} <= {now} <= {after}");
    }
}
