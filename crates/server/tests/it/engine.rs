//! The one path on which every protocol decides.

use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tollgate::store::{
    Answer, Busy, Hit, MemoryLimit, MemoryPermit, MemoryStore, Mode, Rule, Store, StoreError, Top, Usage,
};
use tollgate::{Kind, ManualClock, Quota};
use tollgate_flow::Time;
use tollgate_policy::{Descriptor, Policy};
use tollgate_server::{
    Actual, Ask, AskError, Basis, Caller, Clerk, Engine, EngineOptions, Family, HoldBound, LoadProblem,
    Origin, Outcome, PermitId, Ruling, Subject,
};

type Manual = MemoryStore<ManualClock>;

/// A policy that applies to nobody.
const NONE: &str = "[limit.none]\nrate = \"1/h\"\nmatch.nobody = \"here\"\n";

/// The limits that callers supply.
const OWN: Family = Family::new("@own");

fn policy(text: &str) -> Policy {
    Policy::parse("limits.toml", text).unwrap()
}

fn engine(text: &str) -> (ManualClock, Engine<Manual>) {
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let engine = Engine::in_time(store, policy(text), Origin::default(), Time::of(clock.clone()));
    (clock, engine)
}

async fn take<S: Store>(clerk: &mut Clerk<S>, descriptor: &Descriptor<'_>) -> bool {
    clerk.decide(Mode::Take, &[Ask::policy(descriptor)]).await.unwrap().is_allowed()
}

async fn left<S: Store>(clerk: &mut Clerk<S>, descriptor: &Descriptor<'_>) -> Vec<u64> {
    let asks = [Ask::policy(descriptor).costing(0)];
    let ruling = clerk.decide(Mode::Peek, &asks).await.unwrap();
    ruling.findings().iter().map(|finding| finding.decision.remaining()).collect()
}

#[tokio::test]
async fn all_limits_that_apply_admit_together_or_not_at_all() {
    let (_, engine) = engine(
        "[limit.per-ip]\nkey = \"ip\"\nrate = \"5/min\"\n[limit.all]\nrate = [\"3/min\", \"100/h\"]\n",
    );
    let mut clerk = engine.clerk();
    let ann = Descriptor::new().with("ip", "10.0.0.1");
    for _ in 0..3 {
        assert!(take(&mut clerk, &ann).await);
    }
    let asks = [Ask::policy(&ann)];
    let ruling = clerk.decide(Mode::Take, &asks).await.unwrap();
    assert!(!ruling.is_allowed());
    let decided = ruling.decided_by().unwrap();
    assert_eq!((decided.limit.rule.name(), decided.quota), ("all", 0));
    assert_eq!(ruling.retry_after(), Some(Duration::from_secs(20)));
    assert_eq!(
        ruling.findings()[0].decision.remaining(),
        2,
        "nothing was taken where there was something left"
    );
    drop(ruling);
    assert_eq!(left(&mut clerk, &ann).await, [2, 0, 97]);
}

#[tokio::test]
async fn several_asks_are_decided_together() {
    let (_, engine) = engine("[limit.per-ip]\nkey = \"ip\"\nrate = \"2/min\"\n");
    let mut clerk = engine.clerk();
    let (ann, bob) = (Descriptor::new().with("ip", "1"), Descriptor::new().with("ip", "2"));
    assert!(take(&mut clerk, &ann).await);
    let asks = [Ask::policy(&ann).costing(2), Ask::policy(&bob)];
    let ruling = clerk.decide(Mode::Take, &asks).await.unwrap();
    assert!(!ruling.is_allowed());
    let refusals: Vec<_> =
        ruling.findings().iter().map(|finding| (finding.ask, finding.is_refusal())).collect();
    assert_eq!(refusals, [(0, true), (1, false)]);
    drop(ruling);
    assert_eq!(left(&mut clerk, &bob).await, [2], "a refused call takes nothing");
}

#[tokio::test]
async fn what_no_limit_applies_to_is_allowed_and_says_so() {
    let (_, engine) = engine("[limit.per-ip]\nkey = \"ip\"\nrate = \"2/min\"\n");
    let elsewhere = Descriptor::in_domain("elsewhere").with("ip", "1");
    let asks = [Ask::policy(&elsewhere)];
    let mut clerk = engine.clerk();
    let ruling = clerk.decide(Mode::Take, &asks).await.unwrap();
    assert!(ruling.is_allowed() && ruling.findings().is_empty() && ruling.decided_by().is_none());
}

/// Answers, items 13 and 16: a limit in shadow denies no call, also where it cannot use a value and no other limit applies.
#[tokio::test]
async fn a_bad_value_of_a_limit_in_shadow_denies_no_call() {
    for choice in ["default", "deny"] {
        let text = "[limit.watched]\nmode = \"shadow\"\nkey = \"ip\"\nrate = \"2/min\"\ncost = \"n\"\n";
        let (_, engine) = engine(&format!("unmatched = \"deny\"\non_bad_value = \"{choice}\"\n{text}"));
        let call = Descriptor::new().with("ip", "7").with("n", "x");
        assert!(take(&mut engine.clerk(), &call).await, "{choice}");
        assert!(engine.unmatched().iter().all(|(_, count)| *count == 0), "{choice}");
    }
}

/// Answers, item 16: a call that no limit applies to is denied if its domain says so, whatever is asked, and is counted by domain.
#[tokio::test]
async fn unmatched_calls_are_denied_if_their_domain_says_so() {
    let (_, engine) = engine("unmatched = \"deny\"\n[limit.per-ip]\nkey = \"ip\"\nrate = \"2/min\"\n");
    let (mut clerk, typo) = (engine.clerk(), Descriptor::new().with("ipp", "7"));
    for mode in [Mode::Take, Mode::Count, Mode::Peek] {
        let asks = [Ask::policy(&typo)];
        let ruling = clerk.decide(mode, &asks).await.unwrap();
        assert!(!ruling.is_allowed() && ruling.is_unmatched_denial(), "{mode:?}");
        assert_eq!((ruling.retry_after(), ruling.findings().len()), (None, 0), "{mode:?}");
    }
    let asks = [Ask::policy(&typo)];
    let (ruling, id) = clerk.hold(&asks, Duration::from_secs(9)).await.unwrap();
    assert!(!ruling.is_allowed() && id.is_none());
    drop(ruling);
    for mode in [Mode::Charge, Mode::Refund] {
        let asks = [Ask::policy(&typo)];
        assert!(clerk.decide(mode, &asks).await.unwrap().is_allowed(), "{mode:?}: it has happened");
    }
    for name in ["x", "y", "z"] {
        assert!(take(&mut clerk, &Descriptor::in_domain(name).with("ip", "7")).await, "as Envoy has it");
    }
    assert!(take(&mut clerk, &Descriptor::new().with("ip", "7")).await);
    assert_eq!(engine.unmatched(), [("@unknown".to_owned(), 3), ("default".to_owned(), 6)]);
}

#[tokio::test]
async fn a_limit_in_shadow_tells_and_refuses_nobody() {
    let (_, engine) = engine(
        "[limit.old]\nrate = \"3/min\"\n[limit.new]\nrate = \"1/min\"\nmode = \"shadow\"\n[limit.newer]\nrate = \"9/min\"\nmode = \"shadow\"\n",
    );
    let mut clerk = engine.clerk();
    let nobody = Descriptor::new();
    let asks = [Ask::policy(&nobody)];
    assert!(take(&mut clerk, &nobody).await);
    let ruling = clerk.decide(Mode::Take, &asks).await.unwrap();
    assert!(ruling.is_allowed());
    let said: Vec<_> =
        ruling.findings().iter().map(|f| (f.limit.rule.name(), f.is_shadow, f.is_refusal())).collect();
    assert_eq!(said, [("old", false, false), ("new", true, true), ("newer", true, false)]);
    drop(ruling);
    assert!(take(&mut clerk, &nobody).await);
    assert!(!take(&mut clerk, &nobody).await);
    assert_eq!(
        left(&mut clerk, &nobody).await,
        [0, 0, 6],
        "one in shadow does not keep another from counting"
    );
    let calls = |name: &str, outcome| {
        let all = engine.tallies();
        all.iter().find(|tallied| &*tallied.name == name).unwrap().tally.calls(outcome)
    };
    assert_eq!((calls("old", Outcome::Allowed), calls("old", Outcome::Denied)), (3, 1));
    assert_eq!((calls("new", Outcome::Allowed), calls("new", Outcome::ShadowDenied)), (1, 2));
}

#[tokio::test]
async fn hits_and_what_is_nearly_used_up_are_counted() {
    let (_, engine) = engine("[limit.all]\nrate = \"10/min\"\n");
    let mut clerk = engine.clerk();
    let nobody = Descriptor::new();
    for (cost, near) in [(5, 0), (3, 0), (1, 1), (4, 1)] {
        let asks = [Ask::policy(&nobody).costing(cost)];
        clerk.decide(Mode::Take, &asks).await.unwrap();
        assert_eq!(engine.tallies()[0].tally.near(), near, "after {cost}");
    }
    let tally = &engine.tallies()[0].tally;
    assert_eq!((tally.hits(Outcome::Allowed), tally.hits(Outcome::Denied)), (9, 4));
    clerk.decide(Mode::Peek, &[Ask::policy(&nobody)]).await.unwrap();
    assert_eq!(tally.calls(Outcome::Allowed), 3, "to look is not to take");
}

#[tokio::test]
async fn a_limit_of_the_callers_own_needs_no_policy() {
    let (clock, engine) = engine(NONE);
    let mut clerk = engine.clerk();
    let quota = Quota::per_second(2);
    let opened = clerk.open(OWN, "uploads", Kind::TokenBucket, quota);
    for expected in [true, true, false] {
        let asks = [Ask::limit(&opened, b"ann")];
        assert_eq!(clerk.decide(Mode::Take, &asks).await.unwrap().is_allowed(), expected);
    }
    let again = engine.clerk().open(OWN, "uploads", Kind::TokenBucket, quota);
    assert!(
        !clerk.decide(Mode::Take, &[Ask::limit(&again, b"ann")]).await.unwrap().is_allowed(),
        "the same state"
    );
    let other = clerk.open(OWN, "downloads", Kind::TokenBucket, quota);
    assert!(
        clerk.decide(Mode::Take, &[Ask::limit(&other, b"ann")]).await.unwrap().is_allowed(),
        "another one"
    );
    clock.advance(Duration::from_millis(500));
    assert!(clerk.decide(Mode::Take, &[Ask::limit(&opened, b"ann")]).await.unwrap().is_allowed());
    let names: Vec<_> =
        engine.tallies().iter().map(|tallied| (tallied.domain.clone(), tallied.name.clone())).collect();
    assert_eq!(
        names,
        [("@own".into(), "".into()), ("default".into(), "none".into())],
        "names that strangers choose are no labels"
    );
}

#[tokio::test]
async fn many_own_limits_are_forgotten_by_the_clerk_but_not_by_the_store() {
    let (_, engine) = engine(NONE);
    let mut clerk = engine.clerk();
    for _ in 0..2 {
        for count in 1..=20 {
            let opened = clerk.open(OWN, "", Kind::TokenBucket, Quota::per_minute(count));
            clerk.decide(Mode::Take, &[Ask::limit(&opened, b"ann")]).await.unwrap();
        }
    }
    let opened = clerk.open(OWN, "", Kind::TokenBucket, Quota::per_minute(20));
    let asks = [Ask::limit(&opened, b"ann").costing(0)];
    let ruling = clerk.decide(Mode::Peek, &asks).await.unwrap();
    assert_eq!(ruling.findings()[0].decision.remaining(), 18);
}

#[tokio::test]
async fn what_is_held_can_be_settled_once_within_its_time() {
    let (clock, engine) = engine("[limit.tokens]\nrate = \"1000/h\"\n");
    let mut clerk = engine.clerk();
    let nobody = Descriptor::new();
    let asks = [Ask::policy(&nobody).costing(600)];
    let (ruling, id) = clerk.hold(&asks, Duration::from_secs(10)).await.unwrap();
    assert!(ruling.is_allowed());
    drop(ruling);
    let id = id.unwrap();
    assert_eq!(engine.held(), 1);
    assert!(engine.settle(id, Actual::Cost(100)).await.unwrap());
    assert!(!engine.settle(id, Actual::Cost(0)).await.unwrap(), "only once");
    assert_eq!(left(&mut clerk, &nobody).await, [900]);

    let (_, late) = clerk.hold(&asks, Duration::from_secs(10)).await.unwrap();
    clock.advance(Duration::from_secs(10));
    assert_eq!(engine.held(), 0);
    assert!(!engine.settle(late.unwrap(), Actual::Cost(0)).await.unwrap(), "too late: it stays taken");

    let (ruling, none) = clerk.hold(&asks, Duration::from_secs(10)).await.unwrap();
    assert!(!ruling.is_allowed() && none.is_none(), "what is refused is not held");
}

#[test]
fn the_name_of_what_is_held_reads_back_and_nothing_else_does() {
    let text = "00112233445566778899aabbccddeeff";
    assert_eq!(text.parse::<PermitId>().unwrap().to_string(), text);
    for bad in
        ["", "0", "+0112233445566778899aabbccddeeff", "00112233445566778899aabbccddeefg", &text.repeat(2)]
    {
        assert!(bad.parse::<PermitId>().is_err(), "{bad:?}");
    }
}

#[tokio::test]
async fn another_policy_keeps_what_stayed_the_same() {
    let (_, engine) = engine("[limit.a]\nrate = \"2/min\"\n[limit.b]\nrate = \"3/min\"\n");
    let mut clerk = engine.clerk();
    let nobody = Descriptor::new();
    assert!(take(&mut clerk, &nobody).await);
    let origin = Origin { name: "new.toml".to_owned(), hash: "1".to_owned() };
    engine.load(policy("[limit.a]\nrate = \"2/min\"\n[limit.b]\nrate = \"4/min\"\n"), origin.clone());
    assert_eq!(left(&mut clerk, &nobody).await, [1, 4], "the same clerk, at once");
    assert_eq!(engine.tallies().len(), 2);
    assert_eq!(engine.tallies()[0].tally.calls(Outcome::Allowed), 1, "what was counted stays");

    engine.load_failed("line 3: no");
    let status = engine.status();
    assert_eq!((status.origin, status.loads, status.failures), (origin, 2, 1));
    assert!(matches!(status.problem, Some(LoadProblem { text, .. }) if text == "line 3: no"));
    assert_eq!(left(&mut clerk, &nobody).await, [1, 4], "the old one goes on");
    engine.load(policy(NONE), Origin::default());
    assert!(engine.status().problem.is_none());
}

#[tokio::test]
async fn a_cost_field_without_a_number_counts_as_absent() {
    let (_, engine) = engine("[limit.a]\nrate = \"9/min\"\n[limit.b]\nrate = \"9/min\"\ncost = \"size\"\n");
    let mut clerk = engine.clerk();
    assert!(take(&mut clerk, &Descriptor::new().with("size", "-1")).await);
    assert_eq!(left(&mut clerk, &Descriptor::new()).await, [8, 8]);
}

#[tokio::test]
async fn a_limit_that_denies_bad_values_takes_nothing() {
    let (_, engine) = engine(
        "[limit.a]\nrate = \"9/min\"\n[limit.b]\nrate = \"9/min\"\ncost = \"size\"\non_bad_value = \"deny\"\n",
    );
    let mut clerk = engine.clerk();
    let bad = Descriptor::new().with("size", "-1");
    let error = clerk.decide(Mode::Take, &[Ask::policy(&bad)]).await.unwrap_err();
    assert!(matches!(&error, AskError::BadValue { ask: 0, limit, .. } if limit == "b"));
    assert_eq!(
        error.to_string(),
        "limit \"b\": the cost in the field \"size\" is not a whole number from 0 to 18446744073709551615"
    );
    let good = Descriptor::new().with("size", "4");
    assert!(take(&mut clerk, &good).await);
    let size_0 = Descriptor::new().with("size", "0");
    assert_eq!(left(&mut clerk, &size_0).await, [8, 5]);
}

/// A store in process that can be away.
#[derive(Clone)]
struct Shaky {
    store: Manual,
    is_away: Arc<AtomicBool>,
    asked: Arc<AtomicU64>,
    /// Whether it cannot tell if it did something, and after how many answers it goes away.
    is_unsure: Arc<AtomicBool>,
    away_after: Arc<AtomicU64>,
    /// How many requests there were, and which of them this handle is for.
    requests: Arc<AtomicU64>,
    request: u64,
}

impl Shaky {
    fn check(&self) -> Result<(), StoreError> {
        assert!(self.request > 0, "whoever asks several times for a request has one time for all of it");
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.answer()
    }

    fn answer(&self) -> Result<(), StoreError> {
        if self.is_away.load(Ordering::Relaxed) {
            let away = StoreError::transient("it is away");
            return Err(if self.is_unsure.load(Ordering::Relaxed) { away } else { away.without_effect() });
        }
        if self.away_after.load(Ordering::Relaxed) > 0 {
            let is_last = self.away_after.fetch_sub(1, Ordering::Relaxed) == 1;
            self.is_away.store(is_last, Ordering::Relaxed);
        }
        Ok(())
    }
}

#[allow(refining_impl_trait, reason = "it is in process")]
impl Store for Shaky {
    type Limit = MemoryLimit<ManualClock>;
    type Permit = MemoryPermit<ManualClock>;

    fn open(&self, rule: &Rule) -> Self::Limit {
        self.store.open(rule)
    }

    fn decide(&self, mode: Mode, hits: &[Hit<'_, Self::Limit>]) -> Ready<Result<Answer, StoreError>> {
        ready(self.check().and_then(|()| self.store.decide(mode, hits).into_inner()))
    }

    fn acquire(
        &self,
        hits: &[Hit<'_, Self::Limit>],
    ) -> Ready<Result<(Answer, Option<Self::Permit>), StoreError>> {
        ready(self.check().and_then(|()| self.store.acquire(hits).into_inner()))
    }

    fn settle(&self, permit: &mut Self::Permit, actual: &[u64]) -> Ready<Result<(), StoreError>> {
        ready(self.answer().and_then(|()| self.store.settle(permit, actual).into_inner()))
    }

    fn reset(&self, limit: &Self::Limit, key: &[u8]) -> Ready<Result<bool, StoreError>> {
        ready(self.answer().and_then(|()| self.store.reset(limit, key).into_inner()))
    }

    fn usage(&self) -> Ready<Result<Usage, StoreError>> {
        self.store.usage()
    }

    fn busiest(&self, top: Top, n: usize) -> Ready<Result<Vec<Busy>, StoreError>> {
        self.store.busiest(top, n)
    }

    fn for_request(&self) -> Self {
        Self { request: self.requests.fetch_add(1, Ordering::Relaxed) + 1, ..self.clone() }
    }

    fn nodes(&self) -> u32 {
        3
    }
}

fn shaky(text: &str) -> (Engine<Shaky>, Arc<AtomicBool>) {
    let is_away = Arc::new(AtomicBool::new(false));
    let store = MemoryStore::builder().clock(ManualClock::new()).build();
    let shaky = Shaky {
        store,
        is_away: Arc::clone(&is_away),
        asked: Arc::default(),
        is_unsure: Arc::default(),
        away_after: Arc::default(),
        requests: Arc::default(),
        request: 0,
    };
    (Engine::new(shaky, policy(text), Origin::default()), is_away)
}

#[tokio::test]
async fn a_store_that_could_not_tell_is_not_asked_again_for_the_same_call() {
    let (engine, is_away) = shaky(
        "[limit.a]\nrate = \"90/h\"\n[limit.b]\nrate = \"90/h\"\nmode = \"shadow\"\n\
         [limit.c]\nrate = \"90/h\"\ncount_denied = true\n",
    );
    let (mut clerk, nobody) = (engine.clerk(), Descriptor::new());
    let asked = || engine.store().asked.swap(0, Ordering::Relaxed);
    assert!(take(&mut clerk, &nobody).await);
    assert_eq!(asked(), 3, "each of them is decided in a way of its own");
    assert_eq!(engine.store().requests.load(Ordering::Relaxed), 1, "with one time for all three");
    is_away.store(true, Ordering::Relaxed);
    let asks = [Ask::policy(&nobody)];
    let bases = |ruling: &Ruling<'_>| ruling.findings().iter().map(|said| said.basis).collect::<Vec<_>>();
    assert_eq!(bases(&clerk.decide(Mode::Take, &asks).await.unwrap()), [Basis::Local; 3]);
    assert_eq!(asked(), 1);
    clerk.hold(&asks, Duration::from_secs(9)).await.unwrap_err();
    assert_eq!(asked(), 1);
    is_away.store(false, Ordering::Relaxed);
    assert_eq!(bases(&clerk.decide(Mode::Take, &asks).await.unwrap()), [Basis::Store; 3]);
}

/// Answers, item 15: a hold that fails has not used what this process may allow alone.
#[tokio::test]
async fn hold_takes_nothing_of_the_local_share() {
    let (engine, is_away) = shaky("[limit.a]\nrate = \"3/h\"\ncount_denied = true\n");
    let (mut clerk, nobody) = (engine.clerk(), Descriptor::new());
    is_away.store(true, Ordering::Relaxed);
    clerk.hold(&[Ask::policy(&nobody)], Duration::from_secs(9)).await.unwrap_err();
    assert!(take(&mut clerk, &nobody).await, "one of three processes may allow one");
    assert!(!take(&mut clerk, &nobody).await);
}

/// Answers, item 25: the limits that were reset before the store failed are known, for the audit log.
#[tokio::test]
async fn reset_that_fails_says_what_was_reset() {
    let (engine, is_away) = shaky("[limit.a]\nrate = \"3/h\"\n[limit.b]\nrate = \"3/h\"\n");
    engine.store().away_after.store(1, Ordering::Relaxed);
    let mut resets = Vec::new();
    engine.reset(&Subject::Policy("default", &[]), &mut resets).await.unwrap_err();
    assert!(is_away.load(Ordering::Relaxed));
    assert_eq!(resets.iter().map(|reset| reset.rule.name()).collect::<Vec<_>>(), ["a"]);
}

#[tokio::test]
async fn every_limit_says_what_to_do_while_the_store_is_away() {
    let text = |choice: &str| format!("on_store_failure = \"{choice}\"\n[limit.all]\nrate = \"1/h\"\n");
    let nobody = Descriptor::new();
    let asks = [Ask::policy(&nobody)];
    for (choice, expected, basis) in [
        ("allow", [true, true], Basis::Open),
        ("deny", [false, false], Basis::Closed),
        ("local", [true, false], Basis::Local),
    ] {
        let (engine, is_away) = shaky(&text(choice));
        let mut clerk = engine.clerk();
        is_away.store(true, Ordering::Relaxed);
        for expected in expected {
            let ruling = clerk.decide(Mode::Take, &asks).await.unwrap();
            assert_eq!((ruling.is_allowed(), ruling.is_degraded()), (expected, true), "{choice}");
            assert_eq!(ruling.findings()[0].basis, basis, "{choice}");
            assert_eq!(ruling.retry_after().is_some(), !expected, "{choice}");
        }
        is_away.store(false, Ordering::Relaxed);
        let ruling = clerk.decide(Mode::Take, &asks).await.unwrap();
        assert!(ruling.is_allowed() && !ruling.is_degraded(), "{choice}: as if nothing had been");
    }
}

#[tokio::test]
async fn a_limit_that_refuses_without_the_store_keeps_the_others_from_taking() {
    let (engine, is_away) = shaky(
        "[limit.local]\nrate = \"1/h\"\n[limit.closed]\nrate = \"1/h\"\non_store_failure = \"deny\"\nmatch.kind = \"write\"\n",
    );
    is_away.store(true, Ordering::Relaxed);
    let mut clerk = engine.clerk();
    let (write, read) = (Descriptor::new().with("kind", "write"), Descriptor::new().with("kind", "read"));
    assert!(!take(&mut clerk, &write).await);
    assert!(take(&mut clerk, &read).await);
    assert!(!take(&mut clerk, &read).await);
}

#[tokio::test]
async fn while_the_store_is_away_each_process_has_its_share() {
    let (engine, is_away) = shaky("[limit.all]\nrate = \"10/h\"\n");
    is_away.store(true, Ordering::Relaxed);
    let mut clerk = engine.clerk();
    let nobody = Descriptor::new();
    for expected in [true, true, true, false] {
        assert_eq!(take(&mut clerk, &nobody).await, expected, "a third of ten, rounded down");
    }
}

/// Answers, item 15: while the store is away, nothing is charged, given back or held, whatever a limit says.
#[tokio::test]
async fn decide_does_not_fall_back_where_only_the_store_can_do_it() {
    for choice in ["allow", "deny", "local"] {
        let (engine, is_away) =
            shaky(&format!("on_store_failure = \"{choice}\"\n[limit.all]\nrate = \"5/h\"\n"));
        let (mut clerk, nobody) = (engine.clerk(), Descriptor::new());
        let asks = [Ask::policy(&nobody)];
        is_away.store(true, Ordering::Relaxed);
        let held = clerk.hold(&asks, Duration::from_secs(9)).await.map(|(_, id)| id);
        let charged = clerk.decide(Mode::Charge, &asks).await.map(|ruling| ruling.is_allowed()).unwrap_err();
        let refunded = clerk.decide(Mode::Refund, &asks).await.map(|ruling| ruling.is_allowed()).unwrap_err();
        for error in [held.unwrap_err(), charged, refunded] {
            assert!(matches!(error, AskError::Unavailable { is_without_effect: true }), "{error}");
            assert_eq!(error.to_string(), "store unavailable, no cost was applied; a retry is safe");
        }
        assert_eq!((engine.held(), engine.fallback_usage().keys), (0, Some(0)), "{choice}");
        is_away.store(false, Ordering::Relaxed);
        assert_eq!(left(&mut clerk, &nobody).await, [5], "{choice}");
    }
}

/// Answers, item 15: where something may have been done, the error says that trying again may do it twice.
#[tokio::test]
async fn decide_says_when_it_is_not_safe_to_try_again() {
    let (engine, is_away) =
        shaky("[limit.a]\nrate = \"5/h\"\n[limit.b]\nrate = \"5/h\"\nmode = \"shadow\"\n");
    let (mut clerk, nobody) = (engine.clerk(), Descriptor::new());
    engine.store().away_after.store(1, Ordering::Relaxed);
    let error = clerk.decide(Mode::Charge, &[Ask::policy(&nobody)]).await.map(|_| ()).unwrap_err();
    assert!(matches!(error, AskError::Unavailable { is_without_effect: false }));
    assert_eq!(
        error.to_string(),
        "store unavailable, the cost may have been applied; a retry may apply it twice"
    );
    is_away.store(false, Ordering::Relaxed);
    assert_eq!(left(&mut clerk, &nobody).await, [4, 5], "the first of two was charged");
}

/// Answers, item 15: what could not be settled is still held, and can be settled once the store is back.
#[tokio::test]
async fn settle_can_be_tried_again() {
    let (engine, is_away) = shaky("[limit.all]\nrate = \"5/h\"\n");
    let (mut clerk, nobody) = (engine.clerk(), Descriptor::new());
    let (_, id) = clerk.hold(&[Ask::policy(&nobody).costing(3)], Duration::from_secs(9)).await.unwrap();
    let (id, bytes) = (id.unwrap(), engine.held_bytes());
    is_away.store(true, Ordering::Relaxed);
    for _ in 0..3 {
        let error = engine.settle(id, Actual::Cost(1)).await.unwrap_err();
        assert_eq!(error.to_string(), "store unavailable; a retry is safe");
        assert_eq!((engine.held(), engine.held_bytes()), (1, bytes));
    }
    is_away.store(false, Ordering::Relaxed);
    assert!(engine.settle(id, Actual::Cost(1)).await.unwrap());
    assert!(!engine.settle(id, Actual::Cost(1)).await.unwrap());
    assert_eq!((left(&mut clerk, &nobody).await, engine.held()), (vec![4], 0));
}

/// Answers, item 15: what may have been settled is not held any more, so that it is never settled twice.
#[tokio::test]
async fn settle_is_not_done_twice_where_it_may_have_been_done() {
    let (engine, is_away) = shaky("[limit.all]\nrate = \"5/h\"\n");
    let (mut clerk, nobody) = (engine.clerk(), Descriptor::new());
    let (_, id) = clerk.hold(&[Ask::policy(&nobody).costing(3)], Duration::from_secs(9)).await.unwrap();
    is_away.store(true, Ordering::Relaxed);
    engine.store().is_unsure.store(true, Ordering::Relaxed);
    let error = engine.settle(id.unwrap(), Actual::Cost(1)).await.unwrap_err();
    assert_eq!(error.to_string(), "store unavailable; a retry is safe");
    is_away.store(false, Ordering::Relaxed);
    assert!(!engine.settle(id.unwrap(), Actual::Cost(1)).await.unwrap());
    assert_eq!(left(&mut clerk, &nobody).await, [2]);
}

/// Holds one after the other until it is refused: how many were held, and why no more.
async fn hold_all<S: Store>(clerk: &mut Clerk<S>) -> (u64, AskError) {
    let (nobody, mut held) = (Descriptor::new(), 0);
    loop {
        match clerk.hold(&[Ask::policy(&nobody)], Duration::from_secs(60)).await {
            Ok((ruling, id)) => assert!(ruling.is_allowed() && id.is_some()),
            Err(error) => return (held, error),
        }
        held += 1;
    }
}

// Guards, item 8: permits keep to the memory there is for them, and one caller leaves some for the others.
#[tokio::test]
async fn hold_keeps_to_its_memory() {
    const MOST: u64 = 1 << 20;
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let options = EngineOptions::new().time(Time::of(clock.clone())).hold_bytes(MOST);
    let policy = policy("[limit.all]\nrate = \"1000000/h\"\n");
    let engine = Engine::with_options(store, policy, Origin::default(), options);
    let mut held = Vec::new();
    for address in 1..=5 {
        let mut clerk = engine.clerk();
        clerk.set_caller(Caller::at([10, 0, 0, address].into()));
        let (count, error) = hold_all(&mut clerk).await;
        let AskError::TooManyHeld { bound, most } = error else { panic!("{error}") };
        let expected =
            if address < 5 { (HoldBound::CallerMemory, MOST / 4) } else { (HoldBound::Memory, MOST) };
        assert_eq!((bound, most), expected, "{address}: {count}");
        held.push(count);
    }
    assert!(held[0] > 100 && held[..4].iter().all(|count| *count == held[0]), "{held:?}");
    assert!((MOST * 9 / 10..=MOST).contains(&engine.held_bytes()), "{}", engine.held_bytes());

    let mut clerk = engine.clerk();
    let nobody = Descriptor::new();
    let before = left(&mut clerk, &nobody).await;
    assert!(clerk.hold(&[Ask::policy(&nobody)], Duration::from_secs(9)).await.is_err());
    assert_eq!(left(&mut clerk, &nobody).await, before, "what is not held takes nothing");
    clock.advance(Duration::from_secs(60));
    assert_eq!((engine.held(), engine.held_bytes()), (0, 0));
}

// Guards, item 8: what is refused by a limit leaves the room that was kept for it.
#[tokio::test]
async fn hold_that_a_limit_refuses_takes_no_room() {
    let (_, engine) = engine("[limit.all]\nrate = \"1/h\"\n");
    let (mut clerk, nobody) = (engine.clerk(), Descriptor::new());
    let mut bytes = Vec::new();
    for is_allowed in [true, false, false] {
        let asks = [Ask::policy(&nobody)];
        let (ruling, _) = clerk.hold(&asks, Duration::from_secs(9)).await.unwrap();
        assert_eq!(ruling.is_allowed(), is_allowed);
        bytes.push(engine.held_bytes());
    }
    assert!(bytes[0] > 0 && bytes[1..] == [bytes[0]; 2], "{bytes:?}");
}
