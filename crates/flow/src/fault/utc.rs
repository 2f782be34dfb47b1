//! A moment as people and programs write it: RFC 3339, UTC.

use std::fmt;
use std::time::{Duration, SystemTime};

/// Writes `2026-01-31T23:59:59.123Z`, to the millisecond, rounded down. Years before 0 and after 9999 are written with
/// their sign.
pub(super) struct Utc(pub(super) SystemTime);

const DAY_SECONDS: i128 = 86_400;

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = unix_millis(self.0);
        let seconds = millis.div_euclid(1_000);
        let (year, month, day) = civil(seconds.div_euclid(DAY_SECONDS));
        let second = seconds.rem_euclid(DAY_SECONDS);
        match year {
            0..=9_999 => write!(f, "{year:04}")?,
            _ => write!(f, "{year:+05}")?,
        }
        write!(f, "-{month:02}-{day:02}T")?;
        write!(f, "{:02}:{:02}:{:02}", second / 3_600, second / 60 % 60, second % 60)?;
        write!(f, ".{:03}Z", millis.rem_euclid(1_000))
    }
}

/// Milliseconds since 1970, negative before.
fn unix_millis(moment: SystemTime) -> i128 {
    let nanos = |span: Duration| i128::try_from(span.as_nanos()).unwrap_or(i128::MAX);
    let nanos = match moment.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => nanos(after),
        Err(before) => -nanos(before.duration()),
    };
    nanos.div_euclid(1_000_000)
}

/// The year, month and day of the day that many days after 1970-01-01, in the Gregorian calendar.
///
/// Years begin in March here, so that a leap day is the last of its year: then month and day follow from the day of the
/// year by division (153 days make five months, March to July and August to December alike), and the year from the day
/// of its 400-year cycle of 146 097 days, less the leap days before it.
fn civil(days: i128) -> (i128, i128, i128) {
    let since_march_0000 = days + 719_468;
    let cycle = since_march_0000.div_euclid(146_097);
    let day_of_cycle = since_march_0000.rem_euclid(146_097);
    let leap_days = day_of_cycle / 1_460 - day_of_cycle / 36_524 + day_of_cycle / 146_096;
    let year_of_cycle = (day_of_cycle - leap_days) / 365;
    let day_of_year = day_of_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = 400 * cycle + year_of_cycle + i128::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(unix_seconds: u64, nanos: u32) -> String {
        Utc(SystemTime::UNIX_EPOCH + Duration::new(unix_seconds, nanos)).to_string()
    }

    #[test]
    fn well_known_moments() {
        assert_eq!(written(0, 0), "1970-01-01T00:00:00.000Z");
        assert_eq!(written(951_782_400, 0), "2000-02-29T00:00:00.000Z");
        assert_eq!(written(1_000_000_000, 0), "2001-09-09T01:46:40.000Z");
        assert_eq!(written(1_234_567_890, 999_999_999), "2009-02-13T23:31:30.999Z");
        assert_eq!(written(4_102_444_799, 0), "2099-12-31T23:59:59.000Z");
        assert_eq!(written(253_402_300_800, 0), "+10000-01-01T00:00:00.000Z");
    }

    #[test]
    fn before_1970_is_rounded_down_too() {
        let moment = SystemTime::UNIX_EPOCH - Duration::from_nanos(1);
        assert_eq!(Utc(moment).to_string(), "1969-12-31T23:59:59.999Z");
        let moment = SystemTime::UNIX_EPOCH - Duration::from_secs(62_167_219_201);
        assert_eq!(Utc(moment).to_string(), "-0001-12-31T23:59:59.000Z");
    }

    #[test]
    fn the_ends_of_time_can_be_written() {
        let last = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(i64::MAX as u64));
        let first = SystemTime::UNIX_EPOCH.checked_sub(Duration::from_secs(i64::MAX as u64));
        for moment in [last, first].into_iter().flatten() {
            assert!(Utc(moment).to_string().ends_with('Z'));
        }
    }

    /// Every day of 4 000 years, counted by the rule on the calendar's wall: thirty days has September.
    #[test]
    fn every_day_follows_the_one_before() {
        let is_leap = |year: i128| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let length = |year, month| match month {
            4 | 6 | 9 | 11 => 30,
            2 => 28 + i128::from(is_leap(year)),
            _ => 31,
        };
        let days_to_year_zero: i128 = (0..1_970).map(|year| 365 + i128::from(is_leap(year))).sum();
        let mut today = (0, 1, 1);
        for day in -days_to_year_zero..4_000 * 366 - days_to_year_zero {
            assert_eq!(civil(day), today, "{day} days after 1970-01-01");
            today = match today {
                (year, 12, 31) => (year + 1, 1, 1),
                (year, month, last) if last == length(year, month) => (year, month + 1, 1),
                (year, month, day) => (year, month, day + 1),
            };
        }
        assert!(today.0 >= 4_000);
    }
}
