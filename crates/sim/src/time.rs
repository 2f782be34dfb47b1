//! Time that does what it is told, and what real clocks do: drift, jitter and step back.

use std::time::Duration;

use fastrand::Rng;
use tollgate_core::Tick;

use crate::outcome::nanos;

/// A virtual clock: true time goes on by [`advance`](Self::advance) alone, and the reading is true time seen through a fault.
/// The same seed gives the same readings.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate_sim::time::VirtualTime;
///
/// let mut fast = VirtualTime::drifting(100); // 100 parts in a million
/// assert_eq!(fast.advance(Duration::from_secs(10)).as_nanos(), 10_001_000_000);
/// assert_eq!(fast.truth().as_nanos(), 10_000_000_000);
/// ```
#[derive(Clone, Debug)]
pub struct VirtualTime {
    truth_ns: u64,
    reading_ns: u64,
    fault: Fault,
}

#[derive(Clone, Debug)]
enum Fault {
    None,
    Drift { parts_per_million: i64 },
    Jitter { rng: Rng, within_ns: u64 },
    StepBack { rng: Rng, one_in: u32, at_most_ns: u64, behind_ns: u64 },
}

impl VirtualTime {
    /// A clock without a fault.
    pub fn steady() -> Self {
        Self::with(Fault::None)
    }

    /// A clock that gains so many parts in a million, or loses them if negative.
    pub fn drifting(parts_per_million: i64) -> Self {
        Self::with(Fault::Drift { parts_per_million })
    }

    /// A clock whose every reading is late by something up to `within`, so that readings may come out of order.
    pub fn jittering(seed: u64, within: Duration) -> Self {
        Self::with(Fault::Jitter { rng: Rng::with_seed(seed), within_ns: nanos(within) })
    }

    /// A clock that one time in `one_in` is set back by something up to `at_most`, and stays behind.
    pub fn stepping_back(seed: u64, one_in: u32, at_most: Duration) -> Self {
        let (rng, at_most_ns) = (Rng::with_seed(seed), nanos(at_most));
        Self::with(Fault::StepBack { rng, one_in: one_in.max(1), at_most_ns, behind_ns: 0 })
    }

    fn with(fault: Fault) -> Self {
        Self { truth_ns: 0, reading_ns: 0, fault }
    }

    /// Lets `span` pass, and reads the clock.
    pub fn advance(&mut self, span: Duration) -> Tick {
        self.truth_ns = self.truth_ns.saturating_add(nanos(span));
        self.reading_ns = self.fault.see(self.truth_ns);
        self.now()
    }

    /// The last reading.
    pub fn now(&self) -> Tick {
        Tick::from_nanos(self.reading_ns)
    }

    /// What a clock without a fault would say.
    pub fn truth(&self) -> Tick {
        Tick::from_nanos(self.truth_ns)
    }
}

impl Fault {
    fn see(&mut self, truth_ns: u64) -> u64 {
        match self {
            Self::None => truth_ns,
            Self::Drift { parts_per_million } => {
                let gained = i128::from(truth_ns) * i128::from(*parts_per_million) / 1_000_000;
                u64::try_from(i128::from(truth_ns) + gained).unwrap_or(0)
            }
            Self::Jitter { rng, within_ns } => truth_ns.saturating_sub(rng.u64(..=*within_ns)),
            Self::StepBack { rng, one_in, at_most_ns, behind_ns } => {
                if rng.u32(..*one_in) == 0 {
                    *behind_ns = behind_ns.saturating_add(rng.u64(..=*at_most_ns));
                }
                truth_ns.saturating_sub(*behind_ns)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readings(mut time: VirtualTime) -> Vec<u64> {
        (0..1_000).map(|_| time.advance(Duration::from_nanos(10)).as_nanos()).collect()
    }

    #[test]
    fn a_steady_clock_tells_the_truth() {
        assert_eq!(readings(VirtualTime::steady())[999], 10_000);
    }

    #[test]
    fn a_slow_clock_loses() {
        assert_eq!(readings(VirtualTime::drifting(-100_000))[999], 9_000);
    }

    #[test]
    fn jitter_is_bounded_and_out_of_order() {
        let seen = readings(VirtualTime::jittering(1, Duration::from_nanos(50)));
        assert!(seen.windows(2).any(|pair| pair[1] < pair[0]));
        let late = |(index, reading): (u64, &u64)| (index + 1) * 10 - reading <= 50;
        assert!((0..).zip(&seen).all(late));
    }

    #[test]
    fn steps_back_happen_and_repeat_with_the_seed() {
        let seen = |seed| readings(VirtualTime::stepping_back(seed, 100, Duration::from_nanos(500)));
        assert!(seen(1).windows(2).any(|pair| pair[1] < pair[0]));
        assert_eq!(seen(1), seen(1));
        assert_ne!(seen(1), seen(2));
    }
}
