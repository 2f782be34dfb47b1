//! Traffic: who calls when, and what it costs. Every generator is an iterator of [`Call`]s in the order of time, the same for
//! the same seed.

use std::io::BufRead;
use std::time::Duration;

use fastrand::Rng;
use serde::{Deserialize, Serialize};
use tollgate_core::Quota;

use crate::lines::{self, LineError};
use crate::outcome::nanos;

/// One call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// When.
    pub at_ns: u64,
    /// Whose.
    #[serde(default)]
    pub key: u64,
    /// What it costs.
    #[serde(default = "one")]
    pub cost: u64,
}

fn one() -> u64 {
    1
}

/// Independent callers: the gaps between calls are exponential.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate_sim::workload::Poisson;
///
/// let calls: Vec<_> = Poisson::new(Duration::from_millis(1), 7).take(10_000).collect();
/// let mean_ns = calls.last().unwrap().at_ns / 10_000;
/// assert!((950_000..1_050_000).contains(&mean_ns));
/// ```
#[derive(Clone, Debug)]
pub struct Poisson {
    mean_gap: Duration,
    at_ns: u64,
    rng: Rng,
}

impl Poisson {
    /// Calls with this gap on average.
    pub fn new(mean_gap: Duration, seed: u64) -> Self {
        Self { mean_gap, at_ns: 0, rng: Rng::with_seed(seed) }
    }
}

impl Iterator for Poisson {
    type Item = Call;

    fn next(&mut self) -> Option<Call> {
        // 1 - f64() is above zero, so the logarithm is finite.
        let gap = self.mean_gap.mul_f64(-(1.0 - self.rng.f64()).ln());
        self.at_ns = self.at_ns.saturating_add(nanos(gap));
        Some(Call { at_ns: self.at_ns, key: 0, cost: 1 })
    }
}

/// So many calls at the same instant, again and again.
#[derive(Clone, Debug)]
pub struct Bursts {
    size: u64,
    every_ns: u64,
    made: u64,
}

impl Bursts {
    /// `size` calls at once, one such burst `every` so often.
    pub fn new(size: u64, every: Duration) -> Self {
        Self { size: size.max(1), every_ns: nanos(every), made: 0 }
    }
}

impl Iterator for Bursts {
    type Item = Call;

    fn next(&mut self) -> Option<Call> {
        let at_ns = (self.made / self.size).saturating_mul(self.every_ns);
        self.made += 1;
        Some(Call { at_ns, key: 0, cost: 1 })
    }
}

/// Poisson while on, silent while off; how long each lasts is exponential too.
#[derive(Clone, Debug)]
pub struct OnOff {
    busy: Poisson,
    mean_on: Duration,
    mean_off: Duration,
    /// What has been slept through so far.
    slept_ns: u64,
    /// When the current busy time ends, in the time of `busy`.
    until_ns: u64,
}

impl OnOff {
    /// Calls with this gap on average, while on.
    pub fn new(mean_gap: Duration, mean_on: Duration, mean_off: Duration, seed: u64) -> Self {
        Self { busy: Poisson::new(mean_gap, seed), mean_on, mean_off, slept_ns: 0, until_ns: 0 }
    }

    fn exponential(&mut self, mean: Duration) -> u64 {
        nanos(mean.mul_f64(-(1.0 - self.busy.rng.f64()).ln()))
    }
}

impl Iterator for OnOff {
    type Item = Call;

    fn next(&mut self) -> Option<Call> {
        let call = self.busy.next()?;
        while call.at_ns >= self.until_ns {
            let (on, off) = (self.exponential(self.mean_on), self.exponential(self.mean_off));
            self.until_ns = self.until_ns.saturating_add(on.max(1));
            self.slept_ns = self.slept_ns.saturating_add(off);
        }
        Some(Call { at_ns: call.at_ns.saturating_add(self.slept_ns), ..call })
    }
}

/// Keys as they are in the world: the k-th most popular is asked for 1/k^s as often as the first.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate_sim::workload::{Poisson, Zipf};
///
/// let mut keys = Zipf::new(1_000, 1.1, 7);
/// let calls: Vec<_> = Poisson::new(Duration::from_millis(1), 7).take(1_000).map(|call| keys.assign(call)).collect();
/// let of = |key| calls.iter().filter(|call| call.key == key).count();
/// assert!(of(0) > of(9));
/// ```
#[derive(Clone, Debug)]
pub struct Zipf {
    /// The share of the first k+1 keys.
    shares: Vec<f64>,
    rng: Rng,
}

impl Zipf {
    /// So many keys, 0 being the most popular.
    pub fn new(keys: u32, exponent: f64, seed: u64) -> Self {
        let weights = (1..=keys.max(1)).map(|rank| f64::from(rank).powf(-exponent));
        let sums: Vec<f64> = weights
            .scan(0.0, |sum, weight| {
                *sum += weight;
                Some(*sum)
            })
            .collect();
        let total = sums.last().copied().unwrap_or(1.0);
        Self { shares: sums.into_iter().map(|sum| sum / total).collect(), rng: Rng::with_seed(seed) }
    }

    /// The next key.
    pub fn key(&mut self) -> u64 {
        let drawn = self.rng.f64();
        let key = self.shares.partition_point(|share| *share <= drawn);
        key.min(self.shares.len() - 1) as u64
    }

    /// The call, with the next key.
    #[must_use]
    pub fn assign(&mut self, call: Call) -> Call {
        Call { key: self.key(), ..call }
    }
}

/// The worst caller: drains the limit, idles until it is full again, and then keeps asking for as much as it can get.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate_core::Quota;
/// use tollgate_sim::workload::Adversary;
///
/// let calls: Vec<_> = Adversary::new(Quota::per_second(1).burst(3), Duration::from_secs(5)).take(5).collect();
/// assert_eq!(calls[..4].iter().map(|call| call.at_ns).collect::<Vec<_>>(), [0, 0, 0, 0]); // one above the burst
/// assert!(calls[4].at_ns > 0);
/// ```
#[derive(Clone, Debug)]
pub struct Adversary {
    burst: u64,
    gap_ns: u64,
    idle_ns: u64,
    at_ns: u64,
    /// Calls made since the last idle time.
    made: u64,
}

impl Adversary {
    /// Against `quota`, idling for `idle` beyond what it takes to fill up.
    pub fn new(quota: Quota, idle: Duration) -> Self {
        let gap_ns = nanos(quota.period()).div_ceil(quota.count().max(1));
        let full_ns = gap_ns.saturating_mul(quota.burst_size());
        let idle_ns = full_ns.saturating_add(nanos(idle));
        Self { burst: quota.burst_size(), gap_ns, idle_ns, at_ns: 0, made: 0 }
    }
}

impl Iterator for Adversary {
    type Item = Call;

    /// One above the burst at once, then as many again at twice the rate, then idle.
    fn next(&mut self) -> Option<Call> {
        let call = Call { at_ns: self.at_ns, key: 0, cost: 1 };
        self.made += 1;
        if self.made > self.burst.saturating_mul(2) {
            self.made = 0;
            self.at_ns = self.at_ns.saturating_add(self.idle_ns);
        } else if self.made > self.burst {
            self.at_ns = self.at_ns.saturating_add(self.gap_ns.div_ceil(2));
        }
        Some(call)
    }
}

/// Reads a recorded trace, one call to a line: `{"at_ns":1,"key":2,"cost":1}`. Key and cost may be left out: 0 and 1.
///
/// # Errors
/// Names the first line that is not a call, and what is wrong with it.
///
/// # Examples
/// ```
/// use tollgate_sim::workload;
///
/// let calls = workload::read_trace("{\"at_ns\":5}\n{\"at_ns\":9,\"key\":3,\"cost\":2}\n".as_bytes()).unwrap();
/// assert_eq!((calls[0].cost, calls[1].key), (1, 3));
/// assert!(workload::read_trace("{\"key\":3}".as_bytes()).unwrap_err().to_string().contains("missing field `at_ns`"));
/// ```
pub fn read_trace(reader: impl BufRead) -> Result<Vec<Call>, LineError> {
    lines::read(reader, |_: &Call| Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_come_together() {
        let moments: Vec<u64> =
            Bursts::new(2, Duration::from_nanos(10)).take(5).map(|call| call.at_ns).collect();
        assert_eq!(moments, [0, 0, 10, 10, 20]);
    }

    #[test]
    fn on_and_off_take_turns_in_order() {
        let ms = Duration::from_millis;
        let calls: Vec<Call> = OnOff::new(ms(1), ms(50), ms(200), 3).take(5_000).collect();
        assert!(calls.windows(2).all(|pair| pair[0].at_ns <= pair[1].at_ns));
        // On for a fifth of the time: 5000 calls at one a millisecond take about 25 s.
        let seconds = calls[4_999].at_ns / 1_000_000_000;
        assert!((15..40).contains(&seconds), "{seconds}");
    }

    #[test]
    fn the_same_seed_is_the_same_traffic() {
        let calls = |seed| Poisson::new(Duration::from_millis(1), seed).take(100).collect::<Vec<_>>();
        assert_eq!(calls(1), calls(1));
        assert_ne!(calls(1), calls(2));
    }

    #[test]
    fn popular_keys_are_as_popular_as_zipf_says() {
        let mut zipf = Zipf::new(2, 1.0, 5);
        let first = (0..30_000).filter(|_| zipf.key() == 0).count();
        assert!((19_500..20_500).contains(&first), "two thirds of 30 000: {first}");
    }
}
