//! Who may ask.

use tollgate::ManualClock;
use tollgate::store::MemoryStore;
use tollgate_server::rls::proto::RateLimitDescriptor;
use tollgate_server::{Keyring, RlsOptions, Scope, Scopes};
use tonic::{Code, Request};

use super::rig::{EVENING, Rig, descriptor, request};

fn locked() -> Rig<MemoryStore<ManualClock>> {
    let clock = ManualClock::starting_at(EVENING);
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let keyring = Keyring::new()
        .token("proxy", b"asks", Scopes::of(&[Scope::Check]))
        .token("biller", b"settles", Scopes::of(&[Scope::Check, Scope::Settle]))
        .token("viewer", b"looks", Scopes::of(&[Scope::Admin]));
    Rig::start(store, clock, "domain = \"d\"\n[limit.a]\nrate = \"1/h\"\n", RlsOptions::default(), keyring)
}

async fn code(rig: &Rig<MemoryStore<ManualClock>>, token: Option<&str>, gives_back: bool) -> Code {
    let descriptor = RateLimitDescriptor { is_negative_hits: gives_back, ..descriptor(&[("a", "b")]) };
    let mut request = Request::new(request("d", &[descriptor]));
    if let Some(token) = token {
        request.metadata_mut().insert("authorization", token.parse().unwrap());
    }
    rig.ask_with(request).await.map_or_else(|status| status.code(), |_| Code::Ok)
}

#[tokio::test]
async fn only_those_with_a_token_may_ask_and_only_some_may_give_back() {
    let rig = locked();
    for (token, asks, gives_back) in [
        (None, Code::Unauthenticated, Code::Unauthenticated),
        (Some("Bearer guess"), Code::Unauthenticated, Code::Unauthenticated),
        (Some("Basic asks"), Code::Unauthenticated, Code::Unauthenticated),
        (Some("Bearer looks"), Code::PermissionDenied, Code::PermissionDenied),
        (Some("Bearer asks"), Code::Ok, Code::PermissionDenied),
        (Some("bearer settles"), Code::Ok, Code::Ok),
    ] {
        assert_eq!(code(&rig, token, false).await, asks, "{token:?} asks");
        assert_eq!(code(&rig, token, true).await, gives_back, "{token:?} gives back");
    }
}
