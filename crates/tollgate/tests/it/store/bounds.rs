//! How much it keeps.

use std::time::Duration;

use tollgate::store::{Hit, MemoryStore, Mode, Rule, Store, Usage};
use tollgate::{AtCap, Kind, ManualClock, Quota};

use super::{Limit, SLOW, decide, left, memory, per_user, secs, take, usage};

#[test]
fn whoever_has_used_all_is_remembered_beside_limits_that_fill_the_store() {
    for cap in [100, 1_000, 10_000] {
        let store = MemoryStore::builder().clock(ManualClock::new()).max_keys(cap).build();
        let others = store.open(&Rule::floating("others", "own", SLOW));
        let limit = store.open(&Rule::new("d", "n", Quota::per_hour(5)));
        let sort = store.open(&Rule::new("d", "n", SLOW).with_kind(Kind::SlidingLog));
        assert!((0..2 * cap).all(|key| take(&store, &others, &key.to_string(), 1)));
        assert!(take(&store, &sort, "one", 1));
        let abusers: Vec<String> = (0..10).map(|number| format!("abuser {number}")).collect();
        assert!(abusers.iter().all(|abuser| take(&store, &limit, abuser, 5)));
        assert!((0..20 * cap).all(|key| take(&store, &limit, &key.to_string(), 1)));
        let forgotten = abusers.iter().filter(|abuser| take(&store, &limit, abuser, 1)).count();
        assert_eq!(forgotten, 0, "of a store for {cap}");
    }
}

#[test]
fn a_full_store_refuses_new_keys_or_forgets_the_least_used() {
    for (at_cap, wanted) in [(AtCap::Refuse, 100), (AtCap::Share, 100), (AtCap::Evict, 1_000)] {
        let store = MemoryStore::builder().clock(ManualClock::new()).max_keys(100).at_cap(at_cap).build();
        let limits = ["a", "b"].map(|name| store.open(&Rule::new("d", name, SLOW)));
        let admitted = (0..1_000).filter(|key| take(&store, &limits[key % 2], &key.to_string(), 1)).count();
        let Usage { keys, evicted, refused, .. } = usage(&store);
        assert_eq!(admitted, wanted, "{at_cap:?}");
        assert_eq!(keys, Some(100), "{at_cap:?}: all limits share the bound");
        assert_eq!((evicted, refused), if wanted == 100 { (0, 900) } else { (900, 0) }, "{at_cap:?}");
    }
}

#[test]
fn what_several_quotas_refuse_for_want_of_room_is_counted() {
    let store = MemoryStore::builder().clock(ManualClock::new()).max_keys(100).at_cap(AtCap::Refuse).build();
    let limit = store.open(&Rule::new("d", "n", Quota::per_hour(5)).with_quota(Quota::per_day(50)));
    let refused = (0..1_000).filter(|key| !take(&store, &limit, &key.to_string(), 1)).count() as u64;
    // Each of them by one or both of its quotas.
    assert!(refused >= 900 && (refused..=2 * refused).contains(&usage(&store).refused), "{refused}");
}

#[test]
fn nothing_of_a_new_key_at_a_full_store_is_told_the_same_by_all_verbs() {
    let store = MemoryStore::builder().clock(ManualClock::new()).max_keys(1).at_cap(AtCap::Refuse).build();
    let [a, b] = ["a", "b"].map(|name| store.open(&Rule::new("d", name, Quota::per_hour(5))));
    assert!(take(&store, &a, "k", 1));
    let finds_no_room = |key: &String| left(&store, &a, key) == [0];
    let key = (0..10_000).map(|key| key.to_string()).find(finds_no_room).expect("one of so many");
    let hits = [Hit::new(&a, key.as_bytes()).costing(0), Hit::new(&b, b"k").costing(0)];
    for mode in [Mode::Take, Mode::Peek, Mode::Count] {
        let said = decide(&store, mode, &hits).each()[0].decision;
        assert_eq!((said.is_admitted(), said.remaining()), (true, 0), "{mode:?}");
    }
}

#[test]
fn an_algorithm_that_is_new_to_a_full_store_gets_its_share() {
    let store = MemoryStore::builder().clock(ManualClock::new()).max_keys(4_000).build();
    let bucket = store.open(&per_user());
    let window = store.open(&Rule::new("d", "n", Quota::per_day(10)).with_kind(Kind::FixedWindow));
    let fill = |limit: &Limit, keys: std::ops::Range<u32>| {
        for key in keys {
            assert!(take(&store, limit, &key.to_string(), 9));
        }
    };
    fill(&bucket, 0..10_000);
    let full = usage(&store).keys.unwrap();
    assert!((4_000..4_200).contains(&full), "{full}");
    fill(&window, 0..1_500);
    let remembered = (0..1_500).filter(|key| left(&store, &window, &key.to_string()) == [1]).count();
    assert_eq!(remembered, 1_500, "less than half: nothing of it is forgotten");
    fill(&bucket, 10_000..20_000);
    let keys = usage(&store).keys.unwrap();
    assert!((3_800..4_200).contains(&keys), "the other gave way: {keys}");
}

#[test]
fn bytes_are_bounded_over_all_algorithms() {
    let most = 400_000;
    let store = MemoryStore::builder().clock(ManualClock::new()).max_bytes(most).build();
    let limits = [Kind::TokenBucket, Kind::FixedWindow].map(|kind| store.open(&per_user().with_kind(kind)));
    for key in 0..40_000 {
        assert!(take(&store, &limits[key % 2], &key.to_string(), 1));
    }
    let Usage { keys, bytes, evicted, .. } = usage(&store);
    assert!(bytes.unwrap() <= most as u64 * 11 / 10, "{bytes:?}");
    assert!(keys.unwrap() > 5_000, "{keys:?}");
    assert_eq!(keys.unwrap() + evicted, 40_000);
}

#[test]
fn ten_thousand_limits_take_no_memory_before_they_are_hit() {
    let (store, _) = memory();
    let limits: Vec<Limit> =
        (0..10_000).map(|number| store.open(&Rule::new("d", number.to_string(), SLOW))).collect();
    let before = usage(&store).bytes.unwrap();
    for limit in &limits {
        assert!(take(&store, limit, "k", 1));
    }
    let Usage { keys, bytes, .. } = usage(&store);
    assert_eq!(keys, Some(10_000));
    let each = (bytes.unwrap() - before) / 10_000;
    assert!(each < 40, "{each} bytes");
}

#[test]
fn what_is_idle_is_swept_by_hand_and_by_a_thread() {
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clone()).sweep_every(Duration::from_millis(1)).build();
    let limits = Kind::ALL.map(|kind| store.open(&Rule::new("d", "n", Quota::per_second(5)).with_kind(kind)));
    for limit in &limits {
        assert!(take(&store, limit, "k", 1));
    }
    store.sweep();
    assert_eq!(usage(&store).keys, Some(8), "nobody is idle");
    clock.advance(secs(10));
    while usage(&store).keys != Some(0) {
        std::thread::yield_now();
    }
    let (unswept, clock) = memory();
    let limit = unswept.open(&Rule::new("d", "n", Quota::per_second(5)));
    assert!(take(&unswept, &limit, "k", 1));
    clock.advance(secs(1));
    unswept.sweep();
    assert_eq!(usage(&unswept).keys, Some(0));
}

// Guards, item 9: a second store in the same process is within the bounds of the first.
#[test]
fn siblings_share_one_bound() {
    let store = MemoryStore::builder().clock(ManualClock::new()).max_keys(1_000).build();
    let siblings = [store.clone(), store.sibling()];
    let limits = siblings.each_ref().map(|store| store.open(&per_user()));
    for key in 0..10_000 {
        for (store, limit) in siblings.iter().zip(&limits) {
            assert!(take(store, limit, &key.to_string(), 1));
        }
    }
    let keys = siblings.each_ref().map(|store| usage(store).keys.expect("it counts its keys"));
    assert!(keys.iter().all(|keys| *keys > 300) && keys[0] + keys[1] <= 1_000, "{keys:?}");
    assert!(take(&store, &limits[0], "alice", 10) && take(&siblings[1], &limits[1], "alice", 10));
    assert!(!take(&store, &limits[0], "alice", 1));
}
