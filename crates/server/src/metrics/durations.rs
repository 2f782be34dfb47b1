//! How long things take.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The upper ends of the buckets, in nanoseconds: from a decision in process to a slow store.
const ENDS: [u64; 22] = [
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
];

/// A histogram of durations. To observe one is two additions.
#[derive(Debug, Default)]
pub(crate) struct Durations {
    /// The last one is for all that took longer.
    buckets: [AtomicU64; ENDS.len() + 1],
    nanos: AtomicU64,
}

impl Durations {
    /// Notes that `count` events took so long together.
    #[inline]
    pub(crate) fn observe(&self, count: u64, elapsed: Duration) {
        if count == 0 {
            return;
        }
        let nanos = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        let each = nanos / count;
        let bucket = ENDS.iter().position(|end| each <= *end).unwrap_or(ENDS.len());
        self.buckets[bucket].fetch_add(count, Ordering::Relaxed);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// For each bucket its upper end in seconds, and how many events fell into it.
    pub(super) fn buckets(&self) -> Vec<(f64, u64)> {
        let ends = ENDS.iter().map(|end| Duration::from_nanos(*end).as_secs_f64()).chain([f64::INFINITY]);
        ends.zip(self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed))).collect()
    }

    /// How many events there were.
    pub(super) fn count(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).sum()
    }

    /// How long all events took together, in seconds.
    pub(super) fn seconds(&self) -> f64 {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed)).as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(durations: &Durations) -> Vec<(f64, u64)> {
        durations.buckets().into_iter().filter(|bucket| bucket.1 > 0).collect()
    }

    #[test]
    fn an_event_falls_into_the_first_bucket_that_holds_it() {
        let durations = Durations::default();
        durations.observe(1, Duration::from_nanos(2_500));
        durations.observe(1, Duration::from_nanos(2_501));
        durations.observe(1, Duration::from_secs(11));
        assert_eq!(filled(&durations), [(2.5e-6, 1), (5e-6, 1), (f64::INFINITY, 1)]);
        assert!((durations.seconds() - 11.000_005_001).abs() < 1e-9);
    }

    #[test]
    fn events_that_were_measured_together_share_their_time() {
        let durations = Durations::default();
        durations.observe(16, Duration::from_micros(16));
        durations.observe(0, Duration::from_secs(1));
        assert_eq!(filled(&durations), [(1e-6, 16)]);
        assert!((durations.seconds() - 16e-6).abs() < 1e-12);
    }

    /// Answers, item 28: there are buckets between a tenth of a second and a second.
    #[test]
    fn slow_stores_are_told_apart_between_100_ms_and_1_s() {
        let ends: Vec<f64> = Durations::default().buckets().iter().map(|bucket| bucket.0).collect();
        let between = ends.iter().filter(|end| (0.11..0.99).contains(*end)).count();
        assert_eq!(between, 2, "{ends:?}");
    }
}
