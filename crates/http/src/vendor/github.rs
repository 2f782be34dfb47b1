//! GitHub refuses with 403 as well as with 429, and has limits that its fields do not tell of.

use std::time::Duration;

use http::{HeaderMap, StatusCode};

use crate::budget::Budget;
use crate::field::field;

/// How long GitHub asks to wait where it does not say.
const SECONDARY_WAIT: Duration = Duration::from_secs(60);

/// Its resets are whole seconds, cut off; its own client adds one.
const GRAIN: Duration = Duration::from_secs(1);

/// Whether a 403 is about a limit: it says when to come back, nothing is left, or the text says so.
pub(crate) fn is_refusal(status: StatusCode, headers: &HeaderMap, body: &[u8], budgets: &[Budget]) -> bool {
    status == StatusCode::FORBIDDEN
        && (headers.contains_key("retry-after")
            || budgets.iter().any(Budget::is_exhausted)
            || is_secondary(body))
}

/// How long to wait after a refusal by GitHub that does not say; none if it is not GitHub's.
pub(crate) fn wait(headers: &HeaderMap, body: &[u8], budgets: &[Budget]) -> Option<Duration> {
    let is_github = headers.contains_key("x-github-request-id")
        || field(headers, "server").is_some_and(|server| server.eq_ignore_ascii_case("github.com"));
    if !is_github && !is_secondary(body) {
        return None;
    }
    let resets = budgets.iter().filter(|budget| budget.is_exhausted()).filter_map(|budget| budget.resets_in);
    Some(resets.max().map_or(SECONDARY_WAIT, |reset| reset.saturating_add(GRAIN)))
}

/// The limits on how fast, as opposed to how many in an hour.
fn is_secondary(body: &[u8]) -> bool {
    const WORDS: &[u8] = b"secondary rate limit";
    body.windows(WORDS.len()).any(|window| window.eq_ignore_ascii_case(WORDS))
}
