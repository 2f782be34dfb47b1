//! The server: one bucket, and what is out on lease. See `lease.lua` in `tollgate-redis`.

use std::collections::BTreeMap;

use tollgate_core::Quota;

use super::{Call, SECOND};
use crate::oracle::Rate;

/// How long a lease lasts.
pub(super) const TIME: u64 = 4 * SECOND;

/// The bucket. What is owed is counted in parts of a token: as many as the period has nanoseconds.
pub(super) struct Server {
    rate: Rate,
    depth: i128,
    owed: i128,
    at: u64,
    /// By node: how much it has, and until when.
    leases: BTreeMap<usize, (u64, u64)>,
}

/// What the server says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Reply {
    pub(super) fits: bool,
    pub(super) lent: u64,
    /// How long to wait after a refusal.
    pub(super) wait: u64,
}

impl Server {
    pub(super) fn new(quota: Quota) -> Self {
        let rate = Rate::of(quota);
        let depth = rate.period * i128::from(quota.burst_size());
        Self { rate, depth, owed: 0, at: 0, leases: BTreeMap::new() }
    }

    pub(super) fn hears(&mut self, now: u64, node: usize, call: Call) -> Reply {
        self.end_leases(now);
        self.pay_off(now);
        let cost = if call.came.is_some() { self.rate.period } else { 0 };
        let mut keep = 0;
        if let Some(report) = call.report {
            let (amount, _) = self.leases.remove(&node).unwrap_or_default();
            let left = report.left.min(amount);
            self.owed += self.tokens(amount - left);
            keep = report.keep.min(left);
        }
        let free = self.depth - self.owed - self.tokens(self.out() + keep);
        let fits = cost <= free;
        let mut lent = 0;
        if fits {
            self.owed += cost;
            lent = call.report.map_or(0, |report| self.lends(free - cost, keep, report.want));
        }
        if keep + lent > 0 {
            self.leases.insert(node, (keep + lent, now + TIME));
        }
        Reply { fits, lent, wait: self.restored((cost - free).max(0)).max(1) }
    }

    /// Nanoseconds until so much is paid off.
    fn restored(&self, parts: i128) -> u64 {
        u64::try_from(parts / self.rate.count.max(1)).unwrap_or(u64::MAX)
    }

    /// How long it is not worth asking again for a node that may have `most` on lease.
    pub(super) fn spare(&self, most: u64) -> u64 {
        self.restored(self.tokens(most).min(self.depth / 2))
    }

    /// At most half of what is free without it, divided by all who have some.
    fn lends(&self, free: i128, keep: u64, want: u64) -> u64 {
        let parts = 2 * (self.leases.len() as i128 + 1);
        let share = (free + self.tokens(keep)) / self.rate.period / parts;
        let more = want.min(u64::try_from(share).unwrap_or(0).saturating_sub(keep));
        if keep + more < 2 { 0 } else { more }
    }

    /// What is out on lease.
    pub(super) fn out(&self) -> u64 {
        self.leases.values().map(|(amount, _)| amount).sum()
    }

    fn tokens(&self, count: u64) -> i128 {
        self.rate.period * i128::from(count)
    }

    fn pay_off(&mut self, now: u64) {
        let paid = self.rate.count * i128::from(now.saturating_sub(self.at));
        (self.owed, self.at) = ((self.owed - paid).max(0), self.at.max(now));
    }

    /// What was not reported in time was spent in the last moment.
    fn end_leases(&mut self, now: u64) {
        while let Some((&node, &(amount, ends))) =
            self.leases.iter().filter(|(_, (_, ends))| *ends <= now).min_by_key(|(_, (_, ends))| *ends)
        {
            self.pay_off(ends);
            self.owed += self.tokens(amount);
            self.leases.remove(&node);
        }
    }
}
