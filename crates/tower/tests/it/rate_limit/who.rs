//! Who is limited, and who is not.

use http::{HeaderName, Method, Request};
use tollgate::ManualClock;
use tollgate_tower::{AddressField, ClientAddress, Key, Limit, NoKey, Quota};
use tower_layer::Layer;

use super::kit::{by_hand, from, get, hello, limited, passes, send};

fn once() -> Limit {
    Limit::new("once", Quota::per_day(1))
}

#[tokio::test]
async fn each_client_has_its_own_share() {
    let (mut service, _) = limited(once().per(Key::client(), NoKey::Refuse));
    let statuses =
        passes(&mut service, ["192.0.2.1", "192.0.2.2", "192.0.2.1", "::ffff:192.0.2.2"].map(from));
    assert_eq!(statuses.await, [200, 200, 429, 429]);
}

#[tokio::test]
async fn nothing_a_caller_writes_changes_who_it_is() {
    let (mut service, _) = limited(once().per(Key::client(), NoKey::Refuse));
    let spoofed = |value: &str| from("192.0.2.1").header("x-forwarded-for", value).header("forwarded", value);
    assert_eq!(passes(&mut service, ["a", "1.1.1.1", "for=2.2.2.2"].map(spoofed)).await, [200, 429, 429]);
}

#[tokio::test]
async fn behind_a_trusted_proxy_the_caller_is_whom_it_names() {
    let clock = ManualClock::new();
    let clients = ClientAddress::behind(["10.0.0.0/8".parse().unwrap()], AddressField::XForwardedFor);
    let limits = by_hand(&clock).clients(clients).limit(once().per(Key::client(), NoKey::Refuse));
    let mut service = limits.build().unwrap().layer(hello());
    let via = |client: &str| from("10.0.0.1").header("x-forwarded-for", client);
    let requests = [via("192.0.2.1"), via("192.0.2.2"), via("6.6.6.6, 192.0.2.1"), from("192.0.2.2")];
    assert_eq!(passes(&mut service, requests).await, [200, 200, 429, 429]);
}

#[tokio::test]
async fn a_peer_can_come_from_anywhere() {
    let clock = ManualClock::new();
    let limits = by_hand(&clock)
        .peer(|head| head.text("x-peer")?.parse().ok())
        .limit(once().per(Key::client(), NoKey::Refuse));
    let mut service = limits.build().unwrap().layer(hello());
    let peer = |address: &str| Request::get("/").header("x-peer", address);
    assert_eq!(passes(&mut service, ["192.0.2.1", "192.0.2.1", "no"].map(peer)).await, [200, 429, 400]);
}

#[tokio::test]
async fn without_a_key_a_call_is_refused_shared_or_let_through() {
    const TENANT: HeaderName = HeaderName::from_static("x-tenant");
    for (no_key, statuses) in [
        (NoKey::Refuse, [200, 400, 400, 200]),
        (NoKey::Share, [200, 200, 429, 200]),
        (NoKey::Pass, [200, 200, 200, 200]),
    ] {
        let (mut service, _) = limited(once().per(Key::header(TENANT), no_key));
        let tenant = |name| Request::get("/").header(TENANT, name);
        // An empty value is as good as none.
        let requests = [tenant("a"), Request::get("/"), tenant(""), tenant("b")];
        assert_eq!(passes(&mut service, requests).await, statuses, "{no_key:?}");
    }
}

#[tokio::test]
async fn limits_are_for_the_routes_methods_and_tiers_they_say() {
    #[derive(Clone, PartialEq)]
    enum Plan {
        Free,
        Pro,
    }
    let clock = ManualClock::new();
    let limits = by_hand(&clock).limit(once().path("/login").methods([Method::POST])).limit(
        Limit::new("free", Quota::per_day(2)).when(|head| head.extensions.get::<Plan>() == Some(&Plan::Free)),
    );
    let mut service = limits.build().unwrap().layer(hello());
    let free = || Request::get("/").extension(Plan::Free);
    let requests =
        [Request::post("/login"), Request::post("/login"), Request::get("/login"), Request::post("/a")];
    assert_eq!(passes(&mut service, requests).await, [200, 429, 200, 200]);
    let requests = [free(), free(), free(), Request::get("/").extension(Plan::Pro)];
    assert_eq!(passes(&mut service, requests).await, [200, 200, 429, 200]);
    assert_eq!(get(&mut service).await.field("ratelimit"), None); // of a limit that is not for it, nobody is told
}

#[tokio::test]
async fn an_allowed_network_is_not_limited() {
    let clock = ManualClock::new();
    let limits = by_hand(&clock).allow("10.0.0.0/8".parse().unwrap()).limit(once());
    let mut service = limits.build().unwrap().layer(hello());
    let requests = ["10.1.2.3", "10.1.2.3", "192.0.2.1", "192.0.2.2", "10.9.9.9"].map(from);
    assert_eq!(passes(&mut service, requests).await, [200, 200, 200, 429, 200]);
    let spoofed = from("192.0.2.1").header("x-forwarded-for", "10.1.2.3");
    assert_eq!(send(&mut service, spoofed).await.status, 429);
}

#[tokio::test]
async fn nothing_in_the_corpus_of_spoofed_fields_changes_a_key() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/client-addresses.jsonl");
    let corpus = std::fs::read_to_string(path).unwrap();
    let (mut service, _) = limited(once().per(Key::client(), NoKey::Refuse));
    assert_eq!(send(&mut service, from("192.0.2.77")).await.status, 200);
    assert!(corpus.lines().count() >= 200);
    for line in corpus.lines() {
        let case: serde_json::Value = serde_json::from_str(line).unwrap();
        let mut request = from("192.0.2.77");
        for value in case["lines"].as_array().unwrap() {
            let bytes: Vec<u8> = value.as_str().unwrap().chars().map(|c| u8::try_from(c).unwrap()).collect();
            request = request.header(case["field"].as_str().unwrap(), bytes);
        }
        assert_eq!(send(&mut service, request).await.status, 429, "{line}");
    }
}
