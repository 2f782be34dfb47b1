//! By the length of the queue.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::bounds::{Bounded, as_f64};
use super::estimator::{Estimator, Sample};

/// Keeps a short queue at the other side, as TCP Vegas does.
///
/// The shortest round trip that was seen, `rtt0`, is what a call takes without a queue; whatever a call takes beyond it, it
/// spent in one:
///
/// ```text
/// q = ceil(L · (1 - rtt0 / rtt))              calls that stand in a queue
/// s = max(1, log10 L)                         a step
/// dropped:             L = L - s
/// 2 · in flight < L:   L stays, since it was not needed
/// q <= s:              L = L + 6 s
/// q < 3 s:             L = L + s
/// q > 6 s:             L = L - s
/// ```
///
/// - Steady: a queue of 3 s to 6 s calls, on top of what the other side works on at once.
/// - Into load: by 6 s a window while there is no queue, then by s.
/// - Out of load: by s a window, until the queue is short again.
///
/// Since round trips may grow for good, `rtt0` is taken anew every 30 L samples or so, at a moment that differs between
/// clients: after 15 L to 30 L samples. If there is a queue just then, it counts as normal; with a service that is always
/// full the limit may creep upwards that way.
///
/// Starts at 20, stays between 1 and 1000.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate_flow::concurrency::Sample;
/// use tollgate_flow::{Estimator, Vegas};
///
/// let mut limit = Vegas::new();
/// let sample = Sample { rtt: Duration::from_millis(20), in_flight: 20, dropped: false };
/// limit.learn(sample); // what a call takes
/// limit.learn(sample); // no queue: 6 · log10(20) more
/// assert_eq!(limit.limit(), 27);
/// ```
#[derive(Clone, Debug)]
#[must_use = "an estimator does nothing by itself"]
pub struct Vegas {
    limit: Bounded,
    /// Without a queue; none before the first sample.
    rtt0: Option<Duration>,
    /// Samples since `rtt0` was taken anew, and at which share of 30 L it is due again.
    samples: f64,
    due: f64,
    random: fastrand::Rng,
}

const ALPHA: f64 = 3.0;
const BETA: f64 = 6.0;
const PROBE: f64 = 30.0;

impl Vegas {
    /// The usual bounds.
    pub fn new() -> Self {
        Self::with_random(fastrand::Rng::new())
    }

    /// Draws its random numbers from `random`.
    pub fn with_random(mut random: fastrand::Rng) -> Self {
        let due = share(&mut random);
        Self { limit: Bounded::new(20, 1..=1_000), rtt0: None, samples: 0.0, due, random }
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

    /// Whether `rtt0` is due to be taken anew.
    fn probes(&mut self) -> bool {
        self.samples += 1.0;
        if self.samples < PROBE * self.limit.value() * self.due {
            return false;
        }
        (self.samples, self.due) = (0.0, share(&mut self.random));
        true
    }

    fn next(&self, rtt0: Duration, sample: Sample) -> f64 {
        let limit = self.limit.value();
        let step = limit.log10().max(1.0);
        let queue = (limit * (1.0 - rtt0.as_secs_f64() / sample.rtt.as_secs_f64())).ceil();
        if 2.0 * as_f64(sample.in_flight) < limit {
            limit
        } else if queue <= step {
            limit + BETA * step
        } else if queue < ALPHA * step {
            limit + step
        } else if queue > BETA * step {
            limit - step
        } else {
            limit
        }
    }
}

/// Between a half and one.
fn share(random: &mut fastrand::Rng) -> f64 {
    0.5 + random.f64() / 2.0
}

impl Default for Vegas {
    fn default() -> Self {
        Self::new()
    }
}

impl Estimator for Vegas {
    fn learn(&mut self, sample: Sample) {
        if sample.dropped {
            // How long it took to be dropped says nothing of how long calls take.
            let limit = self.limit.value();
            self.limit.set(limit - limit.log10().max(1.0));
            return;
        }
        let sample = Sample { rtt: sample.rtt.max(Duration::from_nanos(1)), ..sample };
        match self.rtt0.filter(|rtt0| sample.rtt >= *rtt0) {
            Some(rtt0) if !self.probes() => {
                let next = self.next(rtt0, sample);
                self.limit.set(next);
            }
            _ => self.rtt0 = Some(sample.rtt),
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

    fn vegas() -> Vegas {
        Vegas::with_random(fastrand::Rng::with_seed(7))
    }

    #[test]
    fn a_series_by_hand() {
        let mut vegas = vegas();
        let series = [
            (sample(100, 20, false), 20.0), // rtt0 = 100 ms
            // s = log10 20 = 1.301030; q = 0 <= s: 20 + 6 s
            (sample(100, 20, false), 27.806_180),
            // 2 · 13 < 27.8: not needed
            (sample(100, 13, false), 27.806_180),
            // s = log10 27.806180 = 1.444141; q = ceil(27.806 · (1 - 100/110) = 2.528) = 3 < 3 s = 4.33: + s
            (sample(110, 28, false), 29.250_321),
            // s = log10 29.250321 = 1.466130; q = ceil(29.250 / 3 = 9.75) = 10 > 6 s = 8.80: - s
            (sample(150, 29, false), 27.784_191),
            // s = 1.443798; q = ceil(27.784 · 0.2 = 5.557) = 6, between 3 s = 4.33 and 6 s = 8.66: stays
            (sample(125, 27, false), 27.784_191),
            // dropped: - s, however quickly
            (sample(1, 27, true), 26.340_393),
            // a shorter one: rtt0 = 50 ms
            (sample(50, 26, false), 26.340_393),
            // s = log10 26.340393 = 1.420622; q = ceil(26.340 / 2 = 13.17) = 14 > 6 s = 8.52: - s
            (sample(100, 26, false), 24.919_771),
        ];
        for (step, (sample, limit)) in series.into_iter().enumerate() {
            vegas.learn(sample);
            assert!((vegas.limit.value() - limit).abs() < 1e-5, "step {step}: {}", vegas.limit.value());
        }
        assert_eq!(vegas.limit(), 24);
    }

    #[test]
    fn a_small_limit_moves_by_one() {
        let mut vegas = vegas().starting_at(4); // log10 4 = 0.6
        vegas.learn(sample(10, 4, true));
        assert_eq!(vegas.limit(), 3);
        (0..9).for_each(|_| vegas.learn(sample(10, 4, true)));
        assert_eq!(vegas.limit(), 1);
    }

    #[test]
    fn what_a_call_takes_is_taken_anew_in_time() {
        let mut vegas = vegas().within(10..=10);
        vegas.learn(sample(10, 10, false));
        // The service is twice as slow for good: 15 · 10 to 30 · 10 samples later that is normal.
        let due = (1..=400).find(|_| {
            vegas.learn(sample(20, 10, false));
            vegas.rtt0 == Some(Duration::from_millis(20))
        });
        assert!(due.is_some_and(|due| (150..=300).contains(&due)), "{due:?}");
    }

    #[test]
    fn the_same_seed_probes_at_the_same_time() {
        let probe = |seed| {
            let mut vegas = Vegas::with_random(fastrand::Rng::with_seed(seed)).within(10..=10);
            vegas.learn(sample(10, 10, false));
            (1..=400).find(|_| {
                vegas.learn(sample(20, 10, false));
                vegas.rtt0 == Some(Duration::from_millis(20))
            })
        };
        assert_eq!(probe(1), probe(1));
        assert!((2..10).any(|seed| probe(seed) != probe(1)));
    }
}
