//! A store that cannot tell.

use std::future::{Ready, ready};

use tollgate::ManualClock;
use tollgate::store::{
    Answer, Busy, Hit, MemoryLimit, MemoryPermit, MemoryStore, Mode, Rule, Store, StoreError, Top, Usage,
};
use tollgate_server::rls::proto::{Code, RateLimitDescriptor};
use tollgate_server::{Keyring, RlsOptions};

use super::rig::{EVENING, Rig, descriptor, request};

/// Opens limits, and can tell nothing about them.
#[derive(Clone)]
pub(crate) struct Down(pub(crate) MemoryStore<ManualClock>);

fn gone<T>() -> Ready<Result<T, StoreError>> {
    ready(Err(StoreError::transient("gone for lunch")))
}

#[allow(refining_impl_trait)]
impl Store for Down {
    type Limit = MemoryLimit<ManualClock>;
    type Permit = MemoryPermit<ManualClock>;

    fn open(&self, rule: &Rule) -> Self::Limit {
        self.0.open(rule)
    }

    fn decide(&self, _: Mode, _: &[Hit<'_, Self::Limit>]) -> Ready<Result<Answer, StoreError>> {
        gone()
    }

    fn acquire(
        &self,
        _: &[Hit<'_, Self::Limit>],
    ) -> Ready<Result<(Answer, Option<Self::Permit>), StoreError>> {
        gone()
    }

    fn settle(&self, _: &mut Self::Permit, _: &[u64]) -> Ready<Result<(), StoreError>> {
        gone()
    }

    fn reset(&self, _: &Self::Limit, _: &[u8]) -> Ready<Result<bool, StoreError>> {
        gone()
    }

    fn usage(&self) -> Ready<Result<Usage, StoreError>> {
        gone()
    }

    fn busiest(&self, _: Top, _: usize) -> Ready<Result<Vec<Busy>, StoreError>> {
        gone()
    }
}

#[tokio::test]
async fn every_limit_says_what_becomes_of_a_call() {
    let limit = |name: &str, choice: &str| {
        format!("[limit.{name}]\nkey = \"{name}\"\nrate = \"1/h\"\non_store_failure = \"{choice}\"\n")
    };
    let text = format!(
        "domain = \"d\"\n{}{}{}",
        limit("open", "allow"),
        limit("closed", "deny"),
        limit("local", "local")
    );
    let clock = ManualClock::starting_at(EVENING);
    let store = Down(MemoryStore::builder().clock(clock.clone()).build());
    let options = RlsOptions { headers: true, dynamic_metadata: true, ..RlsOptions::default() };
    let rig = Rig::start(store, clock, &text, options, Keyring::open());
    let ask = |names: &[&str]| {
        let descriptors: Vec<_> = names.iter().map(|name| descriptor(&[(*name, "x")])).collect();
        request("d", &descriptors)
    };
    for _ in 0..3 {
        let answer = rig.ask(ask(&["open"])).await.unwrap();
        assert_eq!(answer.overall_code(), Code::Ok);
        let mark = answer.response_headers_to_add.iter().find(|field| field.key == "X-RateLimit-Degraded");
        assert_eq!(mark.map(|field| &*field.value), Some("true"), "{answer:?}");
        let metadata = answer.dynamic_metadata.unwrap();
        assert_eq!(metadata.fields["degraded"].kind, Some(prost_types::value::Kind::BoolValue(true)));
    }
    let error = rig.ask(ask(&["open", "closed", "local"])).await.unwrap_err();
    assert_eq!(error.code(), tonic::Code::Unavailable);
    assert_eq!(error.message(), "store unavailable; a limit has on_store_failure = \"deny\"");
    assert_eq!(rig.ask(ask(&["local"])).await.unwrap().overall_code(), Code::Ok, "nothing was taken of it");
    assert_eq!(rig.ask(ask(&["local"])).await.unwrap().overall_code(), Code::OverLimit);
    // One that can tell refuses: that is an answer.
    assert_eq!(rig.ask(ask(&["local", "closed"])).await.unwrap().overall_code(), Code::OverLimit);
}

/// Answers, item 15: over gRPC, a call that gives back is `UNAVAILABLE` while the store is away, and says whether trying again is safe.
#[tokio::test]
async fn a_refund_is_unavailable_while_the_store_is_away() {
    for choice in ["allow", "deny", "local"] {
        let text = format!(
            "domain = \"d\"\n[limit.a]\nkey = \"a\"\nrate = \"1/h\"\non_store_failure = \"{choice}\"\n"
        );
        let clock = ManualClock::starting_at(EVENING);
        let store = Down(MemoryStore::builder().clock(clock.clone()).build());
        let rig = Rig::start(store, clock, &text, RlsOptions::default(), Keyring::open());
        let back = RateLimitDescriptor { is_negative_hits: true, ..descriptor(&[("a", "x")]) };
        let error = rig.ask(request("d", &[back])).await.unwrap_err();
        assert_eq!(error.code(), tonic::Code::Unavailable, "{choice}");
        assert_eq!(
            error.message(),
            "store unavailable, the cost may have been applied; a retry may apply it twice"
        );
    }
}
