//! The exact leaky bucket. Meter and queue differ only in how patient their callers are.

use tollgate_core::Quota;

use super::Oracle;
use super::rate::Rate;

/// `level` counts everything that ever entered, in units of one token / period.
pub(super) struct Leaky {
    rate: Rate,
    largest: u64,
    level: i128,
}

impl Leaky {
    pub(super) fn new(quota: Quota) -> Self {
        Self { rate: Rate::of(quota), largest: quota.burst_size(), level: 0 }
    }

    fn start(&self, now_ns: u64) -> i128 {
        self.level.max(self.rate.count * i128::from(now_ns))
    }
}

impl Oracle for Leaky {
    fn wait_ns(&self, now_ns: u64, cost: u64) -> Option<u64> {
        if cost == 0 {
            return Some(0);
        }
        if cost > self.largest {
            return None;
        }
        Some(self.rate.moment_of(self.start(now_ns))?.saturating_sub(now_ns))
    }

    fn take(&mut self, now_ns: u64, cost: u64) {
        if cost > 0 {
            self.level = self.start(now_ns) + i128::from(cost) * self.rate.period;
        }
    }
}
