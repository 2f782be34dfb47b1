//! Up by one, down by a tenth.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::bounds::{Bounded, as_f64};
use super::estimator::{Estimator, Sample};

/// The simple choice: one more while all is well, a tenth less after a drop.
///
/// ```text
/// dropped, or rtt > 5 s:   L = 0.9 L
/// 2 · in flight >= L:      L = L + 1
/// otherwise:               L stays, since it was not needed
/// ```
///
/// It sees only drops, not queues: it fills a queue until somebody's patience ends, then makes room. Right where the other
/// side refuses early and plainly.
/// - Steady: a saw between 0.9 and 1 of the limit at which drops begin.
/// - Into load: one more per window.
/// - Out of load: a tenth less per window with drops; without drops nothing.
///
/// Starts at 20, stays between 1 and 200.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate_flow::concurrency::Sample;
/// use tollgate_flow::{Aimd, Estimator};
///
/// let mut limit = Aimd::new().starting_at(10);
/// limit.learn(Sample { rtt: Duration::from_millis(20), in_flight: 10, dropped: false });
/// assert_eq!(limit.limit(), 11);
/// limit.learn(Sample { rtt: Duration::from_millis(20), in_flight: 11, dropped: true });
/// assert_eq!(limit.limit(), 9); // 9.9
/// ```
#[derive(Clone, Debug)]
#[must_use = "an estimator does nothing by itself"]
pub struct Aimd {
    limit: Bounded,
    patience: Duration,
}

const BACKOFF: f64 = 0.9;

impl Aimd {
    /// The usual bounds.
    pub fn new() -> Self {
        Self { limit: Bounded::new(20, 1..=200), patience: Duration::from_secs(5) }
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

    /// Takes whatever is slower than this for a drop. The default is 5 s.
    pub fn patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }
}

impl Default for Aimd {
    fn default() -> Self {
        Self::new()
    }
}

impl Estimator for Aimd {
    fn learn(&mut self, sample: Sample) {
        let limit = self.limit.value();
        if sample.dropped || sample.rtt > self.patience {
            self.limit.set(limit * BACKOFF);
        } else if 2.0 * as_f64(sample.in_flight) >= limit {
            self.limit.set(limit + 1.0);
        }
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
        let mut aimd = Aimd::new();
        let series = [
            (sample(50, 20, false), 21.0),     // 20 + 1
            (sample(50, 10, false), 21.0),     // 2 · 10 < 21
            (sample(50, 11, false), 22.0),     // 2 · 11 >= 21
            (sample(50, 22, true), 19.8),      // 22 · 0.9
            (sample(5_000, 20, false), 20.8),  // just in time
            (sample(5_001, 20, false), 18.72), // 20.8 · 0.9
        ];
        for (step, (sample, limit)) in series.into_iter().enumerate() {
            aimd.learn(sample);
            assert!((aimd.limit.value() - limit).abs() < 1e-9, "step {step}: {}", aimd.limit.value());
        }
        assert_eq!(aimd.limit(), 18);
    }

    #[test]
    fn it_stays_within_its_bounds() {
        let mut aimd = Aimd::new().within(3..=5).starting_at(5);
        aimd.learn(sample(50, 5, false));
        assert_eq!(aimd.limit(), 5);
        (0..100).for_each(|_| aimd.learn(sample(50, 5, true)));
        assert_eq!(aimd.limit(), 3);
    }
}
