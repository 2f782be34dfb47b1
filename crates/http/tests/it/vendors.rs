//! What each service writes, and what it means. The examples are theirs.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use tollgate_http::{Advice, Budget, Reader, Refill, ResetForm, Throttled, Unit, read};

/// 2026-11-15T09:30:00Z.
const NOW: u64 = 1_794_735_000;

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(NOW)
}

fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        headers.append(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
    }
    headers
}

fn read_with(status: u16, fields: &[(&'static str, &str)], body: &str) -> Advice {
    read(StatusCode::from_u16(status).unwrap(), &headers(fields), body.as_bytes(), now())
}

fn answer(status: u16, fields: &[(&'static str, &str)]) -> Advice {
    read_with(status, fields, "")
}

#[allow(clippy::unnecessary_wraps, reason = "everything it is compared with is an option")]
const fn seconds(seconds: u64) -> Option<Duration> {
    Some(Duration::from_secs(seconds))
}

/// What a budget is expected to say: name, limit, remaining, window, reset.
type Facts<'a> = (&'a str, Option<u64>, Option<u64>, Option<Duration>, Option<Duration>);

fn facts(budget: &Budget) -> Facts<'_> {
    (&budget.name, budget.limit, budget.remaining, budget.window, budget.resets_in)
}

#[track_caller]
fn assert_budgets(advice: &Advice, expected: &[Facts<'_>]) {
    assert_eq!(advice.budgets.iter().map(facts).collect::<Vec<_>>(), expected);
}

#[test]
fn an_answer_that_says_nothing_teaches_nothing() {
    assert_eq!(answer(200, &[("content-type", "text/plain")]), Advice::default());
}

#[test]
fn retry_after_in_every_form() {
    let cases = [
        ("30", seconds(30)),
        ("2.0", seconds(2)),
        ("0", seconds(0)),
        ("Sun, 15 Nov 2026 09:30:37 GMT", seconds(37)),
        ("Sunday, 15-Nov-26 09:30:37 GMT", seconds(37)),
        ("Sun Nov 15 09:30:37 2026", seconds(37)),
        ("Sun, 15 Nov 2026 09:29:00 GMT", seconds(0)),
        ("601", seconds(600)),
        ("99999999999999999999999999", seconds(600)),
        ("Fri, 31 Dec 9999 23:59:59 GMT", seconds(600)),
        ("-1", None),
        ("soon", None),
        ("1e3", None),
        ("", None),
        ("30, 40", None),
    ];
    for (text, wait) in cases {
        let advice = answer(429, &[("retry-after", text)]);
        assert_eq!((advice.throttled, advice.wait), (Some(Throttled::Rate), wait), "{text}");
    }
}

#[test]
fn milliseconds_go_before_seconds_unless_they_are_garbage() {
    assert_eq!(
        answer(429, &[("retry-after", "2"), ("retry-after-ms", "1250")]).wait,
        Some(Duration::from_millis(1250))
    );
    assert_eq!(answer(429, &[("retry-after", "2"), ("retry-after-ms", "x")]).wait, seconds(2));
}

#[test]
fn the_services_clock_counts_where_moments_are_told() {
    let date = ("date", "Sun, 15 Nov 2026 10:30:00 GMT"); // an hour ahead of ours
    assert_eq!(answer(503, &[date, ("retry-after", "Sun, 15 Nov 2026 10:30:20 GMT")]).wait, seconds(20));
    let fields = [date, ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1794738615")];
    assert_eq!(answer(200, &fields).wait, seconds(15));
    assert_eq!(
        answer(503, &[("date", "no date"), ("retry-after", "Sun, 15 Nov 2026 09:30:20 GMT")]).wait,
        seconds(20)
    );
}

#[test]
fn statuses_that_are_refusals_and_those_that_are_not() {
    let after = ("retry-after", "5");
    assert_eq!(answer(429, &[]).throttled, Some(Throttled::Rate));
    assert_eq!(answer(503, &[after]).throttled, Some(Throttled::Capacity));
    assert_eq!(answer(503, &[]).throttled, None);
    assert_eq!(answer(500, &[after]).throttled, None);
    assert_eq!(answer(403, &[]).throttled, None);
    // "Look again in five seconds" is not about limits.
    assert_eq!(answer(202, &[after]), Advice::default());
}

#[test]
fn ietf_draft_11() {
    let advice = answer(
        200,
        &[
            ("ratelimit-policy", r#""burst";q=100;w=60,"daily";q=1000;w=86400"#),
            ("ratelimit", r#""burst";r=50;t=30"#),
        ],
    );
    assert_budgets(
        &advice,
        &[
            ("burst", Some(100), Some(50), seconds(60), seconds(30)),
            ("daily", Some(1000), None, seconds(86_400), None),
        ],
    );
    assert_eq!((advice.throttled, advice.wait), (None, None));
}

#[test]
fn ietf_draft_11_over_several_lines_with_spaces_and_units() {
    let advice = answer(
        200,
        &[
            ("ratelimit-policy", r#""bytes"; q=1000; w=60; qu="content-bytes"; pk=:c2VjcmV0:"#),
            ("ratelimit-policy", r#""slots";q=8;qu="concurrent-requests";acme-burst=3"#),
            ("ratelimit", r#""bytes"; r=0; t=7; pk=:c2VjcmV0:"#),
            ("ratelimit", r#""slots";r=3"#),
        ],
    );
    assert_budgets(
        &advice,
        &[("bytes", Some(1000), Some(0), seconds(60), seconds(7)), ("slots", Some(8), Some(3), None, None)],
    );
    assert_eq!(
        advice.budgets.iter().map(|budget| budget.unit).collect::<Vec<_>>(),
        [Unit::Bytes, Unit::Concurrent]
    );
    assert_eq!(advice.wait, seconds(7));
}

#[test]
fn a_window_of_nothing_and_what_is_missing_are_ignored() {
    let fields = [
        ("ratelimit-policy", r#""a";q=5;w=0, "b";w=60, ("c" "d");q=7, 1.5;w=60, "e";q=-1;w=60"#),
        ("ratelimit", r#""f";t=60, "g";r=1;t=-1"#),
    ];
    assert_budgets(
        &answer(200, &fields),
        &[("g", None, Some(1), None, None), ("a", Some(5), None, None, None)],
    );
}

#[test]
fn ietf_names_as_they_may_become() {
    let advice = answer(200, &[("ratelimit", r"x;a=50;w=30;c=3")]);
    assert_budgets(&advice, &[("x", None, Some(50), None, seconds(30))]);
}

#[test]
fn ietf_draft_07() {
    let fields = [("ratelimit", "limit=100, remaining=50, reset=5"), ("ratelimit-policy", "100;w=60")];
    assert_budgets(&answer(200, &fields), &[("", Some(100), Some(50), seconds(60), seconds(5))]);
}

#[test]
fn ietf_drafts_to_06() {
    let fields = [
        ("ratelimit-limit", "100"),
        ("ratelimit-remaining", "50"),
        ("ratelimit-reset", "5"),
        ("ratelimit-policy", "100;w=60, 5000;w=3600"),
    ];
    assert_budgets(
        &answer(200, &fields),
        &[("", Some(100), Some(50), seconds(60), seconds(5)), ("", Some(5000), None, seconds(3_600), None)],
    );
}

#[test]
fn newer_generations_go_before_older_ones() {
    let fields = [
        ("x-ratelimit-limit", "7"),
        ("x-ratelimit-remaining", "7"),
        ("ratelimit-remaining", "8"),
        ("ratelimit", r#""new";r=9;t=1"#),
    ];
    assert_budgets(&answer(200, &fields), &[("new", None, Some(9), None, seconds(1))]);
    assert_budgets(&answer(200, &fields[..3]), &[("", None, Some(8), None, None)]);
    assert_budgets(&answer(200, &fields[..2]), &[("", Some(7), Some(7), None, None)]);
    // A field that is malformed is as good as missing.
    let broken = [("ratelimit", r#""new";r=-9;t=1"#), ("x-ratelimit-remaining", "7")];
    assert_budgets(&answer(200, &broken), &[("", None, Some(7), None, None)]);
}

#[test]
fn envoy() {
    let fields = [
        ("x-ratelimit-limit", r#"10, 10;w=1;name="per-ip", 1000;w=3600"#),
        ("x-ratelimit-remaining", "9"),
        ("x-ratelimit-reset", "1"),
    ];
    assert_budgets(
        &answer(200, &fields),
        &[
            ("per-ip", Some(10), Some(9), seconds(1), seconds(1)),
            ("", Some(1000), None, seconds(3_600), None),
        ],
    );
}

#[test]
fn kong() {
    let fields = [
        ("x-ratelimit-limit-minute", "20"),
        ("x-ratelimit-remaining-minute", "0"),
        ("x-ratelimit-limit-hour", "500"),
        ("x-ratelimit-remaining-hour", "320"),
        ("ratelimit-limit", "20"),
        ("ratelimit-remaining", "0"),
        ("ratelimit-reset", "17"),
    ];
    let advice = answer(429, &fields);
    assert_budgets(
        &advice,
        &[
            ("", Some(20), Some(0), None, seconds(17)),
            ("hour", Some(500), Some(320), seconds(3_600), None),
            ("minute", Some(20), Some(0), seconds(60), None),
        ],
    );
    assert_eq!(advice.wait, seconds(17));
}

#[test]
fn github_within_its_limit() {
    let fields = [
        ("x-github-request-id", "A:B:C"),
        ("x-ratelimit-limit", "5000"),
        ("x-ratelimit-remaining", "4999"),
        ("x-ratelimit-used", "1"),
        ("x-ratelimit-reset", "1794738600"),
        ("x-ratelimit-resource", "core"),
    ];
    let advice = answer(200, &fields);
    assert_budgets(&advice, &[("core", Some(5000), Some(4999), None, seconds(3_600))]);
    assert_eq!((advice.throttled, advice.wait), (None, None));
    // The same on a 403 for want of a right: not a limit.
    assert_eq!(answer(403, &fields).throttled, None);
}

#[test]
fn github_with_nothing_left() {
    let fields = [
        ("x-github-request-id", "A:B:C"),
        ("x-ratelimit-limit", "60"),
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-reset", "1794735120"),
        ("x-ratelimit-resource", "core"),
    ];
    for status in [403, 429] {
        let advice = answer(status, &fields);
        assert_eq!((advice.throttled, advice.wait), (Some(Throttled::Rate), seconds(121)), "{status}");
    }
}

#[test]
fn github_with_a_secondary_limit() {
    let body = r#"{"message":"You have exceeded a secondary rate limit. Please wait a few minutes."}"#;
    let fields = [("x-ratelimit-remaining", "4321"), ("x-ratelimit-reset", "1794738600")];
    let advice = read_with(403, &fields, body);
    assert_eq!((advice.throttled, advice.wait), (Some(Throttled::Rate), seconds(60)));
    let advice = answer(403, &[("retry-after", "90"), fields[0], fields[1]]);
    assert_eq!((advice.throttled, advice.wait), (Some(Throttled::Rate), seconds(90)));
}

#[test]
fn stripe() {
    let reason = |reason| ("stripe-rate-limited-reason", reason);
    assert_eq!(answer(429, &[reason("global-rate")]).throttled, Some(Throttled::Rate));
    assert_eq!(answer(429, &[reason("endpoint-rate")]).throttled, Some(Throttled::Rate));
    assert_eq!(answer(429, &[reason("resource-specific")]).throttled, Some(Throttled::Rate));
    assert_eq!(answer(429, &[reason("global-concurrency")]).throttled, Some(Throttled::Concurrency));
    assert_eq!(answer(429, &[reason("endpoint-concurrency")]).throttled, Some(Throttled::Concurrency));
    assert_eq!(answer(429, &[("stripe-should-retry", "false")]).should_retry, Some(false));
    assert_eq!(answer(409, &[("stripe-should-retry", "true")]).should_retry, Some(true));
    assert_eq!(answer(409, &[("stripe-should-retry", "perhaps")]).should_retry, None);
    let lock = r#"{"error":{"code": "lock_timeout","type":"invalid_request_error"}}"#;
    assert_eq!(read_with(429, &[], lock).throttled, None);
    assert_eq!(read_with(429, &[reason("global-rate")], lock).throttled, Some(Throttled::Rate));
}

#[test]
fn cloudflare() {
    let fields = [
        ("ratelimit", r#""default";r=50;t=30"#),
        ("ratelimit-policy", r#""burst";q=100;w=60"#),
        ("retry-after", "11"),
    ];
    let advice = answer(429, &fields);
    assert_budgets(
        &advice,
        &[("default", None, Some(50), None, seconds(30)), ("burst", Some(100), None, seconds(60), None)],
    );
    assert_eq!(advice.wait, seconds(11));
}

#[test]
fn openai() {
    let fields = [
        ("x-ratelimit-limit-requests", "60"),
        ("x-ratelimit-limit-tokens", "150000"),
        ("x-ratelimit-remaining-requests", "59"),
        ("x-ratelimit-remaining-tokens", "149984"),
        ("x-ratelimit-reset-requests", "1s"),
        ("x-ratelimit-reset-tokens", "6m0s"),
    ];
    let advice = answer(200, &fields);
    assert_budgets(
        &advice,
        &[
            ("requests", Some(60), Some(59), None, seconds(1)),
            ("tokens", Some(150_000), Some(149_984), None, seconds(360)),
        ],
    );
    assert!(advice.budgets.iter().all(|budget| budget.refill == Refill::Steady));
    assert_eq!(advice.budgets[0].unit, Unit::Requests);
    assert_eq!(advice.budgets[1].unit, Unit::Tokens);
    assert_eq!(advice.budgets[0].rate(), Some(1.0));
    let fields = [("retry-after", "1"), ("retry-after-ms", "12"), ("x-should-retry", "true")];
    let advice = answer(429, &fields);
    assert_eq!((advice.wait, advice.should_retry), (Some(Duration::from_millis(12)), Some(true)));
}

#[test]
fn openai_full_in_a_minute_is_not_to_be_waited_for() {
    let fields = [
        ("x-ratelimit-limit-requests", "60"),
        ("x-ratelimit-remaining-requests", "0"),
        ("x-ratelimit-reset-requests", "1m0s"),
    ];
    let advice = answer(200, &fields);
    assert_eq!((advice.wait, advice.budgets[0].rate()), (None, Some(1.0)));
    // After a refusal without any other word it is all there is to go by.
    assert_eq!(answer(429, &fields).wait, seconds(60));
}

#[test]
fn azure() {
    let fields = [
        ("x-ratelimit-limit-requests", "-1"),
        ("x-ratelimit-remaining-requests", "-1"),
        ("x-ratelimit-reset-requests", "10"),
        ("x-ratelimit-remaining-tokens", "1500"),
    ];
    assert_budgets(
        &answer(200, &fields),
        &[("requests", None, None, None, seconds(10)), ("tokens", None, Some(1500), None, None)],
    );
}

#[test]
fn anthropic() {
    let fields = [
        ("anthropic-ratelimit-requests-limit", "50"),
        ("anthropic-ratelimit-requests-remaining", "49"),
        ("anthropic-ratelimit-requests-reset", "2026-11-15T09:30:01Z"),
        ("anthropic-ratelimit-input-tokens-limit", "40000"),
        ("anthropic-ratelimit-input-tokens-remaining", "0"),
        ("anthropic-ratelimit-input-tokens-reset", "2026-11-15T09:30:45Z"),
        ("anthropic-ratelimit-unified-reset", "1794735300"),
        ("anthropic-ratelimit-unified-status", "allowed"),
    ];
    let advice = answer(200, &fields);
    assert_budgets(
        &advice,
        &[
            ("input-tokens", Some(40_000), Some(0), None, seconds(45)),
            ("requests", Some(50), Some(49), None, seconds(1)),
            ("unified", None, None, None, seconds(300)),
        ],
    );
    assert_eq!(advice.budgets[0].unit, Unit::Tokens);
    assert_eq!((advice.throttled, advice.wait), (None, seconds(45)));
}

#[test]
fn slack() {
    let advice = answer(429, &[("retry-after", "30")]);
    assert_eq!((advice.throttled, advice.wait), (Some(Throttled::Rate), seconds(30)));
}

#[test]
fn discord() {
    let fields = [
        ("x-ratelimit-limit", "5"),
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-reset", "1794735077.123"),
        ("x-ratelimit-reset-after", "1.25"),
        ("x-ratelimit-bucket", "abcd1234"),
        ("x-ratelimit-scope", "user"),
    ];
    let advice = answer(200, &fields);
    let after = Some(Duration::from_millis(1_250));
    assert_budgets(&advice, &[("abcd1234", Some(5), Some(0), None, after)]);
    assert_eq!(advice.wait, after);
    // In the other order, the finer one still counts.
    let backwards: Vec<_> = fields.iter().rev().copied().collect();
    assert_eq!(answer(200, &backwards), advice);
}

#[test]
fn shopify() {
    let advice = answer(200, &[("x-shopify-shop-api-call-limit", "32/40")]);
    assert_budgets(&advice, &[("", Some(40), Some(8), None, None)]);
    let advice = answer(429, &[("x-shopify-shop-api-call-limit", "41/40"), ("retry-after", "2.0")]);
    assert_budgets(&advice, &[("", Some(40), Some(0), None, None)]);
    assert_eq!(advice.wait, seconds(2));
}

#[test]
fn reddit() {
    let fields = [("x-ratelimit-used", "4"), ("x-ratelimit-remaining", "96.0"), ("x-ratelimit-reset", "461")];
    assert_budgets(&answer(200, &fields), &[("", None, Some(96), None, seconds(461))]);
}

#[test]
fn atlassian() {
    let fields = [
        ("x-ratelimit-limit", "350"),
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-reset", "2026-11-15T09:31Z"),
        ("beta-ratelimit-policy", r#""tier";q=350;w=60"#),
        ("beta-ratelimit", r#""tier";r=0;t=60"#),
    ];
    let advice = answer(429, &fields);
    assert_budgets(
        &advice,
        &[
            ("", Some(350), Some(0), None, seconds(60)),
            ("tier", Some(350), Some(0), seconds(60), seconds(60)),
        ],
    );
    assert_eq!(advice.wait, seconds(60));
}

#[test]
fn grpc() {
    let pushback = |text| answer(200, &[("grpc-status", "8"), ("grpc-retry-pushback-ms", text)]);
    assert_eq!(answer(200, &[("grpc-status", "8")]).throttled, Some(Throttled::Rate));
    assert_eq!(answer(200, &[("grpc-status", "14")]).throttled, None);
    assert_eq!(pushback("1500").wait, Some(Duration::from_millis(1_500)));
    assert_eq!(pushback("1500").should_retry, None);
    for never in ["-1", "soon"] {
        assert_eq!((pushback(never).wait, pushback(never).should_retry), (None, Some(false)), "{never}");
    }
}

#[test]
fn a_refusal_with_something_left_waits_for_the_first_reset() {
    // A call that costs five is refused with three left.
    let fields = [
        ("ratelimit-policy", r#""minute";q=10;w=60, "day";q=900;w=86400"#),
        ("ratelimit", r#""minute";r=3;t=20, "day";r=500;t=70000"#),
    ];
    assert_eq!(answer(429, &fields).wait, seconds(20));
    assert_eq!(answer(200, &fields).wait, None);
}

#[test]
fn several_exhausted_budgets_are_waited_for_together() {
    let fields = [("ratelimit", r#""a";r=0;t=20, "b";r=0;t=40, "c";r=1;t=90"#)];
    for status in [200, 429] {
        assert_eq!(answer(status, &fields).wait, seconds(40), "{status}");
    }
}

#[test]
fn what_a_cache_says_is_ignored() {
    let fields = [("age", "3"), ("ratelimit", r#""a";r=0;t=20"#), ("x-ratelimit-remaining", "0")];
    assert_eq!(answer(200, &fields), Advice::default());
    let fresh = [("age", "0"), fields[1]];
    assert_eq!(answer(200, &fresh).wait, seconds(20));
}

#[test]
fn epochs_where_the_draft_wants_seconds() {
    // Flask-Limiter and Laravel do that.
    let fields = [("ratelimit-remaining", "0"), ("ratelimit-reset", "1794735044")];
    assert_eq!(answer(200, &fields).wait, seconds(44));
}

#[test]
fn a_service_that_is_known_is_not_guessed_at() {
    let reader = Reader::new().reset_form(ResetForm::Epoch);
    let fields = headers(&[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1794735044")]);
    assert_eq!(reader.read(StatusCode::OK, &fields, b"", now()).wait, seconds(44));
}
