//! The paced window.

use core::time::Duration;

use crate::level::{Band, CURVE_WORDS, Curve};
use crate::tick::nanos_of;
use crate::windows::Windows;
use crate::{GiveBack, Quota, Tick};

/// The paced window: a budget per window, released evenly over it.
///
/// **Guarantee**: at most `count` in each aligned window, and the k-th call of a window (counting from 0) not before
/// k/count of it has passed. Whoever is behind schedule may catch up. The quota's burst is not used.
///
/// **Formula**, with a level that rises by a stride of at least `count` from window to window:
/// ```text
/// i = floor(now / period);  passed = now - i·period;  start = max(level, i·stride)
/// admit iff start + cost <= i·stride + floor(passed·count / period) + 1
/// ```
///
/// **Weakness**: after an idle stretch everything that could have been used so far may come at once, up to `count` at
/// the end of a window, and what is left then is lost.
///
/// # Examples
/// ```
/// use core::time::Duration;
/// use tollgate_core::{Algorithm, Ask, PacedWindow, Quota, Tick};
///
/// let paced = PacedWindow::new(Quota::per_minute(60));
/// let mut level = 0;
/// let mut at = |secs| paced.step(&mut level, Tick::ZERO + Duration::from_secs(secs), Ask::now(1));
/// assert!(at(0).is_allowed());
/// assert_eq!(at(0).retry_after(), Some(Duration::from_secs(1)));
/// assert!(at(2).is_allowed() && at(2).is_allowed()); // one behind schedule: it may catch up
/// assert!(!at(2).is_allowed());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PacedWindow {
    windows: Windows,
}

impl PacedWindow {
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

    /// How much of window `index` may be used by `now`.
    fn released(&self, index: u64, now: Tick) -> u64 {
        let Windows { count, period_ns, .. } = self.windows;
        let passed = self.windows.passed(index, now);
        let share = u128::from(passed) * u128::from(count) / u128::from(period_ns.max(1));
        // passed < period, so the share is below the count and fits.
        (share as u64).saturating_add(1)
    }

    /// How much of a window must have passed before `total` of it may be used; `None` if it is over by then.
    fn due(&self, total: u64) -> Option<u64> {
        let Windows { count, period_ns, .. } = self.windows;
        // The first `passed` with floor(passed·count / period) + 1 >= total.
        let passed = (u128::from(total - 1) * u128::from(period_ns)).div_ceil(u128::from(count));
        u64::try_from(passed).ok().filter(|passed| *passed < period_ns)
    }
}

impl Curve for PacedWindow {
    fn band(&self, now: Tick, cost: u64) -> Band {
        let (index, floor) = (self.windows.index(now), self.windows.floor(now));
        if cost > self.windows.count || self.is_unlimited() {
            return Band { floor: floor.max(1), brink: 0, size: 0 };
        }
        match floor.saturating_add(self.released(index, now)).checked_sub(cost) {
            Some(brink) if brink >= floor => Band { floor, brink, size: cost },
            _ => Band { floor: floor.max(1), brink: 0, size: cost },
        }
    }

    fn opening(&self, level: u64, now: Tick, cost: u64) -> Option<(Tick, u64)> {
        let start = level.max(self.windows.floor(now));
        let (index, start) = self.windows.roomy(start, now, cost)?;
        let due = self.due(start + cost - self.windows.floor_of(index)).map(|passed| (index, start, passed));
        // Above one call a nanosecond the last ones of a window fall due only when it is over: they go into the next.
        let (index, start, passed) = if let Some(due) = due {
            due
        } else {
            let index = index.checked_add(1)?;
            (index, self.windows.floor_of(index), self.due(cost)?)
        };
        let at = self.windows.moment(index, passed)?;
        Some((at.max(now), start))
    }

    fn remaining(&self, level: u64, now: Tick) -> u64 {
        if self.is_unlimited() {
            return u64::MAX;
        }
        let (index, floor) = (self.windows.index(now), self.windows.floor(now));
        if self.windows.count == 0 {
            return 0;
        }
        (floor + self.released(index, now)).saturating_sub(level.max(floor))
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
