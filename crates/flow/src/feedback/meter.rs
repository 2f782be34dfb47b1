//! How much gets through.

use std::time::Duration;

use tollgate::Tick;

/// Counts what was accepted, second by second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meter {
    /// When this second began; none before the first answer.
    since: Option<Tick>,
    this: f64,
    last: f64,
}

const SECOND: Duration = Duration::from_secs(1);

impl Meter {
    pub(super) const fn new() -> Self {
        Self { since: None, this: 0.0, last: 0.0 }
    }

    /// Counts `cost`, or nothing, at `now`.
    pub(super) fn add(&mut self, now: Tick, cost: f64) {
        let since = *self.since.get_or_insert(now);
        let seconds = now.since(since).as_secs();
        if seconds > 0 {
            self.last = if seconds == 1 { self.this } else { 0.0 };
            self.this = 0.0;
            self.since = Some(since + SECOND.saturating_mul(u32::try_from(seconds).unwrap_or(u32::MAX)));
        }
        self.this += cost;
    }

    /// In the second before this one: a rate that was really kept.
    pub(super) fn last_second(&self) -> f64 {
        self.last
    }

    /// In the second up to `now`: a part of the last one counts as if it had been spread evenly.
    pub(super) fn trailing(&self, now: Tick) -> f64 {
        let passed = self.since.map_or(0.0, |since| now.since(since).as_secs_f64());
        self.this + self.last * (1.0 - passed).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Tick {
        Tick::from_nanos(millis * 1_000_000)
    }

    fn assert_near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-9, "{found} is not {expected}");
    }

    #[test]
    fn seconds_follow_each_other() {
        let mut meter = Meter::new();
        for millis in [500, 700, 900, 1_400] {
            meter.add(at(millis), 10.0);
        }
        assert_near(meter.last_second(), 0.0);
        assert_near(meter.trailing(at(1_400)), 40.0);
        meter.add(at(1_750), 5.0); // a new second began at 1.5 s
        assert_near(meter.last_second(), 40.0);
        assert_near(meter.trailing(at(1_750)), 35.0); // 5 + 40 · 0.75
        meter.add(at(3_600), 0.0); // and a whole one without anything
        assert_near(meter.last_second(), 0.0);
        assert_near(meter.trailing(at(3_600)), 0.0);
    }

    #[test]
    fn the_ends_of_time_are_no_problem() {
        let mut meter = Meter::new();
        meter.add(Tick::ZERO, 1.0);
        meter.add(Tick::MAX, 1.0);
        meter.add(Tick::ZERO, 1.0);
        assert!(meter.trailing(Tick::MAX).is_finite());
    }
}
