//! Stripe says which of its limits it was; and that somebody else is at work on the same object, with the same status.

use http::HeaderMap;

use crate::advice::Throttled;
use crate::field::field;

/// What a 429 means: none if it is about a lock, not a limit.
pub(crate) fn refusal(headers: &HeaderMap, body: &[u8]) -> Option<Throttled> {
    match field(headers, "stripe-rate-limited-reason") {
        Some(reason) if reason.ends_with("-concurrency") => Some(Throttled::Concurrency),
        None if is_lock(body) => None,
        _ => Some(Throttled::Rate),
    }
}

fn is_lock(body: &[u8]) -> bool {
    const CODE: &[u8] = b"\"lock_timeout\"";
    body.windows(CODE.len()).any(|window| window == CODE)
}
