//! `Forwarded`, as RFC 7239 defines it.
//!
//! It is taken apart from the right. Read from the left, a quote that a caller never closed would swallow what the proxies
//! added after it; from the right, what they added is whole before anything of the caller's is met. For a field without
//! mistakes it makes no difference: outside of quotes there are no backslashes, so a quote is one that ends or begins a string
//! unless an odd number of backslashes stands before it.

use std::borrow::Cow;
use std::net::IpAddr;

use http::HeaderMap;
use http::header::FORWARDED;

use super::{lines_from_last, node};

/// Whom each proxy got the call from, the nearest one first; none where that is no address.
pub(super) fn callers(headers: &HeaderMap) -> impl Iterator<Item = Option<IpAddr>> {
    let elements = lines_from_last(headers, FORWARDED)
        .flat_map(|line| FromRight { rest: Some(line.as_bytes()) })
        .map(<[u8]>::trim_ascii)
        .filter(|element| !element.is_empty());
    elements.map(caller)
}

/// The elements of a list, the last one first.
struct FromRight<'a> {
    rest: Option<&'a [u8]>,
}

impl<'a> Iterator for FromRight<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest.take()?;
        let Some(comma) = last_comma(rest) else {
            return Some(rest);
        };
        self.rest = Some(&rest[..comma]);
        Some(&rest[comma + 1..])
    }
}

/// Where the last comma is that stands in no quoted string.
fn last_comma(text: &[u8]) -> Option<usize> {
    let mut is_quoted = false;
    for (at, byte) in text.iter().enumerate().rev() {
        match byte {
            b'"' if !is_escaped(&text[..at]) => is_quoted = !is_quoted,
            b',' if !is_quoted => return Some(at),
            _ => {}
        }
    }
    None
}

fn is_escaped(before: &[u8]) -> bool {
    before.iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1
}

/// The address that an element has after `for`: none if there is no such pair, or two, or anything malformed.
fn caller(element: &[u8]) -> Option<IpAddr> {
    let (mut rest, mut found) = (element, None);
    loop {
        rest = rest.trim_ascii_start();
        if !rest.is_empty() && rest[0] != b';' {
            let (pair, after) = pair(rest)?;
            if pair.name.eq_ignore_ascii_case(b"for") && found.replace(pair.value).is_some() {
                return None;
            }
            rest = after.trim_ascii_start();
        }
        match rest.split_first() {
            None => return node::strict(&found?),
            Some((b';', after)) => rest = after,
            Some(_) => return None,
        }
    }
}

/// `name=value`, or `name="value"`.
struct Pair<'a> {
    name: &'a [u8],
    value: Cow<'a, [u8]>,
}

/// The pair that stands first, and what follows it.
fn pair(text: &[u8]) -> Option<(Pair<'_>, &[u8])> {
    let equals = text.iter().position(|byte| !is_token_byte(*byte))?;
    let (name, value) = (&text[..equals], text[equals..].strip_prefix(b"=")?);
    let (value, after) = match value.strip_prefix(b"\"") {
        Some(string) => quoted(string)?,
        None => bare(value),
    };
    (!name.is_empty() && !value.is_empty()).then_some((Pair { name, value }, after))
}

/// What a quoted string says, its first quote already gone, and what follows it.
fn quoted(text: &[u8]) -> Option<(Cow<'_, [u8]>, &[u8])> {
    let plain = text.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
    if text[plain] == b'"' {
        return Some((Cow::Borrowed(&text[..plain]), &text[plain + 1..]));
    }
    let mut said = Vec::new();
    let mut bytes = text.iter().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'"' => return Some((Cow::Owned(said), &text[at + 1..])),
            b'\\' => said.push(*bytes.next()?.1),
            _ => said.push(*byte),
        }
    }
    None
}

/// What stands there without quotes. By the standard it would have to be a token, which has neither colons nor brackets.
fn bare(text: &[u8]) -> (Cow<'_, [u8]>, &[u8]) {
    let end = text.iter().position(|byte| !is_token_byte(*byte) && !matches!(byte, b':' | b'[' | b']'));
    let (value, after) = text.split_at(end.unwrap_or(text.len()));
    (Cow::Borrowed(value), after)
}

/// What RFC 9110 calls `tchar`.
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elements(text: &str) -> Vec<&str> {
        let elements = FromRight { rest: Some(text.as_bytes()) };
        elements.map(|element| std::str::from_utf8(element).unwrap()).collect()
    }

    #[test]
    fn a_list_is_taken_apart_from_the_right() {
        assert_eq!(elements("a, b;c ,d"), ["d", " b;c ", "a"]);
        assert_eq!(elements(r#"a="x,y", b="\",\\""#), [r#" b="\",\\""#, r#"a="x,y""#]);
        assert_eq!(elements(""), [""]);
        assert_eq!(elements(",,"), ["", "", ""]);
    }

    #[test]
    fn a_quote_that_was_never_closed_hides_nothing_after_it() {
        assert_eq!(elements(r#"for="x, for=a, for="b""#), [r#" for="b""#, " for=a", r#"for="x"#]);
        assert_eq!(elements(r#"for=x\, for="b""#), [r#" for="b""#, r"for=x\"]);
        assert_eq!(elements("\", a"), [" a", "\""]);
        assert_eq!(elements(r#"x", for=a"#), [" for=a", r#"x""#]);
    }

    #[test]
    fn an_element_tells_its_caller() {
        let cases = [
            ("for=192.0.2.60;proto=http;by=203.0.113.43", Some("192.0.2.60")),
            ("For=\"[2001:db8:cafe::17]:4711\"", Some("2001:db8:cafe::17")),
            ("proto=http;FOR=192.0.2.60", Some("192.0.2.60")),
            (";;for=192.0.2.60;;", Some("192.0.2.60")),
            ("for=192.0.2.60 ; proto=http", Some("192.0.2.60")),
            ("for=192.0.2.60:80;host=example.com:80", Some("192.0.2.60")),
            ("for=[2001:db8::1]:80", Some("2001:db8::1")),
            (r#"for="192.0.2\.60";host="a\"b;c""#, Some("192.0.2.60")),
            ("for=_hidden", None),
            ("for=unknown", None),
            ("proto=http", None),
            (";", None),
            ("for", None),
            ("for=", None),
            ("for=\"\"", None),
            ("=192.0.2.60", None),
            ("for =192.0.2.60", None),
            ("for= 192.0.2.60", None),
            ("for=192.0.2.60 proto=http", None),
            ("for=192.0.2.60;for=192.0.2.61", None),
            ("for=192.0.2.60;for=192.0.2.60", None),
            ("for=192.0.2.60;proto", None),
            ("for=192.0.2.60;proto=\"http", None),
            ("for=\"192.0.2.60\"x", None),
            ("for='192.0.2.60'", None),
            ("forx=192.0.2.60", None),
            ("for=2001:db8::1", None),
            ("for=192.0.2.60;proto=\"http\\", None),
        ];
        for (element, address) in cases {
            let found = caller(element.as_bytes()).map(|address| address.to_string());
            assert_eq!(found.as_deref(), address, "{element}");
        }
    }
}
