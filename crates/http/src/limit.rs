//! A limit as callers are told of it.

use std::error::Error;
use std::fmt;

use http::HeaderValue;
use sfv::{Integer, KeyRef, ListSerializer, StringRef};
use tollgate_core::{Decision, Kind, Quota};

use crate::budget::Unit;
use crate::kept::kept;
use crate::standing::Standing;

/// A limit as callers are told of it: a name and the numbers. Made once, and used for every answer.
///
/// A limit whose quota is [unlimited](Quota::UNLIMITED) is never spoken of. One with a burst above its count may have more
/// left than the policy's number: the policy tells the rate, what is left tells the truth.
///
/// # Examples
/// ```
/// use tollgate_core::{Kind, Quota};
/// use tollgate_http::Limit;
///
/// let limit = Limit::new("per-client", Kind::TokenBucket, Quota::per_minute(100))?;
/// assert_eq!(limit.name(), "per-client");
/// let error = Limit::new("größe", Kind::TokenBucket, Quota::per_minute(100)).unwrap_err();
/// assert_eq!(error.to_string(), "the name \"größe\" cannot be sent in a field: 'ö' is not printable ASCII");
/// # Ok::<(), tollgate_http::NameError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Limit {
    name: sfv::String,
    measure: Measure,
    unit: Unit,
    /// The `RateLimit-Policy` field that speaks of this limit alone.
    policy_field: HeaderValue,
    /// How what is left begins in `RateLimit`: `"burst";r=`.
    left_begins: Box<str>,
}

/// What is limited.
#[derive(Clone, Copy, Debug)]
enum Measure {
    /// How many in a span of time.
    Rate(Kind, Quota),
    /// How many at once.
    Concurrency(u64),
}

impl Limit {
    /// A limit on how many in a span of time, enforced by that kind of algorithm.
    ///
    /// # Errors
    /// If the name is empty, or has anything but printable ASCII in it: structured fields cannot say it.
    pub fn new(name: &str, kind: Kind, quota: Quota) -> Result<Self, NameError> {
        Self::with(name, Measure::Rate(kind, quota), Unit::Requests)
    }

    /// A limit on how many at once.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn concurrent(name: &str, at_once: u64) -> Result<Self, NameError> {
        Self::with(name, Measure::Concurrency(at_once), Unit::Concurrent)
    }

    fn with(name: &str, measure: Measure, unit: Unit) -> Result<Self, NameError> {
        let name = checked(name)?;
        let mut list = ListSerializer::new();
        _ = list.bare_item(&name);
        let left_begins = format!("{};r=", list.finish().unwrap_or_default()).into();
        Ok(Self { name, measure, unit, policy_field: HeaderValue::from_static(""), left_begins }.written())
    }

    /// The same limit, counting something else than requests.
    #[must_use]
    pub fn unit(self, unit: Unit) -> Self {
        Self { unit, ..self }.written()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// How this limit stands after a decision.
    #[inline]
    pub fn after(&self, decision: Decision) -> Standing<'_> {
        Standing::new(self, decision)
    }

    /// With the field that does not change from answer to answer, as since draft 08: `"burst";q=100;w=60`.
    fn written(mut self) -> Self {
        let mut list = ListSerializer::new();
        let mut item = list.bare_item(&self.name).parameter(KeyRef::constant("q"), integer(self.count()));
        if let Some(unit) = word_of(self.unit) {
            item = item.parameter(KeyRef::constant("qu"), unit);
        }
        if let Some(window) = self.window_seconds() {
            item = item.parameter(KeyRef::constant("w"), integer(window));
        }
        _ = item.finish();
        self.policy_field = kept(list.finish().unwrap_or_default());
        self
    }

    pub(crate) fn policy_field(&self) -> &HeaderValue {
        &self.policy_field
    }

    pub(crate) fn left_begins(&self) -> &str {
        &self.left_begins
    }

    pub(crate) fn is_unlimited(&self) -> bool {
        matches!(self.measure, Measure::Rate(_, quota) if quota.is_unlimited())
    }

    /// How many in a window, or at once.
    pub(crate) fn count(&self) -> u64 {
        match self.measure {
            Measure::Rate(_, quota) => quota.count(),
            Measure::Concurrency(at_once) => at_once,
        }
    }

    /// The window, if it is whole seconds: fields cannot say any other.
    pub(crate) fn window_seconds(&self) -> Option<u64> {
        let Measure::Rate(_, quota) = self.measure else {
            return None;
        };
        let period = quota.period();
        (period.subsec_nanos() == 0 && period.as_secs() > 0).then_some(period.as_secs().min(LONGEST_SECONDS))
    }

    /// The quota that is refilled steadily, one by one, if it is.
    pub(crate) fn refilled_steadily(&self) -> Option<Quota> {
        match self.measure {
            Measure::Rate(Kind::TokenBucket, quota) => Some(quota),
            Measure::Rate(..) | Measure::Concurrency(_) => None,
        }
    }

    pub(crate) fn is_about_time(&self) -> bool {
        matches!(self.measure, Measure::Rate(..))
    }
}

/// The longest span that is ever told, 31 years. From 10^9 seconds on, readers that guess take a number for a date.
pub(crate) const LONGEST_SECONDS: u64 = 999_999_999;

/// A number as structured fields can say it: at most fifteen digits.
pub(crate) fn integer(number: u64) -> Integer {
    Integer::try_from(number).unwrap_or(Integer::MAX)
}

/// The value of a list field.
pub(crate) fn field_value(list: ListSerializer<String>) -> HeaderValue {
    let text = list.finish().unwrap_or_default();
    HeaderValue::try_from(text).expect("structured fields are printable ASCII")
}

/// What the draft calls a unit; the default has no need to be said. The last two are in no registry, yet leaving them out would
/// say `requests`.
fn word_of(unit: Unit) -> Option<&'static StringRef> {
    match unit {
        Unit::Requests => None,
        Unit::Concurrent => Some(StringRef::constant("concurrent-requests")),
        Unit::Bytes => Some(StringRef::constant("content-bytes")),
        Unit::Tokens => Some(StringRef::constant("tokens")),
        Unit::Other => Some(StringRef::constant("other")),
    }
}

fn checked(name: &str) -> Result<sfv::String, NameError> {
    let text = StringRef::from_str(name).map_err(|_| NameError(name.to_owned()))?;
    if name.is_empty() { Err(NameError(String::new())) } else { Ok(text.to_owned()) }
}

/// A name that cannot be sent in a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameError(String);

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.chars().find(|c| !matches!(c, ' '..='~')) {
            Some(c) => {
                write!(f, "the name {:?} cannot be sent in a field: {c:?} is not printable ASCII", self.0)
            }
            None => f.write_str("a limit that callers are told of needs a name, but this one is empty"),
        }
    }
}

impl Error for NameError {}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn policy(limit: &Limit) -> &str {
        limit.policy_field.to_str().unwrap()
    }

    #[test]
    fn a_policy_is_written_once() {
        let limit = Limit::new("burst", Kind::TokenBucket, Quota::per_minute(100)).unwrap();
        assert_eq!(policy(&limit), r#""burst";q=100;w=60"#);
        assert_eq!(policy(&limit.unit(Unit::Bytes)), r#""burst";q=100;qu="content-bytes";w=60"#);
        let slots = Limit::concurrent("slots", 8).unwrap();
        assert_eq!(policy(&slots), r#""slots";q=8;qu="concurrent-requests""#);
    }

    #[test]
    fn a_window_that_is_not_whole_seconds_is_not_told() {
        let per = |millis| Quota::per(5, Duration::from_millis(millis));
        let of = |quota| Limit::new("a", Kind::FixedWindow, quota).unwrap();
        assert_eq!(policy(&of(per(100))), r#""a";q=5"#);
        assert_eq!(policy(&of(per(1_500))), r#""a";q=5"#);
        assert_eq!(policy(&of(per(2_000))), r#""a";q=5;w=2"#);
    }

    #[test]
    fn numbers_too_large_to_be_said_are_capped() {
        let quota = Quota::per(u64::MAX, Duration::MAX);
        assert!(quota.period() > Duration::from_secs(LONGEST_SECONDS));
        let limit = Limit::new("a", Kind::TokenBucket, quota).unwrap();
        assert_eq!(policy(&limit), r#""a";q=999999999999999"#);
        let quota = Quota::per(1, Duration::from_secs(LONGEST_SECONDS + 1));
        let limit = Limit::new("a", Kind::TokenBucket, quota).unwrap();
        assert_eq!(policy(&limit), r#""a";q=1;w=999999999"#);
    }

    #[test]
    fn quotes_and_backslashes_in_names_are_escaped() {
        let limit = Limit::new(r#"a"b\c"#, Kind::TokenBucket, Quota::per_second(1)).unwrap();
        assert_eq!(policy(&limit), r#""a\"b\\c";q=1;w=1"#);
        assert_eq!(limit.name(), r#"a"b\c"#);
    }

    #[test]
    fn names_that_cannot_be_sent_are_refused_and_named() {
        let message = |name| {
            Limit::new(name, Kind::TokenBucket, Quota::per_second(1)).map(drop).unwrap_err().to_string()
        };
        assert_eq!(message(""), "a limit that callers are told of needs a name, but this one is empty");
        assert_eq!(
            message("a\r\nb: c"),
            r#"the name "a\r\nb: c" cannot be sent in a field: '\r' is not printable ASCII"#
        );
        assert!(message("\u{7f}").ends_with(r"'\u{7f}' is not printable ASCII"));
        assert!(message("日").ends_with("'日' is not printable ASCII"));
    }
}
