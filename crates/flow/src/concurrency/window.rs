//! Many samples as one.

use std::time::Duration;

use tollgate::Tick;

use super::estimator::Sample;

/// Collects samples until there are enough of them, over a long enough time: a single one is mostly noise.
#[derive(Debug)]
pub(super) struct Window {
    span: Duration,
    enough: u64,
    /// Since when, how many, and how many of them were dropped.
    since: Option<Tick>,
    samples: u64,
    dropped: u64,
    /// Of those that were not dropped, together.
    rtt: Duration,
    in_flight: u64,
}

impl Window {
    pub(super) fn new(span: Duration, enough: u64) -> Self {
        let (rtt, since) = (Duration::ZERO, None);
        Self { span, enough, since, samples: 0, dropped: 0, rtt, in_flight: 0 }
    }

    /// Adds a sample; gives all of them as one when the window is full, and begins the next.
    pub(super) fn add(&mut self, now: Tick, sample: Sample) -> Option<Sample> {
        let since = *self.since.get_or_insert(now);
        self.samples += 1;
        self.in_flight = self.in_flight.max(sample.in_flight);
        if sample.dropped {
            self.dropped += 1;
        } else {
            self.rtt = self.rtt.saturating_add(sample.rtt);
        }
        let is_full = self.samples >= self.enough && now.since(since) >= self.span;
        is_full.then(|| self.close(sample.rtt))
    }

    /// One that was dropped makes the window a drop; `last` stands for round trips that nobody completed.
    fn close(&mut self, last: Duration) -> Sample {
        let completed = u32::try_from(self.samples - self.dropped).unwrap_or(u32::MAX);
        let rtt = self.rtt.checked_div(completed).unwrap_or(last);
        let sample = Sample { rtt, in_flight: self.in_flight, dropped: self.dropped > 0 };
        *self = Self::new(self.span, self.enough);
        sample
    }
}

#[cfg(test)]
mod tests {
    use super::super::estimator::sample;
    use super::*;

    fn at(millis: u64) -> Tick {
        Tick::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_window_needs_time_and_samples() {
        let mut window = Window::new(Duration::from_secs(1), 3);
        assert_eq!(window.add(at(0), sample(10, 1, false)), None);
        assert_eq!(window.add(at(10), sample(20, 7, false)), None);
        assert_eq!(window.add(at(999), sample(30, 2, false)), None);
        // (10 + 20 + 30 + 60) / 4 = 30
        assert_eq!(window.add(at(1_000), sample(60, 3, false)), Some(sample(30, 7, false)));
        // The next one begins with the next sample, and waits for its third.
        assert_eq!(window.add(at(5_000), sample(10, 1, false)), None);
        assert_eq!(window.add(at(9_000), sample(10, 1, false)), None);
        assert_eq!(window.add(at(9_000), sample(40, 1, false)), Some(sample(20, 1, false)));
    }

    #[test]
    fn one_drop_makes_a_drop_and_its_time_does_not_count() {
        let mut window = Window::new(Duration::ZERO, 3);
        assert_eq!(window.add(at(0), sample(10, 1, false)), None);
        assert_eq!(window.add(at(0), sample(9_000, 2, true)), None);
        assert_eq!(window.add(at(0), sample(20, 1, false)), Some(sample(15, 2, true)));
    }

    #[test]
    fn nothing_but_drops() {
        let mut window = Window::new(Duration::ZERO, 2);
        assert_eq!(window.add(at(0), sample(7, 1, true)), None);
        assert_eq!(window.add(at(0), sample(8, 2, true)), Some(sample(8, 2, true)));
    }
}
