//! What callers are told.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use tollgate::ManualClock;
use tollgate_tower::{Form, Key, Kind, Limit, LimitError, NoKey, Quota, RateLimitLayer, Reason};
use tower_layer::Layer;

use super::kit::{by_hand, get, hello, limited, send};

#[tokio::test]
async fn fields_are_on_every_answer_and_count_down() {
    let (mut service, clock) = limited(Limit::new("minute", Quota::per_minute(3)).kind(Kind::FixedWindow));
    for left in [2, 1, 0] {
        let got = get(&mut service).await;
        assert_eq!((got.status.as_u16(), got.body.as_str()), (200, "hello"));
        assert_eq!(got.field("ratelimit-policy"), Some(r#""minute";q=3;w=60"#));
        assert_eq!(got.field("ratelimit"), Some(format!(r#""minute";r={left};t=60"#).as_str()));
        assert_eq!(got.field("retry-after"), None);
    }
    clock.advance(Duration::from_secs(18));
    let got = get(&mut service).await;
    assert_eq!(got.status, 429);
    assert_eq!(got.field("ratelimit"), Some(r#""minute";r=0;t=42"#));
    assert_eq!(got.field("retry-after"), Some("42"));
    assert_eq!(got.field("content-type"), Some("application/problem+json"));
    assert_eq!(
        got.body,
        r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429,"violated-policies":["minute"]}"#
    );
}

#[tokio::test]
async fn a_retry_at_retry_after_passes_and_one_tick_earlier_does_not() {
    for kind in [Kind::TokenBucket, Kind::FixedWindow, Kind::SlidingLog] {
        // Whole seconds, so the field, which is rounded up, is true to the tick.
        let limit = Limit::new("a", Quota::per_minute(2)).kind(kind);
        let (mut service, clock) = limited(limit);
        assert_eq!(get(&mut service).await.status, 200);
        assert_eq!(get(&mut service).await.status, 200);
        let refused = get(&mut service).await;
        assert_eq!(refused.status, 429);
        let wait: u64 = refused.field("retry-after").unwrap().parse().unwrap();
        assert_eq!(wait, if kind == Kind::TokenBucket { 30 } else { 60 }, "{kind}");
        clock.advance(Duration::from_nanos(wait * 1_000_000_000 - 1));
        assert_eq!(get(&mut service).await.status, 429, "{kind}");
        clock.advance(Duration::from_nanos(1));
        assert_eq!(get(&mut service).await.status, 200, "{kind}");
    }
}

#[tokio::test]
async fn several_limits_admit_all_or_nothing_and_all_are_told() {
    let clock = ManualClock::new();
    let limits = by_hand(&clock)
        .limit(Limit::new("many", Quota::per_minute(5)).kind(Kind::FixedWindow))
        .limit(Limit::new("few", Quota::per_hour(1)).kind(Kind::FixedWindow));
    let mut service = limits.build().unwrap().layer(hello());
    assert_eq!(get(&mut service).await.status, 200);
    for _ in 0..3 {
        let refused = get(&mut service).await;
        assert_eq!(refused.status, 429);
        // A refusal takes nothing of the others.
        assert_eq!(refused.field("ratelimit"), Some(r#""many";r=4;t=60, "few";r=0;t=3600"#));
        assert!(refused.body.contains(r#""violated-policies":["few"]"#), "{}", refused.body);
    }
}

#[tokio::test]
async fn several_quotas_of_a_limit_are_told_by_their_numbers() {
    let limit = Limit::new("api", Quota::per_second(2)).quota(Quota::per_minute(3)).kind(Kind::FixedWindow);
    let (mut service, _) = limited(limit);
    let got = get(&mut service).await;
    assert_eq!(got.field("ratelimit-policy"), Some(r#""api 2/s";q=2;w=1, "api 3/min";q=3;w=60"#));
    assert_eq!(got.field("ratelimit"), Some(r#""api 2/s";r=1;t=1, "api 3/min";r=2;t=60"#));
}

#[tokio::test]
async fn a_cost_above_the_limit_is_refused_without_a_time_to_come_back() {
    let cost = tollgate_tower::Cost::of(|head| head.text("x-cost").unwrap().parse().unwrap());
    let (mut service, _) = limited(Limit::new("a", Quota::per_minute(10)).cost(cost));
    let refused = send(&mut service, Request::get("/").header("x-cost", "11")).await;
    assert_eq!((refused.status.as_u16(), refused.field("retry-after")), (429, None));
    assert_eq!(send(&mut service, Request::get("/").header("x-cost", "10")).await.status, 200);
}

#[tokio::test]
async fn older_forms_and_none_can_be_chosen() {
    for (form, field, told) in [
        (Form::Draft7, "ratelimit", Some("limit=1, remaining=0, reset=60")),
        (Form::XRateLimit, "x-ratelimit-remaining", Some("0")),
        (Form::Off, "ratelimit", None),
    ] {
        let clock = ManualClock::new();
        let limit = Limit::new("a", Quota::per_minute(1)).kind(Kind::FixedWindow);
        let mut service = by_hand(&clock).form(form).limit(limit).build().unwrap().layer(hello());
        assert_eq!(get(&mut service).await.field(field), told);
        assert_eq!(get(&mut service).await.field("retry-after"), Some("60"));
    }
}

#[tokio::test]
async fn a_custom_answer_gets_the_fields_too() {
    let clock = ManualClock::new();
    let limits = by_hand(&clock).limit(Limit::new("a", Quota::per_minute(1))).on_denial(|denial| {
        assert_eq!(denial.reason(), Reason::LimitReached);
        assert_eq!(denial.retry_after(), Some(Duration::from_secs(60)));
        let text = format!("{} is over {}", denial.head().uri, denial.limits().collect::<String>());
        Response::builder().status(420).body(Bytes::from(text)).unwrap()
    });
    let mut service = limits.build().unwrap().layer(hello());
    get(&mut service).await;
    let refused = get(&mut service).await;
    assert_eq!((refused.status.as_u16(), refused.body.as_str()), (420, "/ is over a"));
    assert_eq!(refused.field("retry-after"), Some("60"));
}

#[tokio::test]
async fn grpc_is_told_in_its_own_words() {
    let (mut service, clock) = limited(Limit::new("a", Quota::per_minute(1)));
    let request = || Request::post("/pkg.Service/Method").header("content-type", "application/grpc+proto");
    send(&mut service, request()).await;
    clock.advance(Duration::from_nanos(1));
    let refused = send(&mut service, request()).await;
    assert_eq!((refused.status.as_u16(), refused.body.as_str()), (200, ""));
    assert_eq!(refused.field("content-type"), Some("application/grpc"));
    assert_eq!(refused.field("grpc-status"), Some("8"));
    assert_eq!(refused.field("grpc-retry-pushback-ms"), Some("60000")); // rounded up
}

#[test]
fn limits_nobody_could_be_told_of_are_refused() {
    let limit = |name: &str| Limit::new(name, Quota::per_second(1));
    let error = RateLimitLayer::builder().limit(limit("a")).limit(limit("a")).build().unwrap_err();
    assert_eq!(error, LimitError::SameName("a".to_owned()));
    assert_eq!(error.to_string(), r#"duplicate limit name "a""#);
    assert!(matches!(RateLimitLayer::new(limit("ö")), Err(LimitError::Name(_))));
    let error = RateLimitLayer::builder().build().unwrap_err();
    assert_eq!(error, LimitError::NoLimits, "it would let everything pass");
}

#[tokio::test]
async fn a_refusal_for_want_of_a_key_says_so() {
    let (mut service, _) =
        limited(Limit::new("a", Quota::per_minute(1)).per(Key::bearer_token(), NoKey::Refuse));
    let refused = get(&mut service).await;
    assert_eq!(refused.status, 400);
    assert_eq!(refused.field("content-type"), Some("application/problem+json"));
    assert_eq!(refused.field("ratelimit"), None);
    assert_eq!(
        refused.body,
        r#"{"type":"about:blank","title":"Bad Request","status":400,"detail":"the request lacks the key of a limit"}"#
    );
}
