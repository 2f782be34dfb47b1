//! Calls that are dropped, or whose scope is cancelled, in every state.

use std::time::Duration;

use http::Method;
use tollgate_flow::client::NoAnswer;
use tollgate_flow::concurrency::Fixed;
use tollgate_flow::{AdaptiveLimit, Ended, Hedge, Manners, Polite, RateControl, Scope, Time};
use tower_layer::Layer;
use tower_service::Service;

use super::mock::{Server, silence, status};
use super::{MS, SECOND, effort, get, manners, request, slowly};

/// Begins a GET, and drops it after `span`.
async fn begin_and_drop(polite: &Polite, server: &Server, span: Duration) {
    let mut client = polite.layer(server.clone());
    let call = client.call(request(&Method::GET));
    assert!(Time::tokio().timeout(span, call).await.is_err(), "it was done before it was dropped");
}

/// Begins a GET, and cancels its scope after `span`.
async fn begin_and_cancel(polite: &Polite, server: &Server, span: Duration) {
    let time = Time::tokio();
    let (scope, mut request) = (Scope::new(time.clone()), request(&Method::GET));
    request.extensions_mut().insert(scope.clone());
    let mut client = polite.layer(server.clone());
    let cancel = async {
        time.sleep(span).await;
        scope.cancel();
    };
    let start = time.now();
    let (answer, ()) = tokio::join!(client.call(request), cancel);
    assert!(matches!(answer, Err(NoAnswer::Ended(Ended::Cancelled))), "{answer:?}");
    assert_eq!(time.now().since(start), span, "it ends at once");
}

fn assert_nothing_is_held(polite: &Polite, server: &Server) {
    for upstream in polite.upstreams() {
        assert_eq!((upstream.waiting, upstream.in_flight), (0, 0), "{upstream:?}");
    }
    assert_eq!(server.in_flight(), 0);
}

/// Runs both ways of ending a call after `span`, each with a state of its own.
macro_rules! ended_after {
    ($span:expr, $manners:expr, $server:expr, |$polite:ident, $seen:ident| $check:expr) => {
        for is_cancelled in [false, true] {
            let ($polite, $seen) = (Manners::build($manners), $server);
            if is_cancelled {
                begin_and_cancel(&$polite, &$seen, $span).await;
            } else {
                begin_and_drop(&$polite, &$seen, $span).await;
            }
            assert_nothing_is_held(&$polite, &$seen);
            $check
        }
    };
}

#[tokio::test(start_paused = true)]
async fn while_waiting_for_a_token_the_turn_goes_to_the_next() {
    for is_cancelled in [false, true] {
        let (polite, server) = (manners().rate(slowly()).build(), Server::of(&[200]));
        let client = polite.layer(server.clone());
        let start = Time::tokio();
        assert!(get(&client).await.is_ok() && get(&client).await.is_ok());
        if is_cancelled {
            begin_and_cancel(&polite, &server, 400 * MS).await;
        } else {
            begin_and_drop(&polite, &server, 400 * MS).await;
        }
        assert_nothing_is_held(&polite, &server);
        assert!(get(&client).await.is_ok());
        assert_eq!((server.requests(), start.now().as_nanos()), (3, 1_000_000_000));
    }
}

#[tokio::test(start_paused = true)]
async fn while_waiting_for_a_slot_nothing_is_held() {
    let one = |time| AdaptiveLimit::new(Fixed::new(1), time);
    let polite = manners().concurrency(one).build();
    let server = Server::new(|_, n| if n == 0 { status(200).after_ms(10_000) } else { status(200) });
    let client = polite.layer(server.clone());
    let others = async {
        begin_and_drop(&polite, &server, SECOND).await;
        begin_and_cancel(&polite, &server, SECOND).await;
        assert_eq!((polite.upstreams()[0].waiting, polite.upstreams()[0].in_flight), (0, 1));
    };
    let (first, ()) = tokio::join!(get(&client), others);
    assert_eq!((first.unwrap().status().as_u16(), server.requests()), (200, 1));
    assert_nothing_is_held(&polite, &server);
}

#[tokio::test(start_paused = true)]
async fn while_the_inner_service_is_not_ready_the_turn_comes_back() {
    for is_cancelled in [false, true] {
        let polite = manners().rate(slowly()).build();
        let (tired, server) = (Server::of(&[503]).tired_after(0), Server::of(&[200]));
        if is_cancelled {
            begin_and_cancel(&polite, &tired, 100 * MS).await;
        } else {
            begin_and_drop(&polite, &tired, 100 * MS).await;
        }
        assert_nothing_is_held(&polite, &tired);
        let (client, time) = (polite.layer(server.clone()), Time::tokio());
        assert!(get(&client).await.is_ok() && get(&client).await.is_ok(), "both turns are there");
        assert_eq!((tired.requests(), time.now().as_nanos()), (0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn while_the_inner_service_is_not_ready_for_a_retry_its_turn_comes_back() {
    for is_cancelled in [false, true] {
        let polite = manners().rate(slowly()).build();
        let (tired, server) = (Server::of(&[503]).tired_after(1), Server::of(&[200]));
        // One of the two turns is used at once, and the other taken after 500 ms.
        if is_cancelled {
            begin_and_cancel(&polite, &tired, 600 * MS).await;
        } else {
            begin_and_drop(&polite, &tired, 600 * MS).await;
        }
        assert_nothing_is_held(&polite, &tired);
        let (client, time) = (polite.layer(server.clone()), Time::tokio());
        assert!(get(&client).await.is_ok());
        assert_eq!((tired.requests(), time.now().as_nanos()), (1, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn while_an_attempt_is_under_way_it_is_dropped() {
    ended_after!(SECOND, manners(), Server::new(|_, _| silence()), |polite, server| {
        assert_eq!(server.requests(), 1);
    });
}

#[tokio::test(start_paused = true)]
async fn while_backing_off_no_other_attempt_is_made() {
    ended_after!(200 * MS, manners(), Server::of(&[503]), |polite, server| {
        Time::tokio().sleep(60 * SECOND).await;
        assert_eq!(server.requests(), 1);
    });
}

#[tokio::test(start_paused = true)]
async fn while_waiting_for_the_turn_of_a_retry_it_goes_to_the_next() {
    for is_cancelled in [false, true] {
        let (polite, server) = (manners().rate(slowly()).build(), Server::of(&[200, 503, 200]));
        let (client, time) = (polite.layer(server.clone()), Time::tokio());
        assert!(get(&client).await.is_ok());
        // The retry is due after 500 ms, and its turn after a second.
        if is_cancelled {
            begin_and_cancel(&polite, &server, 800 * MS).await;
        } else {
            begin_and_drop(&polite, &server, 800 * MS).await;
        }
        assert_nothing_is_held(&polite, &server);
        assert!(get(&client).await.is_ok());
        assert_eq!((server.requests(), time.now().as_nanos()), (3, 1_000_000_000));
    }
}

#[tokio::test(start_paused = true)]
async fn while_hedging_every_copy_is_dropped() {
    let hedge = |time| Hedge::with_time(time).after(100 * MS).copies(3).unbudgeted();
    ended_after!(SECOND, manners().hedge(hedge), Server::new(|_, _| silence()), |polite, server| {
        assert_eq!(server.at_ms().len(), 3);
    });
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_never_polled_takes_nothing() {
    let (polite, server) = (manners().rate(slowly()).build(), Server::of(&[200]));
    let mut client = polite.layer(server.clone());
    drop(client.call(request(&Method::GET)));
    assert_nothing_is_held(&polite, &server);
    let response = get(&client).await.unwrap();
    assert_eq!((server.at_ms(), effort(&response).waited), (vec![0], Duration::ZERO));
}

/// A thousand calls of which most are given up at some moment, in whatever state they are.
#[tokio::test(start_paused = true)]
async fn at_any_moment_nothing_leaks() {
    let mut rng = fastrand::Rng::with_seed(7);
    let rule = |_: &http::Request<String>, n: usize| {
        status([200, 503, 429, 200, 502][n % 5]).after_ms([5, 700, 40, 2_000][n % 4])
    };
    let server = Server::new(rule);
    let polite = manners()
        .rate(RateControl::new().starting_at(100.0).at_most(100.0))
        .concurrency(|time| AdaptiveLimit::new(Fixed::new(10), time))
        .hedge(|time| Hedge::with_time(time).after(300 * MS).copies(3).unbudgeted())
        .attempt_timeout(SECOND)
        .build();
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..1_000 {
        let (begins, span) = (rng.u64(..10_000), rng.u64(1..3_000));
        let mut client = polite.layer(server.clone());
        calls.spawn(async move {
            let time = Time::tokio();
            time.sleep(Duration::from_millis(begins)).await;
            time.timeout(Duration::from_millis(span), client.call(request(&Method::GET))).await.is_ok()
        });
    }
    let done = calls.join_all().await.into_iter().filter(|is_done| *is_done).count();
    assert!((1..1_000).contains(&done), "{done} were not given up");
    assert_nothing_is_held(&polite, &server);
    Time::tokio().sleep(60 * SECOND).await;
    assert!(polite.upstreams()[0].paused_for.is_none());
    let fresh = Server::of(&[200]);
    let response = get(&polite.layer(fresh)).await.unwrap();
    assert_eq!(effort(&response).waited, Duration::ZERO, "the turns are back");
}
