//! Moments as RFC 3339 writes them: `2026-11-15T09:30:00Z`.
//!
//! HTTP's own dates are read by the crate `httpdate`.

use std::time::{Duration, SystemTime};

/// The moment that `text` is, if it is one. Seconds may be missing, as ISO 8601 allows.
pub(crate) fn rfc3339(text: &str) -> Option<SystemTime> {
    let (date, time) = text.trim().split_once(['T', 't', ' '])?;
    let (time, offset_minutes) = split_offset(time)?;
    let days = days_of(date)?;
    let (seconds, nanos) = seconds_of(time)?;
    let unix = days * 86_400 + seconds - offset_minutes * 60;
    let whole = Duration::from_secs(unix.unsigned_abs());
    let moment = if unix < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(whole)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(whole)
    };
    moment?.checked_add(Duration::from_nanos(nanos))
}

/// The time of day, and how many minutes its zone is ahead of UTC.
fn split_offset(time: &str) -> Option<(&str, i64)> {
    if let Some(time) = time.strip_suffix(['Z', 'z']) {
        return Some((time, 0));
    }
    let at = time.rfind(['+', '-'])?;
    let (time, offset) = time.split_at(at);
    let (sign, offset) = offset.split_at(1);
    let (hours, minutes) = match offset.len() {
        2 => (offset, "0"),
        4 => offset.split_at_checked(2)?,
        _ => offset.split_once(':')?,
    };
    let ahead = digits(hours, 23)? * 60 + digits(minutes, 59)?;
    Some((time, if sign == "-" { -ahead } else { ahead }))
}

/// Seconds since midnight, and nanoseconds.
fn seconds_of(time: &str) -> Option<(i64, u64)> {
    let mut parts = time.split(':');
    let (hour, minute) = (digits(parts.next()?, 23)?, digits(parts.next()?, 59)?);
    let seconds = parts.next().unwrap_or("0");
    if parts.next().is_some() {
        return None;
    }
    let (second, fraction) = seconds.split_once('.').unwrap_or((seconds, "0"));
    // A leap second counts as the first of the next minute.
    let second = digits(second, 60)?;
    Some((hour * 3_600 + minute * 60 + second, nanos_of(fraction)?))
}

/// The first nine digits of a fraction; further ones are too small to matter.
fn nanos_of(fraction: &str) -> Option<u64> {
    if fraction.is_empty() || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits = fraction.bytes().chain(std::iter::repeat(b'0')).take(9);
    Some(digits.fold(0, |nanos, digit| nanos * 10 + u64::from(digit - b'0')))
}

/// Days since 1970 in the Gregorian calendar.
fn days_of(date: &str) -> Option<i64> {
    let mut parts = date.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() || year.len() != 4 {
        return None;
    }
    let (year, month, day) = (digits(year, 9_999)?, digits(month, 12)?, digits(day, 31)?);
    if month == 0 || day == 0 || day > days_in(month, year) {
        return None;
    }
    // Years begin in March, so that the leap day is the last of its year.
    let (year, month) = if month < 3 { (year - 1, month + 9) } else { (year, month - 3) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    // 153 days in five months, over and over: 31, 30, 31, 30, 31.
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    Some(year * 365 + leap_days + day_of_year - DAYS_BEFORE_1970)
}

/// From the first of March in the year 0 to 1970.
const DAYS_BEFORE_1970: i64 = 719_468;

fn days_in(month: i64, year: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// One to four digits that say no more than `most`.
fn digits(text: &str, most: i64) -> Option<i64> {
    if !(1..=4).contains(&text.len()) || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok().filter(|number| *number <= most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64, nanos: u32) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::new(seconds, nanos)
    }

    #[test]
    fn dates_are_read() {
        // Seconds as `date -u -d ... +%s` says them.
        let cases = [
            ("1970-01-01T00:00:00Z", at(0, 0)),
            ("2000-02-29T12:00:00Z", at(951_825_600, 0)),
            ("2024-12-31T23:59:60Z", at(1_735_689_600, 0)),
            ("2026-11-15T09:30:00Z", at(1_794_735_000, 0)),
            ("2026-11-15T09:30:00.5Z", at(1_794_735_000, 500_000_000)),
            ("2026-11-15t09:30:00.1234567891z", at(1_794_735_000, 123_456_789)),
            ("2026-11-15T10:30:00+01:00", at(1_794_735_000, 0)),
            ("2026-11-15T04:30:00-0500", at(1_794_735_000, 0)),
            ("2026-11-15T09:30Z", at(1_794_735_000, 0)),
            ("2026-11-15 09:30:00+00", at(1_794_735_000, 0)),
        ];
        for (text, moment) in cases {
            assert_eq!(rfc3339(text), Some(moment), "{text}");
        }
        let before = SystemTime::UNIX_EPOCH - Duration::from_secs(1);
        assert_eq!(rfc3339("1969-12-31T23:59:59Z"), Some(before));
    }

    #[test]
    fn what_is_none_is_none() {
        let cases = [
            "",
            "T",
            "2026-11-15",
            "2026-11-15T09:30:00",
            "2026-13-15T09:30:00Z",
            "2026-02-29T09:30:00Z",
            "1900-02-29T09:30:00Z",
            "2026-00-15T09:30:00Z",
            "2026-11-00T09:30:00Z",
            "2026-11-15T24:30:00Z",
            "2026-11-15T09:60:00Z",
            "2026-11-15T09:30:61Z",
            "2026-11-15T09:30:00.Z",
            "2026-11-15T09:30:00:00Z",
            "2026-11-15T09:30:00+é0",
            "26-11-15T09:30:00Z",
            "+026-11-15T09:30:00Z",
        ];
        for text in cases {
            assert_eq!(rfc3339(text), None, "{text}");
        }
    }
}
