//! Turns, slots and what answers teach.

use std::task::{Context, Waker};
use std::time::Duration;

use http::Method;
use tollgate_flow::client::NoAnswer;
use tollgate_flow::concurrency::Fixed;
use tollgate_flow::{AdaptiveLimit, Aimd, RateControl, Time};
use tollgate_http::Reader;
use tower_layer::Layer;
use tower_service::Service;

use super::mock::{Server, silence, status};
use super::{MS, SECOND, client, effort, get, manners, request, slowly};

#[tokio::test(start_paused = true)]
async fn calls_wait_for_their_turns_in_order() {
    let server = Server::of(&[200]);
    let client = client(manners().rate(slowly()), &server);
    let mut waits = Vec::new();
    for _ in 0..4 {
        waits.push(effort(&get(&client).await.unwrap()).waited);
    }
    assert_eq!(server.at_ms(), [0, 0, 1_000, 2_000]);
    assert_eq!(waits, [Duration::ZERO, Duration::ZERO, SECOND, SECOND]);
}

#[tokio::test(start_paused = true)]
async fn a_retry_after_pauses_everybody() {
    let server = Server::new(|_, n| if n == 0 { status(429).with("retry-after", "5") } else { status(200) });
    let polite = manners().build();
    let client = polite.layer(server.clone());
    let late = async {
        Time::tokio().sleep(SECOND).await;
        let pause = polite.upstreams()[0].paused_for.unwrap();
        assert_eq!(pause, 4 * SECOND);
        get(&client).await.unwrap()
    };
    let (first, second) = tokio::join!(get(&client), late);
    assert_eq!((effort(&first.unwrap()).attempts, effort(&second).attempts), (2, 1));
    let at = server.at_ms();
    assert!(at.len() == 3 && at[1..].iter().all(|at| (5_000..5_010).contains(at)), "{at:?}");
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_is_used_up_pauses_without_a_refusal() {
    let server = Server::new(|_, n| {
        let answer = status(200);
        if n == 0 { answer.with("ratelimit", "\"all\";r=0;t=3") } else { answer }
    });
    let client = client(manners(), &server);
    assert!(get(&client).await.is_ok() && get(&client).await.is_ok());
    assert!((3_000..3_010).contains(&server.at_ms()[1]), "{:?}", server.at_ms());
}

#[tokio::test(start_paused = true)]
async fn the_reader_has_the_longest_wait() {
    let server =
        Server::new(|_, n| if n == 0 { status(429).with("retry-after", "500") } else { status(200) });
    let reader = Reader::new().longest_wait(30 * SECOND);
    assert!(get(&client(manners().reader(reader), &server)).await.is_ok());
    assert!((30_000..30_010).contains(&server.at_ms()[1]), "{:?}", server.at_ms());
}

#[tokio::test(start_paused = true)]
async fn refusals_lower_the_rate_and_successes_raise_it() {
    let server = Server::new(|_, n| status(if n == 20 { 429 } else { 200 }).after_ms(10));
    let polite = manners().rate(RateControl::new().starting_at(100.0)).build();
    let client = polite.layer(server.clone());
    let rate = || polite.upstreams()[0].rate;
    for _ in 0..20 {
        get(&client).await.unwrap();
    }
    let before = rate();
    assert!(before >= 100.0);
    get(&client).await.unwrap();
    assert!(rate() < 0.8 * before, "{} after {before}", rate());
    assert_eq!(server.requests(), 22);
}

#[tokio::test(start_paused = true)]
async fn there_are_no_more_at_once_than_slots() {
    let server = Server::new(|_, _| status(200).after_ms(1_000));
    let two = |time| AdaptiveLimit::new(Fixed::new(2), time);
    let client = client(manners().concurrency(two), &server);
    let (a, b, c) = tokio::join!(get(&client), get(&client), get(&client));
    assert_eq!(server.at_ms(), [0, 0, 1_000]);
    assert_eq!(
        [a, b, c].map(|answer| effort(&answer.unwrap()).waited),
        [Duration::ZERO, Duration::ZERO, SECOND]
    );
}

#[tokio::test(start_paused = true)]
async fn the_slot_is_kept_while_backing_off() {
    let server = Server::of(&[503, 200]);
    let one = |time| AdaptiveLimit::new(Fixed::new(1), time);
    let polite = manners().concurrency(one).build();
    let client = polite.layer(server.clone());
    let other = async {
        Time::tokio().sleep(100 * MS).await;
        assert_eq!((polite.upstreams()[0].in_flight, server.in_flight()), (1, 0));
        get(&client).await.unwrap()
    };
    let (first, second) = tokio::join!(get(&client), other);
    assert_eq!(effort(&first.unwrap()).attempts, 2);
    assert_eq!((server.at_ms(), effort(&second).waited), (vec![0, 500, 500], 400 * MS));
}

#[tokio::test(start_paused = true)]
async fn the_slot_is_given_back_with_the_head_of_the_answer() {
    let polite = manners().concurrency(|time| AdaptiveLimit::new(Fixed::new(1), time)).build();
    let client = polite.layer(Server::of(&[200]));
    let unread = get(&client).await.unwrap();
    assert_eq!(polite.upstreams()[0].in_flight, 0);
    assert_eq!(get(&client).await.unwrap().body(), unread.body());
}

#[tokio::test(start_paused = true)]
async fn answers_teach_how_many_at_once() {
    // Learns from every call: one more if all slots were in use, nine tenths after a drop.
    let learning = |time| AdaptiveLimit::with_window(Aimd::new().starting_at(10), time, Duration::ZERO, 1);
    let slots_after = async |server: Server| {
        let polite = manners().concurrency(learning).retry(|time| super::retry(time).tries(1));
        let polite = polite.attempt_timeout(SECOND).build();
        let _ = get(&polite.layer(server)).await;
        polite.upstreams()[0].slots
    };
    for code in [429_u16, 503, 504] {
        assert_eq!(slots_after(Server::new(move |_, _| status(code))).await, 9, "{code}");
    }
    assert_eq!(slots_after(Server::new(|_, _| silence())).await, 9);
    assert_eq!(slots_after(Server::of(&[500])).await, 10);
    let one = |time| AdaptiveLimit::with_window(Aimd::new().starting_at(1), time, Duration::ZERO, 1);
    let polite = manners().concurrency(one).build();
    get(&polite.layer(Server::of(&[200]))).await.unwrap();
    assert_eq!(polite.upstreams()[0].slots, 2);
}

#[tokio::test(start_paused = true)]
async fn being_ready_takes_nothing() {
    let polite = manners().rate(slowly()).concurrency(|time| AdaptiveLimit::new(Fixed::new(1), time)).build();
    let server = Server::of(&[200]);
    let mut idle: Vec<_> = (0..10).map(|_| polite.layer(server.clone())).collect();
    for client in &mut idle {
        assert!(Service::poll_ready(client, &mut Context::from_waker(Waker::noop())).is_ready());
    }
    assert!(get(&idle[0]).await.is_ok() && get(&idle[1]).await.is_ok());
    assert_eq!(server.at_ms(), [0, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_line_that_is_too_long_is_not_joined() {
    let server = Server::of(&[200]);
    let mut client = client(manners().rate(slowly()), &server);
    let mut context = Context::from_waker(Waker::noop());
    let mut line = Vec::new();
    let error = loop {
        let mut call = client.call(request(&Method::GET));
        match call.as_mut().poll(&mut context) {
            std::task::Poll::Ready(Err(error)) => break error,
            std::task::Poll::Ready(Ok(_)) => {}
            std::task::Poll::Pending => line.push(call),
        }
        assert!(line.len() < 100_000, "it has no end");
    };
    assert!(matches!(error, NoAnswer::NoTurn(_)), "{error:?}");
    drop(line);
    assert!(get(&client).await.is_ok());
}
