//! How many extra copies there may be for all that is asked.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Keeps the extra copies to a share of the calls, however many calls are slow or fail.
///
/// Each call earns a share of a copy, and each copy beyond a call's first costs one. At most [`SAVED`](Self::SAVED) copies are
/// saved up. So over any span, extra copies are at most that share of the calls in it, plus ten; and since it starts
/// with nothing, from the start they are at most that share exactly.
///
/// Clones share one budget, and so may several [`Hedge`](crate::Hedge)s. It needs no clock and takes no lock.
///
/// # Examples
/// ```
/// use tollgate_flow::HedgeBudget;
///
/// let budget = HedgeBudget::new(0.5);
/// budget.deposit();
/// assert!(!budget.withdraw()); // half a copy
/// budget.deposit();
/// assert!(budget.withdraw());
/// ```
#[derive(Clone)]
pub struct HedgeBudget {
    earning: u64,
    /// In billionths of a copy.
    saved: Arc<AtomicU64>,
}

/// What an extra copy costs.
const COPY: u64 = 1_000_000_000;

impl HedgeBudget {
    /// The most copies that can be saved up for later.
    pub const SAVED: u64 = 10;

    /// A budget of `share` extra copies for each call, 0 to 1.
    ///
    /// # Panics
    /// If the share is not within 0 and 1.
    pub fn new(share: f64) -> Self {
        assert!((0.0..=1.0).contains(&share), "a hedge budget's share of calls is within 0 and 1");
        // In billionths, rounded down, so that the share is never exceeded.
        Self { earning: (share * 1e9) as u64, saved: Arc::default() }
    }

    /// A call is made.
    pub fn deposit(&self) {
        let add = |saved: u64| Some((saved + self.earning).min(Self::SAVED * COPY));
        // Nothing else is read or written by what is counted here, so any order will do.
        let _ = self.saved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// Pays for an extra copy, if there is enough; a refusal costs nothing.
    #[must_use = "without it, the copy is not paid for"]
    pub fn withdraw(&self) -> bool {
        let take = |saved: u64| saved.checked_sub(COPY);
        self.saved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    /// How many copies it would pay for now.
    pub fn balance(&self) -> u64 {
        self.saved.load(Ordering::Relaxed) / COPY
    }
}

impl Default for HedgeBudget {
    /// One extra copy for every twenty calls: 5 %.
    fn default() -> Self {
        Self::new(0.05)
    }
}

impl fmt::Debug for HedgeBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HedgeBudget").field("balance", &self.balance()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twenty_calls_pay_for_a_copy() {
        let budget = HedgeBudget::default();
        (0..19).for_each(|_| budget.deposit());
        assert!(!budget.withdraw());
        budget.deposit();
        assert!(budget.clone().withdraw());
        assert!(!budget.withdraw());
    }

    #[test]
    fn ten_copies_are_saved_up_and_no_more() {
        let budget = HedgeBudget::default();
        (0..100_000).for_each(|_| budget.deposit());
        assert_eq!(budget.balance(), 10);
        assert_eq!((0..100).filter(|_| budget.withdraw()).count(), 10);
    }

    #[test]
    fn from_the_start_copies_never_exceed_the_share() {
        for (percent, calls) in [(0_u32, 10_000), (1, 10_000), (5, 10_000), (33, 9_999), (100, 1_000)] {
            let budget = HedgeBudget::new(f64::from(percent) / 100.0);
            let mut copies = 0;
            for call in 1..=calls {
                budget.deposit();
                copies += u32::from(budget.withdraw());
                assert!(copies * 100 <= percent * call, "{copies} copies for {call} calls at {percent} %");
            }
            assert!(
                copies * 100 + 100 >= percent * calls,
                "{copies} at {percent} %: the share is there to be used"
            );
        }
    }

    #[test]
    fn threads_share_one_account() {
        let budget = HedgeBudget::new(0.5);
        let paid: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let call = |_: &u32| {
                            budget.deposit();
                            budget.withdraw()
                        };
                        (0..10_000).filter(call).count()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert!(paid <= 20_000);
        assert!(paid as u64 + budget.balance() >= 19_990, "{paid}"); // what was above ten at once is lost
    }

    #[test]
    fn a_share_that_is_none_is_refused() {
        for share in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            let panic = std::panic::catch_unwind(|| HedgeBudget::new(share)).unwrap_err();
            let message = panic.downcast_ref::<&str>().expect("a plain message");
            assert_eq!(*message, "a hedge budget's share of calls is within 0 and 1");
        }
    }
}
