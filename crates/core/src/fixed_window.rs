//! The fixed window.

use core::time::Duration;

use crate::level::{Band, CURVE_WORDS, Curve};
use crate::tick::nanos_of;
use crate::windows::Windows;
use crate::{GiveBack, Quota, Tick};

/// The fixed window: a counter that starts again at every multiple of the period, counted from the clock's origin or from
/// [another moment](Self::aligned).
///
/// **Guarantee**: at most `count` in each aligned window. The quota's burst is not used.
///
/// **Formula**, with a level that rises by a stride of at least `count` from window to window (see [`Curve`](crate::Curve)):
/// ```text
/// i = floor(now / period);  start = max(level, i·stride);  admit iff start + cost <= i·stride + count
/// ```
///
/// **Weakness**: up to `2·count` within an instant, half at the end of one window and half at the start of the next; and
/// every caller that was refused comes back at the same moment. Chosen for compatibility with systems that count this
/// way; otherwise prefer [`TokenBucket`](crate::TokenBucket) or [`SubWindows`](crate::SubWindows).
///
/// # Examples
/// ```
/// use core::time::Duration;
/// use tollgate_core::{Algorithm, Ask, FixedWindow, Quota, Tick};
///
/// let window = FixedWindow::new(Quota::per_minute(100));
/// let (mut level, late) = (0, Tick::ZERO + Duration::from_millis(59_999));
/// assert!(window.step(&mut level, late, Ask::now(100)).is_allowed());
/// assert_eq!(window.step(&mut level, late, Ask::now(1)).retry_after(), Some(Duration::from_millis(1)));
///
/// // On a clock that began twenty seconds past the minute, minutes end twenty seconds earlier:
/// let (window, mut level) = (window.aligned(Duration::from_secs(60 * 60 + 20)), 0);
/// assert!(window.step(&mut level, Tick::ZERO, Ask::now(100)).is_allowed());
/// assert_eq!(window.step(&mut level, Tick::ZERO, Ask::now(1)).retry_after(), Some(Duration::from_secs(40)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FixedWindow {
    windows: Windows,
}

impl FixedWindow {
    /// Windows for `quota`, aligned to the clock's origin.
    pub const fn new(quota: Quota) -> Self {
        Self { windows: Windows::of(quota) }
    }

    /// The same, aligned to a moment that lies `age` before the clock's origin: with the time since 1970 there, windows begin
    /// when those of the wall clock do. A state belongs to windows of one age.
    #[must_use]
    pub const fn aligned(self, age: Duration) -> Self {
        Self { windows: self.windows.aligned(nanos_of(age)) }
    }
}

impl Curve for FixedWindow {
    #[inline]
    fn band(&self, now: Tick, cost: u64) -> Band {
        let floor = self.windows.floor(now);
        if cost > self.windows.count || self.is_unlimited() {
            return Band { floor: floor.max(1), brink: 0, size: 0 };
        }
        // Saturating, because a cell may look at the numbers of two quotas before it finds that they do not belong together.
        Band { floor, brink: floor.saturating_add(self.windows.count - cost), size: cost }
    }

    fn opening(&self, level: u64, now: Tick, cost: u64) -> Option<(Tick, u64)> {
        let start = level.max(self.windows.floor(now));
        let (index, start) = self.windows.roomy(start, now, cost)?;
        Some((self.windows.begins(index)?.max(now), start))
    }

    #[inline]
    fn remaining(&self, level: u64, now: Tick) -> u64 {
        let floor = self.windows.floor(now);
        (floor + self.windows.count.min(1 << 62)).saturating_sub(level.max(floor))
    }

    fn reset_ns(&self, level: u64, now: Tick) -> u64 {
        self.windows.reset_ns(level, now)
    }

    fn limit(&self) -> u64 {
        self.windows.count
    }

    fn is_unlimited(&self) -> bool {
        self.windows.is_unlimited()
    }

    fn returned(&self, level: u64, back: GiveBack, now: Tick) -> Option<u64> {
        self.windows.returned(level, back, now)
    }

    fn refunded(&self, level: u64, amount: u64, now: Tick) -> Option<u64> {
        self.windows.refunded(level, amount, now)
    }

    fn charged(&self, level: u64, extra: u64, now: Tick) -> u64 {
        self.windows.charged(level, extra, now)
    }

    fn retuned(&self, level: u64, now: Tick, quota: Quota) -> (Self, u64) {
        let (windows, level) = self.windows.retuned(level, now, quota);
        (Self { windows }, level)
    }

    fn unit(&self) -> u64 {
        1
    }

    const COMMUTES: bool = true;

    fn carries(&self, level: u64, now: Tick, new: &Self) -> bool {
        self.windows.carries(level, now, &new.windows)
    }

    fn floor(&self, now: Tick) -> u64 {
        self.windows.floor(now)
    }

    fn lifted(&self, by: u64) -> (Self, u64) {
        let (windows, by) = self.windows.lifted(by);
        (Self { windows }, by)
    }

    fn pack(&self) -> [u64; CURVE_WORDS] {
        self.windows.pack()
    }

    fn unpack(words: [u64; CURVE_WORDS]) -> Self {
        Self { windows: Windows::unpack(words) }
    }
}
