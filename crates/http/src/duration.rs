//! Durations as Go writes them: `6m0s`, `1.5h`, `12ms`.

use std::time::Duration;

use crate::field::number;

/// Longer units first where one begins with another.
const UNITS: [(&str, f64); 7] =
    [("ms", 1e-3), ("µs", 1e-6), ("us", 1e-6), ("ns", 1e-9), ("h", 3_600.0), ("m", 60.0), ("s", 1.0)];

/// The span that `text` is, if it is one; at most `cap`.
pub(crate) fn go_duration(text: &str, cap: Duration) -> Option<Duration> {
    let mut rest = text;
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let value = number(&rest[..digits])?;
        let (unit, worth) = UNITS.iter().find(|(unit, _)| rest[digits..].starts_with(unit))?;
        seconds += value * worth;
        rest = &rest[digits + unit.len()..];
    }
    (!text.is_empty()).then(|| seconds_up_to(seconds, cap))
}

/// So many seconds, between zero and `cap`.
pub(crate) fn seconds_up_to(seconds: f64, cap: Duration) -> Duration {
    match Duration::try_from_secs_f64(seconds) {
        Ok(span) => span.min(cap),
        Err(_) if seconds > 0.0 => cap,
        Err(_) => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    #[test]
    fn parts_add_up() {
        let cases = [
            ("1s", 1_000_000_000),
            ("6m0s", 360_000_000_000),
            ("12ms", 12_000_000),
            ("1h2m3s", 3_723_000_000_000),
            ("1.5s", 1_500_000_000),
            ("2m59.56s", 179_560_000_000),
            ("250µs", 250_000),
            ("250us", 250_000),
            ("7ns", 7),
            ("0s", 0),
        ];
        for (text, nanos) in cases {
            assert_eq!(go_duration(text, DAY), Some(Duration::from_nanos(nanos)), "{text}");
        }
    }

    #[test]
    fn what_is_none_is_none() {
        for text in ["", "s", "1", "1x", "1s2", "-1s", ".s", "1..2s", "1.2.3s", "1 s", "s1", "1e3s"] {
            assert_eq!(go_duration(text, DAY), None, "{text}");
        }
    }

    #[test]
    fn the_longest_are_capped() {
        assert_eq!(go_duration("99999999999999999999999h", DAY), Some(DAY));
        assert_eq!(go_duration(&format!("{}h", "9".repeat(400)), DAY), Some(DAY));
        assert_eq!(seconds_up_to(f64::NAN, DAY), Duration::ZERO);
        assert_eq!(seconds_up_to(-1.0, DAY), Duration::ZERO);
    }
}
