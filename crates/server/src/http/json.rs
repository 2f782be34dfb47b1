//! Writing JSON by hand, where every call passes.

use std::time::Duration;

/// Adds a string, with its quotes.
pub(super) fn push_string(json: &mut Vec<u8>, text: &str) {
    json.push(b'"');
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().position(|byte| needs_escape(*byte)) {
        json.extend_from_slice(&rest[..at]);
        push_escape(json, rest[at]);
        rest = &rest[at + 1..];
    }
    json.extend_from_slice(rest);
    json.push(b'"');
}

fn needs_escape(byte: u8) -> bool {
    byte < b' ' || byte == b'"' || byte == b'\\'
}

fn push_escape(json: &mut Vec<u8>, byte: u8) {
    match byte {
        b'"' | b'\\' => json.extend_from_slice(&[b'\\', byte]),
        b'\n' => json.extend_from_slice(b"\\n"),
        b'\r' => json.extend_from_slice(b"\\r"),
        b'\t' => json.extend_from_slice(b"\\t"),
        _ => {
            let digit = |nibble: u8| b"0123456789abcdef"[usize::from(nibble)];
            json.extend_from_slice(&[b'\\', b'u', b'0', b'0', digit(byte >> 4), digit(byte & 15)]);
        }
    }
}

/// Adds a whole number.
pub(super) fn push_number(json: &mut Vec<u8>, number: u64) {
    json.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Adds a whole number; `null` stands for no limit.
pub(super) fn push_amount(json: &mut Vec<u8>, amount: u64) {
    if amount == u64::MAX { json.extend_from_slice(b"null") } else { push_number(json, amount) }
}

/// Adds a span in seconds, exactly; `null` stands for never.
pub(super) fn push_seconds(json: &mut Vec<u8>, span: Option<Duration>) {
    let Some(span) = span else { return json.extend_from_slice(b"null") };
    push_number(json, span.as_secs());
    let mut nanos = span.subsec_nanos();
    if nanos == 0 {
        return;
    }
    let mut digits = [b'0'; 9];
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (nanos % 10) as u8;
        nanos /= 10;
    }
    let end = digits.iter().rposition(|digit| *digit != b'0').map_or(0, |last| last + 1);
    json.push(b'.');
    json.extend_from_slice(&digits[..end]);
}

/// Adds `true` or `false`.
pub(super) fn push_bool(json: &mut Vec<u8>, value: bool) {
    json.extend_from_slice(if value { b"true" } else { b"false" });
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seconds(span: Option<Duration>) -> String {
        let mut json = Vec::new();
        push_seconds(&mut json, span);
        String::from_utf8(json).unwrap()
    }

    #[test]
    fn seconds_are_exact() {
        assert_eq!(seconds(None), "null");
        assert_eq!(seconds(Some(Duration::ZERO)), "0");
        assert_eq!(seconds(Some(Duration::from_millis(1_500))), "1.5");
        assert_eq!(seconds(Some(Duration::new(7, 1))), "7.000000001");
        assert_eq!(seconds(Some(Duration::new(0, 120_000_000))), "0.12");
        assert_eq!(seconds(Some(Duration::from_nanos(u64::MAX))), "18446744073.709551615");
    }

    #[test]
    fn what_is_unlimited_is_null() {
        let mut json = Vec::new();
        push_amount(&mut json, u64::MAX);
        push_amount(&mut json, u64::MAX - 1);
        assert_eq!(json, b"null18446744073709551614");
    }

    proptest! {
        #[test]
        fn strings_are_read_back(text in "\\PC*|[\\x00-\\x7f]{0,40}") {
            let mut json = Vec::new();
            push_string(&mut json, &text);
            prop_assert_eq!(serde_json::from_slice::<String>(&json).unwrap(), text);
        }
    }
}
