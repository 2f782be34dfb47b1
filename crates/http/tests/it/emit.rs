//! What callers are told: the draft's examples, the older forms, the odd cases.

mod round_trip;

use std::time::{Duration, SystemTime};

use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue, StatusCode};
use tollgate_core::{Algorithm, Ask, Decision, Kind, Quota, Tick, TokenBucket, Verdict};
use tollgate_http::{Budget, Form, Limit, Problem, ProblemType, Standing, Unit, Writer, read};

const SECOND: u64 = 1_000_000_000;
const NEVER: u64 = u64::MAX;

fn window(name: &str, quota: Quota) -> Limit {
    Limit::new(name, Kind::FixedWindow, quota).unwrap()
}

fn allowed(remaining: u64, reset_ns: u64) -> Decision {
    Decision::new(Verdict::Allow, 1_000, remaining, 0, reset_ns)
}

fn refused(remaining: u64, wait_ns: u64) -> Decision {
    Decision::new(Verdict::Deny, 1_000, remaining, wait_ns, 100 * SECOND)
}

fn written(form: Form, standings: &[Standing<'_>]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    Writer::new().form(form).write(standings, &mut headers);
    headers
}

#[track_caller]
fn assert_fields(headers: &HeaderMap, expected: &[(&str, &str)]) {
    let mut found: Vec<_> =
        headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
    found.sort_unstable();
    assert_eq!(found, expected);
}

#[test]
fn the_drafts_own_examples() {
    let default = window("default", Quota::per(100, Duration::from_secs(10)));
    assert_fields(
        &written(Form::Draft11, &[default.after(allowed(50, 30 * SECOND))]),
        &[("ratelimit", r#""default";r=50;t=30"#), ("ratelimit-policy", r#""default";q=100;w=10"#)],
    );
    let (minute, hour) = (window("permin", Quota::per_minute(50)), window("perhr", Quota::per_hour(1_000)));
    let headers = written(Form::Draft11, &[minute.after(allowed(1, SECOND)), hour.after(allowed(2, SECOND))]);
    assert_eq!(headers["ratelimit-policy"], r#""permin";q=50;w=60, "perhr";q=1000;w=3600"#);
    let bytes = window("peruser", Quota::per(65_535, Duration::from_secs(10))).unit(Unit::Bytes);
    let standing = bytes.after(allowed(300_000_000, 60 * SECOND)).partition_key(b"App-999");
    assert_fields(
        &written(Form::Draft11, &[standing]),
        &[
            ("ratelimit", r#""peruser";r=300000000;t=60;pk=:QXBwLTk5OQ==:"#),
            ("ratelimit-policy", r#""peruser";q=65535;qu="content-bytes";w=10;pk=:QXBwLTk5OQ==:"#),
        ],
    );
    let trial = default.after(allowed(999, NEVER)).partition_key(b"trial121323");
    assert_eq!(written(Form::Draft11, &[trial])["ratelimit"], r#""default";r=999;pk=:dHJpYWwxMjEzMjM=:"#);
}

#[test]
fn a_token_bucket_counts_down() {
    let quota = Quota::per_minute(60).burst(4);
    let limit = Limit::new("a", Kind::TokenBucket, quota).unwrap();
    let (bucket, mut state) = (TokenBucket::new(quota), 0);
    let mut ask = |millis: u64| {
        let now = Tick::from_nanos(millis * 1_000_000);
        let headers = written(Form::Draft11, &[limit.after(bucket.step(&mut state, now, Ask::now(1)))]);
        let text = |name| headers.get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
        (text("ratelimit"), text("retry-after"))
    };
    // One comes back every second. As long as there are any, the time is until all four are there; then, until the next.
    let expected = [
        (0, r#""a";r=3;t=1"#, ""),
        (0, r#""a";r=2;t=2"#, ""),
        (0, r#""a";r=1;t=3"#, ""),
        (0, r#""a";r=0;t=1"#, ""),
        (0, r#""a";r=0;t=1"#, "1"),
        (500, r#""a";r=0;t=1"#, "1"),
        (2_500, r#""a";r=1;t=3"#, ""),
        (2_500, r#""a";r=0;t=1"#, ""),
    ];
    for (millis, ratelimit, retry_after) in expected {
        assert_eq!(ask(millis), (ratelimit.to_owned(), retry_after.to_owned()), "at {millis} ms");
    }
}

#[test]
fn the_older_forms_tell_of_the_tightest_limit() {
    let minute = window("minute", Quota::per_minute(100));
    let hour = window("hour", Quota::per_hour(1_000));
    let standings = [hour.after(allowed(60, 1_200 * SECOND)), minute.after(allowed(50, 4_100_000_000))];
    assert_fields(
        &written(Form::Draft6, &standings),
        &[
            ("ratelimit-limit", "100"),
            ("ratelimit-policy", "100;w=60, 1000;w=3600"),
            ("ratelimit-remaining", "50"),
            ("ratelimit-reset", "5"),
        ],
    );
    assert_fields(
        &written(Form::Draft7, &standings),
        &[("ratelimit", "limit=100, remaining=50, reset=5"), ("ratelimit-policy", "100;w=60, 1000;w=3600")],
    );
    assert_fields(
        &written(Form::XRateLimit, &standings),
        &[("x-ratelimit-limit", "100"), ("x-ratelimit-remaining", "50"), ("x-ratelimit-reset", "5")],
    );
    assert_fields(&written(Form::Off, &standings), &[]);
}

#[test]
fn what_refused_is_tighter_than_what_has_less_left() {
    let minute = window("minute", Quota::per_minute(100));
    let hour = window("hour", Quota::per_hour(1_000));
    // A call of cost 80: ten are left this minute, seventy this hour, and it is the hour that refused for longer.
    let standings = [minute.after(refused(10, 30 * SECOND)), hour.after(refused(70, 900 * SECOND))];
    let headers = written(Form::Draft7, &standings);
    assert_eq!(headers["ratelimit"], "limit=1000, remaining=70, reset=900");
    assert_eq!(headers["retry-after"], "900");
    let standings = [minute.after(allowed(0, SECOND)), hour.after(refused(70, 900 * SECOND))];
    assert_eq!(written(Form::Draft7, &standings)["ratelimit"], "limit=1000, remaining=70, reset=900");
}

#[test]
fn older_policies_with_the_same_number_are_told_once() {
    let (minute, hour) = (window("minute", Quota::per_minute(100)), window("hour", Quota::per_hour(100)));
    let standings = [minute.after(allowed(90, SECOND)), hour.after(allowed(5, 900 * SECOND))];
    assert_eq!(written(Form::Draft7, &standings)["ratelimit-policy"], "100;w=3600");
}

#[test]
fn older_forms_leave_out_what_they_cannot_say() {
    let fast = window("fast", Quota::per(5, Duration::from_millis(100)));
    let standings = [fast.after(allowed(2, SECOND))];
    assert_fields(
        &written(Form::Draft7, &standings),
        &[("ratelimit", "limit=5, remaining=2, reset=1")], // no window in whole seconds, so no policy
    );
    let slots = Limit::concurrent("slots", 8).unwrap();
    let standings = [slots.after(allowed(3, 0))];
    assert_fields(&written(Form::Draft6, &standings), &[]);
    assert_fields(&written(Form::Draft7, &standings), &[]);
    assert_fields(
        &written(Form::XRateLimit, &standings),
        &[("x-ratelimit-limit", "8"), ("x-ratelimit-remaining", "3")],
    );
    assert_fields(
        &written(Form::Draft11, &standings),
        &[("ratelimit", r#""slots";r=3"#), ("ratelimit-policy", r#""slots";q=8;qu="concurrent-requests""#)],
    );
}

#[test]
fn retry_after_is_rounded_up_and_never_zero() {
    let limit = window("a", Quota::per_minute(100));
    let cases = [
        (0, "1"),
        (1, "1"),
        (SECOND, "1"),
        (SECOND + 1, "2"),
        (59 * SECOND + 999_999_999, "60"),
        (NEVER - 1, "999999999"),
    ];
    for form in [Form::Draft11, Form::Draft7, Form::Draft6, Form::XRateLimit, Form::Off] {
        for (wait_ns, expected) in cases {
            let headers = written(form, &[limit.after(refused(0, wait_ns))]);
            assert_eq!(headers["retry-after"], expected, "{form:?} {wait_ns}");
        }
        let headers = written(form, &[limit.after(allowed(0, 100 * SECOND))]);
        assert!(!headers.contains_key("retry-after"), "{form:?}");
    }
}

#[test]
fn retry_after_waits_for_all_that_refused() {
    let (a, b) = (window("a", Quota::per_minute(1)), window("b", Quota::per_hour(1)));
    let waits = |first, second| {
        let headers = written(Form::Draft11, &[a.after(first), b.after(second)]);
        headers.get("retry-after").map(|value| value.to_str().unwrap().to_owned())
    };
    assert_eq!(waits(refused(0, 7 * SECOND), refused(0, 40 * SECOND)).as_deref(), Some("40"));
    assert_eq!(waits(refused(0, 40 * SECOND), refused(0, 7 * SECOND)).as_deref(), Some("40"));
    assert_eq!(waits(refused(0, 7 * SECOND), allowed(0, 40 * SECOND)).as_deref(), Some("7"));
    // One of them never will, so no wait helps.
    assert_eq!(waits(refused(0, 7 * SECOND), refused(0, NEVER)), None);
    assert_eq!(waits(refused(0, NEVER), refused(0, 7 * SECOND)), None);
}

#[test]
fn a_refusal_is_not_to_be_retried_before_its_window_ends() {
    let limit = window("a", Quota::per_minute(10));
    // A call of cost five is refused with three left.
    let headers = written(Form::Draft11, &[limit.after(refused(3, 19 * SECOND + 1))]);
    assert_eq!(
        (&headers["ratelimit"], &headers["retry-after"]),
        (&r#""a";r=3;t=20"#.parse().unwrap(), &"20".parse().unwrap())
    );
}

#[test]
fn what_can_never_be_is_not_told_a_time() {
    let limit = window("a", Quota::per_minute(10));
    // The cost is above the limit: there is no use in waiting, but the limit itself comes back.
    let headers = written(Form::Draft11, &[limit.after(refused(3, NEVER))]);
    assert_fields(&headers, &[("ratelimit", r#""a";r=3;t=100"#), ("ratelimit-policy", r#""a";q=10;w=60"#)]);
    // A rate of zero: nothing ever comes back.
    let spent = Decision::new(Verdict::Deny, 5, 0, NEVER, NEVER);
    let headers = written(Form::Draft11, &[limit.after(spent)]);
    assert_eq!(headers["ratelimit"], r#""a";r=0"#);
    // A burst of zero: nothing ever was there.
    let closed = Decision::new(Verdict::Deny, 0, 0, NEVER, 0);
    assert_eq!(written(Form::Draft11, &[limit.after(closed)])["ratelimit"], r#""a";r=0"#);
}

#[test]
fn what_is_unlimited_is_not_spoken_of() {
    let (free, limit) = (window("free", Quota::UNLIMITED), window("a", Quota::per_minute(10)));
    let free = free.after(Decision::new(Verdict::Allow, u64::MAX, u64::MAX, 0, 0));
    for form in [Form::Draft11, Form::Draft7, Form::Draft6, Form::XRateLimit] {
        assert_fields(&written(form, &[free]), &[]);
        let limit = limit.after(allowed(4, SECOND));
        assert_eq!(written(form, &[free, limit]), written(form, &[limit]), "{form:?}");
    }
}

#[test]
fn nothing_to_tell_is_nothing() {
    for form in [Form::Draft11, Form::Draft7, Form::Draft6, Form::XRateLimit, Form::Off] {
        assert!(written(form, &[]).is_empty());
    }
}

#[test]
fn what_a_layer_further_in_said_stays() {
    let (inner, outer) = (window("key", Quota::per_minute(5)), window("ip", Quota::per_minute(50)));
    for form in [Form::Draft11, Form::Draft7, Form::Draft6, Form::XRateLimit] {
        let inner_only = written(form, &[inner.after(refused(0, 7 * SECOND))]);
        let mut both = inner_only.clone();
        Writer::new().form(form).write(&[outer.after(allowed(40, SECOND))], &mut both);
        if form == Form::Draft11 {
            let lines: Vec<_> = both.get_all("ratelimit").iter().collect();
            assert_eq!(lines, [r#""key";r=0;t=7"#, r#""ip";r=40;t=1"#]);
            assert_eq!(both["retry-after"], "7");
            assert_eq!(budgets(&both).len(), 2);
        } else {
            assert_eq!(both, inner_only, "{form:?}");
        }
    }
}

#[test]
fn whoever_refuses_may_say_when_to_come_back() {
    let limit = window("a", Quota::per_minute(1));
    let mut headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static("7"))]);
    Writer::new().write(&[limit.after(refused(0, 30 * SECOND))], &mut headers);
    assert_eq!(headers.get_all(RETRY_AFTER).iter().collect::<Vec<_>>(), ["7"]);
}

#[test]
fn problems_name_what_was_violated() {
    let (a, b) = (window("daily", Quota::per_day(5)), window("burst", Quota::per_minute(50)));
    let standings = [a.after(refused(0, SECOND)), b.after(allowed(40, SECOND))];
    let answer = Problem::refused_by(&standings).detail("Five a day, \"no\" more.\n").response::<Vec<u8>>();
    let json: serde_json::Value = serde_json::from_slice(answer.body()).unwrap();
    let expected = serde_json::json!({
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Quota Exceeded",
        "status": 429,
        "detail": "Five a day, \"no\" more.\n",
        "violated-policies": ["daily"],
    });
    assert_eq!(json, expected);
    assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(answer.headers()["content-type"], "application/problem+json");
}

#[test]
fn every_character_that_json_escapes_is_escaped() {
    for c in '\0'..='\u{a0}' {
        let name = c.to_string();
        let problem = Problem::new(ProblemType::QuotaExceeded).violated([name.as_str()]).to_json();
        let json: serde_json::Value = serde_json::from_str(&problem).unwrap();
        assert_eq!(json["violated-policies"][0], name, "{c:?}");
    }
}

#[test]
fn each_type_of_problem_has_its_status() {
    use ProblemType::{AbnormalUsageDetected, QuotaExceeded, TemporaryReducedCapacity};
    let cases = [
        (QuotaExceeded, "quota-exceeded", "Quota Exceeded", 429),
        (TemporaryReducedCapacity, "temporary-reduced-capacity", "Temporary Reduced Capacity", 503),
        (AbnormalUsageDetected, "abnormal-usage-detected", "Abnormal Usage Detected", 429),
    ];
    for (kind, uri, title, status) in cases {
        let json: serde_json::Value = serde_json::from_str(&Problem::new(kind).to_json()).unwrap();
        let uri = format!("https://iana.org/assignments/http-problem-types#{uri}");
        let expected =
            serde_json::json!({ "type": uri, "title": title, "status": status, "violated-policies": [] });
        assert_eq!(json, expected);
    }
}

fn budgets(headers: &HeaderMap) -> Vec<Budget> {
    read(StatusCode::OK, headers, b"", SystemTime::UNIX_EPOCH).budgets
}
