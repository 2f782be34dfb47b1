//! The exact token bucket.

use tollgate_core::Quota;

use super::Oracle;
use super::rate::Rate;

/// `level` counts everything ever consumed, in units of one token / period, so that time gives `count` of them each
/// nanosecond and nothing is ever rounded.
pub(super) struct Bucket {
    rate: Rate,
    burst: u64,
    level: i128,
}

impl Bucket {
    pub(super) fn new(quota: Quota) -> Self {
        Self { rate: Rate::of(quota), burst: quota.burst_size(), level: 0 }
    }

    fn start(&self, now_ns: u64) -> i128 {
        self.level.max(self.rate.count * i128::from(now_ns))
    }

    fn tokens(&self, count: u64) -> i128 {
        i128::from(count) * self.rate.period
    }
}

impl Oracle for Bucket {
    fn wait_ns(&self, now_ns: u64, cost: u64) -> Option<u64> {
        if cost == 0 {
            return Some(0);
        }
        if cost > self.burst {
            return None;
        }
        let needed = self.start(now_ns) + self.tokens(cost) - self.tokens(self.burst);
        Some(self.rate.moment_of(needed)?.saturating_sub(now_ns))
    }

    fn take(&mut self, now_ns: u64, cost: u64) {
        if cost > 0 {
            self.level = self.start(now_ns) + self.tokens(cost);
        }
    }
}
