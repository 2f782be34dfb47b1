//! What an exact limiter would have said.
//!
//! One oracle for each algorithm, written from the formula in the algorithm's documentation and sharing nothing with its
//! code: fractions stay fractions (whole numbers of 128 bits over a common denominator), windows are recounted from a
//! list of everything ever admitted. Slow, and plain enough to be believed.

mod bucket;
mod counter;
mod leaky;
mod log;
mod parts;
mod rate;
mod window;

use tollgate_core::{Kind, Quota};

use crate::Outcome;
pub(crate) use rate::Rate;

/// The oracles know no time from here on (2^59 ns, 18 years): it is where the algorithms refuse instead of wrapping.
pub const HORIZON_NS: u64 = 1 << 59;

/// An exact limiter.
///
/// # Examples
/// ```
/// use tollgate_core::{Kind, Quota};
/// use tollgate_sim::{Outcome, oracle};
///
/// let mut exact = oracle::of(Kind::TokenBucket, Quota::per_second(3).burst(1));
/// assert_eq!(exact.decide(0, 1, 0), Outcome::Admit { delay_ns: 0 });
/// assert_eq!(exact.decide(0, 1, 0), Outcome::Deny { retry_ns: Some(333_333_334) });
/// ```
pub trait Oracle {
    /// Nanoseconds from `now_ns` until `cost` can be had; `None` if it never can.
    fn wait_ns(&self, now_ns: u64, cost: u64) -> Option<u64>;

    /// Takes `cost` at the first moment it can be had; call it only after [`wait_ns`](Self::wait_ns) named one.
    fn take(&mut self, now_ns: u64, cost: u64);

    /// Decides, and takes if that is the decision.
    fn decide(&mut self, now_ns: u64, cost: u64, patience_ns: u64) -> Outcome {
        let outcome = Outcome::of(self.wait_ns(now_ns, cost), patience_ns);
        if outcome.is_admitted() {
            self.take(now_ns, cost);
        }
        outcome
    }
}

/// The oracle of an algorithm with a quota.
pub fn of(kind: Kind, quota: Quota) -> Box<dyn Oracle> {
    if quota.is_unlimited() {
        return Box::new(Unlimited);
    }
    match kind {
        Kind::TokenBucket => Box::new(bucket::Bucket::new(quota)),
        Kind::LeakyBucket | Kind::LeakyQueue => Box::new(leaky::Leaky::new(quota)),
        Kind::FixedWindow => Box::new(window::Windows::fixed(quota)),
        Kind::PacedWindow => Box::new(window::Windows::paced(quota)),
        Kind::SlidingLog => Box::new(log::Log::new(quota)),
        Kind::SlidingCounter => Box::new(counter::Counter::new(quota)),
        Kind::SubWindows => Box::new(parts::Parts::new(quota)),
        other => panic!("there is no oracle for {other}"),
    }
}

/// By how many nanoseconds an algorithm with a quota may differ from its oracle: zero, except where the rate is not a round
/// number or the burst is huge and a bucket has to round. One then, and more only for a huge burst at a slow rate.
pub fn tolerance_ns(kind: Kind, quota: Quota) -> u64 {
    match kind {
        Kind::TokenBucket | Kind::LeakyBucket | Kind::LeakyQueue => rate::tolerance_ns(quota),
        _ => 0,
    }
}

struct Unlimited;

impl Oracle for Unlimited {
    fn wait_ns(&self, _now_ns: u64, _cost: u64) -> Option<u64> {
        Some(0)
    }

    fn take(&mut self, _now_ns: u64, _cost: u64) {}
}
