//! Whatever a service answers, reading it does not panic, and what it says is within bounds.
//!
//! The input is an answer as one would type it: lines of `name: value`, then an empty line and the body. The first byte chooses
//! the status.
#![no_main]

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use libfuzzer_sys::fuzz_target;
use tollgate_http::Reader;

const STATUSES: [StatusCode; 4] =
    [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE, StatusCode::FORBIDDEN];
const LONGEST_WAIT: Duration = Duration::from_secs(600);
/// How far ahead a budget may look.
const LONGEST_WINDOW: Duration = Duration::from_secs(366 * 86_400);

fuzz_target!(|input: &[u8]| {
    let Some((choice, answer)) = input.split_first() else {
        return;
    };
    let (headers, body) = parse(answer);
    let status = STATUSES[usize::from(*choice) % STATUSES.len()];
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_794_735_000);
    let advice = Reader::new().longest_wait(LONGEST_WAIT).read(status, &headers, body, now);
    assert!(advice.wait.is_none_or(|wait| wait <= LONGEST_WAIT));
    for budget in &advice.budgets {
        assert!(budget.window.is_none_or(|window| !window.is_zero() && window <= LONGEST_WINDOW));
        assert!(budget.resets_in.is_none_or(|reset| reset <= LONGEST_WINDOW));
        assert!(budget.rate().is_none_or(|rate| rate.is_finite() && rate >= 0.0));
    }
});

/// What cannot be a field never gets as far as us, so it is left out.
fn parse(answer: &[u8]) -> (HeaderMap, &[u8]) {
    let mut headers = HeaderMap::new();
    let mut rest = answer;
    while !rest.is_empty() {
        let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
        let (line, after) = (&rest[..end], rest.get(end + 1..).unwrap_or_default());
        rest = after;
        if line.is_empty() {
            break;
        }
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(0);
        let value = line.get(colon + 1..).unwrap_or_default().trim_ascii();
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(&line[..colon]), HeaderValue::from_bytes(value))
        {
            headers.append(name, value);
        }
    }
    (headers, rest)
}
