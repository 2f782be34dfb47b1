//! The units of time that Envoy counts by.

use std::time::Duration;

/// A unit of time that Envoy counts by. A month has thirty days, a year 365.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate_policy::Unit;
///
/// assert_eq!(Unit::of(Duration::from_secs(60)), Some(Unit::Minute));
/// assert_eq!(Unit::of(Duration::from_secs(61)), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// A second.
    Second,
    /// 60 seconds.
    Minute,
    /// 60 minutes.
    Hour,
    /// 24 hours.
    Day,
    /// 7 days.
    Week,
    /// 30 days.
    Month,
    /// 365 days.
    Year,
}

impl Unit {
    /// Every unit there is.
    pub const ALL: [Self; 7] =
        [Self::Second, Self::Minute, Self::Hour, Self::Day, Self::Week, Self::Month, Self::Year];

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Year => "year",
        }
    }

    /// How long it is.
    pub const fn period(self) -> Duration {
        const DAY: u64 = 86_400;
        Duration::from_secs(match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3_600,
            Self::Day => DAY,
            Self::Week => 7 * DAY,
            Self::Month => 30 * DAY,
            Self::Year => 365 * DAY,
        })
    }

    /// The unit of a quota with that period.
    pub fn of(period: Duration) -> Option<Self> {
        Self::ALL.into_iter().find(|unit| unit.period() == period)
    }
}
