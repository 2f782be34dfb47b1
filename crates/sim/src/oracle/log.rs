//! The exact sliding log.

use tollgate_core::Quota;

use super::Oracle;
use crate::outcome::nanos;

/// Everything ever admitted, with the moment it acts; moments never decrease.
pub(super) struct Log {
    count: u64,
    period_ns: u64,
    admitted: Vec<(u64, u64)>,
}

impl Log {
    pub(super) fn new(quota: Quota) -> Self {
        Self { count: quota.count(), period_ns: nanos(quota.period()), admitted: Vec::new() }
    }

    /// What counts at a moment that nothing admitted lies after.
    fn used(&self, moment_ns: u64) -> u64 {
        self.admitted.iter().filter(|(at, _)| moment_ns - at < self.period_ns).map(|(_, cost)| cost).sum()
    }

    /// Room appears only when something leaves, so the first moment is now, the newest promise, or one of the departures.
    fn opening(&self, now_ns: u64, cost: u64) -> Option<u64> {
        let newest = self.admitted.last().map_or(0, |(at, _)| *at);
        let earliest = now_ns.max(newest);
        let departures = self.admitted.iter().filter_map(|(at, _)| at.checked_add(self.period_ns));
        std::iter::once(earliest)
            .chain(departures.filter(|moment| *moment > earliest))
            .find(|moment| self.used(*moment) + cost <= self.count)
    }
}

impl Oracle for Log {
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
            self.admitted.push((moment, cost));
        }
    }
}
