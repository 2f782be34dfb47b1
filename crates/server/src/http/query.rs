//! The query of a URL.

use std::borrow::Cow;

use super::refusal::{Place, Refusal};

/// The parameters of a query, each at most once.
#[derive(Debug, Default)]
pub(super) struct Query<'a> {
    parameters: Vec<(Cow<'a, str>, Cow<'a, str>)>,
}

impl<'a> Query<'a> {
    /// Reads a query that may have some parameters and no others.
    pub(super) fn read(query: Option<&'a str>, known: &[&str]) -> Result<Self, Refusal> {
        let mut parameters: Vec<(Cow<'a, str>, Cow<'a, str>)> = Vec::new();
        for part in query.unwrap_or_default().split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let (name, value) = (decoded(name)?, decoded(value)?);
            if !known.contains(&&*name) {
                return Err(unknown(&name, known));
            }
            if parameters.iter().any(|parameter| parameter.0 == name) {
                return Err(Refusal::bad("duplicate parameter").at(Place::Parameter(name.into_owned())));
            }
            parameters.push((name, value));
        }
        Ok(Self { parameters })
    }

    /// The value of a parameter.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|parameter| parameter.0 == name).map(|parameter| &*parameter.1)
    }

    /// How many are wanted.
    pub(super) fn count(&self) -> Result<usize, Refusal> {
        const MOST: usize = 1_000;
        let Some(text) = self.get("count") else { return Ok(100) };
        let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let count = text.parse().ok().filter(|count| is_plain && (1..=MOST).contains(count));
        count.ok_or_else(|| {
            let detail = format!("expected a whole number from 1 to {MOST}, found {text:?}");
            Refusal::bad(detail).at(Place::Parameter("count".to_owned()))
        })
    }
}

fn unknown(name: &str, known: &[&str]) -> Refusal {
    let detail = match known {
        [] => "this path takes no parameters".to_owned(),
        known => format!("unknown parameter; expected {}", known.join(" or ")),
    };
    Refusal::bad(detail).at(Place::Parameter(name.to_owned()))
}

/// Decodes a text: `+` is a space, and so is `%20`.
pub(super) fn decoded(text: &str) -> Result<Cow<'_, str>, Refusal> {
    if !text.bytes().any(|byte| matches!(byte, b'%' | b'+')) {
        return Ok(Cow::Borrowed(text));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        match first {
            b'+' => bytes.push(b' '),
            b'%' => {
                bytes.push(byte_of(rest).ok_or_else(|| bad_escape(text))?);
                rest = &rest[2..];
            }
            byte => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).map(Cow::Owned).map_err(|_| bad_escape(text))
}

fn byte_of(digits: &[u8]) -> Option<u8> {
    let digit = |at: usize| char::from(*digits.get(at)?).to_digit(16);
    Some((digit(0)? * 16 + digit(1)?) as u8)
}

fn bad_escape(text: &str) -> Refusal {
    Refusal::bad(format!(
        "malformed query {text:?}: a % needs two hexadecimal digits, and the decoded text must be UTF-8"
    ))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parameters_are_decoded() {
        let query = Query::read(Some("after=default+per%2Dip&count=7&"), &["after", "count"]).unwrap();
        assert_eq!(query.get("after"), Some("default per-ip"));
        assert_eq!(query.count().unwrap(), 7);
        assert_eq!(Query::read(None, &[]).unwrap().count().unwrap(), 100);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for bad in ["other=1", "count=1&count=2", "count=%4", "count=%zz", "count=%ff", "%"] {
            assert!(Query::read(Some(bad), &["count"]).is_err(), "{bad}");
        }
        for bad in ["0", "1001", "-1", "+1", "", "1e2", "18446744073709551617", "１"] {
            let query = format!("count={}", bad.replace('+', "%2B"));
            assert!(Query::read(Some(&query), &["count"]).unwrap().count().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_query_is_answered(query in "[a-c%+&=0-9f]{0,12}|\\PC{0,12}") {
            let _ = Query::read(Some(&query), &["a", "b"]).map(|query| query.count().is_ok());
        }
    }
}
