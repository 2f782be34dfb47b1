//! Replays the recorded behaviour of Go's `golang.org/x/time/rate` (`testdata/vectors/go-x-time-rate.json`).
//!
//! Deviations, each allowed by the recording itself:
//! - `time-steps-back-allow`, `time-steps-back-reserve`: Go refills twice after its clock steps back. We never do, so only
//!   the law is checked: no span admits more than burst + rate·T, counting time as the latest instant seen.
//! - `cancel-several`: after another cancellation Go's rule can break the bound, so we give back less and may answer later.
//! - `cancel-then-later-reservations-exist-0-back` and `-1-back`: an earlier time than Go's would be allowed; ours are Go's.
//!
//! Rates are recorded as floating point per second; quotas are exact fractions, so each rate is turned into one first.
#![allow(clippy::cast_precision_loss, reason = "the recording itself is in floating point")]

use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use serde::Deserialize;
use tollgate::{Limiter, ManualClock, Quota, Reservation, Tick, TokenBucket};
use tollgate_sim::history::{Operation, largest_excess};

type Bucket = Limiter<TokenBucket, ManualClock>;

#[derive(Deserialize)]
struct Vectors {
    limiter_cases: Vec<LimiterCase>,
    wait_cases: Vec<WaitCase>,
    every_interval_ns_to_rate_per_s: Vec<(i64, Option<f64>)>,
    long_run: LongRun,
    simultaneous: Simultaneous,
}

#[derive(Deserialize)]
struct LimiterCase {
    name: String,
    rate_per_s: Option<f64>,
    burst: u64,
    law_only: Option<String>,
    deviation: Option<String>,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    op: String,
    at_ns: u64,
    n: Option<u64>,
    tokens_before: Option<f64>,
    ok: Option<bool>,
    act_ns: Option<u64>,
    save: Option<String>,
    reservation: Option<String>,
    max_wait_ns: Option<u64>,
    rate_per_s: Option<f64>,
}

#[derive(Deserialize)]
struct WaitCase {
    name: String,
    rate_per_s: Option<f64>,
    burst: u64,
    steps: Vec<WaitStep>,
}

#[derive(Deserialize)]
struct WaitStep {
    n: u64,
    err: bool,
    delay_ns: u64,
    #[serde(default)]
    cancelled: bool,
    cancel_after_ns: Option<u64>,
    timeout_ns: Option<u64>,
}

#[derive(Deserialize)]
struct LongRun {
    rate_per_s: f64,
    burst: u64,
    call_every_ns: u64,
    for_ns: u64,
    admitted_at_least: f64,
    admitted_at_most_plus: f64,
}

#[derive(Deserialize)]
struct Simultaneous {
    rate_per_s: f64,
    burst: u64,
    callers: u64,
    admitted: u64,
}

fn vectors() -> Vectors {
    let text = include_str!("../../../../testdata/vectors/go-x-time-rate.json");
    serde_json::from_str(text).expect("the recording is well formed")
}

/// A recorded rate as an exact quota: the fraction nearest to it among those a person would write.
fn quota(rate_per_s: Option<f64>, burst: u64) -> Quota {
    let Some(rate) = rate_per_s else {
        return Quota::UNLIMITED;
    };
    if rate >= 1.0 {
        return Quota::per_second(rate as u64).burst(burst);
    }
    if rate == 0.0 {
        return Quota::per_second(0).burst(burst);
    }
    Quota::every(Duration::from_nanos((1e9 / rate).round() as u64)).burst(burst)
}

fn tick(ns: u64) -> Tick {
    Tick::from_nanos(ns)
}

fn bucket(rate_per_s: Option<f64>, burst: u64) -> Bucket {
    Limiter::builder(quota(rate_per_s, burst)).clock(ManualClock::new()).build()
}

#[test]
fn every_limiter_case_answers_as_go_did() {
    let mut replayed = 0;
    for case in vectors().limiter_cases.iter().filter(|case| case.law_only.is_none()) {
        replay(case);
        replayed += 1;
    }
    assert_eq!(replayed, 18, "cases in the recording that are not for the law alone");
}

fn replay(case: &LimiterCase) {
    let limiter = bucket(case.rate_per_s, case.burst);
    let mut saved = HashMap::new();
    for (index, step) in case.steps.iter().enumerate() {
        let place = format!("{} step {index}", case.name);
        let (now, n) = (tick(step.at_ns), step.n.unwrap_or(1));
        match step.op.as_str() {
            "allow" => {
                check_tokens(&limiter, step, &place);
                assert_eq!(Some(limiter.allow_n_at(n, now)), step.ok, "{place}");
            }
            "reserve" => reserve(&limiter, case, step, &place, &mut saved),
            "cancel" => {
                let name = step.reservation.as_deref().expect("names what it cancels");
                // A refused reservation has nothing to cancel.
                if let Some(reservation) = saved.remove(name) {
                    reservation.cancel_at(now);
                }
            }
            "set_rate" => limiter.set_quota_at(quota(step.rate_per_s, case.burst), now),
            other => panic!("{place}: unknown op {other}"),
        }
    }
}

fn check_tokens(limiter: &Bucket, step: &Step, place: &str) {
    // Go counts fractions and debt; what can be seen of ours is whole tokens, and none in debt.
    if let Some(tokens) = step.tokens_before {
        let remaining = limiter.peek_n_at(0, tick(step.at_ns)).remaining();
        assert_eq!(remaining, tokens.max(0.0).floor() as u64, "{place}: tokens before");
    }
}

fn reserve(
    limiter: &Bucket,
    case: &LimiterCase,
    step: &Step,
    place: &str,
    saved: &mut HashMap<String, Reservation<TokenBucket, ManualClock>>,
) {
    let (now, n) = (tick(step.at_ns), step.n.unwrap_or(1));
    let reserved = match step.max_wait_ns {
        Some(ns) => limiter.reserve_within_at(n, Duration::from_nanos(ns), now),
        None => limiter.reserve_n_at(n, now),
    };
    assert_eq!(Some(reserved.is_ok()), step.ok, "{place}");
    let Ok(reservation) = reserved else {
        return;
    };
    let (ours, go) = (reservation.act_time().as_nanos(), step.act_ns.expect("Go's time"));
    if case.name == "cancel-several" && step.act_ns == Some(500_000_000) && step.at_ns > 0 {
        // Allowed by the recording: after another cancellation we give back the tail only.
        assert!(
            case.deviation.is_some() && (go..=go + 300_000_000).contains(&ours),
            "{place}: {ours} against {go}"
        );
    } else {
        assert_eq!(ours, go, "{place}: act time");
    }
    if let Some(name) = &step.save {
        saved.insert(name.clone(), reservation);
    }
}

#[test]
fn a_clock_that_steps_back_never_admits_more() {
    let (t0, t1, t2) = (0, 100_000_000, 200_000_000);
    let limiter = bucket(Some(10.0), 3);
    let mut latest = 0;
    let mut admitted = Vec::new();
    for at in [t1, t0, t0, t0, t0, t1, t1, t1, t2, t2, t2] {
        latest = latest.max(at);
        if limiter.allow_at(tick(at)) {
            admitted.push(Operation::at(latest, 1));
        }
    }
    assert!(admitted.len() >= 3, "the burst is still to be had");
    let worst = largest_excess(quota(Some(10.0), 3), &admitted).expect("something was admitted");
    assert!(!worst.is_violation(), "time-steps-back-allow: {worst:?}");

    let limiter = bucket(Some(10.0), 2);
    let mut latest = 0;
    let mut acts = Vec::new();
    for (at, n) in [(t1, 2), (t0, 1), (t2, 2), (t2, 1)] {
        latest = latest.max(at);
        let act =
            limiter.reserve_n_at(n, tick(at)).expect("within the burst").act_time().as_nanos().max(latest);
        acts.push(Operation::promised(act, n));
    }
    let worst = largest_excess(quota(Some(10.0), 2), &acts).expect("something was promised");
    assert!(!worst.is_violation(), "time-steps-back-reserve: {worst:?}");
}

#[test]
fn every_wait_case_answers_as_go_did() {
    for case in vectors().wait_cases {
        let clock = ManualClock::new();
        let limiter = Limiter::builder(quota(case.rate_per_s, case.burst)).clock(clock.clone()).build();
        for (index, step) in case.steps.iter().enumerate() {
            let place = format!("{} step {index}", case.name);
            let began = clock_now(&clock);
            let failed = wait(&limiter, &clock, step);
            assert_eq!(failed, step.err, "{place}");
            assert_eq!(clock_now(&clock).since(began), Duration::from_nanos(step.delay_ns), "{place}: delay");
        }
    }
}

fn clock_now(clock: &ManualClock) -> Tick {
    tollgate::Clock::now(clock)
}

/// Waits as a Go caller with a context would; whether that failed.
fn wait(limiter: &Bucket, clock: &ManualClock, step: &WaitStep) -> bool {
    if step.cancelled {
        drop(limiter.wait_n(step.n)); // a context that is already cancelled: the wait is never begun
        return true;
    }
    let wait = limiter.wait_n(step.n);
    let wait = match step.timeout_ns {
        Some(ns) => wait.within(Duration::from_nanos(ns)),
        None => wait,
    };
    let mut wait = pin!(wait);
    let mut context = Context::from_waker(Waker::noop());
    let cancel_at = step.cancel_after_ns.map(|ns| clock_now(clock) + Duration::from_nanos(ns));
    loop {
        if let Poll::Ready(outcome) = wait.as_mut().poll(&mut context) {
            return outcome.is_err();
        }
        let due = clock.next_due().expect("somebody waits, so an alarm is set");
        match cancel_at {
            Some(at) if at < due => {
                clock.advance_to(at);
                return true; // dropping the future cancels it
            }
            _ => clock.advance_to(due),
        }
    }
}

#[test]
fn intervals_become_the_rates_go_computes() {
    for (ns, rate) in vectors().every_interval_ns_to_rate_per_s {
        let quota = Quota::every(Duration::from_nanos(u64::try_from(ns).unwrap_or(0)));
        match rate {
            None => assert!(quota.is_unlimited(), "{ns}"),
            Some(rate) => {
                let ours = quota.count() as f64 / quota.period().as_secs_f64();
                assert!((ours / rate - 1.0).abs() < 1e-12, "{ns}: {ours} against {rate}");
            }
        }
    }
}

#[test]
fn the_long_run_admits_the_rate() {
    let run = vectors().long_run;
    let limiter = bucket(Some(run.rate_per_s), run.burst);
    let calls = (0..=run.for_ns).step_by(run.call_every_ns as usize);
    let admitted = calls.filter(|at| limiter.allow_at(tick(*at))).count() as f64;
    let ideal = run.burst as f64 + run.rate_per_s * run.for_ns as f64 / 1e9;
    assert!(admitted >= ideal * run.admitted_at_least, "{admitted} of {ideal}");
    assert!(admitted <= ideal + run.admitted_at_most_plus, "{admitted} of {ideal}");
}

#[test]
fn simultaneous_callers_share_the_burst() {
    let case = vectors().simultaneous;
    let limiter = bucket(Some(case.rate_per_s), case.burst);
    let admitted = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..case.callers).map(|_| scope.spawn(|| limiter.allow())).collect();
        callers.into_iter().map(|caller| u64::from(caller.join().expect("no panic"))).sum::<u64>()
    });
    assert_eq!(admitted, case.admitted);
}
