//! The exact sub-windows, ten of them.

use tollgate_core::Quota;

use super::Oracle;
use crate::outcome::nanos;

/// The number of parts that [`Kind::SubWindows`](tollgate_core::Kind::SubWindows) stands for.
const PARTS: u64 = 10;

/// Everything ever admitted, with the number of the part it acts in.
pub(super) struct Parts {
    count: u64,
    part_ns: u64,
    admitted: Vec<(u64, u64)>,
}

impl Parts {
    pub(super) fn new(quota: Quota) -> Self {
        let part_ns = nanos(quota.period()).div_ceil(PARTS);
        Self { count: quota.count(), part_ns, admitted: Vec::new() }
    }

    /// What counts in a part that nothing admitted lies after: itself and the ten before it.
    fn used(&self, part: u64) -> u64 {
        self.admitted.iter().filter(|(of, _)| part - of <= PARTS).map(|(_, cost)| cost).sum()
    }

    /// The first moment at which `cost` fits, and its part.
    fn opening(&self, now_ns: u64, cost: u64) -> Option<(u64, u64)> {
        let newest = self.admitted.last().map_or(0, |(part, _)| *part);
        let first = newest.max(now_ns / self.part_ns);
        let part = (first..=first + PARTS + 1).find(|part| self.used(*part) + cost <= self.count)?;
        Some((part.checked_mul(self.part_ns)?.max(now_ns), part))
    }
}

impl Oracle for Parts {
    fn wait_ns(&self, now_ns: u64, cost: u64) -> Option<u64> {
        if cost == 0 {
            return Some(0);
        }
        if cost > self.count {
            return None;
        }
        self.opening(now_ns, cost).map(|(moment, _)| moment - now_ns)
    }

    fn take(&mut self, now_ns: u64, cost: u64) {
        if cost > 0
            && let Some((_, part)) = self.opening(now_ns, cost)
        {
            self.admitted.push((part, cost));
        }
    }
}
