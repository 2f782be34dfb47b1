//! How long calls take: the 95th percentile of the last window.

use std::time::Duration;

use hdrhistogram::Histogram;
use tollgate::Tick;

/// A rolling estimate of the 95th percentile.
///
/// Times are counted in a window that closes when it holds [`ENOUGH`] of them and is [`SPAN`] old; its percentile then
/// stands until the next one closes. So it is some seconds behind, and costs a bucket's increment for each time. The
/// percentile is never below the exact one of the window, and above by less than 1 % or a microsecond.
#[derive(Debug)]
pub(super) struct Latencies {
    window: Histogram<u32>,
    opened: Tick,
    p95: Option<Duration>,
}

/// Five of a hundred lie above the percentile.
const ENOUGH: u64 = 100;
const SPAN: Duration = Duration::from_secs(1);
const LEAST_NANOS: u64 = 1_000;
/// An hour; longer times count as this.
const MOST_NANOS: u64 = 3_600_000_000_000;

impl Latencies {
    pub(super) fn new(now: Tick) -> Self {
        let window = Histogram::new_with_bounds(LEAST_NANOS, MOST_NANOS, 2).expect("the bounds are in order");
        Self { window, opened: now, p95: None }
    }

    /// Counts a call that took `span` until now.
    pub(super) fn record(&mut self, span: Duration, now: Tick) {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        self.window.saturating_record(nanos);
        if self.window.len() >= ENOUGH && now.since(self.opened) >= SPAN {
            self.p95 = Some(Duration::from_nanos(self.window.value_at_quantile(0.95)));
            self.window.reset();
            self.opened = now;
        }
    }

    /// The percentile of the last window that closed.
    pub(super) fn p95(&self) -> Option<Duration> {
        self.p95
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn after(spans: &[u64]) -> Latencies {
        let mut latencies = Latencies::new(Tick::ZERO);
        let (last, rest) = spans.split_last().unwrap();
        for span in rest {
            latencies.record(Duration::from_nanos(*span), Tick::ZERO);
        }
        latencies.record(Duration::from_nanos(*last), Tick::ZERO + SPAN);
        latencies
    }

    #[test]
    fn of_a_hundred_times_five_lie_above() {
        let spans: Vec<u64> = (1..=100).map(|ms| ms * 1_000_000).collect();
        let p95 = after(&spans).p95().unwrap();
        assert!(p95 >= Duration::from_millis(95) && p95 < Duration::from_micros(95_950), "{p95:?}");
    }

    #[test]
    fn there_is_none_before_a_hundred_times_or_a_second() {
        assert_eq!(after(&[1_000_000; 99]).p95(), None);
        let mut young = Latencies::new(Tick::ZERO);
        (0..10_000).for_each(|_| young.record(SPAN, Tick::ZERO + SPAN / 2));
        assert_eq!(young.p95(), None);
    }

    #[test]
    fn the_last_window_alone_counts() {
        let mut latencies = after(&[5_000_000_000; 100]);
        (0..99).for_each(|_| latencies.record(Duration::from_millis(1), Tick::ZERO + SPAN));
        assert!(latencies.p95() >= Some(Duration::from_secs(5)));
        latencies.record(Duration::from_millis(1), Tick::ZERO + 2 * SPAN);
        assert!(latencies.p95() < Some(Duration::from_micros(1_010)));
    }

    #[test]
    fn times_out_of_range_count_as_the_ends() {
        assert!(after(&[0; 100]).p95().unwrap() <= Duration::from_micros(2));
        let longest = after(&[u64::MAX; 100]).p95().unwrap();
        assert!(
            longest >= Duration::from_secs(3_600) && longest <= Duration::from_secs(3_636),
            "{longest:?}"
        );
    }

    proptest! {
        #[test]
        fn the_estimate_is_never_below_the_exact_percentile_and_at_most_1_percent_above(
            spans in prop::collection::vec((1_000_u64.., 0..30_u32), 100..2_000),
        ) {
            // Spread over nine orders of magnitude.
            let spans: Vec<u64> = spans.iter().map(|(n, shift)| 1_000 + (n % (1_000 << shift))).collect();
            let p95 = after(&spans).p95().unwrap().as_nanos();
            let mut sorted = spans;
            sorted.sort_unstable();
            // By nearest rank: the smallest of which 95 % are not above it.
            let exact = u128::from(sorted[(sorted.len() * 95).div_ceil(100) - 1]);
            prop_assert!(p95 >= exact && p95 <= exact + exact / 100 + 1_000, "{p95} for {exact}");
        }
    }
}
