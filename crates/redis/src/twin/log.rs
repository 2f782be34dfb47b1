//! The sliding log, the sliding counter and sub-windows; see their files in `lua/`.

use super::{NEVER, Standing, Twin, View, clipped, until, whole};

impl Twin {
    /// Told: what is in the window, and when the newest came.
    pub(super) fn log_standing(&self, view: &View, cost: u64) -> Standing {
        let [used, newest, _] = view.told.map(whole);
        let newest = if cost > 0 { newest.max(view.now.into()) } else { newest };
        Standing {
            remaining: self.left(used, cost),
            reset: until(newest + i128::from(self.period), view.now),
        }
    }

    /// Told: what counts, the part that follows the last that does, and the one in which the cost fits.
    pub(super) fn parts_standing(&self, view: &View, cost: u64) -> Standing {
        let [used, forgotten, opening] = view.told.map(whole);
        let fresh = if cost > 0 { opening + i128::from(self.extra) + 1 } else { forgotten };
        Standing { remaining: self.left(used, cost), reset: until(self.begin(fresh), view.now) }
    }

    fn left(&self, used: i128, cost: u64) -> u64 {
        clipped(i128::from(self.depth) - used - i128::from(cost))
    }

    /// Told: the window, its count, and the count before it.
    pub(super) fn counter_standing(&self, view: &View, cost: u64) -> Standing {
        let [window, current, previous] = view.told.map(whole);
        let current = current + i128::from(self.size(cost));
        let period = i128::from(self.period);
        let left = period - self.passed(view, window);
        let weighed = (previous * left + period - 1) / period;
        let windows = if current > 0 { 2 } else { i128::from(previous > 0) };
        // Nothing can be had before that window begins, by a clock that was put back.
        let is_behind = window > self.tick(view.now);
        Standing {
            remaining: if is_behind { 0 } else { clipped(i128::from(self.depth) - weighed - current) },
            reset: until(self.begin(window + windows), view.now),
        }
    }

    /// How much of a window has passed; nothing, for a clock that is behind it.
    fn passed(&self, view: &View, window: i128) -> i128 {
        (i128::from(view.now) - self.begin(window)).clamp(0, self.period.into())
    }

    /// The first moment at which `cost` fits: two windows on at the latest, when all is forgotten.
    pub(super) fn counter_wait(&self, view: &View, cost: u64) -> u64 {
        let [window, current, previous] = view.told.map(whole);
        let counts = [(current, previous, self.passed(view, window)), (0, current, 0), (0, 0, 0)];
        for (ahead, (current, previous, passed)) in (0_i128..).zip(counts) {
            if let Some(needed) = self.passed_needed(current, previous, cost) {
                return until(self.begin(window + ahead) + needed.max(passed), view.now);
            }
        }
        NEVER
    }

    /// How much of the window must have passed for `cost` to fit; `None` if it cannot fit in this window.
    fn passed_needed(&self, current: i128, previous: i128, cost: u64) -> Option<i128> {
        let (room, period) = (i128::from(self.depth) - current - i128::from(cost), i128::from(self.period));
        if room < 0 {
            return None;
        }
        // previous · (period - passed) <= room · period
        let covered = if previous == 0 { period } else { room * period / previous };
        let needed = (period - covered).max(0);
        (needed < period).then_some(needed)
    }
}
