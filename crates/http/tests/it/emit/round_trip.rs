//! Everything that is written can be read, and is true.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use http::StatusCode;
use proptest::prelude::*;
use tollgate_core::{Algorithm, AnyAlgorithm, AnyState, Ask, Decision, Kind, Quota, Tick, Verdict};
use tollgate_http::{Budget, Form, Limit, Problem, ProblemType, Standing, Unit, read};

use super::{NEVER, SECOND, allowed, budgets, refused, window, written};

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
