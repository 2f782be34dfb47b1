//! What callers are told: the draft's examples, the older forms, the odd cases; and everything that is written can be read.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode};
use proptest::prelude::*;
use tollgate_core::{
    Algorithm, AnyAlgorithm, AnyState, Ask, Decision, Kind, Quota, Tick, TokenBucket, Verdict,
};
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
    let mut ask = |millis| {
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

/// A limit and a decision, in plain numbers.
#[derive(Clone, Debug)]
struct Given {
    count: u64,
    period: Option<Duration>,
    unit: Unit,
    key: Option<Vec<u8>>,
    refused: bool,
    remaining: u64,
    wait_ns: u64,
    reset_ns: u64,
}

fn nanos() -> impl Strategy<Value = u64> {
    prop_oneof![0..100 * SECOND, any::<u64>(), Just(NEVER), (0_u64..100).prop_map(|seconds| seconds * SECOND)]
}

fn given() -> impl Strategy<Value = Given> {
    let count = || prop_oneof![0_u64..2_000, any::<u64>()];
    let period = prop_oneof![
        Just(None),
        (1_u64..100_000).prop_map(|seconds| Some(Duration::from_secs(seconds))),
        (1_u64..100_000).prop_map(|millis| Some(Duration::from_millis(millis))),
        Just(Some(Duration::MAX)),
    ];
    let unit = prop_oneof![Just(Unit::Requests), Just(Unit::Bytes), Just(Unit::Tokens), Just(Unit::Other)];
    let key = proptest::option::of(proptest::collection::vec(any::<u8>(), 0..9));
    let decision = (any::<bool>(), count(), nanos(), nanos());
    (count(), period, unit, key, decision).prop_map(|(count, period, unit, key, decision)| {
        let (refused, remaining, wait_ns, reset_ns) = decision;
        let unit = if period.is_some() { unit } else { Unit::Concurrent };
        Given { count, period, unit, key, refused, remaining, wait_ns, reset_ns }
    })
}

/// How far ahead a reader looks, in seconds.
const YEAR: u64 = 366 * 86_400;
const MOST: u64 = 999_999_999_999_999;

impl Given {
    fn limit(&self, name: &str) -> Limit {
        match self.period {
            Some(period) => window(name, Quota::per(self.count, period)).unit(self.unit),
            None => Limit::concurrent(name, self.count).unwrap(),
        }
    }

    fn standing<'a>(&'a self, limit: &'a Limit) -> Standing<'a> {
        let verdict = if self.refused { Verdict::Deny } else { Verdict::Allow };
        let wait_ns = if self.refused { self.wait_ns } else { 0 };
        let standing = limit.after(Decision::new(verdict, 9, self.remaining, wait_ns, self.reset_ns));
        match &self.key {
            Some(key) => standing.partition_key(key),
            None => standing,
        }
    }

    /// The seconds that are told, as they are read.
    fn reset(&self) -> Option<u64> {
        self.period?;
        let nanos = if self.refused && self.wait_ns != NEVER { self.wait_ns } else { self.reset_ns };
        (nanos != NEVER).then(|| nanos.div_ceil(SECOND).min(YEAR))
    }

    fn window(&self) -> Option<u64> {
        // 584 years and a fraction of a second are not whole seconds.
        let period = self.period.filter(|period| *period != Duration::MAX)?;
        (period.subsec_nanos() == 0).then_some(period.as_secs())
    }

    fn number(&self) -> u64 {
        self.count.min(MOST)
    }

    fn budget(&self, name: &str) -> Facts {
        let (limit, remaining) = (Some(self.number()), Some(self.remaining.min(MOST)));
        (name.into(), self.unit, limit, remaining, self.window(), self.reset())
    }

    /// How tight it is: refused for how long, how much is left, for how long.
    fn looseness(&self) -> impl Ord + use<> {
        use std::cmp::Reverse;
        let refused_for = self.refused.then_some(self.wait_ns);
        let reset = if self.refused && self.wait_ns != NEVER { self.wait_ns } else { self.reset_ns };
        let reset = (self.period.is_some() && reset != NEVER).then_some(reset);
        (Reverse(refused_for), self.remaining, Reverse(reset))
    }
}

/// Name, unit, limit, remaining, window, reset.
type Facts = (String, Unit, Option<u64>, Option<u64>, Option<u64>, Option<u64>);

fn facts(budget: &Budget) -> Facts {
    let seconds = |span: Option<Duration>| span.map(|span| span.as_secs());
    let (window, reset) = (seconds(budget.window), seconds(budget.resets_in));
    (budget.name.clone(), budget.unit, budget.limit, budget.remaining, window, reset)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_today_is_read_as_it_was_written(
        given in proptest::collection::btree_map("[ -~]{1,12}", given(), 0..5),
    ) {
        let limits: Vec<_> = given.iter().map(|(name, given)| given.limit(name)).collect();
        let standings: Vec<_> =
            given.values().zip(&limits).map(|(given, limit)| given.standing(limit)).collect();
        let headers = written(Form::Draft11, &standings);
        let expected: Vec<_> = given.iter().map(|(name, given)| given.budget(name)).collect();
        prop_assert_eq!(budgets(&headers).iter().map(facts).collect::<Vec<_>>(), expected, "{:?}", headers);
    }

    #[test]
    fn what_is_written_in_older_forms_is_read_as_it_was_written(
        given in proptest::collection::vec(given(), 1..5),
    ) {
        let limits: Vec<_> = given.iter().map(|given| given.limit("a")).collect();
        let standings: Vec<_> = given.iter().zip(&limits).map(|(given, limit)| given.standing(limit)).collect();
        let tightest = given.iter().min_by_key(|given| given.looseness()).unwrap();
        for form in [Form::Draft6, Form::Draft7, Form::XRateLimit] {
            let headers = written(form, &standings);
            let read = budgets(&headers);
            if tightest.reset().is_none() && form != Form::XRateLimit {
                prop_assert!(read.is_empty(), "{:?}", headers);
                continue;
            }
            let (_, _, limit, remaining, window, reset) = tightest.budget("");
            let window = window.filter(|_| form != Form::XRateLimit);
            let expected = (String::new(), Unit::Requests, limit, remaining, window, reset);
            prop_assert_eq!(facts(&read[0]), expected, "{:?} {:?}", form, headers);
            let numbers: BTreeSet<u64> = given.iter().filter(|given| given.window().is_some()).map(Given::number).collect();
            let others = numbers.into_iter().filter(|number| *number != tightest.number() && form != Form::XRateLimit);
            let read_others: BTreeSet<_> = read[1..].iter().filter_map(|budget| budget.limit).collect();
            prop_assert_eq!(read_others, others.collect(), "{:?} {:?}", form, headers);
            prop_assert!(read[1..].iter().all(|budget| budget.window.is_some()), "{:?} {:?}", form, headers);
        }
    }

    #[test]
    fn retry_after_is_read_as_it_was_written(wait_ns in 0..NEVER) {
        let limit = window("a", Quota::per_minute(10));
        let headers = written(Form::Off, &[limit.after(refused(0, wait_ns))]);
        let advice = read(StatusCode::TOO_MANY_REQUESTS, &headers, b"", SystemTime::UNIX_EPOCH);
        let seconds = wait_ns.div_ceil(SECOND).clamp(1, 600);
        prop_assert_eq!(advice.wait, Some(Duration::from_secs(seconds)));
    }

    #[test]
    fn problems_are_json_whatever_the_names(
        names in proptest::collection::vec(any::<String>(), 0..4),
        detail in any::<String>(),
    ) {
        let problem = Problem::new(ProblemType::AbnormalUsageDetected)
            .violated(names.iter().map(String::as_str))
            .detail(&detail);
        let json: serde_json::Value = serde_json::from_str(&problem.to_json()).unwrap();
        prop_assert_eq!(&json["violated-policies"], &serde_json::json!(names));
        prop_assert_eq!(&json["detail"], &serde_json::json!(detail));
    }

    #[test]
    fn names_are_refused_or_read_back(name in prop_oneof![any::<String>(), "[ -~]{0,9}"]) {
        match Limit::new(&name, Kind::FixedWindow, Quota::per_second(1)) {
            Ok(limit) => {
                let headers = written(Form::Draft11, &[limit.after(allowed(1, SECOND))]);
                prop_assert_eq!(&budgets(&headers)[0].name, &name);
            }
            Err(_) => {
                prop_assert!(name.is_empty() || name.bytes().any(|byte| !(b' '..=b'~').contains(&byte)));
            }
        }
    }

    /// The times are true: with nothing left, there is something at the end of the window; after a refusal, the same call is
    /// admitted after Retry-After.
    #[test]
    fn times_are_true_for_every_algorithm(
        kind in proptest::sample::select(Kind::ALL.to_vec()),
        count in 1_u64..40,
        period_ms in 1_u64..100_000,
        burst in 1_u64..40,
        steps in proptest::collection::vec((0_u64..3_000, 1_u64..6), 1..60),
    ) {
        let quota = Quota::per(count, Duration::from_millis(period_ms)).burst(burst);
        let algorithm = AnyAlgorithm::new(kind, quota);
        let limit = Limit::new("a", kind, quota).unwrap();
        let (mut state, mut now) = (AnyState::default(), Tick::from_nanos(7));
        for (pause_ms, cost) in steps {
            // What costs more than one fits late into a paced window, but no longer when the next one begins: there, no time that
            // is rounded up can be true.
            let cost = if kind == Kind::PacedWindow { 1 } else { cost };
            now = Tick::from_nanos(now.as_nanos() + pause_ms * 1_000_000);
            let standing = limit.after(algorithm.step(&mut state, now, Ask::now(cost)));
            let admits = |span_ns: u64, cost| {
                let then = Tick::from_nanos(now.as_nanos() + span_ns);
                algorithm.decide(&state, then, Ask::now(cost)).decision.is_admitted()
            };
            let window_ns = standing.effective_window().map(|window| window.as_nanos() as u64);
            if let (0, false, Some(window_ns)) = (standing.available(), standing.is_refusal(), window_ns) {
                prop_assert!(admits(window_ns, 1), "{:?}", standing);
                // To a few nanoseconds: the times that it is the difference of are rounded, each for itself.
                if kind == Kind::TokenBucket && window_ns > 4 {
                    prop_assert!(!admits(window_ns - 5, 1), "{:?}", standing);
                }
            }
            let headers = written(Form::Draft11, &[standing]);
            if let Some(retry) = headers.get("retry-after") {
                let seconds: u64 = retry.to_str().unwrap().parse().unwrap();
                prop_assert!(admits(seconds * SECOND, cost), "{:?}", standing);
            }
        }
    }
}
