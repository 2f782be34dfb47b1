//! Shadow limits.

use tollgate::ManualClock;
use tollgate_tower::{Cost, Key, Limit, NoKey, Quota};
use tower_layer::Layer;

use crate::kit::{by_hand, get, hello};

#[tokio::test]
async fn a_shadow_limit_refuses_nothing_and_is_not_told() {
    let clock = ManualClock::new();
    let limits = by_hand(&clock)
        .limit(Limit::new("real", Quota::per_day(3)))
        .limit(Limit::new("shadow", Quota::per_day(1)).shadow())
        .limit(Limit::new("nobody", Quota::per_day(1)).per(Key::bearer_token(), NoKey::Refuse).shadow());
    let mut service = limits.build().unwrap().layer(hello());
    for _ in 0..3 {
        let got = get(&mut service).await;
        assert_eq!(got.status, 200);
        assert_eq!(got.field("ratelimit-policy"), Some(r#""real";q=3;w=86400"#));
    }
    assert_eq!(get(&mut service).await.status, 429);
}

#[tokio::test]
async fn a_shadow_limit_is_settled_too() {
    let clock = ManualClock::new();
    let cost = Cost::fixed(1).settled(|_| Some(0));
    let shadow = Limit::new("a", Quota::per_day(1)).cost(cost);
    let store = tollgate::store::MemoryStore::builder().clock(clock.clone()).build();
    let with =
        |limit| tollgate_tower::RateLimitLayer::builder().store(store.clone()).limit(limit).build().unwrap();
    for _ in 0..3 {
        assert_eq!(get(&mut with(shadow.clone().shadow()).layer(hello())).await.status, 200);
    }
    // The same rule, enforced: all of it came back.
    assert_eq!(get(&mut with(Limit::new("a", Quota::per_day(1))).layer(hello())).await.status, 200);
    get(&mut with(Limit::new("a", Quota::per_day(1)).shadow()).layer(hello())).await;
    assert_eq!(get(&mut with(Limit::new("a", Quota::per_day(1))).layer(hello())).await.status, 429);
}
