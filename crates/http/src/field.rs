//! Reading single fields.

use std::borrow::Cow;

use http::HeaderMap;

/// The value of a field; several lines are joined as HTTP says, by commas. None if it is missing or is no text.
pub(crate) fn field<'a>(headers: &'a HeaderMap, name: &str) -> Option<Cow<'a, str>> {
    let lines = headers.get_all(name).iter().map(|line| std::str::from_utf8(line.as_bytes()).map(str::trim));
    match lines.collect::<Result<Vec<_>, _>>().ok()?.as_slice() {
        [] => None,
        [line] => Some(Cow::Borrowed(*line)),
        lines => Some(Cow::Owned(lines.join(", "))),
    }
}

/// Digits, with a fraction if need be: `2`, `2.0`, `.5`. No sign, no exponent.
pub(crate) fn number(text: &str) -> Option<f64> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let has_digit = text.bytes().any(|byte| byte.is_ascii_digit());
    if is_plain && has_digit { text.parse().ok() } else { None }
}

/// A whole number; a fraction is cut off.
pub(crate) fn count(text: &str) -> Option<u64> {
    number(text).map(|number| number as u64)
}

/// `true` or `false`.
pub(crate) fn flag(text: &str) -> Option<bool> {
    if text.eq_ignore_ascii_case("true") {
        Some(true)
    } else if text.eq_ignore_ascii_case("false") {
        Some(false)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn lines_are_joined() {
        let mut headers = HeaderMap::new();
        headers.append("ratelimit", HeaderValue::from_static("\"a\";r=1"));
        headers.append("ratelimit", HeaderValue::from_static(" \"b\";r=2 "));
        assert_eq!(field(&headers, "ratelimit").as_deref(), Some("\"a\";r=1, \"b\";r=2"));
        assert_eq!(field(&headers, "retry-after"), None);
    }

    #[test]
    fn what_is_no_text_is_not_there() {
        let mut headers = HeaderMap::new();
        headers.append("ratelimit", HeaderValue::from_static("1"));
        headers.append("ratelimit", HeaderValue::from_bytes(b"\xff").unwrap());
        assert_eq!(field(&headers, "ratelimit"), None);
    }

    #[test]
    fn numbers_have_digits_and_no_signs() {
        assert_eq!(number("2"), Some(2.0));
        assert_eq!(number("2.5"), Some(2.5));
        assert_eq!(number(".5"), Some(0.5));
        for text in ["", ".", "-1", "+1", "1e3", "inf", "NaN", "1.2.3", "1 "] {
            assert_eq!(number(text), None, "{text}");
        }
        assert_eq!(count("61.9"), Some(61));
        assert_eq!(count(&"9".repeat(400)), Some(u64::MAX));
    }
}
