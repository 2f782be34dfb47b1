//! What a pool has done so far, in numbers.

use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;
use tollgate::Tick;

/// What a pool is doing, and has done since it began to run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// Jobs that were started and have no outcome yet; those that back off included.
    pub in_flight: usize,
    /// Jobs that were pulled from the source and not started.
    pub queued: usize,
    /// Jobs pulled from the source.
    pub taken: u64,
    /// Outcomes with a value.
    pub successes: u64,
    /// Outcomes with a fault.
    pub errors: u64,
    /// Attempts after the first.
    pub retries: u64,
    /// Outcomes per second, over the last ten seconds.
    pub rate: f64,
    /// How long jobs waited from the source to their first attempt.
    pub waits: WaitTimes,
}

/// How long jobs waited: half of them no longer than `half`, 90 of 100 no longer than `p90`, and so on, to within one
/// hundredth and a microsecond. All zero when nothing was started yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitTimes {
    /// The median.
    pub half: Duration,
    /// 90 of 100.
    pub p90: Duration,
    /// 99 of 100.
    pub p99: Duration,
    /// All of them.
    pub longest: Duration,
}

/// Counts what becomes of jobs.
pub(super) struct Meter {
    pub(super) taken: u64,
    successes: u64,
    errors: u64,
    pub(super) retries: u64,
    pace: Pace,
    /// In microseconds.
    waits: Histogram<u64>,
}

/// The longest wait the histogram tells from longer ones: a month.
const LONGEST_MICROS: u64 = 30 * 24 * 3_600 * 1_000_000;

impl Meter {
    pub(super) fn new(now: Tick) -> Self {
        let waits =
            Histogram::new_with_max(LONGEST_MICROS, 2).expect("two digits up to a month are possible");
        Self { taken: 0, successes: 0, errors: 0, retries: 0, pace: Pace::new(now), waits }
    }

    /// A job was started.
    pub(super) fn started(&mut self, waited: Duration) {
        self.waits.saturating_record(u64::try_from(waited.as_micros()).unwrap_or(u64::MAX));
    }

    /// A job has an outcome.
    pub(super) fn ended(&mut self, is_success: bool, now: Tick) {
        *(if is_success { &mut self.successes } else { &mut self.errors }) += 1;
        self.pace.count(now);
    }

    pub(super) fn stats(&self, now: Tick) -> Stats {
        let waited = |quantile| Duration::from_micros(self.waits.value_at_quantile(quantile));
        Stats {
            in_flight: 0,
            queued: 0,
            taken: self.taken,
            successes: self.successes,
            errors: self.errors,
            retries: self.retries,
            rate: self.pace.rate(now),
            waits: WaitTimes { half: waited(0.5), p90: waited(0.9), p99: waited(0.99), longest: waited(1.0) },
        }
    }
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { taken, successes, errors, retries, .. } = self;
        write!(f, "Meter({taken} taken, {successes} successes, {errors} errors, {retries} retries)")
    }
}

/// Over how many seconds a pace is taken.
const SPAN_SECONDS: u64 = 10;

/// How many per second, over the last [`SPAN_SECONDS`] full seconds and the current one.
#[derive(Debug)]
struct Pace {
    start: Tick,
    second: u64,
    counts: [u64; SPAN_SECONDS as usize + 1],
}

impl Pace {
    fn new(start: Tick) -> Self {
        Self { start, second: 0, counts: [0; SPAN_SECONDS as usize + 1] }
    }

    fn count(&mut self, now: Tick) {
        let second = now.since(self.start).as_secs();
        // A reading from before the newest second counts as of then.
        for stale in (self.second + 1..=second).take(self.counts.len()) {
            self.counts[Self::place(stale)] = 0; // after so many that is every place
        }
        self.second = self.second.max(second);
        self.counts[Self::place(self.second)] += 1;
    }

    #[allow(clippy::cast_precision_loss, reason = "nobody counts to 2^53 in eleven seconds")]
    fn rate(&self, now: Tick) -> f64 {
        let since_start = now.since(self.start);
        let second = since_start.as_secs().max(self.second);
        let oldest = second.saturating_sub(SPAN_SECONDS);
        let counted: u64 = (oldest..=self.second).map(|second| self.counts[Self::place(second)]).sum();
        let span = since_start.saturating_sub(Duration::from_secs(oldest)).max(Duration::from_secs(1));
        counted as f64 / span.as_secs_f64()
    }

    fn place(second: u64) -> usize {
        (second % (SPAN_SECONDS + 1)) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Tick {
        Tick::ZERO + Duration::from_millis(millis)
    }

    fn assert_near(actual: f64, expected: f64) {
        assert!((actual - expected).abs() < 1e-9, "{actual} is not {expected}");
    }

    #[test]
    fn a_pace_is_what_was_counted_in_the_last_ten_seconds() {
        let mut pace = Pace::new(at(0));
        assert_near(pace.rate(at(0)), 0.0);
        for tenth in 0..50 {
            pace.count(at(100 * tenth)); // ten per second, for five seconds
        }
        assert_near(pace.rate(at(5_000)), 10.0);
        assert_near(pace.rate(at(10_000)), 5.0);
        assert_near(pace.rate(at(12_000)), 3.0); // from 2 s on: 30 in 10 s
        assert_near(pace.rate(at(12_500)), 30.0 / 10.5);
        assert_near(pace.rate(at(15_000)), 0.0);
    }

    #[test]
    fn a_pace_forgets_what_is_long_ago_and_takes_readings_that_step_back() {
        let mut pace = Pace::new(at(0));
        for _ in 0..7 {
            pace.count(at(3_000));
        }
        pace.count(at(100_000));
        assert_near(pace.rate(at(100_000)), 0.1);
        pace.count(at(99_000));
        assert_near(pace.rate(at(100_000)), 0.2);
        assert_near(pace.rate(Tick::MAX), 0.0);
        pace.count(Tick::MAX);
        assert_near(pace.rate(Tick::MAX), 1.0 / 10.709_551_615); // u64::MAX is so much more than a full second
    }

    #[test]
    fn the_first_second_counts_as_a_whole_one() {
        let mut pace = Pace::new(at(500));
        for _ in 0..5 {
            pace.count(at(600));
        }
        assert_near(pace.rate(at(600)), 5.0);
    }

    #[test]
    fn waits_are_told_by_their_shares() {
        let mut meter = Meter::new(at(0));
        assert_eq!(meter.stats(at(0)).waits, WaitTimes::default());
        for millis in 1..=100 {
            meter.started(Duration::from_millis(millis));
        }
        let WaitTimes { half, p90, p99, longest } = meter.stats(at(0)).waits;
        for (wait, expected) in [(half, 50), (p90, 90), (p99, 99), (longest, 100)] {
            let expected = Duration::from_millis(expected);
            assert!(
                wait >= expected && wait <= expected + expected / 100 + Duration::from_micros(1),
                "{wait:?}"
            );
        }
        meter.started(Duration::MAX); // more than it tells apart
        assert!(meter.stats(at(0)).waits.longest >= Duration::from_secs(30 * 24 * 3_600));
    }
}
