//! Limits that count what they refuse, quotas of which one is enough, and asks that each want something else.

use tollgate::ManualClock;
use tollgate::store::{MemoryStore, Mode};
use tollgate_flow::Time;
use tollgate_policy::{Descriptor, Policy};
use tollgate_server::{Actual, Ask, Clerk, Engine, Origin, Outcome};

type Store = MemoryStore<ManualClock>;

fn engine(text: &str) -> Engine<Store> {
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let policy = Policy::parse("limits.toml", text).unwrap();
    Engine::in_time(store, policy, Origin::default(), Time::of(clock))
}

/// Two limits that are taken together, two that count what they refuse, two quotas, and one in shadow that counts.
const LIMITS: &str = r#"
algorithm = "fixed-window"
[limit.one]
key = "one"
rate = "2/h"
[limit.two]
key = "two"
rate = "2/h"
[limit.counts]
key = "counts"
rate = "2/h"
count_denied = true
[limit.counts-too]
key = "counts-too"
rate = "2/h"
count_denied = true
[limit.quota]
key = "quota"
rate = "1/h"
envoy.any_of = true
[limit.other-quota]
key = "other-quota"
rate = "2/h"
envoy.any_of = true
[limit.shadow]
key = "shadow"
rate = "1/h"
mode = "shadow"
count_denied = true
"#;

fn descriptors<'a>(names: &[&'a str]) -> Vec<Descriptor<'a>> {
    names.iter().map(|name| Descriptor::new().with(name, "x")).collect()
}

/// Whether all of it is allowed, and which asks refuse.
async fn ask(clerk: &mut Clerk<Store>, modes: &[Mode], names: &[&str], cost: u64) -> (bool, Vec<usize>) {
    let descriptors = descriptors(names);
    let asks: Vec<Ask<'_, Store>> =
        descriptors.iter().map(|descriptor| Ask::policy(descriptor).costing(cost)).collect();
    let ruling = clerk.decide_each(modes, &asks).await.unwrap();
    let refused = ruling.findings().iter().filter(|finding| finding.is_refusal() && !finding.is_shadow);
    (ruling.is_allowed(), refused.map(|finding| finding.ask).collect())
}

async fn left(clerk: &mut Clerk<Store>, name: &str) -> u64 {
    let descriptors = descriptors(&[name]);
    let asks = [Ask::policy(&descriptors[0]).costing(0)];
    clerk.decide(Mode::Peek, &asks).await.unwrap().findings()[0].decision.remaining()
}

#[tokio::test]
async fn what_counts_counts_whatever_becomes_of_the_others() {
    let engine = engine(LIMITS);
    let mut clerk = engine.clerk();
    // One refuses: the other that is taken is left alone, and those that count have counted.
    assert_eq!(ask(&mut clerk, &[], &["one"], 2).await, (true, vec![]));
    assert_eq!(ask(&mut clerk, &[], &["counts", "two", "one", "counts-too"], 1).await, (false, vec![2]));
    assert_eq!(left(&mut clerk, "two").await, 2);
    assert_eq!((left(&mut clerk, "counts").await, left(&mut clerk, "counts-too").await), (1, 1));
    let tallies = engine.tallies();
    let calls = |name: &str| {
        let tally = &tallies.iter().find(|tallied| &*tallied.name == name).unwrap().tally;
        (tally.calls(Outcome::Allowed), tally.calls(Outcome::Denied))
    };
    assert_eq!(["one", "two", "counts", "counts-too"].map(calls), [(1, 1), (0, 0), (1, 0), (1, 0)]);
    // One that counts refuses: what it refuses uses up what is left, the other one counts, nothing else is taken.
    assert_eq!(ask(&mut clerk, &[], &["two", "counts"], 2).await, (false, vec![1]));
    assert_eq!((left(&mut clerk, "two").await, left(&mut clerk, "counts").await), (2, 0));
}

#[tokio::test]
async fn a_shadow_that_counts_what_is_refused_sees_it() {
    let engine = engine(LIMITS);
    let mut clerk = engine.clerk();
    assert_eq!(ask(&mut clerk, &[], &["one"], 2).await, (true, vec![]));
    assert_eq!(ask(&mut clerk, &[], &["shadow", "one"], 1).await, (false, vec![1]));
    assert_eq!(left(&mut clerk, "shadow").await, 0);
}

#[tokio::test]
async fn of_quotas_one_is_enough() {
    let engine = engine(LIMITS);
    let mut clerk = engine.clerk();
    assert_eq!(ask(&mut clerk, &[], &["quota", "other-quota", "one"], 1).await, (true, vec![]));
    assert_eq!(ask(&mut clerk, &[], &["quota", "other-quota", "one"], 1).await, (true, vec![0]));
    // Both are over: nothing is taken of what is taken together.
    assert_eq!(ask(&mut clerk, &[], &["two", "quota", "other-quota"], 1).await, (false, vec![1, 2]));
    assert_eq!(left(&mut clerk, "two").await, 2);
    // Something else refuses: nothing is taken of a quota.
    assert_eq!(ask(&mut clerk, &[], &["other-quota", "one"], 1).await, (false, vec![0, 1]));
    assert_eq!(ask(&mut clerk, &[], &["quota"], 1).await, (false, vec![0]), "alone it is enforced");
    let tallies = engine.tallies();
    let tally = &tallies.iter().find(|tallied| &*tallied.name == "quota").unwrap().tally;
    let calls =
        [Outcome::Allowed, Outcome::ShadowDenied, Outcome::Denied].map(|outcome| tally.calls(outcome));
    assert_eq!(calls, [1, 1, 2], "once it was over and the call went ahead");
}

#[tokio::test]
async fn a_quota_is_left_alone_if_something_else_refuses() {
    let engine = engine(LIMITS);
    let mut clerk = engine.clerk();
    assert_eq!(ask(&mut clerk, &[], &["one"], 2).await, (true, vec![]));
    assert_eq!(ask(&mut clerk, &[], &["quota", "one"], 1).await, (false, vec![1]));
    assert_eq!(left(&mut clerk, "quota").await, 1);
}

#[tokio::test]
async fn each_ask_can_want_something_else() {
    let engine = engine(LIMITS);
    let mut clerk = engine.clerk();
    assert_eq!(ask(&mut clerk, &[], &["one", "two"], 2).await, (true, vec![]));
    // Giving back happens whatever becomes of the rest; looking refuses all that is taken.
    let modes = [Mode::Refund, Mode::Peek, Mode::Take];
    assert_eq!(ask(&mut clerk, &modes, &["one", "two", "counts"], 1).await, (false, vec![1]));
    assert_eq!((left(&mut clerk, "one").await, left(&mut clerk, "two").await), (1, 0));
    assert_eq!(left(&mut clerk, "counts").await, 1, "it counts what is refused");
    let modes = [Mode::Charge, Mode::Peek];
    assert_eq!(ask(&mut clerk, &modes, &["quota", "one", "one"], 1).await, (true, vec![]));
    assert_eq!(
        (left(&mut clerk, "quota").await, left(&mut clerk, "one").await),
        (0, 0),
        "the third is taken"
    );
    let counted = |name: &str| {
        let tallies = engine.tallies();
        let tally = &tallies.iter().find(|tallied| &*tallied.name == name).unwrap().tally;
        Outcome::ALL.map(|outcome| tally.calls(outcome)).iter().sum::<u64>()
    };
    assert_eq!((counted("one"), counted("two"), counted("quota")), (2, 1, 0), "only taking is a call");
}

#[tokio::test]
async fn replacements_hold_across_asks() {
    let text = "[limit.all]\nkey = \"ip\"\nrate = \"1/h\"\n[limit.staff]\nkey = \"staff\"\nrate = \"9/h\"\nenvoy.replaces = \"all\"\n";
    let engine = engine(text);
    let mut clerk = engine.clerk();
    for _ in 0..3 {
        assert_eq!(ask(&mut clerk, &[], &["ip", "staff"], 1).await, (true, vec![]));
    }
    assert_eq!(ask(&mut clerk, &[], &["ip"], 1).await, (true, vec![]));
    assert_eq!(ask(&mut clerk, &[], &["ip"], 1).await, (false, vec![0]));
}

#[tokio::test]
async fn what_is_held_counts_where_refusals_do() {
    let engine = engine(LIMITS);
    let mut clerk = engine.clerk();
    let descriptors = descriptors(&["one", "counts"]);
    let asks = [Ask::policy(&descriptors[0]).costing(2), Ask::policy(&descriptors[1])];
    let span = std::time::Duration::from_secs(60);
    let (ruling, id) = clerk.hold(&asks, span).await.unwrap();
    assert!(ruling.is_allowed());
    drop(ruling);
    assert!(engine.settle(id.unwrap(), Actual::Cost(1)).await.unwrap());
    assert_eq!((left(&mut clerk, "one").await, left(&mut clerk, "counts").await), (1, 1));
    let (ruling, id) = clerk.hold(&asks, span).await.unwrap();
    assert!(!ruling.is_allowed() && id.is_none());
    drop(ruling);
    let (ruling, id) = clerk.hold(&asks[1..], span).await.unwrap();
    assert!(!ruling.is_allowed() && id.is_none(), "the refused one has counted");
}
