//! What is tried again, when, and how often.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::time::Duration;

use http::Method;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use tollgate_flow::client::{NoAnswer, Repeat};
use tollgate_flow::retry::{Allowance, Transient, Why};
use tollgate_flow::{Again, Fault, Manners, Retry, RetryBudget};
use tower_service::Service;

use super::mock::{Server, broken, silence, status};
use super::{MS, SECOND, client, effort, get, manners, request, retry};
use crate::log::logged;

#[tokio::test(start_paused = true)]
async fn a_good_answer_is_passed_on_at_once() {
    let server = Server::of(&[200]);
    let response = get(&client(manners(), &server)).await.unwrap();
    assert_eq!((response.status().as_u16(), response.body().as_str()), (200, "200"));
    assert_eq!((effort(&response).attempts, effort(&response).gave_up), (1, None));
    assert_eq!((effort(&response).waited, server.at_ms()), (Duration::ZERO, vec![0]));
}

#[tokio::test(start_paused = true)]
async fn failures_are_tried_again_after_a_backoff_with_the_same_body() {
    let server = Server::of(&[503, 502, 504, 408, 200]);
    let response = get(&client(manners(), &server)).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(effort(&response).attempts, 5);
    assert_eq!(effort(&response).gave_up, None);
    // 500, 750, 1125 and 1687.5 ms of waits.
    assert_eq!(server.at_ms(), [0, 500, 1_250, 2_375, 4_063]);
    assert_eq!(effort(&response).waited.as_millis(), 4_063);
    assert_eq!(server.bodies(), ["content"; 5]);
}

#[tokio::test(start_paused = true)]
async fn when_tries_are_exhausted_the_last_response_is_the_answer() {
    let server = Server::of(&[503, 503, 503, 503, 504, 200]);
    let response = get(&client(manners(), &server)).await.unwrap();
    assert_eq!((response.status().as_u16(), response.body().as_str()), (504, "504"));
    assert_eq!((effort(&response).attempts, effort(&response).gave_up), (5, Some(Why::Tries)));
}

#[tokio::test(start_paused = true)]
async fn other_statuses_are_answers_like_any_other() {
    for code in [200_u16, 304, 400, 404, 409, 500, 501] {
        let server = Server::new(move |_, _| status(code));
        let response = get(&client(manners(), &server)).await.unwrap();
        assert_eq!((response.status().as_u16(), server.requests()), (code, 1));
        assert_eq!(effort(&response).gave_up, None, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_error_is_tried_again_and_in_the_end_given_to_the_caller() {
    let server = Server::new(|_, _| broken(ErrorKind::ConnectionReset));
    let error = get(&client(manners(), &server)).await.unwrap_err();
    assert_eq!(server.requests(), 5);
    assert_eq!(error.to_string(), "request failed");
    assert_eq!(error.again(), Again::Later);
    let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    assert_eq!(source.map(io::Error::kind), Some(ErrorKind::ConnectionReset));
}

#[tokio::test(start_paused = true)]
async fn what_will_not_help_is_not_tried() {
    let server = Server::new(|_, _| broken(ErrorKind::InvalidInput));
    assert!(get(&client(manners(), &server)).await.is_err());
    assert_eq!(server.requests(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_outcome_of_the_last_attempt_counts_whether_response_or_error() {
    let error_last = Server::new(|_, n| if n < 4 { status(503) } else { broken(ErrorKind::TimedOut) });
    assert!(matches!(get(&client(manners(), &error_last)).await, Err(NoAnswer::Failed(_))));
    let response_last = Server::new(|_, n| if n < 4 { broken(ErrorKind::TimedOut) } else { status(503) });
    assert_eq!(get(&client(manners(), &response_last)).await.unwrap().status(), 503);
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_kept_to() {
    let server = Server::new(|_, n| if n == 0 { status(429).with("retry-after", "7") } else { status(200) });
    let response = get(&client(manners(), &server)).await.unwrap();
    assert_eq!((response.status().as_u16(), effort(&response).attempts), (200, 2));
    assert!((7_000..7_010).contains(&server.at_ms()[1]), "{:?}", server.at_ms());
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_takes_too_long_is_ended_and_tried_again() {
    let server = Server::new(|_, n| if n == 0 { silence() } else { status(200) });
    let response = get(&client(manners().attempt_timeout(SECOND), &server)).await.unwrap();
    assert_eq!((response.status().as_u16(), server.at_ms()), (200, vec![0, 1_500]));
    let hanging = Server::new(|_, _| silence());
    let error = get(&client(manners().attempt_timeout(SECOND), &hanging)).await.unwrap_err();
    assert!(matches!(error, NoAnswer::TimedOut), "{error:?}");
    assert_eq!((hanging.requests(), hanging.in_flight(), error.again()), (5, 0, Again::Later));
}

#[tokio::test(start_paused = true)]
async fn a_fault_says_the_same_to_the_user() {
    let hanging = Server::new(|_, _| silence());
    let error = get(&client(manners().attempt_timeout(SECOND), &hanging)).await.unwrap_err();
    let fault = Fault::from(error);
    let said = "no response in time; trying again later can help";
    assert!(fault.to_string().starts_with(said) && !fault.is_unexpected(), "{fault}");
}

#[tokio::test(start_paused = true)]
async fn a_post_is_not_sent_again_if_something_may_have_come_of_it() {
    for code in [408_u16, 502, 503, 504] {
        let server = Server::new(move |_, _| status(code).with("retry-after", "1"));
        let response = client(manners(), &server).call(request(&Method::POST)).await.unwrap();
        assert_eq!((response.status().as_u16(), server.requests()), (code, 1));
        assert_eq!(effort(&response).gave_up, Some(Why::Permanent));
    }
    let reset = Server::new(|_, _| broken(ErrorKind::ConnectionReset));
    assert!(client(manners(), &reset).call(request(&Method::POST)).await.is_err());
    assert_eq!(reset.requests(), 1);
    let hanging = Server::new(|_, _| silence());
    let error = client(manners().attempt_timeout(SECOND), &hanging).call(request(&Method::POST)).await;
    assert!(matches!(error, Err(NoAnswer::TimedOut)));
    assert_eq!(hanging.requests(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_post_is_sent_again_if_nothing_can_have_come_of_it() {
    let limited = Server::of(&[429, 200]);
    let response = client(manners(), &limited).call(request(&Method::POST)).await.unwrap();
    assert_eq!((response.status().as_u16(), limited.requests()), (200, 2));
    let refusing =
        Server::new(|_, n| if n == 0 { broken(ErrorKind::ConnectionRefused) } else { status(200) });
    let response = client(manners(), &refusing).call(request(&Method::POST)).await.unwrap();
    assert_eq!((response.status().as_u16(), refusing.requests()), (200, 2));
}

#[tokio::test(start_paused = true)]
async fn a_key_or_the_caller_makes_a_post_repeatable() {
    let mut keyed = request(&Method::POST);
    keyed.headers_mut().insert("idempotency-key", "k-1".parse().unwrap());
    let mut allowed = request(&Method::POST);
    allowed.extensions_mut().insert(Repeat(true));
    for request in [keyed, allowed] {
        let server = Server::of(&[503, 200]);
        assert_eq!(client(manners(), &server).call(request).await.unwrap().status(), 200);
        assert_eq!(server.requests(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn what_may_not_be_repeated_is_sent_once_even_if_refused() {
    let server = Server::of(&[429, 200]);
    let mut once = request(&Method::GET);
    once.extensions_mut().insert(Repeat(false));
    assert_eq!(client(manners(), &server).call(once).await.unwrap().status(), 429);
    assert_eq!(server.requests(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_says_not_to_retry_is_obeyed() {
    let server = Server::new(|_, _| status(429).with("x-should-retry", "false"));
    let response = get(&client(manners(), &server)).await.unwrap();
    assert_eq!((response.status().as_u16(), server.requests()), (429, 1));
    let server =
        Server::new(
            |_, n| {
                if n == 0 { status(409).with("stripe-should-retry", "true") } else { status(200) }
            },
        );
    assert_eq!(client(manners(), &server).call(request(&Method::POST)).await.unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn an_exhausted_budget_ends_it_for_all_calls_to_that_host() {
    // A retry for every two requests, and nothing else.
    let allowance = Allowance { share: 0.5, per_second: 0, ..Allowance::default() };
    let thrifty =
        move |time: tollgate_flow::Time| retry(time.clone()).budget(RetryBudget::of(time, allowance));
    let server = Server::of(&[503]);
    let client = client(manners().retry(thrifty), &server);
    let mut attempts = Vec::new();
    for _ in 0..4 {
        let response = get(&client).await.unwrap();
        assert_eq!((response.status().as_u16(), effort(&response).gave_up), (503, Some(Why::Budget)));
        attempts.push(effort(&response).attempts);
    }
    assert_eq!(attempts, [1, 2, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn by_default_there_are_five_attempts() {
    let server = Server::of(&[503]);
    let response = get(&client(Manners::new(), &server)).await.unwrap();
    assert_eq!((effort(&response).attempts, server.requests()), (5, 5));
}

#[tokio::test(start_paused = true)]
async fn the_total_of_the_backoff_counts_from_the_first_attempt() {
    let brief = |time| {
        let backoff = tollgate_flow::Backoff::new().jitter(tollgate_flow::Jitter::None).total(600 * MS);
        Retry::with_time(time).backoff(backoff)
    };
    let server = Server::of(&[503]);
    let response = get(&client(manners().retry(brief), &server)).await.unwrap();
    assert_eq!((effort(&response).attempts, effort(&response).gave_up), (2, Some(Why::Elapsed)));
}

/// How many requests there should be for these answers, and which of them is the caller's: written down once more.
fn expected(codes: &[u16], is_get: bool) -> (usize, u16) {
    let mut sent = 0;
    loop {
        let code = codes[sent.min(codes.len() - 1)];
        sent += 1;
        let goes_on = match code {
            429 => true,
            408 | 502 | 503 | 504 => is_get,
            _ => false,
        };
        if !goes_on || sent == 5 {
            return (sent, code);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn whatever_is_answered_it_is_sent_as_often_as_it_may_be(
        codes in vec(select(&[200_u16, 404, 408, 429, 500, 502, 503, 504][..]), 1..8),
        is_get: bool,
    ) {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let (sent, code) = expected(&codes, is_get);
        let (requests, response) = runtime.block_on(async {
            let server = Server::new(move |_, n| status(codes[n.min(codes.len() - 1)]));
            let method = if is_get { Method::GET } else { Method::POST };
            let response = client(manners(), &server).call(request(&method)).await.unwrap();
            (server.requests(), response)
        });
        prop_assert_eq!((requests, response.status().as_u16()), (sent, code));
        prop_assert_eq!(effort(&response).attempts as usize, sent);
    }
}

#[test]
fn retries_and_pauses_are_logged_without_secrets() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let log = logged(|| {
        runtime.block_on(async {
            let server = Server::new(|_, n| match n {
                0 => status(429).with("retry-after", "2").with("set-cookie", "crumbs"),
                1 => broken(ErrorKind::ConnectionReset),
                _ => status(200),
            });
            let mut request = request(&Method::GET);
            request.headers_mut().insert("authorization", "Bearer hush".parse().unwrap());
            client(manners(), &server).call(request).await.unwrap();
        });
    });
    let lines: Vec<_> = log.lines().collect();
    assert_eq!(lines.len(), 3, "{log}");
    let expected = [
        &["pausing requests", "upstream=\"example.org:80\"", "status=429", "pause=2s"][..],
        &["retrying", "method=GET", "attempt=1", "status=429", "wait=2s"],
        &["retrying", "attempt=2", "error=request failed", "wait=750ms"],
    ];
    for (line, words) in lines.iter().zip(expected) {
        assert!(line.contains("INFO tollgate::client"), "{line}");
        assert!(words.iter().all(|word| line.contains(word)), "{line} has not all of {words:?}");
    }
    for secret in ["secret", "word", "hush", "crumbs", "path", "reset"] {
        assert!(!log.contains(secret), "{secret} in {log}");
    }
}
