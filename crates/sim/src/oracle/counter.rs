//! The exact sliding counter.

use tollgate_core::Quota;

use super::Oracle;
use crate::outcome::nanos;

/// Everything ever admitted, with the number of the window it acts in.
pub(super) struct Counter {
    count: u64,
    period_ns: u64,
    admitted: Vec<(u64, u64)>,
}

impl Counter {
    pub(super) fn new(quota: Quota) -> Self {
        Self { count: quota.count(), period_ns: nanos(quota.period()), admitted: Vec::new() }
    }

    fn admitted_in(&self, window: Option<u64>) -> u128 {
        let same = self.admitted.iter().filter(|(of, _)| Some(*of) == window);
        same.map(|(_, cost)| u128::from(*cost)).sum()
    }

    /// The formula: previous·(period - passed) + (current + cost)·period <= count·period.
    fn fits(&self, window: u64, passed: u64, cost: u64) -> bool {
        let (current, previous) = (self.admitted_in(Some(window)), self.admitted_in(window.checked_sub(1)));
        let period = u128::from(self.period_ns);
        let used = previous * (period - u128::from(passed)) + (current + u128::from(cost)) * period;
        used <= u128::from(self.count) * period
    }

    /// The first moment of `window`, not before `now_ns`, at which `cost` fits. The longer one waits within a window, the
    /// less the previous one weighs, so bisection finds it.
    fn opening_in(&self, window: u64, now_ns: u64, cost: u64) -> Option<u64> {
        let begin = window.checked_mul(self.period_ns)?;
        let (mut low, mut high) = (now_ns.saturating_sub(begin), self.period_ns - 1);
        if low > high || !self.fits(window, high, cost) {
            return None;
        }
        while low < high {
            let middle = low + (high - low) / 2;
            if self.fits(window, middle, cost) { high = middle } else { low = middle + 1 }
        }
        begin.checked_add(low)
    }

    /// A window older than the newest one used is over, even for a clock that stepped back into it. Two windows on,
    /// everything is forgotten.
    fn opening(&self, now_ns: u64, cost: u64) -> Option<u64> {
        let newest = self.admitted.last().map_or(0, |(window, _)| *window);
        let first = newest.max(now_ns / self.period_ns);
        (first..=first + 2).find_map(|window| self.opening_in(window, now_ns, cost))
    }
}

impl Oracle for Counter {
    fn wait_ns(&self, now_ns: u64, cost: u64) -> Option<u64> {
        if cost == 0 {
            return Some(0);
        }
        if cost > self.count {
            return None;
        }
        self.opening(now_ns, cost).map(|moment| moment - now_ns)
    }

    fn take(&mut self, now_ns: u64, cost: u64) {
        if cost > 0
            && let Some(moment) = self.opening(now_ns, cost)
        {
            self.admitted.push((moment / self.period_ns, cost));
        }
    }
}
