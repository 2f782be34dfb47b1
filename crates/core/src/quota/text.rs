//! Quotas as people write them: `10/s`, `600/min burst 50`, `1 per 2.5s`, `unlimited`.

use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use super::Quota;

/// Units of time: every spelling that is read, the first of each group is the one that is printed.
const UNITS: &[(u64, &[&str])] = &[
    (604_800_000_000_000, &["w", "week", "weeks"]),
    (86_400_000_000_000, &["d", "day", "days"]),
    (3_600_000_000_000, &["h", "hour", "hours"]),
    (60_000_000_000, &["min", "m", "mins", "minute", "minutes"]),
    (1_000_000_000, &["s", "sec", "secs", "second", "seconds"]),
    (1_000_000, &["ms"]),
    (1_000, &["us", "µs", "μs"]),
    (1, &["ns"]),
];

/// Why a text is not a quota: what was found, and what would have been right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaError {
    text: String,
    problem: String,
}

impl fmt::Display for QuotaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "quota {:?}: {}", self.text, self.problem)
    }
}

impl core::error::Error for QuotaError {}

impl FromStr for Quota {
    type Err = QuotaError;

    fn from_str(text: &str) -> Result<Self, QuotaError> {
        let trimmed = text.trim();
        parse(trimmed).map_err(|problem| {
            let small = trimmed.to_lowercase();
            let problem =
                if parse(&small).is_ok() { format!("write it in lower case: {small}") } else { problem };
            QuotaError { text: text.to_string(), problem }
        })
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_unlimited() {
            return f.write_str("unlimited");
        }
        match UNITS.iter().find(|(nanos, _)| *nanos == self.period_ns) {
            Some((_, names)) => write!(f, "{}/{}", self.count, names[0])?,
            None => write!(f, "{} per {}", self.count, Span(self.period_ns))?,
        }
        if self.burst == self.count { Ok(()) } else { write!(f, " burst {}", self.burst) }
    }
}

/// A span in the largest unit that keeps it a short decimal.
struct Span(u64);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = UNITS.iter().filter(|(nanos, _)| *nanos <= 1_000_000_000 || self.0.is_multiple_of(*nanos));
        let (nanos, names) = unit.clone().find(|(nanos, _)| self.0 >= *nanos).unwrap_or(&UNITS[7]);
        let (whole, rest) = (self.0 / nanos, self.0 % nanos);
        if rest == 0 {
            return write!(f, "{whole}{}", names[0]);
        }
        let digits = nanos.ilog10() as usize; // a unit that leaves a rest is a power of ten
        let fraction = format!("{rest:0digits$}");
        write!(f, "{whole}.{}{}", fraction.trim_end_matches('0'), names[0])
    }
}

fn parse(text: &str) -> Result<Quota, String> {
    if text.is_empty() {
        return Err("empty; expected for example 10/s, 600/min burst 50, 1 per 2.5s or unlimited".to_string());
    }
    if text.eq_ignore_ascii_case("unlimited") {
        return Ok(Quota::UNLIMITED);
    }
    let (rate, burst) = match split_word(text, "burst") {
        Some((rate, burst)) => (rate, Some(whole_number(burst)?)),
        None => (text, None),
    };
    let (count, period) = match rate.split_once('/') {
        Some(parts) => parts,
        None => split_word(rate, "per").ok_or_else(|| missing_period(rate))?,
    };
    let (count, period) = (self::count(count)?, span(period)?);
    let quota = Quota::per(count, Duration::from_nanos(period));
    Ok(burst.map_or(quota, |burst| quota.burst(burst)))
}

fn missing_period(rate: &str) -> String {
    match count(rate) {
        Ok(_) => {
            format!("missing period after {rate:?}; expected for example {rate}/s or {rate} per 10s")
        }
        Err(problem) => problem,
    }
}

/// Splits at `word` if it stands alone.
fn split_word<'a>(text: &'a str, word: &str) -> Option<(&'a str, &'a str)> {
    let at = text.match_indices(word).map(|(at, _)| at).find(|&at| {
        let (before, after) = (&text[..at], &text[at + word.len()..]);
        before.ends_with(char::is_whitespace) && (after.is_empty() || after.starts_with(char::is_whitespace))
    })?;
    Some((text[..at].trim(), text[at + word.len()..].trim()))
}

/// How many a period has.
fn count(text: &str) -> Result<u64, String> {
    let is_fraction = text.contains('.') && text.trim().parse::<f64>().is_ok();
    let advice = if is_fraction { "; for 1.5/s write 3 per 2s" } else { "" };
    whole_number(text).map_err(|problem| problem + advice)
}

fn whole_number(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let expected = || {
        if text.contains('.') && text.parse::<f64>().is_ok() {
            return format!("expected a whole number, found {text:?}");
        }
        format!("expected a number such as 10, found {text:?}")
    };
    let digits: String = text.chars().filter(|c| *c != '_').collect();
    if digits.is_empty()
        || text.starts_with('_')
        || text.ends_with('_')
        || text.contains("__")
        || !digits.bytes().all(|b| b.is_ascii_digit())
    {
        return Err(expected());
    }
    digits.parse().map_err(|_| format!("{text} is too large; the largest number is {}", u64::MAX))
}

/// A period: a unit alone (`s`), or a decimal number and a unit (`2.5s`).
fn span(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(text.len());
    let (number, name) = (&text[..unit_at], text[unit_at..].trim());
    let nanos = UNITS.iter().find(|(_, names)| names.contains(&name)).map(|(nanos, _)| *nanos);
    let Some(nanos) = nanos else {
        return Err(unknown_unit(name, number));
    };
    let nanos = if number.is_empty() { nanos } else { decimal(number, nanos)? };
    if nanos == 0 {
        Err(format!("a period of {text:?} is zero; for no limit write unlimited"))
    } else {
        Ok(nanos)
    }
}

fn unknown_unit(name: &str, number: &str) -> String {
    let units = "ns, us, ms, s, min, h, d or w";
    if name.to_ascii_lowercase().contains("burst") {
        return "write the burst at the end, in lower case and after a space: 10/s burst 20".to_string();
    }
    match (name.is_empty(), number.is_empty()) {
        (true, true) => format!("missing period; expected a unit: {units}"),
        (true, false) => format!("the period {number} needs a unit: {units}"),
        (false, _) => format!("unknown unit of time {name:?}; expected {units}"),
    }
}

/// `number` times `unit_ns`, exactly; what does not end on a whole nanosecond is refused rather than rounded.
fn decimal(number: &str, unit_ns: u64) -> Result<u64, String> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let whole = if whole.is_empty() { 0 } else { whole_number(whole)? };
    if fraction.is_empty() || fraction.len() > 18 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!("expected a number such as 2.5, found {number:?}"));
    }
    let scale = 10_u128.pow(u32::try_from(fraction.len()).unwrap_or(0));
    let parts: u128 = fraction.parse().unwrap_or(0);
    let small = parts * u128::from(unit_ns);
    if !small.is_multiple_of(scale) {
        return Err(format!("{number} is finer than a nanosecond"));
    }
    let total = u128::from(whole) * u128::from(unit_ns) + small / scale;
    u64::try_from(total).map_err(|_| format!("a period of {number} is too long; the longest is 584 years"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn quota(text: &str) -> Quota {
        text.parse().unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn reads_what_people_write() {
        assert_eq!(quota("10/s"), Quota::per_second(10));
        assert_eq!(quota("600/min burst 50"), Quota::per_minute(600).burst(50));
        assert_eq!(quota("1 per 2.5s"), Quota::every(Duration::from_millis(2_500)));
        assert_eq!(quota(" 1_000 per hour burst 5 "), Quota::per_hour(1_000).burst(5));
        assert_eq!(quota("3/10s"), Quota::per(3, Duration::from_secs(10)));
        assert_eq!(quota("5 per 1.5 min"), Quota::per(5, Duration::from_secs(90)));
        assert_eq!(quota("0/s"), Quota::per_second(0));
        assert_eq!(quota("1 per .5s"), Quota::every(Duration::from_millis(500)));
        assert_eq!(quota("Unlimited"), Quota::UNLIMITED);
    }

    #[test]
    fn prints_what_it_reads() {
        for text in [
            "10/s",
            "600/min burst 50",
            "1 per 2.5s",
            "unlimited",
            "7/d",
            "1 per 1.000000001s",
            "2 per 90min",
        ] {
            assert_eq!(quota(text).to_string(), text);
        }
    }

    #[test]
    fn names_what_is_wrong() {
        let cases = [
            ("", "empty; expected for example 10/s, 600/min burst 50, 1 per 2.5s or unlimited"),
            ("10", "missing period after \"10\"; expected for example 10/s or 10 per 10s"),
            ("ten/s", "expected a number such as 10, found \"ten\""),
            ("-1/s", "expected a number such as 10, found \"-1\""),
            ("10/x", "unknown unit of time \"x\"; expected ns, us, ms, s, min, h, d or w"),
            ("10/", "missing period; expected a unit: ns, us, ms, s, min, h, d or w"),
            ("10/5", "the period 5 needs a unit: ns, us, ms, s, min, h, d or w"),
            ("10/0s", "a period of \"0s\" is zero; for no limit write unlimited"),
            ("10/s burst", "expected a number such as 10, found \"\""),
            ("10/s burst many", "expected a number such as 10, found \"many\""),
            ("1 per 0.5ns", "0.5 is finer than a nanosecond"),
            ("1 per 1..5s", "expected a number such as 2.5, found \"1..5\""),
            (
                "99999999999999999999/s",
                "99999999999999999999 is too large; the largest number is 18446744073709551615",
            ),
            ("1 per 40000w", "a period of 40000 is too long; the longest is 584 years"),
            ("10/s burst 1.5", "expected a whole number, found \"1.5\""),
            ("1.5/s", "expected a whole number, found \"1.5\"; for 1.5/s write 3 per 2s"),
            ("10/s burst=5", "write the burst at the end, in lower case and after a space: 10/s burst 20"),
            ("10/S burst 5", "write it in lower case: 10/s burst 5"),
            ("1 Per 2s", "write it in lower case: 1 per 2s"),
            ("1__0/s", "expected a number such as 10, found \"1__0\""),
            ("burst 5", "expected a number such as 10, found \"burst 5\""),
        ];
        for (text, problem) in cases {
            let error = text.parse::<Quota>().expect_err(text);
            assert_eq!(error.to_string(), format!("quota {text:?}: {problem}"));
        }
    }

    proptest! {
        #[test]
        fn text_round_trips(count: u64, period in 1_u64.., burst: u64) {
            let made = Quota::per(count, Duration::from_nanos(period)).burst(burst);
            prop_assert_eq!(made.to_string().parse(), Ok(made));
        }

        #[test]
        fn any_text_is_answered(text in "\\PC{0,24}") {
            if let Err(error) = text.parse::<Quota>() {
                let quoted = format!("quota {text:?}: ");
                prop_assert!(error.to_string().len() > quoted.len() && error.to_string().starts_with(&quoted));
            }
        }

        #[test]
        fn near_misses_are_answered(text in "[0-9_./ ]{0,8}(/|per|burst|s|min| )[0-9. a-zµ]{0,12}") {
            if let Ok(quota) = text.parse::<Quota>() {
                prop_assert_eq!(quota.to_string().parse(), Ok(quota));
            }
        }
    }
}
