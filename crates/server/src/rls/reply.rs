//! What was decided, in Envoy's words.

use std::time::{Duration, SystemTime};

use tollgate::store::Mode;
use tollgate::{Kind, Quota};
use tollgate_flow::Time;

use super::RlsOptions;
use super::call::Wish;
use super::metadata;
use super::proto::{
    Code, DescriptorStatus, HeaderValue, RateLimit, RateLimitRequest, RateLimitResponse, Unit,
};
use crate::engine::{Finding, Ruling};

/// Marks what was decided without the store.
const DEGRADED: &str = "X-RateLimit-Degraded";

/// Everything that a response is made of.
pub(super) struct Reply<'a, 'w, 'r> {
    pub(super) request: &'a RateLimitRequest,
    pub(super) wishes: &'a [Wish<'w>],
    pub(super) ruling: &'a Ruling<'r>,
    pub(super) time: &'a Time,
    pub(super) options: RlsOptions,
}

impl Reply<'_, '_, '_> {
    pub(super) fn response(&self) -> RateLimitResponse {
        let overall_code = if self.ruling.is_allowed() { Code::Ok } else { Code::OverLimit };
        let statuses: Vec<DescriptorStatus> =
            (0..self.wishes.len()).map(|place| self.status(place)).collect();
        let mut headers = if self.options.headers { headers(&statuses) } else { Vec::new() };
        if self.options.headers && self.ruling.is_degraded() {
            headers.push(HeaderValue { key: DEGRADED.to_owned(), value: "true".to_owned() });
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
        let Some(finding) = chosen(self.ruling, place) else { return free() };
        let quota = finding.limit.rule.quotas()[finding.quota];
        if quota.is_unlimited() {
            return DescriptorStatus { limit_remaining: u32::MAX, ..free() };
        }
        let code = if finding.is_refusal() && !finding.is_shadow { Code::OverLimit } else { Code::Ok };
        let until_reset = until_reset(finding, quota, || self.time.utc());
        DescriptorStatus {
            code: code.into(),
            current_limit: Some(limit(finding, quota)),
            limit_remaining: u32::try_from(left(finding)).unwrap_or(u32::MAX),
            duration_until_reset: Some(span(until_reset)),
        }
    }
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

/// When there is more again: for windows their end; for others, when all of it is there; for a refusal, when to come back.
fn until_reset(finding: &Finding<'_>, quota: Quota, utc: impl Fn() -> SystemTime) -> Duration {
    let is_window = matches!(finding.limit.rule.kind(), Kind::FixedWindow | Kind::PacedWindow);
    let told = if finding.is_refusal() { finding.decision.retry_after() } else { None };
    let told = told.or(finding.decision.reset_after()).unwrap_or(quota.period());
    if told.is_zero() && is_window { until_end(quota.period(), utc()) } else { told }
}

/// How much is left of the window that a moment lies in.
fn until_end(period: Duration, utc: SystemTime) -> Duration {
    let since = utc.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
    let passed = since % period.as_nanos().max(1);
    period.saturating_sub(Duration::from_nanos(u64::try_from(passed).unwrap_or(u64::MAX)))
}

fn span(span: Duration) -> prost_types::Duration {
    let seconds = i64::try_from(span.as_secs()).unwrap_or(i64::MAX);
    prost_types::Duration { seconds, nanos: span.subsec_nanos().cast_signed() }
}

/// `RateLimit-Limit`, `-Remaining` and `-Reset` of the limit with the least left.
fn headers(statuses: &[DescriptorStatus]) -> Vec<HeaderValue> {
    let limited = statuses.iter().filter_map(|status| Some((status, status.current_limit.as_ref()?)));
    let Some((status, limit)) = limited.min_by_key(|(status, _)| status.limit_remaining) else {
        return Vec::new();
    };
    let reset =
        status.duration_until_reset.as_ref().map_or(0, |span| span.seconds + i64::from(span.nanos > 0));
    let field = |key: &str, value: String| HeaderValue { key: key.to_owned(), value };
    vec![
        field("RateLimit-Limit", limit.requests_per_unit.to_string()),
        field("RateLimit-Remaining", status.limit_remaining.to_string()),
        field("RateLimit-Reset", reset.to_string()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_end_at_multiples_of_their_length_since_1970() {
        let at = |nanos: u64| SystemTime::UNIX_EPOCH + Duration::from_nanos(nanos);
        let minute = Duration::from_secs(60);
        assert_eq!(until_end(minute, at(0)), minute);
        assert_eq!(until_end(minute, at(61_500_000_000)), Duration::from_millis(58_500));
        assert_eq!(until_end(Duration::from_nanos(7), at(13)), Duration::from_nanos(1));
        assert_eq!(until_end(Duration::ZERO, at(5)), Duration::ZERO);
        assert_eq!(until_end(minute, SystemTime::UNIX_EPOCH - Duration::from_secs(5)), minute);
    }

    #[test]
    fn spans_of_any_length_can_be_told() {
        assert_eq!(span(Duration::new(7, 5)), prost_types::Duration { seconds: 7, nanos: 5 });
        assert_eq!(span(Duration::MAX).seconds, i64::MAX);
    }

    #[test]
    fn fields_are_those_of_the_limit_with_the_least_left() {
        let status = |limit, left, nanos| DescriptorStatus {
            current_limit: Some(RateLimit { requests_per_unit: limit, ..RateLimit::default() }),
            limit_remaining: left,
            duration_until_reset: Some(span(Duration::new(30, nanos))),
            ..free()
        };
        let told = |statuses: &[DescriptorStatus]| -> Vec<(String, String)> {
            headers(statuses).into_iter().map(|field| (field.key, field.value)).collect()
        };
        let fields = |limit: &str, left: &str, reset: &str| {
            vec![
                ("RateLimit-Limit".to_owned(), limit.to_owned()),
                ("RateLimit-Remaining".to_owned(), left.to_owned()),
                ("RateLimit-Reset".to_owned(), reset.to_owned()),
            ]
        };
        assert_eq!(told(&[status(10, 4, 0), free(), status(99, 3, 1)]), fields("99", "3", "31"));
        assert_eq!(told(&[status(10, 4, 0)]), fields("10", "4", "30"));
        assert_eq!(told(&[free()]), []);
    }
}
