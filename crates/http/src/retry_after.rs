//! `Retry-After`, and the fields that say the same more finely.

use std::time::Duration;

use http::HeaderMap;

use crate::duration::seconds_up_to;
use crate::field::{field, number};
use crate::reset::Reckoning;

/// How long the answer asks to wait: `retry-after-ms` where it is, else `Retry-After`.
pub(crate) fn retry_after(headers: &HeaderMap, reckoning: &Reckoning) -> Option<Duration> {
    let millis = field(headers, "retry-after-ms").and_then(|text| number(&text));
    let millis = millis.map(|millis| seconds_up_to(millis / 1e3, reckoning.cap));
    millis.or_else(|| seconds_or_date(&field(headers, "retry-after")?, reckoning))
}

/// Seconds, also with decimals as Shopify writes them, or a date. A date that has passed is no wait.
fn seconds_or_date(text: &str, reckoning: &Reckoning) -> Option<Duration> {
    if let Some(seconds) = number(text) {
        return Some(seconds_up_to(seconds, reckoning.cap));
    }
    httpdate::parse_http_date(text).ok().map(|date| reckoning.until(date))
}

/// What gRPC's `grpc-retry-pushback-ms` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushback {
    /// Try again after this long.
    After(Duration),
    /// Do not try again: a negative number, or by the specification (gRFC A6) anything that is no number.
    Never,
}

pub(crate) fn pushback(headers: &HeaderMap, cap: Duration) -> Option<Pushback> {
    let text = field(headers, "grpc-retry-pushback-ms")?;
    let millis = text.parse::<i64>().ok().and_then(|millis| u64::try_from(millis).ok());
    Some(millis.map_or(Pushback::Never, |millis| Pushback::After(Duration::from_millis(millis).min(cap))))
}
