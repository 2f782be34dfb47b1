//! What was decided, in Envoy's words.

use std::time::Duration;

use tollgate::store::Mode;
use tollgate::{Kind, Quota};

use super::call::Wish;
use super::metadata;
use super::proto::{
    Code, DescriptorStatus, HeaderValue, RateLimit, RateLimitRequest, RateLimitResponse, Unit,
};
use super::{HeaderNames, RlsOptions};
use crate::engine::{Finding, Ruling};
use crate::limitador;

/// Marks what was decided without the store.
const DEGRADED: &str = "X-RateLimit-Degraded";

/// Everything that a response is made of.
pub(super) struct Reply<'a, 'w, 'r> {
    pub(super) request: &'a RateLimitRequest,
    pub(super) wishes: &'a [Wish<'w>],
    pub(super) ruling: &'a Ruling<'r>,
    pub(super) options: RlsOptions,
}

impl Reply<'_, '_, '_> {
    pub(super) fn response(&self) -> RateLimitResponse {
        let overall_code = if self.ruling.is_allowed() { Code::Ok } else { Code::OverLimit };
        let statuses: Vec<DescriptorStatus> =
            (0..self.wishes.len()).map(|place| self.status(place)).collect();
        let mut headers =
            if self.options.headers { headers(&statuses, self.options.header_names) } else { Vec::new() };
        if self.options.headers && self.ruling.is_degraded() {
            headers.push(HeaderValue { key: DEGRADED.to_owned(), value: "true".to_owned() });
        }
        if self.options.limitador_headers {
            let fields = limitador::fields(self.ruling);
            headers.extend(fields.into_iter().map(|(key, value)| HeaderValue { key: key.to_owned(), value }));
        }
        let metadata =
            self.options.dynamic_metadata.then(|| metadata::of(self.request, self.wishes, self.ruling));
        RateLimitResponse {
            overall_code: overall_code.into(),
            statuses,
            response_headers_to_add: headers,
            dynamic_metadata: metadata,
        }
    }

    fn status(&self, place: usize) -> DescriptorStatus {
        let Some(finding) = chosen(self.ruling, place) else {
            return if self.ruling.is_unmatched_denial() { over() } else { free() };
        };
        let quota = finding.limit.rule.quotas()[finding.quota];
        if quota.is_unlimited() {
            return DescriptorStatus { limit_remaining: u32::MAX, ..free() };
        }
        let code = if self.is_over(finding) { Code::OverLimit } else { Code::Ok };
        DescriptorStatus {
            code: code.into(),
            current_limit: Some(limit(finding, quota)),
            limit_remaining: u32::try_from(left(finding)).unwrap_or(u32::MAX),
            duration_until_reset: Some(seconds(until_reset(finding, quota))),
        }
    }

    /// Whether the status is over the limit: a limit that is itself in shadow mode never says so, but the service in shadow mode does
    /// and lets the call pass.
    fn is_over(&self, finding: &Finding<'_>) -> bool {
        let is_told = !finding.is_shadow || (self.options.shadow_mode && !finding.limit.is_shadow);
        finding.is_refusal() && is_told
    }
}

/// That the descriptors are over the limit that `is_over` names, and nothing more is known.
pub(super) fn over_limit(descriptors: usize, is_over: impl Fn(usize) -> bool) -> RateLimitResponse {
    let statuses: Vec<_> =
        (0..descriptors).map(|place| if is_over(place) { over() } else { free() }).collect();
    let is_over = statuses.iter().any(|status| status.code() == Code::OverLimit);
    let overall_code = if is_over { Code::OverLimit } else { Code::Ok };
    RateLimitResponse { overall_code: overall_code.into(), statuses, ..RateLimitResponse::default() }
}

/// What is denied, and by no limit.
fn over() -> DescriptorStatus {
    DescriptorStatus { code: Code::OverLimit.into(), ..DescriptorStatus::default() }
}

/// What nothing limits.
fn free() -> DescriptorStatus {
    DescriptorStatus { code: Code::Ok.into(), ..DescriptorStatus::default() }
}

/// The one that speaks for a descriptor: of those that refuse, the one that lasts longest; of those that allow, the one with the
/// least left. One that is not enforced only if there is no other.
pub(super) fn chosen<'r, 'a>(ruling: &'r Ruling<'a>, place: usize) -> Option<&'r Finding<'a>> {
    let of_it = || ruling.findings().iter().filter(move |finding| finding.ask == place);
    let enforced = || of_it().filter(|finding| !finding.is_shadow);
    let wait = |finding: &&Finding<'_>| finding.decision.retry_after().unwrap_or(Duration::MAX);
    let least = |finding: &&Finding<'_>| finding.decision.remaining();
    (enforced().filter(|finding| finding.is_refusal()).max_by_key(wait))
        .or_else(|| enforced().min_by_key(least))
        .or_else(|| of_it().filter(|finding| finding.is_refusal()).max_by_key(wait))
        .or_else(|| of_it().min_by_key(least))
}

/// What is left now. Whoever only looks is told what one more would leave.
fn left(finding: &Finding<'_>) -> u64 {
    let is_looked_at = finding.mode == Mode::Peek && !finding.is_refusal();
    let left = finding.decision.remaining();
    if is_looked_at { left.saturating_add(finding.cost) } else { left }
}

fn limit(finding: &Finding<'_>, quota: Quota) -> RateLimit {
    RateLimit {
        requests_per_unit: u32::try_from(quota.count()).unwrap_or(u32::MAX),
        unit: Unit::of(quota.period()).into(),
        name: finding.limit.label.as_deref().unwrap_or_default().to_owned(),
    }
}

/// The time until there is more: for a window, until its end; for others, until all of it is there; for a refusal, until it is worth
/// asking again.
pub(crate) fn until_reset(finding: &Finding<'_>, quota: Quota) -> Duration {
    let is_window = matches!(finding.limit.rule.kind(), Kind::FixedWindow | Kind::PacedWindow);
    let told = if finding.is_refusal() { finding.decision.retry_after() } else { None };
    let told = told.or(finding.decision.reset_after()).unwrap_or(quota.period());
    if !told.is_zero() || !is_window {
        return told;
    }
    // Nobody has used this window. If the store did not say when it ends, it ends within a period.
    finding.reset_if_taken.filter(|end| !end.is_zero()).unwrap_or(quota.period())
}

/// A span in [whole seconds](whole_seconds): Envoy's `x-ratelimit-reset` leaves out fractions, and a caller that waits so long is not too early.
fn seconds(span: Duration) -> prost_types::Duration {
    prost_types::Duration { seconds: i64::try_from(whole_seconds(span)).unwrap_or(i64::MAX), nanos: 0 }
}

/// A span in seconds, rounded up.
pub(crate) fn whole_seconds(span: Duration) -> u64 {
    span.as_secs().saturating_add(u64::from(span.subsec_nanos() > 0))
}

/// The limit, the remaining requests and the reset of the limit with the least left, under these names.
fn headers(statuses: &[DescriptorStatus], names: HeaderNames) -> Vec<HeaderValue> {
    let limited = statuses.iter().filter_map(|status| Some((status, status.current_limit.as_ref()?)));
    let Some((status, limit)) = limited.min_by_key(|(status, _)| status.limit_remaining) else {
        return Vec::new();
    };
    let reset = status.duration_until_reset.as_ref().map_or(0, |span| span.seconds);
    let field = |key: &str, value: String| HeaderValue { key: key.to_owned(), value };
    vec![
        field(names.limit, limit.requests_per_unit.to_string()),
        field(names.remaining, status.limit_remaining.to_string()),
        field(names.reset, reset.to_string()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers, item 22: the time until a reset is whole seconds, rounded up.
    #[test]
    fn duration_until_reset_is_rounded_up_to_seconds() {
        for (span, expected) in [
            (Duration::ZERO, 0),
            (Duration::from_nanos(1), 1),
            (Duration::from_millis(999), 1),
            (Duration::from_secs(7), 7),
            (Duration::new(7, 5), 8),
            (Duration::MAX, i64::MAX),
        ] {
            assert_eq!(seconds(span), prost_types::Duration { seconds: expected, nanos: 0 }, "{span:?}");
        }
    }

    #[test]
    fn fields_are_those_of_the_limit_with_the_least_left() {
        let status = |limit, left, reset| DescriptorStatus {
            current_limit: Some(RateLimit { requests_per_unit: limit, ..RateLimit::default() }),
            limit_remaining: left,
            duration_until_reset: Some(seconds(Duration::from_secs(reset))),
            ..free()
        };
        let told = |statuses: &[DescriptorStatus]| -> Vec<(String, String)> {
            let fields = headers(statuses, HeaderNames::default());
            fields.into_iter().map(|field| (field.key, field.value)).collect()
        };
        let fields = |limit: &str, left: &str, reset: &str| {
            vec![
                ("RateLimit-Limit".to_owned(), limit.to_owned()),
                ("RateLimit-Remaining".to_owned(), left.to_owned()),
                ("RateLimit-Reset".to_owned(), reset.to_owned()),
            ]
        };
        assert_eq!(told(&[status(10, 4, 30), free(), status(99, 3, 31)]), fields("99", "3", "31"));
        assert_eq!(told(&[status(10, 4, 30)]), fields("10", "4", "30"));
        assert_eq!(told(&[free()]), []);
        let names = HeaderNames { limit: "X-Limit", remaining: "X-Left", reset: "X-Reset" };
        let named: Vec<_> = headers(&[status(10, 4, 30)], names).into_iter().map(|field| field.key).collect();
        assert_eq!(named, ["X-Limit", "X-Left", "X-Reset"]);
    }
}
