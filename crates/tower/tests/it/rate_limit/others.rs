//! Shadow limits.

use tollgate::ManualClock;
use tollgate::store::MemoryStore;
use tollgate_tower::{Cost, Key, Limit, NoKey, Quota, RateLimitLayer};
use tower_layer::Layer;

use super::kit::{by_hand, get, hello};

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
async fn a_shadow_limit_takes_and_is_settled_too() {
    let store = MemoryStore::builder().clock(ManualClock::new()).build();
    // The same rule in all of them, so the same state.
    let limit = || Limit::new("a", Quota::per_day(2));
    let with = |limit| RateLimitLayer::builder().store(store.clone()).limit(limit).build().unwrap();
    let settled = limit().cost(Cost::fixed(1).settled(|_| Some(0)));
    for _ in 0..3 {
        assert_eq!(get(&mut with(settled.clone().shadow()).layer(hello())).await.status, 200);
    }
    assert_eq!(get(&mut with(limit().shadow()).layer(hello())).await.status, 200);
    for status in [200, 429] {
        assert_eq!(get(&mut with(limit()).layer(hello())).await.status, status);
    }
}
