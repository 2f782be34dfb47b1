//! Limits whose quota every caller brings along.

use std::time::Duration;

use tollgate::store::{Hit, MemoryStore, Mode, Rule, Store};
use tollgate::{AtCap, Decision, ManualClock, Quota};

fn store() -> (ManualClock, MemoryStore<ManualClock>) {
    let clock = ManualClock::new();
    (clock.clone(), MemoryStore::builder().clock(clock).build())
}

fn every(millis: u64, burst: u64) -> Quota {
    Quota::every(Duration::from_millis(millis)).burst(burst)
}

fn ask<S: Store>(store: &S, quota: Quota, mode: Mode, key: &[u8], cost: u64) -> Decision {
    let limit = store.open(&Rule::floating("callers", "own", quota));
    let hits = [Hit::new(&limit, key).costing(cost)];
    store.decide_now(mode, &hits).expect("it is in this process").expect("it can tell").decision()
}

/// Levels of 3/s count thirds of nanoseconds; a limit whose callers bring it along must not.
#[test]
fn a_quota_that_is_not_one_every_so_many_nanoseconds_counts_as_such_a_one() {
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(3_600));
    let store = MemoryStore::builder().clock(clock).build();
    let open = |quota| store.open(&Rule::floating("d", "n", quota));
    let (thirds, ones) = (open(Quota::per_second(3)), open(Quota::every(Duration::from_secs(1)).burst(10)));
    let take = |limit| store.decide(Mode::Take, &[Hit::new(limit, b"k")]).into_inner().unwrap().decision();
    assert_eq!(take(&thirds).reset_after(), Some(Duration::from_nanos(333_333_334)));
    let second = take(&ones);
    assert_eq!(second.reset_after(), Some(Duration::from_nanos(1_333_333_334)), "{second:?}");
    let huge = open(Quota::per_day(1).burst(u64::MAX));
    assert!(take(&huge).is_allowed());
    assert!(!take(&ones).is_allowed(), "a day is more than ten seconds");
}

#[test]
fn what_was_used_of_one_quota_is_used_of_all() {
    let (clock, store) = store();
    let used = ask(&store, every(2_000, 5), Mode::Take, b"k", 4);
    assert_eq!(
        (used.is_allowed(), used.remaining(), used.reset_after()),
        (true, 1, Some(Duration::from_secs(8)))
    );
    // Eight seconds of ten are used: two more of one second each fit, and no third.
    for (left, reset) in [(1, 9), (0, 10)] {
        let fast = ask(&store, every(1_000, 10), Mode::Take, b"k", 1);
        assert_eq!(
            (fast.is_allowed(), fast.remaining(), fast.reset_after()),
            (true, left, Some(Duration::from_secs(reset)))
        );
    }
    let refused = ask(&store, every(1_000, 10), Mode::Take, b"k", 1);
    assert_eq!(
        (refused.is_allowed(), refused.retry_after(), refused.reset_after()),
        (false, Some(Duration::from_secs(1)), Some(Duration::from_secs(10)))
    );
    let narrow = ask(&store, every(1_000, 2), Mode::Take, b"k", 1);
    assert_eq!((narrow.is_allowed(), narrow.retry_after()), (false, Some(Duration::from_secs(9))));
    assert!(ask(&store, every(1_000, 1), Mode::Take, b"other", 1).is_allowed(), "another key");
    clock.advance(Duration::from_secs(9));
    assert!(ask(&store, every(1_000, 2), Mode::Take, b"k", 1).is_allowed());
}

#[test]
fn all_that_can_be_done_to_a_limit_can_be_done_here() {
    let (_, store) = store();
    let quota = every(1_000, 10);
    assert_eq!(
        ask(&store, quota, Mode::Charge, b"k", 12).reset_after(),
        Some(Duration::from_secs(12)),
        "more than there is"
    );
    assert_eq!(ask(&store, quota, Mode::Peek, b"k", 1).retry_after(), Some(Duration::from_secs(3)));
    assert_eq!(ask(&store, quota, Mode::Refund, b"k", 5).remaining(), 3);
    assert_eq!(ask(&store, quota, Mode::Peek, b"k", 3).remaining(), 0);
    assert!(!ask(&store, quota, Mode::Count, b"k", 4).is_admitted(), "and takes what is left");
    assert_eq!(ask(&store, quota, Mode::Peek, b"k", 0).remaining(), 0);
    assert_eq!(ask(&store, quota, Mode::Refund, b"k", u64::MAX).remaining(), 10, "as new, and not better");
    assert!(!ask(&store, quota, Mode::Take, b"k", u64::MAX).is_admitted());
    let limit = store.open(&Rule::floating("callers", "own", every(7, 7)));
    assert!(store.reset(&limit, b"k").into_inner().unwrap(), "by whichever quota");
    assert!(!store.reset(&limit, b"k").into_inner().unwrap());
}

#[test]
fn it_is_hit_alone_and_not_held() {
    let (_, store) = store();
    let floating = store.open(&Rule::floating("callers", "own", every(1_000, 1)));
    let other = store.open(&Rule::new("callers", "other", every(1_000, 1)));
    let together =
        store.decide(Mode::Take, &[Hit::new(&floating, b"k"), Hit::new(&other, b"k")]).into_inner();
    let told = "callers/own has a quota of the caller's own: hit it alone, without holding it";
    assert_eq!(together.unwrap_err().to_string(), told);
    for cost in [0, 1] {
        let held = store.acquire(&[Hit::new(&floating, b"k").costing(cost)]).into_inner();
        assert_eq!(held.unwrap_err().to_string(), told);
    }
    let alone =
        |limit| store.decide(Mode::Take, &[Hit::new(limit, b"k")]).into_inner().unwrap().is_admitted();
    assert!(alone(&floating) && alone(&other), "nothing was taken");
}

#[test]
fn quotas_are_not_remembered_and_idle_keys_are_dropped() {
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clone()).max_quotas(2).build();
    for millis in 1..=1_000 {
        assert!(ask(&store, every(millis, 1), Mode::Take, &millis.to_le_bytes(), 1).is_allowed());
    }
    let usage = store.usage().into_inner().unwrap();
    assert_eq!(usage.keys, Some(1_000));
    clock.advance(Duration::from_millis(500));
    store.sweep();
    assert_eq!(store.usage().into_inner().unwrap().keys, Some(500), "whose time has come");
    assert!(!ask(&store, every(10, 1), Mode::Take, &501_u64.to_le_bytes(), 1).is_allowed());
}

#[test]
fn a_full_store_refuses_new_keys() {
    let store = MemoryStore::builder().clock(ManualClock::new()).max_keys(256).at_cap(AtCap::Refuse).build();
    let refused = (0..1_000_u64)
        .filter(|key| !ask(&store, every(1_000, 1), Mode::Take, &key.to_le_bytes(), 1).is_admitted());
    let refused = refused.count() as u64;
    assert!((600..=800).contains(&refused), "{refused} of 1000 found no room among 256");
    assert_eq!(store.usage().into_inner().unwrap().refused, refused);
}

#[test]
fn a_restart_forgets_nothing() {
    let folder = std::env::temp_dir().join(format!("tollgate-floating-{}", std::process::id()));
    let (clock, store) = store();
    clock.advance(Duration::from_secs(5));
    assert!(ask(&store, every(60_000, 1), Mode::Take, b"k", 1).is_allowed());
    assert_eq!(store.save(&folder).unwrap(), 1);
    let (store, restored) = MemoryStore::builder().clock(clock.clone()).restore(&folder);
    assert_eq!((restored.keys, restored.problems.len()), (1, 0));
    clock.advance(Duration::from_secs(20));
    let refused = ask(&store, every(30_000, 1), Mode::Take, b"k", 1);
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!((refused.is_allowed(), refused.retry_after()), (false, Some(Duration::from_secs(40))));
}
