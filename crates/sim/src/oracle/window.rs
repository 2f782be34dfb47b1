//! The exact fixed and paced windows.

use tollgate_core::Quota;

use super::Oracle;
use crate::outcome::nanos;

/// Everything ever admitted, with the number of the window it belongs to.
pub(super) struct Windows {
    count: u64,
    period_ns: u64,
    paced: bool,
    admitted: Vec<(u64, u64)>,
}

impl Windows {
    pub(super) fn fixed(quota: Quota) -> Self {
        let period_ns = nanos(quota.period());
        // The fastest rate that is enforced, and the most a window holds: both part of the contract.
        let fastest = period_ns.saturating_mul(16).min(1 << 62);
        Self { count: quota.count().min(fastest), period_ns, paced: false, admitted: Vec::new() }
    }

    pub(super) fn paced(quota: Quota) -> Self {
        Self { paced: true, ..Self::fixed(quota) }
    }

    fn used(&self, window: u64) -> u64 {
        self.admitted.iter().filter(|(of, _)| *of == window).map(|(_, cost)| cost).sum()
    }

    /// How much of a window must have passed before `total` of it may be used; `None` if that is not within the window.
    fn passed_before(&self, total: u64) -> Option<u64> {
        if total > self.count {
            return None;
        }
        if !self.paced {
            return Some(0);
        }
        // The first `passed` with floor(passed · count / period) + 1 >= total.
        let product = u128::from(total - 1) * u128::from(self.period_ns);
        let passed = product.div_ceil(u128::from(self.count));
        u64::try_from(passed).ok().filter(|passed| *passed < self.period_ns)
    }

    /// The first moment at or after `now_ns` at which `cost` fits, and its window. A window older than the newest one used
    /// is over, even for a clock that stepped back into it.
    fn opening(&self, now_ns: u64, cost: u64) -> Option<(u64, u64)> {
        let newest = self.admitted.iter().map(|(window, _)| *window).max().unwrap_or(0);
        let first = newest.max(now_ns / self.period_ns);
        // Windows beyond the newest are empty; if it does not fit the second such, it fits none.
        (first..=first + 2).find_map(|window| {
            let passed = self.passed_before(self.used(window) + cost)?;
            let moment = window.checked_mul(self.period_ns)?.checked_add(passed)?.max(now_ns);
            (moment / self.period_ns == window).then_some((moment, window))
        })
    }
}

impl Oracle for Windows {
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
            && let Some((_, window)) = self.opening(now_ns, cost)
        {
            self.admitted.push((window, cost));
        }
    }
}
