//! The most that may be admitted in a span: what each algorithm promises, from its kind and quota alone.

use std::fmt;

use tollgate_core::{Kind, Quota};

use crate::history::{self, Most, Operation};
use crate::oracle::Rate;
use crate::outcome::nanos;

/// What an algorithm with a quota promises.
///
/// # Examples
/// ```
/// use tollgate_core::{Kind, Quota};
/// use tollgate_sim::bound::Bound;
///
/// let second = 1_000_000_000;
/// let quota = Quota::per_second(10).burst(5);
/// assert_eq!(Bound::of(Kind::TokenBucket, quota).most_in(second), Some(15));
/// assert_eq!(Bound::of(Kind::FixedWindow, quota).most_in(1), Some(20)); // across a boundary
/// assert_eq!(Bound::of(Kind::SlidingLog, quota).most_in(second - 1), Some(10));
/// assert_eq!(Bound::of(Kind::SlidingCounter, quota).most_in(second - 1), Some(19));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    kind: Kind,
    quota: Quota,
}

impl Bound {
    /// The promise of an algorithm with a quota.
    pub fn of(kind: Kind, quota: Quota) -> Self {
        Self { kind, quota }
    }

    /// The most that may be admitted from one moment to another `span_ns` later, both included, wherever they lie. `None`
    /// if there is no limit.
    pub fn most_in(&self, span_ns: u64) -> Option<u128> {
        if self.quota.is_unlimited() {
            return None;
        }
        let (count, period) = (u128::from(self.quota.count()), u128::from(nanos(self.quota.period())));
        let span = u128::from(span_ns);
        let windows = span.div_ceil(period) + 1;
        Some(match self.kind {
            Kind::FixedWindow => count * windows,
            // Everything at the end of a window, then one and the pace of the next.
            Kind::PacedWindow if count > 0 && span > 0 => count + 1 + count * (span - 1) / period,
            Kind::PacedWindow => count,
            Kind::SlidingLog | Kind::SubWindows => count * (span / period + 1),
            Kind::SlidingCounter => (count * windows).saturating_sub(u128::from(span > 0)),
            // A leaky bucket's burst is its largest single cost.
            _ => u128::from(self.quota.burst_size()) + self.given_in(span),
        })
    }

    /// Whether a history keeps the promise.
    ///
    /// # Errors
    /// Says which span holds too much, and how much would have been right.
    pub fn check(&self, operations: &[Operation]) -> Result<(), Violation> {
        if self.quota.is_unlimited() {
            return Ok(());
        }
        let (count, period_ns) = (u128::from(self.quota.count()), nanos(self.quota.period()));
        match self.kind {
            Kind::FixedWindow => at_most(count, history::fullest_window(period_ns, operations)),
            Kind::PacedWindow => {
                at_most(count, history::fullest_window(period_ns, operations))?;
                self.check_pace(operations)
            }
            Kind::SlidingLog | Kind::SubWindows => {
                at_most(count, history::fullest_trailing(period_ns, operations))
            }
            Kind::SlidingCounter => {
                at_most(count, history::fullest_window(period_ns, operations))?;
                at_most((2 * count).saturating_sub(1), history::fullest_trailing(period_ns, operations))
            }
            Kind::LeakyBucket | Kind::LeakyQueue => {
                self.check_spacing(operations)?;
                self.check_rate(operations)
            }
            _ => self.check_rate(operations),
        }
    }

    /// What the rate gives in a span, rounded down.
    fn given_in(&self, span: u128) -> u128 {
        let Rate { count, period } = Rate::of(self.quota);
        count.unsigned_abs() * span / period.unsigned_abs()
    }

    fn check_rate(&self, operations: &[Operation]) -> Result<(), Violation> {
        match history::largest_excess(self.quota, operations) {
            Some(worst) if worst.is_violation() => Err(Violation {
                start_ns: worst.start_ns,
                end_ns: worst.end_ns,
                cost: worst.cost.unsigned_abs(),
                most: u128::from(self.quota.burst_size())
                    + self.given_in(u128::from(worst.end_ns - worst.start_ns)),
            }),
            _ => Ok(()),
        }
    }

    /// After a call of cost n the next one is at least n/rate later, whichever of two it was that came first.
    fn check_spacing(&self, operations: &[Operation]) -> Result<(), Violation> {
        let rate = Rate::of(self.quota);
        let longest_gap =
            |from: Operation, to: Operation| i128::from(to.response_ns) - i128::from(from.invoke_ns);
        let may_follow = |from: Operation, to: Operation| {
            longest_gap(from, to) * rate.count >= i128::from(from.cost) * rate.period
        };
        for (first, second) in pairs(operations) {
            if !may_follow(first, second) && !may_follow(second, first) {
                let gap = longest_gap(first, second);
                return Err(Violation {
                    start_ns: first.invoke_ns,
                    end_ns: second.response_ns,
                    cost: u128::from(first.cost) + u128::from(second.cost),
                    most: u128::from(second.cost) + self.given_in(gap.unsigned_abs()),
                });
            }
        }
        Ok(())
    }

    /// Within a window, no more by any moment than its share of the window, and one; of what surely lies in the window.
    fn check_pace(&self, operations: &[Operation]) -> Result<(), Violation> {
        let (count, period_ns) = (u128::from(self.quota.count()), nanos(self.quota.period()));
        let (mut window, mut cost) = (0, 0);
        for operation in sorted(operations) {
            let end_ns = operation.response_ns;
            if operation.invoke_ns / period_ns != end_ns / period_ns {
                continue;
            }
            if end_ns / period_ns != window {
                (window, cost) = (end_ns / period_ns, 0);
            }
            cost += u128::from(operation.cost);
            let most = u128::from(end_ns % period_ns) * count / u128::from(period_ns) + 1;
            if cost > most {
                return Err(Violation { start_ns: window * period_ns, end_ns, cost, most });
            }
        }
        Ok(())
    }
}

/// A span that holds more than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Where the span begins.
    pub start_ns: u64,
    /// Where it ends.
    pub end_ns: u64,
    /// What was admitted in it.
    pub cost: u128,
    /// The most that may be, rounded down.
    pub most: u128,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { start_ns, end_ns, cost, most } = self;
        write!(f, "{cost} admitted from {start_ns} ns to {end_ns} ns, where {most} is the most")
    }
}

impl std::error::Error for Violation {}

fn at_most(most: u128, fullest: Option<Most>) -> Result<(), Violation> {
    match fullest {
        Some(Most { cost, start_ns, end_ns }) if cost > most => {
            Err(Violation { start_ns, end_ns, cost, most })
        }
        _ => Ok(()),
    }
}

/// What costs something, by the moment it acts.
fn sorted(operations: &[Operation]) -> Vec<Operation> {
    let mut sorted: Vec<_> = operations.iter().filter(|operation| operation.cost > 0).copied().collect();
    sorted.sort_by_key(|operation| operation.response_ns);
    sorted
}

fn pairs(operations: &[Operation]) -> Vec<(Operation, Operation)> {
    sorted(operations).windows(2).map(|pair| (pair[0], pair[1])).collect()
}
