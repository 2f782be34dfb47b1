//! Copies of what is slow.

use http::Method;
use tollgate_flow::concurrency::Fixed;
use tollgate_flow::{AdaptiveLimit, Hedge, Manners, Time};
use tower_service::Service;

use super::mock::{Server, status};
use super::{MS, client, effort, get, manners, request, slowly};

fn hedging() -> Manners {
    manners().hedge(|time| Hedge::with_time(time).after(100 * MS).copies(2).unbudgeted())
}

/// The first request of two takes a second, the other 20 ms.
fn slow_at_first() -> Server {
    Server::new(|_, n| status(200).after_ms(if n % 2 == 0 { 1_000 } else { 20 }))
}

#[tokio::test(start_paused = true)]
async fn a_copy_is_sent_when_it_is_slow_and_the_first_answer_wins() {
    let server = slow_at_first();
    let time = Time::tokio();
    let response = get(&client(hedging(), &server)).await.unwrap();
    assert_eq!((effort(&response).attempts, effort(&response).copies), (1, 1));
    assert_eq!((server.at_ms(), time.now().as_nanos()), (vec![0, 100], 120_000_000));
    assert_eq!((server.in_flight(), server.bodies()), (0, vec!["content".to_owned(); 2]));
}

#[tokio::test(start_paused = true)]
async fn what_changes_something_is_not_hedged() {
    for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH] {
        let server = slow_at_first();
        let response = client(hedging(), &server).call(request(&method)).await.unwrap();
        assert_eq!((effort(&response).copies, server.requests()), (0, 1), "{method}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_copy_takes_a_turn_and_waits_for_none() {
    let server = slow_at_first();
    let client = client(hedging().rate(slowly()), &server);
    let first = get(&client).await.unwrap(); // both turns there are
    assert_eq!(effort(&first).copies, 1);
    let second = get(&client).await.unwrap(); // the turn of the first second, and none for a copy
    assert_eq!((effort(&second).copies, server.at_ms()), (0, vec![0, 100, 1_000]));
}

#[tokio::test(start_paused = true)]
async fn a_copy_takes_a_slot_and_waits_for_none() {
    let slots = |slots| hedging().concurrency(move |time| AdaptiveLimit::new(Fixed::new(slots), time));
    let response = get(&client(slots(1), &slow_at_first())).await.unwrap();
    assert_eq!(effort(&response).copies, 0);
    let response = get(&client(slots(2), &slow_at_first())).await.unwrap();
    assert_eq!(effort(&response).copies, 1);
}

#[tokio::test(start_paused = true)]
async fn a_copy_does_not_take_the_slot_that_somebody_waits_for() {
    // The first ends, and gives its slot back, just before the second, which is slow, wants a copy.
    let server = Server::new(|_, n| status(200).after_ms([100, 1_000, 1_000][n]));
    let client = client(hedging().concurrency(|time| AdaptiveLimit::new(Fixed::new(2), time)), &server);
    let (_, slow, waiting) = tokio::join!(biased; get(&client), get(&client), get(&client));
    assert_eq!((effort(&slow.unwrap()).copies, server.at_ms()), (0, vec![0, 0, 100]));
    assert_eq!(effort(&waiting.unwrap()).waited, 100 * MS);
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_for_the_retry_and_does_not_win() {
    let server = Server::of(&[503, 200]);
    let response = get(&client(hedging(), &server)).await.unwrap();
    assert_eq!((response.status().as_u16(), server.at_ms()), (200, vec![0, 500]));
    assert_eq!((effort(&response).attempts, effort(&response).copies), (2, 0));
    // The first fails while the copy is under way.
    let server = Server::new(|_, n| {
        [status(503).after_ms(110), status(200).after_ms(200)].into_iter().nth(n).unwrap()
    });
    let response = get(&client(hedging(), &server)).await.unwrap();
    assert_eq!((response.status().as_u16(), server.at_ms()), (200, vec![0, 100]));
    // Both fail: the last of them is what the retry sees, and the response that counts.
    let server = Server::new(|_, n| match n {
        0 => status(502).after_ms(150),
        1 => status(503).after_ms(100),
        _ => status(200),
    });
    let response = get(&client(hedging(), &server)).await.unwrap();
    assert_eq!((response.status().as_u16(), server.at_ms()), (200, vec![0, 100, 700]));
}

#[tokio::test(start_paused = true)]
async fn copies_are_kept_to_their_budget() {
    let hedge = |time| Hedge::with_time(time).after(100 * MS).copies(2); // 5 %
    let server = Server::new(|_, _| status(200).after_ms(1_000));
    let client = client(manners().hedge(hedge), &server);
    let mut copies = 0;
    for _ in 0..100 {
        copies += effort(&get(&client).await.unwrap()).copies;
    }
    assert_eq!((copies, server.requests()), (5, 105));
}
