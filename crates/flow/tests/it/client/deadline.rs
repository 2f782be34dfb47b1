//! Calls that have only so long.

use http::Method;
use tollgate_flow::client::NoAnswer;
use tollgate_flow::retry::Why;
use tollgate_flow::{Ended, Scope, Time};
use tower_service::Service;

use super::mock::{Server, silence, status};
use super::{MS, SECOND, client, effort, get, manners, request, slowly};

#[tokio::test(start_paused = true)]
async fn a_deadline_shorter_than_the_next_backoff_ends_it_at_once_with_the_answer_there_is() {
    let server = Server::of(&[503]);
    let time = Time::tokio();
    let response = get(&client(manners().deadline(500 * MS), &server)).await.unwrap();
    assert_eq!((response.status().as_u16(), time.now().as_nanos()), (503, 0));
    let ended = Ended::TooShort { needed: 500 * MS, left: 500 * MS };
    assert_eq!(effort(&response).gave_up, Some(Why::Ended(ended)));
}

#[tokio::test(start_paused = true)]
async fn a_retry_after_beyond_the_deadline_is_not_waited_for() {
    let server = Server::new(|_, _| status(429).with("retry-after", "60"));
    let time = Time::tokio();
    let response = get(&client(manners().deadline(10 * SECOND), &server)).await.unwrap();
    assert_eq!((response.status().as_u16(), time.now().as_nanos()), (429, 0));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_passes_in_a_later_attempt_leaves_the_answer_of_the_one_before() {
    let server = Server::new(|_, n| if n == 0 { status(503) } else { silence() });
    let response = get(&client(manners().deadline(2 * SECOND), &server)).await.unwrap();
    assert_eq!((response.status().as_u16(), response.body().as_str()), (503, "503"));
    assert_eq!((effort(&response).attempts, server.in_flight()), (2, 0));
    assert_eq!(effort(&response).gave_up, Some(Why::Ended(Ended::Deadline)));
}

#[tokio::test(start_paused = true)]
async fn a_retry_whose_turn_comes_too_late_is_not_waited_for() {
    // Both turns are used; the retry is due after 500 ms, and its turn would come after a second.
    let server = Server::of(&[200, 503]);
    let client = client(manners().rate(slowly()).deadline(900 * MS), &server);
    assert!(get(&client).await.is_ok());
    let time = Time::tokio();
    let response = get(&client).await.unwrap();
    assert_eq!((response.status().as_u16(), time.now().as_nanos()), (503, 500_000_000));
    let ended = Ended::TooShort { needed: 500 * MS, left: 400 * MS };
    assert_eq!(effort(&response).gave_up, Some(Why::Ended(ended)));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_passes_in_the_first_attempt_is_an_error() {
    let server = Server::new(|_, _| silence());
    let time = Time::tokio();
    let error = get(&client(manners().deadline(2 * SECOND), &server)).await.unwrap_err();
    assert!(matches!(error, NoAnswer::Ended(Ended::Deadline)), "{error:?}");
    assert_eq!((time.now().as_nanos(), server.in_flight()), (2_000_000_000, 0));
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_cannot_be_had_in_time_is_refused_at_once() {
    let server = Server::of(&[200]);
    let client = client(manners().rate(slowly()).deadline(900 * MS), &server);
    assert!(get(&client).await.is_ok() && get(&client).await.is_ok());
    let error = get(&client).await.unwrap_err();
    let NoAnswer::Ended(Ended::TooShort { needed, left }) = error else { panic!("{error:?}") };
    assert_eq!((needed, left), (SECOND, 900 * MS));
    assert_eq!(server.at_ms(), [0, 0]);
}

#[tokio::test(start_paused = true)]
async fn time_spent_waiting_for_a_turn_counts() {
    let server = Server::new(|_, n| if n < 2 { status(200) } else { silence() });
    let client = client(manners().rate(slowly()).deadline(1_500 * MS), &server);
    assert!(get(&client).await.is_ok() && get(&client).await.is_ok());
    let time = Time::tokio();
    let error = get(&client).await.unwrap_err();
    assert!(matches!(error, NoAnswer::Ended(Ended::Deadline)), "{error:?}");
    assert_eq!((server.at_ms()[2], time.now().as_nanos()), (1_000, 1_500_000_000));
}

#[tokio::test(start_paused = true)]
async fn the_requests_scope_and_the_clients_deadline_both_hold() {
    let time = Time::tokio();
    let server = Server::new(|_, _| silence());
    for (of_request, of_client) in [(SECOND, 5 * SECOND), (5 * SECOND, SECOND)] {
        let start = time.now();
        let mut request = request(&Method::GET);
        request.extensions_mut().insert(Scope::new(time.clone()).within(of_request));
        let error = client(manners().deadline(of_client), &server).call(request).await.unwrap_err();
        assert!(matches!(error, NoAnswer::Ended(Ended::Deadline)), "{error:?}");
        assert_eq!(time.now().since(start), SECOND);
    }
}

#[tokio::test(start_paused = true)]
async fn a_scope_that_has_ended_sends_nothing() {
    let server = Server::of(&[200]);
    let scope = Scope::new(Time::tokio());
    scope.cancel();
    let mut request = request(&Method::GET);
    request.extensions_mut().insert(scope);
    let error = client(manners(), &server).call(request).await.unwrap_err();
    assert!(matches!(error, NoAnswer::Ended(Ended::Cancelled)), "{error:?}");
    assert_eq!(server.requests(), 0);
}
