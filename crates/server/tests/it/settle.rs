//! `Engine::settle`: which limits an actual cost is for.

use std::time::Duration;

use tollgate::ManualClock;
use tollgate::store::{MemoryStore, Mode};
use tollgate_flow::Time;
use tollgate_policy::{Descriptor, Policy};
use tollgate_server::{Actual, Ask, Clerk, Engine, Origin, PermitId, SettleError};

type Store = MemoryStore<ManualClock>;

/// Nothing is refilled while a test runs: the clock stands still.
const LIMITS: &str = r#"
[limit.requests]
key = "key"
rate = ["100/h", "1000/d"]
[limit.tokens]
key = "key"
rate = "10000/h"
cost = "tokens"
[limit.bytes]
match.bytes = "*"
key = "key"
rate = "5000/h"
cost = "bytes"
[limit.watched]
match.images = "*"
key = "key"
rate = "50/h"
cost = "images"
mode = "shadow"
"#;

fn engine() -> Engine<Store> {
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let policy = Policy::parse("limits.toml", LIMITS).unwrap();
    Engine::in_time(store, policy, Origin::default(), Time::of(clock))
}

/// Holds what a call costs, by its own cost and by cost fields.
async fn hold(clerk: &mut Clerk<Store>, cost: Option<u64>, fields: &[(&str, &str)]) -> PermitId {
    let mut descriptor = Descriptor::new().with("key", "k");
    for (name, value) in fields {
        descriptor.push(name, value.as_bytes());
    }
    let asks = [Ask { cost, ..Ask::policy(&descriptor) }];
    let (ruling, id) = clerk.hold(&asks, Duration::from_secs(60)).await.unwrap();
    assert!(ruling.is_allowed());
    id.expect("it is held")
}

/// What was used of requests, tokens and bytes.
async fn used(clerk: &mut Clerk<Store>) -> [u64; 3] {
    let fields = [("tokens", "0"), ("bytes", "0")];
    let mut descriptor = Descriptor::new().with("key", "k");
    for (name, value) in fields {
        descriptor.push(name, value.as_bytes());
    }
    let asks = [Ask::policy(&descriptor).costing(0)];
    let ruling = clerk.decide(Mode::Peek, &asks).await.unwrap();
    let used = |name: &str| {
        let found = ruling.findings().iter().filter(|finding| finding.limit.rule.name() == name);
        let used: Vec<u64> = found.map(|said| said.decision.limit() - said.decision.remaining()).collect();
        assert!(used.iter().all(|each| *each == used[0]), "each rate is charged the same: {used:?}");
        used[0]
    };
    [used("requests"), used("tokens"), used("bytes")]
}

/// Answers, item 14: an actual cost is charged to the limits whose cost it is, and to no other.
#[tokio::test]
async fn settle_charges_only_the_limits_whose_cost_is_meant() {
    let tokens: &[(&str, &str)] = &[("tokens", "900")];
    let both: &[(&str, &str)] = &[("tokens", "900"), ("bytes", "2000")];
    let watched: &[(&str, &str)] = &[("tokens", "900"), ("images", "3")];
    let named: &[(&str, u64)] = &[("tokens", 640)];
    for (cost, fields, actual, expected) in [
        // One cost field: a number is its actual cost. A request stays one request.
        (None, tokens, Actual::Cost(640), [1, 640, 0]),
        (None, tokens, Actual::Cost(0), [1, 0, 0]),
        (None, tokens, Actual::Cost(1_200), [1, 1_200, 0]),
        (None, tokens, Actual::Fields(named), [1, 640, 0]),
        // The call states a cost of its own, which is not that of the field.
        (Some(5), tokens, Actual::Cost(3), [3, 900, 0]),
        (Some(5), tokens, Actual::Fields(named), [5, 640, 0]),
        (Some(5), &[], Actual::Cost(2), [2, 2, 0]),
        // A name settles the limit that reads this field, though the call did not have it.
        (Some(5), &[], Actual::Fields(named), [5, 640, 0]),
        (None, &[], Actual::Fields(named), [1, 640, 0]),
        // Several cost fields are named.
        (None, both, Actual::Fields(&[("bytes", 1_500), ("tokens", 640)]), [1, 640, 1_500]),
        (None, both, Actual::Fields(named), [1, 640, 2_000]),
        (None, both, Actual::Fields(&[]), [1, 900, 2_000]),
        // A field that only limits read which do not apply, or which are in shadow, changes nothing.
        (None, tokens, Actual::Fields(&[("bytes", 7)]), [1, 900, 0]),
        (None, watched, Actual::Fields(&[("images", 7)]), [1, 900, 0]),
    ] {
        let engine = engine();
        let mut clerk = engine.clerk();
        let id = hold(&mut clerk, cost, fields).await;
        assert!(engine.settle(id, actual).await.unwrap(), "{cost:?} {fields:?} {actual:?}");
        assert_eq!(used(&mut clerk).await, expected, "{cost:?} {fields:?} {actual:?}");
    }
}

/// Answers, item 14: an actual cost that could be meant for the wrong limit is an error, and the permit is still held.
#[tokio::test]
async fn settle_refuses_a_cost_that_no_limit_took() {
    let both: &[(&str, &str)] = &[("tokens", "900"), ("bytes", "2000")];
    let plain: &[(&str, &str)] = &[("bytes", "9")];
    for (fields, actual, message) in [
        (
            both,
            Actual::Cost(640),
            r#"limits read their cost from several fields; settle each of "tokens", "bytes""#,
        ),
        (
            &both[..1],
            Actual::Fields(&[("tokns", 640)]),
            r#"no limit reads its cost from field "tokns"; the cost fields of this hold are "tokens""#,
        ),
        (&plain[..0], Actual::Fields(&[("tokns", 640)]), r#"no limit reads its cost from field "tokns""#),
        (
            &plain[..0],
            Actual::Cost(0),
            "a number cannot settle this hold, because no limit took its cost; name cost fields",
        ),
    ] {
        let engine = engine();
        let mut clerk = engine.clerk();
        let id = hold(&mut clerk, None, fields).await;
        let before = used(&mut clerk).await;
        let error = engine.settle(id, actual).await.unwrap_err();
        assert!(!matches!(error, SettleError::Store(_)));
        assert_eq!(error.to_string(), message);
        assert_eq!((used(&mut clerk).await, engine.held()), (before, 1));
        assert!(engine.settle(id, Actual::Fields(&[])).await.unwrap());
    }
}

/// Answers, item 14: what no limit applies to can be settled, and changes nothing.
#[tokio::test]
async fn settle_of_an_unlimited_call_changes_nothing() {
    let engine = engine();
    let mut clerk = engine.clerk();
    let elsewhere = Descriptor::in_domain("elsewhere").with("tokens", "900");
    for actual in [Actual::Cost(640), Actual::Fields(&[("tokens", 640)])] {
        let (_, id) = clerk.hold(&[Ask::policy(&elsewhere)], Duration::from_secs(60)).await.unwrap();
        assert!(engine.settle(id.unwrap(), actual).await.unwrap());
    }
}
