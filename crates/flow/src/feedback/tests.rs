use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use http::HeaderValue;
use tollgate::{ManualClock, Quota, TokenBucket, WaitError};

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);

fn driven(control: RateControl) -> (ManualClock, Limiter<TokenBucket, ManualClock>, Feedback) {
    let clock = ManualClock::new();
    let limiter = Limiter::builder(Quota::per_second(1)).clock(clock.clone()).build();
    let feedback = Feedback::new(&limiter, control);
    (clock, limiter, feedback)
}

fn answer(feedback: &Feedback, sent: Sent, status: u16, fields: &[(&'static str, &'static str)]) -> Advice {
    let headers = fields
        .iter()
        .map(|(name, value)| (http::HeaderName::from_static(name), HeaderValue::from_static(value)));
    feedback.read(sent, StatusCode::from_u16(status).unwrap(), &headers.collect(), b"")
}

/// How many get through in `span`, if somebody asks every millisecond.
fn admitted(clock: &ManualClock, limiter: &Limiter<TokenBucket, ManualClock>, span: Duration) -> u32 {
    let mut admitted = 0;
    for _ in 0..span.as_millis() {
        clock.advance(MILLI);
        admitted += u32::from(limiter.allow());
    }
    admitted
}

#[test]
fn the_limiter_goes_at_the_rate_that_was_learnt() {
    let (clock, limiter, feedback) = driven(RateControl::new().starting_at(100.0));
    assert_eq!(limiter.quota(), Quota::per(100_000, Duration::from_secs(1_000)).burst(2));
    // Its one turn was there before, and stays one.
    assert_eq!(admitted(&clock, &limiter, SECOND), 100 + 1);
    let sent = feedback.sending();
    clock.advance(MILLI);
    answer(&feedback, sent, 429, &[]);
    assert!((feedback.rate() - 35.0).abs() < 1e-9);
    let after = admitted(&clock, &limiter, SECOND * 10);
    assert!((350..=352).contains(&after), "{after}");
}

#[test]
fn retry_after_stops_everybody_and_ends_without_a_burst() {
    // Room for 50 at once, all of it free.
    let (clock, limiter, feedback) = driven(RateControl::new().starting_at(100.0).burst(50));
    clock.advance(SECOND);
    let sent = feedback.sending();
    clock.advance(MILLI);
    let advice = answer(&feedback, sent, 429, &[("retry-after", "2")]);
    assert_eq!(advice.throttled, Some(Throttled::Rate));
    assert_eq!(feedback.paused_for(), Some(SECOND * 2));
    assert_eq!(admitted(&clock, &limiter, MILLI * 1_999), 0);
    // 35/s from there on, to within the two turns that rounding may cost.
    let after = admitted(&clock, &limiter, SECOND);
    assert!((33..=36).contains(&after), "{after}");
    assert_eq!(feedback.paused_for(), None);
}

#[test]
fn a_longer_hold_extends_a_shorter_one_and_not_the_other_way_round() {
    let (clock, limiter, feedback) = driven(RateControl::new().starting_at(100.0));
    let sent = [feedback.sending(), feedback.sending(), feedback.sending()];
    clock.advance(MILLI);
    answer(&feedback, sent[0], 429, &[("retry-after", "2")]);
    answer(&feedback, sent[1], 429, &[("retry-after", "5")]);
    answer(&feedback, sent[2], 429, &[("retry-after", "3")]);
    assert_eq!(feedback.paused_for(), Some(SECOND * 5));
    assert_eq!(admitted(&clock, &limiter, MILLI * 4_999), 0);
    let after = admitted(&clock, &limiter, SECOND);
    assert!((33..=36).contains(&after), "{after}");
}

#[test]
fn a_rate_that_is_learnt_during_a_hold_does_not_move_its_end() {
    let (clock, limiter, feedback) = driven(RateControl::new().starting_at(100.0));
    let sent = [feedback.sending(), feedback.sending()];
    clock.advance(MILLI);
    answer(&feedback, sent[0], 429, &[("retry-after", "2")]);
    answer(&feedback, sent[1], 200, &[("ratelimit-policy", r#""a";q=1;w=1"#)]);
    assert!((feedback.rate() - 0.95).abs() < 1e-9);
    assert_eq!(admitted(&clock, &limiter, MILLI * 1_999), 0);
    // At 35/s, in which the debt was counted, the first turn comes within two of its intervals.
    assert!(admitted(&clock, &limiter, MILLI * 60) >= 1);
    // The next answer brings the new rate.
    answer(&feedback, feedback.sending(), 200, &[]);
    let after = admitted(&clock, &limiter, SECOND * 20);
    assert!((18..=21).contains(&after), "{after}");
}

#[test]
fn those_who_wait_and_those_who_come_later_are_served_after_the_hold() {
    let (clock, limiter, feedback) = driven(RateControl::new().starting_at(100.0));
    assert!(limiter.allow());
    let mut context = Context::from_waker(Waker::noop());
    let mut early = pin!(limiter.wait());
    assert!(early.as_mut().poll(&mut context).is_pending());
    let sent = feedback.sending();
    clock.advance(MILLI);
    answer(&feedback, sent, 503, &[("retry-after", "2")]);
    let mut late = pin!(limiter.wait());
    assert!(late.as_mut().poll(&mut context).is_pending());
    clock.advance(MILLI * 1_999);
    assert!(early.as_mut().poll(&mut context).is_pending());
    clock.advance(SECOND / 35 * 2); // one turn to fill up, one for rounding
    assert!(early.as_mut().poll(&mut context).is_ready());
    clock.advance(SECOND / 35);
    assert!(late.as_mut().poll(&mut context).is_ready());
}

#[test]
fn whoever_cannot_wait_until_the_end_is_told_at_once() {
    let (clock, limiter, feedback) = driven(RateControl::new().starting_at(100.0));
    let sent = feedback.sending();
    clock.advance(MILLI);
    answer(&feedback, sent, 429, &[("retry-after", "2")]);
    let mut context = Context::from_waker(Waker::noop());
    let mut wait = pin!(limiter.wait().within(SECOND));
    let outcome = wait.as_mut().poll(&mut context);
    assert!(
        matches!(outcome, std::task::Poll::Ready(Err(WaitError::TooLate { would_take })) if would_take >= SECOND * 2),
        "{outcome:?}"
    );
    let mut patient = pin!(limiter.wait().within(SECOND * 3));
    assert!(patient.as_mut().poll(&mut context).is_pending());
}

#[test]
fn the_last_of_a_budget_stops_everybody_too() {
    let (clock, limiter, feedback) = driven(RateControl::new().starting_at(100.0));
    let sent = feedback.sending();
    clock.advance(MILLI);
    let fields = [("ratelimit-policy", r#""a";q=600;w=60"#), ("ratelimit", r#""a";r=0;t=7"#)];
    assert_eq!(answer(&feedback, sent, 200, &fields).throttled, None);
    assert_eq!(feedback.paused_for(), Some(SECOND * 7));
    assert_eq!(admitted(&clock, &limiter, MILLI * 6_999), 0);
    // And what is stated is kept to: 95 % of 600 a minute.
    let after = admitted(&clock, &limiter, SECOND * 10);
    assert!((93..=95).contains(&after), "{after}");
}

#[test]
fn what_is_stated_of_other_things_than_calls_is_not_a_rate_of_calls() {
    let (clock, _limiter, feedback) = driven(RateControl::new().starting_at(100.0));
    let sent = feedback.sending();
    clock.advance(MILLI);
    let fields = [
        (
            "ratelimit-policy",
            r#""bytes";q=60;w=60;qu="content-bytes", "slots";q=3;w=60;qu="concurrent-requests""#,
        ),
        ("x-ratelimit-limit-minute", "1200"),
        ("x-ratelimit-remaining-minute", "1199"),
    ];
    answer(&feedback, sent, 200, &fields);
    assert!((feedback.rate() - 19.0).abs() < 1e-9, "{}", feedback.rate());
}

#[test]
fn too_many_at_once_is_not_too_many_a_second() {
    let (clock, _limiter, feedback) = driven(RateControl::new().starting_at(100.0));
    let sent = feedback.sending();
    clock.advance(MILLI);
    let fields = [("stripe-rate-limited-reason", "global-concurrency"), ("retry-after", "1")];
    assert_eq!(answer(&feedback, sent, 429, &fields).throttled, Some(Throttled::Concurrency));
    assert!((feedback.rate() - 100.0).abs() < 1e-9);
    assert_eq!(feedback.paused_for(), Some(SECOND));
}

#[test]
fn a_server_that_fails_does_not_ask_for_more() {
    for status in [500, 502, 503, 504, 408] {
        let (clock, _limiter, feedback) = driven(RateControl::new().starting_at(10.0));
        for _ in 0..200 {
            let sent = feedback.sending();
            clock.advance(MILLI * 100);
            answer(&feedback, sent, status, &[]);
        }
        assert!((feedback.rate() - 10.0).abs() < 1e-9, "{status}: {} a second", feedback.rate());
    }
}

#[test]
fn what_a_failing_server_states_still_counts() {
    let (clock, _limiter, feedback) = driven(RateControl::new().starting_at(100.0));
    let sent = feedback.sending();
    clock.advance(MILLI);
    answer(
        &feedback,
        sent,
        500,
        &[("ratelimit-policy", "\"api\";q=10;w=1"), ("ratelimit", "\"api\";r=5;t=1")],
    );
    assert!(feedback.rate() <= 10.0, "{} a second", feedback.rate());
}
