//! Putting an answer's fields together.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode};

use crate::advice::{Advice, Throttled};
use crate::budget::{Budget, Refill};
use crate::field::{count, field, flag};
use crate::ratelimit_fields::{policies, ratelimit};
use crate::reset::{Reckoning, ResetForm};
use crate::retry_after::{Pushback, pushback, retry_after};
use crate::vendor::{call_limit, families, github_wait, is_github_refusal, stripe_refusal};

/// Reads what an answer says about limits, with no longer wait than ten minutes; [`Reader`] has the rest.
///
/// `body` is the beginning of the body as far as it is at hand, or empty: two services tell something there that their
/// fields do not. `now` is the date and time by the caller's clock; the answer's own `Date` goes before it.
pub fn read(status: StatusCode, headers: &HeaderMap, body: &[u8], now: SystemTime) -> Advice {
    Reader::new().read(status, headers, body, now)
}

/// Reads what answers say about limits.
///
/// # Examples
/// ```
/// use std::time::{Duration, SystemTime};
/// use http::{HeaderMap, StatusCode};
/// use tollgate_http::{Reader, Throttled};
///
/// let mut headers = HeaderMap::new();
/// headers.insert("retry-after", "86400".parse()?);
/// let reader = Reader::new().longest_wait(Duration::from_secs(60));
/// let advice = reader.read(StatusCode::TOO_MANY_REQUESTS, &headers, b"", SystemTime::UNIX_EPOCH);
/// assert_eq!(advice.throttled, Some(Throttled::Rate));
/// assert_eq!(advice.wait, Some(Duration::from_secs(60)));
/// # Ok::<(), http::header::InvalidHeaderValue>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "a reader reads nothing by itself"]
pub struct Reader {
    longest_wait: Duration,
    reset_form: ResetForm,
}

/// How far ahead a budget may look: the longest window that anybody uses, a year.
const LONGEST_WINDOW: Duration = Duration::from_secs(366 * 86_400);

/// How many budgets are read. The most that we know of is eight.
const MOST_BUDGETS: usize = 32;

impl Reader {
    /// A reader with a longest wait of ten minutes, that guesses what resets are given in.
    pub const fn new() -> Self {
        Self { longest_wait: Duration::from_secs(600), reset_form: ResetForm::Guess }
    }

    /// Never waits longer than this, whatever a service says.
    pub const fn longest_wait(self, longest_wait: Duration) -> Self {
        Self { longest_wait, ..self }
    }

    /// Takes resets to be in the form that the service is known to use.
    pub const fn reset_form(self, reset_form: ResetForm) -> Self {
        Self { reset_form, ..self }
    }

    /// Reads an answer; the arguments are those of [`read`].
    pub fn read(&self, status: StatusCode, headers: &HeaderMap, body: &[u8], now: SystemTime) -> Advice {
        let reckoning = self.reckoning(headers, now);
        let budgets = if is_cached(headers) { Vec::new() } else { budgets(headers, &reckoning) };
        let asked = asked_to_wait(status, headers, &reckoning);
        let throttled = throttled(status, headers, body, &budgets, asked.is_some());
        let pushback = pushback(headers, self.longest_wait);
        let wait = match (pushback, asked) {
            (Some(Pushback::After(wait)), _) | (_, Some(wait)) => Some(wait),
            _ if throttled.is_some() => {
                github_wait(headers, body, &budgets).or_else(|| after_refusal(&budgets))
            }
            _ => exhausted(&budgets),
        };
        let wait = wait.map(|wait| wait.min(self.longest_wait));
        let should_retry =
            if pushback == Some(Pushback::Never) { Some(false) } else { should_retry(headers) };
        Advice { throttled, wait, should_retry, budgets }
    }

    /// Moments are told by the service's clock, so that is what they are compared with.
    fn reckoning(&self, headers: &HeaderMap, now: SystemTime) -> Reckoning {
        let date = field(headers, "date").and_then(|date| httpdate::parse_http_date(&date).ok());
        Reckoning { now: date.unwrap_or(now), cap: LONGEST_WINDOW, form: self.reset_form }
    }
}

impl Default for Reader {
    fn default() -> Self {
        Self::new()
    }
}

/// What a cache tells of budgets was true for somebody else.
fn is_cached(headers: &HeaderMap) -> bool {
    field(headers, "age").and_then(|age| count(&age)).is_some_and(|age| age > 0)
}

/// A success may say when to look again; that is not about limits.
fn asked_to_wait(status: StatusCode, headers: &HeaderMap, reckoning: &Reckoning) -> Option<Duration> {
    if status.is_success() { None } else { retry_after(headers, reckoning) }
}

fn throttled(
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
    budgets: &[Budget],
    asks_to_wait: bool,
) -> Option<Throttled> {
    const RESOURCE_EXHAUSTED: &str = "8";
    match status {
        StatusCode::TOO_MANY_REQUESTS => stripe_refusal(headers, body),
        StatusCode::SERVICE_UNAVAILABLE => asks_to_wait.then_some(Throttled::Capacity),
        _ if is_github_refusal(status, headers, body, budgets) => Some(Throttled::Rate),
        _ => {
            (field(headers, "grpc-status").as_deref() == Some(RESOURCE_EXHAUSTED)).then_some(Throttled::Rate)
        }
    }
}

/// Everything that the answer tells of budgets, the best description of each first.
fn budgets(headers: &HeaderMap, reckoning: &Reckoning) -> Vec<Budget> {
    let mut all = Vec::new();
    for prefix in ["", "beta-"] {
        let mut budgets = ratelimit(headers, prefix, reckoning.cap);
        if prefix.is_empty() {
            budgets.extend(families(headers, !budgets.is_empty(), reckoning));
        }
        for policy in policies(headers, prefix, reckoning.cap) {
            policy.join(&mut budgets);
        }
        all.append(&mut budgets);
    }
    all.extend(call_limit(headers));
    all.truncate(MOST_BUDGETS);
    all
}

/// When all that is exhausted will be back. What refills steadily has something again long before it is full.
fn exhausted(budgets: &[Budget]) -> Option<Duration> {
    let used_up = budgets.iter().filter(|budget| budget.is_exhausted() && budget.refill == Refill::AtOnce);
    used_up.filter_map(|budget| budget.resets_in).max()
}

/// After a refusal: when all that is exhausted will be back; or, where more was asked for than was left, when the first will.
fn after_refusal(budgets: &[Budget]) -> Option<Duration> {
    let used_up = budgets.iter().filter(|budget| budget.is_exhausted());
    let latest = used_up.filter_map(|budget| budget.resets_in).max();
    latest.or_else(|| budgets.iter().filter_map(|budget| budget.resets_in).min())
}

/// What Stripe, or OpenAI, says of trying again.
fn should_retry(headers: &HeaderMap) -> Option<bool> {
    ["stripe-should-retry", "x-should-retry"]
        .iter()
        .find_map(|name| field(headers, name).and_then(|text| flag(&text)))
}
