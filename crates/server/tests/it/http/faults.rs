//! A store that fails, and mistakes of ours.

use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::json;
use tollgate::ManualClock;
use tollgate::store::{
    Answer, Busy, Hit, MemoryLimit, MemoryPermit, MemoryStore, Mode, Rule, Store, StoreError, Top, Usage,
};
use tollgate_flow::FaultId;
use tollgate_server::ReadyNeeds;

use super::support::{Manual, Site};

/// A store that fails, or panics, when it is told to.
#[derive(Clone)]
struct Broken {
    inner: Manual,
    fails: Arc<AtomicBool>,
    panics: Arc<AtomicBool>,
    /// How often it was asked for its usage.
    usages: Arc<AtomicU64>,
}

impl Broken {
    fn try_it<T>(&self, real: impl FnOnce() -> Result<T, StoreError>) -> Ready<Result<T, StoreError>> {
        assert!(!self.panics.load(Ordering::SeqCst), "a secret was found at the bottom");
        ready(if self.fails.load(Ordering::SeqCst) { Err(StoreError::transient("gone")) } else { real() })
    }
}

#[allow(refining_impl_trait, reason = "it is there at once")]
impl Store for Broken {
    type Limit = MemoryLimit<ManualClock>;
    type Permit = MemoryPermit<ManualClock>;

    fn open(&self, rule: &Rule) -> Self::Limit {
        self.inner.open(rule)
    }

    fn decide(&self, mode: Mode, hits: &[Hit<'_, Self::Limit>]) -> Ready<Result<Answer, StoreError>> {
        self.try_it(|| self.inner.decide(mode, hits).into_inner())
    }

    fn acquire(
        &self,
        hits: &[Hit<'_, Self::Limit>],
    ) -> Ready<Result<(Answer, Option<Self::Permit>), StoreError>> {
        self.try_it(|| self.inner.acquire(hits).into_inner())
    }

    fn settle(&self, permit: &mut Self::Permit, actual: &[u64]) -> Ready<Result<(), StoreError>> {
        self.try_it(|| self.inner.settle(permit, actual).into_inner())
    }

    fn reset(&self, limit: &Self::Limit, key: &[u8]) -> Ready<Result<bool, StoreError>> {
        self.try_it(|| self.inner.reset(limit, key).into_inner())
    }

    fn usage(&self) -> Ready<Result<Usage, StoreError>> {
        self.usages.fetch_add(1, Ordering::SeqCst);
        self.try_it(|| self.inner.usage().into_inner())
    }

    fn busiest(&self, top: Top, n: usize) -> Ready<Result<Vec<Busy>, StoreError>> {
        self.try_it(|| self.inner.busiest(top, n).into_inner())
    }
}

fn site(policy: &str) -> (Site<Broken>, Arc<AtomicBool>, Arc<AtomicBool>) {
    let clock = ManualClock::new();
    let inner = MemoryStore::builder().clock(clock.clone()).build();
    let (fails, panics) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let store =
        Broken { inner, fails: Arc::clone(&fails), panics: Arc::clone(&panics), usages: Arc::default() };
    let needs = ReadyNeeds { store: true, ..ReadyNeeds::default() };
    (Site::on(store, clock, policy, |server| server, |api| api.ready_needs(needs)), fails, panics)
}

const POLICY: &str = "[limit.open]\nrate = \"1/h\"\non_store_failure = \"allow\"\nmatch.who = \"open\"\n\
                      [limit.closed]\nrate = \"1/h\"\non_store_failure = \"deny\"\nmatch.who = \"closed\"\n\
                      [limit.local]\nrate = \"1/h\"\non_store_failure = \"local\"\nmatch.who = \"local\"\n";

#[test]
fn while_the_store_is_away_every_limit_does_what_it_says() {
    let (site, fails, _) = site(POLICY);
    let ask = |who: &str| {
        let answer = site.check(&format!(r#"{{"descriptor":{{"who":"{who}"}}}}"#));
        let json = answer.json();
        (answer.status, json["degraded"] == true, json["limits"][0]["basis"].as_str().unwrap().to_owned())
    };
    assert_eq!(ask("open"), (200, false, "store".to_owned()));
    fails.store(true, Ordering::SeqCst);
    assert_eq!(ask("open"), (200, true, "allow".to_owned()));
    assert_eq!(ask("closed"), (429, true, "deny".to_owned()));
    assert_eq!(ask("local"), (200, true, "local".to_owned()));
    assert_eq!(ask("local"), (429, true, "local".to_owned()));
    let refused = site.check(r#"{"descriptor":{"who":"closed"}}"#);
    assert_eq!(refused.field("retry-after"), Some("1"));
    fails.store(false, Ordering::SeqCst);
    assert_eq!(ask("closed"), (200, false, "store".to_owned()));
}

/// Answers, item 27: probes do not add to the load of a store: they share one answer a second.
#[test]
fn readyz_asks_the_store_once_a_second() {
    let (site, fails, _) = site(POLICY);
    let ready = || site.get("/readyz").status;
    assert_eq!([0; 5].map(|_| ready()), [200; 5]);
    assert_eq!(site.engine.store().usages.load(Ordering::SeqCst), 1);
    fails.store(true, Ordering::SeqCst);
    assert_eq!(ready(), 200, "the answer before is fresh");
    site.clock.advance(Duration::from_secs(1));
    assert_eq!([0; 5].map(|_| ready()), [503; 5]);
    assert_eq!(site.engine.store().usages.load(Ordering::SeqCst), 2);
    fails.store(false, Ordering::SeqCst);
    site.clock.advance(Duration::from_secs(1));
    assert_eq!(ready(), 200);
}

#[test]
fn what_needs_the_store_says_that_it_is_away() {
    let (site, fails, _) = site(POLICY);
    let held = site.check(r#"{"descriptor":{"who":"open"},"cost":1,"hold":"1min"}"#).json();
    fails.store(true, Ordering::SeqCst);
    let settle = format!(r#"{{"id":{},"actual":0}}"#, held["id"]);
    for answer in [
        site.post("/v1/settle", &settle),
        site.post("/v1/reset", r#"{"descriptor":{"who":"open"}}"#),
        site.get("/v1/keys/top"),
    ] {
        let detail = answer.problem(503);
        assert!(detail.starts_with("store unavailable; a retry is safe"), "{detail}");
        assert_eq!(answer.json()["retry_safe"], true);
        let id: FaultId = answer.json()["fault"].as_str().unwrap().parse().unwrap();
        assert!(detail.contains(&id.to_string()), "{detail}");
        assert_eq!(answer.field("retry-after"), Some("1"));
    }
    assert!(site.get("/metrics").body.contains("\ntollgate_backend_up 0\n"));
}

/// Answers, item 15: over HTTP, what only the store can do is answered 503 while it is away, and says whether trying again is safe.
#[test]
fn writes_are_answered_503_while_the_store_is_away() {
    let (site, fails, _) = site(POLICY);
    fails.store(true, Ordering::SeqCst);
    for more in [r#","mode":"charge""#, r#","mode":"refund""#, r#","hold":"1min""#] {
        for who in ["open", "closed", "local"] {
            let check = format!(r#"{{"descriptor":{{"who":"{who}"}}{more}}}"#);
            let answer = site.check(&check);
            let text = "store unavailable, the cost may have been applied; a retry may apply it twice";
            assert_eq!(answer.problem(503), text, "{check}");
            assert_eq!((&answer.json()["retry_safe"], answer.field("retry-after")), (&json!(false), None));
            let several = site.check(&format!("[{check}]")).json();
            assert_eq!((&several[0]["status"], &several[0]["detail"]), (&json!(503), &json!(text)));
        }
    }
}

#[test]
fn a_mistake_of_ours_has_an_id_and_keeps_its_secrets() {
    let (site, _, panics) = site(POLICY);
    let mut client = site.client();
    panics.store(true, Ordering::SeqCst);
    let answer = client.check(r#"{"descriptor":{"who":"open"}}"#);
    let detail = answer.problem(500);
    let id: FaultId = answer.json()["fault"].as_str().unwrap().parse().unwrap();
    assert!(
        detail.starts_with("something unexpected happened") && detail.contains(&id.to_string()),
        "{detail}"
    );
    assert!(!answer.body.contains("secret"), "{}", answer.body);
    panics.store(false, Ordering::SeqCst);
    let after = client.check(r#"{"descriptor":{"who":"open"}}"#);
    assert_eq!((after.status, &after.json()["remaining"]), (200, &json!(0)), "the connection goes on");
}
