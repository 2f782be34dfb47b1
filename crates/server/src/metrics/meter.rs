//! What one protocol measures.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tollgate::{Clock, DefaultClock, Tick};

/// The upper ends of the buckets, in nanoseconds: from what a decision takes in process to what a slow store takes.
const ENDS: [u64; 18] = [
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
    1_000_000_000,
    10_000_000_000,
];

/// Measures a protocol: how long decisions take, and how many connections there are. To observe is two additions.
pub struct Meter {
    protocol: &'static str,
    clock: DefaultClock,
    /// The last one is for all that took longer.
    buckets: [AtomicU64; ENDS.len() + 1],
    nanos: AtomicU64,
    connections: AtomicUsize,
}

impl Meter {
    pub(super) fn new(protocol: &'static str) -> Self {
        Self {
            protocol,
            clock: DefaultClock::default(),
            buckets: Default::default(),
            nanos: AtomicU64::new(0),
            connections: AtomicUsize::new(0),
        }
    }

    /// The protocol's name.
    pub fn protocol(&self) -> &'static str {
        self.protocol
    }

    /// The time, to measure by.
    #[inline]
    pub fn now(&self) -> Tick {
        self.clock.now()
    }

    /// Notes that so many decisions took so long together.
    #[inline]
    pub fn observe(&self, decisions: u64, elapsed: Duration) {
        if decisions == 0 {
            return;
        }
        let nanos = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        let each = nanos / decisions;
        let bucket = ENDS.iter().position(|end| each <= *end).unwrap_or(ENDS.len());
        self.buckets[bucket].fetch_add(decisions, Ordering::Relaxed);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Notes that there is one more connection, until what is returned is dropped.
    pub fn connected(self: &Arc<Self>) -> Connected {
        self.connections.fetch_add(1, Ordering::Relaxed);
        Connected { meter: Arc::clone(self) }
    }

    /// How many connections there are.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// For each bucket its upper end in seconds, and how many decisions fell into it.
    pub(super) fn buckets(&self) -> Vec<(f64, u64)> {
        let ends = ENDS.iter().map(|end| Duration::from_nanos(*end).as_secs_f64()).chain([f64::INFINITY]);
        ends.zip(self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed))).collect()
    }

    /// How long all decisions took together, in seconds.
    pub(super) fn seconds(&self) -> f64 {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed)).as_secs_f64()
    }
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meter").field("protocol", &self.protocol).finish_non_exhaustive()
    }
}

/// A connection that is counted; made by [`Meter::connected`].
#[derive(Debug)]
#[must_use = "a connection is counted until this is dropped"]
pub struct Connected {
    meter: Arc<Meter>,
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.meter.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(meter: &Meter) -> Vec<(f64, u64)> {
        meter.buckets().into_iter().filter(|bucket| bucket.1 > 0).collect()
    }

    #[test]
    fn a_decision_falls_into_the_first_bucket_that_holds_it() {
        let meter = Meter::new("test");
        meter.observe(1, Duration::from_nanos(2_500));
        meter.observe(1, Duration::from_nanos(2_501));
        meter.observe(1, Duration::from_secs(11));
        assert_eq!(filled(&meter), [(2.5e-6, 1), (5e-6, 1), (f64::INFINITY, 1)]);
        assert!((meter.seconds() - 11.000_005_001).abs() < 1e-9);
    }

    #[test]
    fn decisions_that_were_made_together_share_their_time() {
        let meter = Meter::new("test");
        meter.observe(16, Duration::from_micros(16));
        meter.observe(0, Duration::from_secs(1));
        assert_eq!(filled(&meter), [(1e-6, 16)]);
        assert!((meter.seconds() - 16e-6).abs() < 1e-12);
    }

    #[test]
    fn a_connection_counts_until_it_ends() {
        let meter = Arc::new(Meter::new("test"));
        let (one, two) = (meter.connected(), meter.connected());
        assert_eq!(meter.connections(), 2);
        drop(one);
        assert_eq!(meter.connections(), 1);
        drop(two);
        assert_eq!(meter.connections(), 0);
    }
}
