//! What a call cost in the end.

use http::{HeaderName, Request, Response};
use tollgate::ManualClock;
use tollgate_tower::{ActualCost, Cost, Key, Kind, Limit, NoKey, Quota};
use tower_layer::Layer;
use tower_service::Service;

use super::kit::{Counted, by_hand, passes, send};

fn ten(cost: Cost) -> Limit {
    Limit::new("a", Quota::per_day(10)).kind(Kind::FixedWindow).cost(cost)
}

/// How much is left after a call to a service that answers like this.
async fn left_after(cost: Cost, answer: fn() -> Response<String>) -> String {
    let clock = ManualClock::new();
    let layer = by_hand(&clock).limit(ten(cost)).build().unwrap();
    let mut service = layer.layer(Counted::new(move |_| answer()));
    send(&mut service, Request::get("/")).await;
    let mut silent = layer.layer(Counted::new(|_| Response::new(String::new())));
    let told = send(&mut silent, Request::get("/")).await;
    told.field("ratelimit").unwrap().to_owned()
}

#[tokio::test]
async fn failed_logins_count_and_others_do_not() {
    let clock = ManualClock::new();
    let limit = Limit::new("failures", Quota::per_day(2))
        .kind(Kind::FixedWindow)
        .per(Key::header(HeaderName::from_static("x-user")), NoKey::Refuse)
        .cost(Cost::fixed(1).failures_only());
    let login = Counted::new(|request| {
        let is_right = request.headers().contains_key("x-right");
        Response::builder().status(if is_right { 200 } else { 401 }).body(String::new()).unwrap()
    });
    let mut service = by_hand(&clock).limit(limit).build().unwrap().layer(login.clone());
    let right = || Request::post("/login").header("x-user", "alice").header("x-right", "1");
    let wrong = || Request::post("/login").header("x-user", "alice");
    assert_eq!(
        passes(&mut service, [right(), right(), right(), wrong(), right()]).await,
        [200, 200, 200, 401, 200]
    );
    let got = send(&mut service, right()).await;
    assert_eq!(got.field("ratelimit"), Some(r#""failures";r=1;t=86400"#)); // what is told is what is left in the end
    assert_eq!(passes(&mut service, [wrong(), right(), wrong()]).await, [401, 429, 429]);
    assert_eq!(login.count(), 7); // the last two never got there
}

#[tokio::test]
async fn a_header_or_the_handler_says_what_it_cost() {
    fn used(text: &str) -> Response<String> {
        Response::builder().header("x-used", text).body(String::new()).unwrap()
    }
    let by_header = || Cost::fixed(5).settled_by_header(HeaderName::from_static("x-used"));
    // Two of ten, and five for the second call, whose answer says nothing.
    assert_eq!(left_after(by_header(), || used("2")).await, r#""a";r=3;t=86400"#);
    for garbage in [|| used(""), || used("-1"), || used("many"), || used("1.5")] {
        assert_eq!(left_after(by_header(), garbage).await, r#""a";r=0;t=86400"#);
    }
    let by_handler = Cost::fixed(5).settled_by_handler();
    let answer = || Response::builder().extension(ActualCost(4)).body(String::new()).unwrap();
    assert_eq!(left_after(by_handler, answer).await, r#""a";r=1;t=86400"#);
}

#[tokio::test]
async fn cached_reads_do_not_count() {
    let cost = Cost::fixed(1).settled(|reply| {
        let is_cached = reply.headers.get("x-cache").is_some_and(|value| value == "hit");
        Some(u64::from(!is_cached))
    });
    let hit = || Response::builder().header("x-cache", "hit").body(String::new()).unwrap();
    assert_eq!(left_after(cost.clone(), hit).await, r#""a";r=9;t=86400"#);
    assert_eq!(left_after(cost, || Response::new(String::new())).await, r#""a";r=8;t=86400"#);
}

#[tokio::test]
async fn bytes_of_the_body_are_charged_when_it_was_sent() {
    let clock = ManualClock::new();
    let layer = by_hand(&clock).limit(ten(Cost::fixed(1).settled_by_body())).build().unwrap();
    let mut service = layer.layer(Counted::new(|_| Response::new("1234567".to_owned())));
    assert_eq!(send(&mut service, Request::get("/")).await.field("ratelimit"), Some(r#""a";r=9;t=86400"#));
    // Seven were sent; one more is taken at first, and seven in the end: four too many.
    assert_eq!(send(&mut service, Request::get("/")).await.field("ratelimit"), Some(r#""a";r=2;t=86400"#));
    assert_eq!(send(&mut service, Request::get("/")).await.status, 429);
}

#[tokio::test]
async fn a_body_nobody_reads_costs_what_was_sent_of_it() {
    let clock = ManualClock::new();
    let layer = by_hand(&clock).limit(ten(Cost::fixed(5).settled_by_body())).build().unwrap();
    let mut service = layer.layer(Counted::new(|_| Response::new("1234567".to_owned())));
    let Ok(response) = service.call(Request::get("/").body(()).unwrap()).await;
    drop(response);
    assert_eq!(send(&mut service, Request::get("/")).await.field("ratelimit"), Some(r#""a";r=5;t=86400"#));
}

#[tokio::test]
async fn a_call_that_is_given_up_costs_what_was_taken_at_first() {
    let clock = ManualClock::new();
    let layer = by_hand(&clock).limit(ten(Cost::fixed(3).settled_by_handler())).build().unwrap();
    let mut service = layer.layer(Counted::new(|_| Response::new(String::new())));
    drop(service.call(Request::get("/").body(()).unwrap()));
    assert_eq!(send(&mut service, Request::get("/")).await.field("ratelimit"), Some(r#""a";r=4;t=86400"#));
}
