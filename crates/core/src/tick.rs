//! A moment, as the algorithms see it.

use core::fmt;
use core::time::Duration;

/// A moment: whole nanoseconds since a clock's own origin (usually the start of the process).
///
/// Algorithms never read a clock; a `Tick` is handed to them. Ticks of one clock can be compared, ticks of
/// two clocks cannot. A limiter's state spans 2^59 ns (18 years); one that is used for longer than that
/// refuses rather than admits. Unix time in nanoseconds is therefore not a `Tick`: subtract a recent epoch.
///
/// # Examples
/// ```
/// use core::time::Duration;
/// use tollgate_core::Tick;
///
/// let start = Tick::from_nanos(5);
/// let later = start + Duration::from_secs(1);
/// assert_eq!(later.since(start), Duration::from_secs(1));
/// assert_eq!(start.since(later), Duration::ZERO); // a clock that stepped back is no time at all
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tick(u64);

impl Tick {
    /// The clock's origin.
    pub const ZERO: Self = Self(0);
    /// The last moment that can be written down.
    pub const MAX: Self = Self(u64::MAX);

    /// The moment `nanos` nanoseconds after the origin.
    #[inline]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    #[inline]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to this moment; zero if `earlier` is in fact later.
    #[inline]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// This moment moved `nanos` later, stopping at [`Tick::MAX`].
    #[inline]
    #[must_use]
    pub const fn plus_nanos(self, nanos: u64) -> Self {
        Self(self.0.saturating_add(nanos))
    }
}

impl core::ops::Add<Duration> for Tick {
    type Output = Self;

    /// Moves the moment later, stopping at [`Tick::MAX`].
    #[inline]
    fn add(self, span: Duration) -> Self {
        self.plus_nanos(nanos_of(span))
    }
}

impl fmt::Display for Tick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t+{}ns", self.0)
    }
}

/// Whole nanoseconds of a span; a span of more than 584 years counts as 584 years.
#[inline]
pub(crate) const fn nanos_of(span: Duration) -> u64 {
    let nanos = span.as_nanos();
    if nanos > u64::MAX as u128 { u64::MAX } else { nanos as u64 }
}
