//! Values as Go writes them, in the forms that our settings read.

/// Longer units first where one begins with another.
const UNITS: [(&str, f64); 7] =
    [("ms", 1.0), ("µs", 1e-3), ("us", 1e-3), ("ns", 1e-6), ("h", 3.6e6), ("m", 6e4), ("s", 1e3)];

/// A truth value: `1`, `t`, `T`, `TRUE`, `true`, `True` and their opposites.
pub(super) fn boolean(text: &str) -> Option<String> {
    let truth = match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => "true",
        "0" | "f" | "F" | "FALSE" | "false" | "False" => "false",
        _ => return None,
    };
    Some(truth.to_owned())
}

/// A span such as `24h` or `1h30m`; zero means that there is none. Shorter parts than a millisecond round up.
pub(super) fn span(text: &str) -> Option<String> {
    if text == "0" {
        return Some("none".to_owned());
    }
    let (mut rest, mut millis) = (text, 0.0);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        let (unit, worth) = UNITS.iter().find(|(unit, _)| rest[digits..].starts_with(unit))?;
        millis += number * worth;
        rest = &rest[digits + unit.len()..];
    }
    match millis.ceil() {
        _ if text.is_empty() => None,
        0.0 => Some("none".to_owned()),
        millis => Some(format!("{millis}ms")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn booleans_are_those_of_go() {
        for (text, expected) in
            [("1", "true"), ("T", "true"), ("True", "true"), ("0", "false"), ("FALSE", "false")]
        {
            assert_eq!(boolean(text).as_deref(), Some(expected), "{text}");
        }
        for bad in ["", "yes", "tRUE", "2"] {
            assert_eq!(boolean(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn spans_become_milliseconds_and_zero_is_none() {
        for (text, expected) in [
            ("24h", "86400000ms"),
            ("1h30m", "5400000ms"),
            ("1.5s", "1500ms"),
            ("250us", "1ms"),
            ("0s", "none"),
            ("0", "none"),
        ] {
            assert_eq!(span(text).as_deref(), Some(expected), "{text}");
        }
        for bad in ["", "10", "h", "-1s", "1d", "1h 2m", "..s"] {
            assert_eq!(span(bad), None, "{bad:?}");
        }
    }
}
