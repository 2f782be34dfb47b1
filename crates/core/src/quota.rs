//! The numbers of a limit.

mod text;

use core::time::Duration;

pub use text::QuotaError;

use crate::tick::nanos_of;

/// The numbers of a limit: so many per period, and how many at once.
///
/// A quota admits at most `burst` at one instant and `count` per period in the long run. Unless
/// [`burst`](Self::burst) says otherwise, the burst is the count.
///
/// Special values: a count of zero never refills (what the burst holds is all there will ever be);
/// [`UNLIMITED`](Self::UNLIMITED) admits everything; a burst of zero admits nothing. Windows do not use the burst: their limit is
/// the count. The fastest rate that is enforced is
/// 16 per nanosecond; a faster quota is enforced as that.
///
/// # Examples
/// ```
/// use core::time::Duration;
/// use tollgate_core::Quota;
///
/// const API: Quota = Quota::per_second(50).burst(200);
/// assert_eq!(API.to_string(), "50/s burst 200");
/// assert_eq!("1 per 2.5s".parse(), Ok(Quota::every(Duration::from_millis(2500))));
/// assert_eq!("ten/s".parse::<Quota>().unwrap_err().to_string(), "quota \"ten/s\": expected a number such as 10, found \"ten\"");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quota {
    count: u64,
    /// Zero means unlimited.
    period_ns: u64,
    burst: u64,
}

impl Quota {
    /// Admits everything.
    pub const UNLIMITED: Self = Self { count: u64::MAX, period_ns: 0, burst: u64::MAX };

    /// `count` per second.
    pub const fn per_second(count: u64) -> Self {
        Self::per(count, Duration::from_secs(1))
    }

    /// `count` per minute.
    pub const fn per_minute(count: u64) -> Self {
        Self::per(count, Duration::from_secs(60))
    }

    /// `count` per hour.
    pub const fn per_hour(count: u64) -> Self {
        Self::per(count, Duration::from_secs(3_600))
    }

    /// `count` per day of 24 hours.
    pub const fn per_day(count: u64) -> Self {
        Self::per(count, Duration::from_secs(86_400))
    }

    /// `count` per `period`. A period of zero is no limit at all, unless the count is zero too. A period above 584 years
    /// counts as 584 years.
    pub const fn per(count: u64, period: Duration) -> Self {
        match (count, nanos_of(period)) {
            (0, 0) => Self { count: 0, period_ns: 1, burst: 0 },
            (_, 0) => Self::UNLIMITED,
            (count, period_ns) => Self { count, period_ns, burst: count },
        }
    }

    /// One every `interval`. An interval of zero is no limit at all.
    pub const fn every(interval: Duration) -> Self {
        Self::per(1, interval)
    }

    /// The same rate with room for `burst` at once.
    #[must_use]
    pub const fn burst(self, burst: u64) -> Self {
        if self.is_unlimited() { self } else { Self { burst, ..self } }
    }

    /// How many per [`period`](Self::period).
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The period that [`count`](Self::count) refers to; zero if unlimited.
    pub const fn period(&self) -> Duration {
        Duration::from_nanos(self.period_ns)
    }

    /// How many at once.
    pub const fn burst_size(&self) -> u64 {
        self.burst
    }

    /// Whether everything is admitted.
    pub const fn is_unlimited(&self) -> bool {
        self.period_ns == 0
    }

    pub(crate) const fn period_nanos(&self) -> u64 {
        self.period_ns
    }
}
