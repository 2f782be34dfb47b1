//! Names and lengths of what the generated enumerations stand for.

use std::time::Duration;

use super::proto::{Code, Unit};

impl Code {
    /// The name in JSON.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "UNKNOWN",
            Self::Ok => "OK",
            Self::OverLimit => "OVER_LIMIT",
        }
    }
}

impl Unit {
    /// All but the unknown one.
    pub(super) const ALL: [Self; 7] =
        [Self::Second, Self::Minute, Self::Hour, Self::Day, Self::Week, Self::Month, Self::Year];

    /// The name in JSON.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "UNKNOWN",
            Self::Second => "SECOND",
            Self::Minute => "MINUTE",
            Self::Hour => "HOUR",
            Self::Day => "DAY",
            Self::Week => "WEEK",
            Self::Month => "MONTH",
            Self::Year => "YEAR",
        }
    }

    /// The length of the unit; zero for the unknown one.
    pub(super) const fn span(self) -> Duration {
        const DAY: u64 = 24 * 60 * 60;
        Duration::from_secs(match self {
            Self::Unknown => 0,
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 60 * 60,
            Self::Day => DAY,
            Self::Week => 7 * DAY,
            Self::Month => 30 * DAY,
            Self::Year => 365 * DAY,
        })
    }

    /// The unit of that length; [`Unknown`](Self::Unknown) if there is none.
    pub(super) fn of(span: Duration) -> Self {
        Self::ALL.into_iter().find(|unit| unit.span() == span).unwrap_or(Self::Unknown)
    }
}
