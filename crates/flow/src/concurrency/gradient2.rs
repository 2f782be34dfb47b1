//! By how round trips change.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::bounds::{Bounded, as_f64};
use super::estimator::{Estimator, Sample};

/// Compares round trips now with those of the last ten minutes or so; needs no shortest round trip to go by.
///
/// ```text
/// long  = mean of 600 samples, exponentially weighted (the plain mean of the first ten)
/// g     = clamp(1.5 · long / rtt, 0.5, 1)           0.5 after a drop
/// queue = 4 if g = 1, else 0
/// L     = 0.8 L + 0.2 (g L + queue)                 unless 2 · in flight < L: then it was not needed
/// ```
///
/// - Steady: round trips are within a half of the usual: g is 1, and L grows by 0.8 a window as far as it is used.
/// - Into load: round trips grow beyond that, g falls below 1, and L shrinks by up to a tenth a window.
/// - Out of load: round trips are short again. While `long` is still above twice as long, it loses a 20th at each
///   sample, so that it does not stand for a load that is gone.
///
/// Two things differ from Netflix's original, where they were faults. A time-out is a drop and counts with g = 0.5; there,
/// constant time-outs looked like constant round trips, and the limit grew to its maximum (their issue 137). And the queue is
/// added only at g = 1; there, a limit below 20 grew even while g was 0.8 (their issue 134).
///
/// What stays: with a service that is always full, `long` follows the queue, and so does the limit, by some percent a minute. Set
/// a most that you can live with.
///
/// Starts at 20, stays between 1 and 200.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate_flow::concurrency::Sample;
/// use tollgate_flow::{Estimator, Gradient2};
///
/// let mut limit = Gradient2::new();
/// for _ in 0..5 {
///     limit.learn(Sample { rtt: Duration::from_millis(20), in_flight: 20, dropped: false });
/// }
/// assert_eq!(limit.limit(), 24); // 20 + 5 · 0.8
/// limit.learn(Sample { rtt: Duration::from_secs(5), in_flight: 24, dropped: true });
/// assert_eq!(limit.limit(), 21); // 24 · 0.9
/// ```
#[derive(Clone, Debug)]
#[must_use = "an estimator does nothing by itself"]
pub struct Gradient2 {
    limit: Bounded,
    /// The usual round trip in seconds, and how many samples it is made of, up to ten.
    long: f64,
    samples: u32,
}

const TOLERANCE: f64 = 1.5;
const STEEPEST: f64 = 0.5;
const SMOOTHING: f64 = 0.2;
const QUEUE: f64 = 4.0;
const WARM_UP: u32 = 10;
/// The weight of one sample in an exponential mean of 600.
const WEIGHT: f64 = 2.0 / 601.0;
const FADING: f64 = 0.95;

impl Gradient2 {
    /// The usual bounds.
    pub fn new() -> Self {
        Self { limit: Bounded::new(20, 1..=200), long: 0.0, samples: 0 }
    }

    /// Starts at `limit`.
    pub fn starting_at(self, limit: u64) -> Self {
        Self { limit: self.limit.starting_at(limit), ..self }
    }

    /// Stays within `range`.
    ///
    /// # Panics
    /// If it is empty or begins at zero.
    pub fn within(self, range: RangeInclusive<u64>) -> Self {
        Self { limit: self.limit.within(range), ..self }
    }

    /// The gradient after a sample that was not dropped.
    fn gradient(&mut self, rtt: Duration) -> f64 {
        let short = rtt.as_secs_f64().max(1e-9);
        self.samples = (self.samples + 1).min(WARM_UP + 1);
        let weight = if self.samples <= WARM_UP { 1.0 / f64::from(self.samples) } else { WEIGHT };
        self.long += (short - self.long) * weight;
        let gradient = (TOLERANCE * self.long / short).clamp(STEEPEST, 1.0);
        if self.long > 2.0 * short {
            self.long *= FADING;
        }
        gradient
    }
}

impl Default for Gradient2 {
    fn default() -> Self {
        Self::new()
    }
}

impl Estimator for Gradient2 {
    fn learn(&mut self, sample: Sample) {
        let gradient = if sample.dropped { STEEPEST } else { self.gradient(sample.rtt) };
        let limit = self.limit.value();
        if !sample.dropped && 2.0 * as_f64(sample.in_flight) < limit {
            return;
        }
        let queue = if gradient >= 1.0 { QUEUE } else { 0.0 };
        self.limit.set((1.0 - SMOOTHING) * limit + SMOOTHING * (gradient * limit + queue));
    }

    fn limit(&self) -> u64 {
        self.limit.whole()
    }
}

#[cfg(test)]
mod tests {
    use super::super::estimator::sample;
    use super::*;

    #[test]
    fn a_series_by_hand() {
        let mut gradient = Gradient2::new();
        let series = [
            // long 100; g = min(1, 1.5) = 1: 0.8 · 20 + 0.2 · 24
            (sample(100, 20, false), 20.8),
            // long (100 + 300) / 2 = 200; g = 1.5 · 200 / 300 = 1: + 0.8
            (sample(300, 20, false), 21.6),
            // long 1400 / 3; g = 1.5 · 466.67 / 1000 = 0.7, no queue: 21.6 · (0.8 + 0.14)
            (sample(1_000, 21, false), 20.304),
            // g = 0.5: 20.304 · 0.9; long stays
            (sample(9_000, 20, true), 18.273_6),
            // long 1500 / 4 = 375; g = 1: + 0.8; 375 > 2 · 100: long 356.25
            (sample(100, 18, false), 19.073_6),
            // 2 · 9 < 19.07: not needed; long 356.25 + (100 - 356.25) / 5 = 305, then 289.75
            (sample(100, 9, false), 19.073_6),
            // long 289.75 + (2000 - 289.75) / 6 = 574.79; g = 0.431, so 0.5: 19.0736 · 0.9
            (sample(2_000, 19, false), 17.166_24),
        ];
        for (step, (sample, limit)) in series.into_iter().enumerate() {
            gradient.learn(sample);
            assert!((gradient.limit.value() - limit).abs() < 1e-9, "step {step}: {}", gradient.limit.value());
        }
        assert!((gradient.long - 0.574_791_666).abs() < 1e-8, "{}", gradient.long);
        assert_eq!(gradient.limit(), 17);
    }

    #[test]
    fn a_drop_counts_however_few_are_under_way() {
        let mut gradient = Gradient2::new();
        gradient.learn(sample(100, 1, true));
        assert_eq!(gradient.limit(), 18);
    }

    #[test]
    fn after_ten_samples_the_mean_is_exponential() {
        let mut gradient = Gradient2::new();
        (0..10).for_each(|_| gradient.learn(sample(100, 20, false)));
        gradient.learn(sample(701, 20, false));
        // 0.1 + 0.601 · 2 / 601
        assert!((gradient.long - 0.102).abs() < 1e-9, "{}", gradient.long);
    }

    #[test]
    fn constant_time_outs_bring_it_down_issue_137() {
        let mut gradient = Gradient2::new().starting_at(200);
        for _ in 0..60 {
            gradient.learn(sample(1_000, gradient.limit(), true));
        }
        assert_eq!(gradient.limit(), 1); // 200 · 0.9^60 = 0.36
    }

    #[test]
    fn a_gradient_of_0_8_lets_no_limit_grow_issue_134() {
        // Round trips that grow so that 1.5 · long / rtt stays at 0.8. In the original, L = 0.96 L + 0.8 takes 5 up to 20.
        let mut gradient = Gradient2::new().starting_at(5);
        gradient.learn(sample(100, 5, false));
        let before = gradient.limit.value();
        let mut last = before;
        for _ in 0..50 {
            // After the next sample long is about long + (rtt - long) · weight; solve 1.5 · that = 0.8 rtt for rtt.
            let weight =
                if gradient.samples < WARM_UP { 1.0 / f64::from(gradient.samples + 1) } else { WEIGHT };
            let rtt = 1.5 * gradient.long * (1.0 - weight) / (0.8 - 1.5 * weight).max(0.05);
            gradient.learn(Sample { rtt: Duration::from_secs_f64(rtt), in_flight: 20, dropped: false });
            if gradient.samples > 2 {
                assert!(gradient.limit.value() <= last, "{} after {last}", gradient.limit.value());
            }
            last = gradient.limit.value();
        }
        assert!(last < before * 0.5, "{last}");
    }
}
