//! What a store in this process does: which limit is which, what each mode writes, settling, names; its bounds and its files have
//! files of their own.

mod bounds;
mod files;

use std::time::Duration;

use tollgate::store::{Answer, Hit, MemoryLimit, MemoryStore, Mode, Rule, Store, StoreError, Top, Usage};
use tollgate::{Kind, ManualClock, Quota, SlidingLog, Verdict};

type Memory = MemoryStore<ManualClock>;
type Limit = MemoryLimit<ManualClock>;

/// Nothing comes back by itself within a test.
const SLOW: Quota = Quota::per_day(1).burst(10);

fn memory() -> (Memory, ManualClock) {
    let clock = ManualClock::new();
    (MemoryStore::builder().clock(clock.clone()).build(), clock)
}

fn per_user() -> Rule {
    Rule::new("api", "per user", SLOW)
}

fn decide(store: &Memory, mode: Mode, hits: &[Hit<'_, Limit>]) -> Answer {
    store.decide(mode, hits).into_inner().expect("a store in process decides")
}

fn take(store: &Memory, limit: &Limit, key: &str, cost: u64) -> bool {
    decide(store, Mode::Take, &[Hit::new(limit, key.as_bytes()).costing(cost)]).is_admitted()
}

fn left(store: &Memory, limit: &Limit, key: &str) -> Vec<u64> {
    let answer = decide(store, Mode::Peek, &[Hit::new(limit, key.as_bytes()).costing(0)]);
    answer.each().iter().map(|said| said.decision.remaining()).collect()
}

fn usage(store: &Memory) -> Usage {
    store.usage().into_inner().unwrap()
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

// Which limit is which.

#[test]
fn an_equal_rule_goes_on_with_the_same_state() {
    let (store, _) = memory();
    let before = store.open(&per_user());
    assert!(take(&store, &before, "alice", 7));
    let after_a_reload = store.clone().open(&Rule::new("api".to_owned(), "per user".to_owned(), SLOW));
    assert_eq!(left(&store, &after_a_reload, "alice"), [3]);
    assert!(take(&store, &after_a_reload, "alice", 3) && !take(&store, &before, "alice", 1));
    assert_eq!(after_a_reload.as_ref(), before.as_ref());
}

// Guards, item 6: a limit that a caller supplies never reaches the state of a written limit with the same name.
#[test]
fn a_supplied_rule_is_another_limit_than_the_same_one_written() {
    let (store, _) = memory();
    let rules = [per_user(), per_user().brought(), Rule::floating("api", "per user", SLOW)];
    let limits = rules.map(|rule| store.open(&rule));
    for limit in &limits {
        assert_eq!(left(&store, limit, "alice"), [10]);
        assert!(take(&store, limit, "alice", 10));
        assert_eq!(left(&store, limit, "alice"), [0]);
    }
}

#[test]
fn a_rule_that_differs_in_anything_is_another_limit() {
    let (store, _) = memory();
    let rule = per_user();
    assert!(take(&store, &store.open(&rule), "alice", 10));
    let windows = rule.clone().with_sub_windows(6);
    assert!(take(&store, &store.open(&windows), "alice", 1));
    let others = [
        Rule::new("web", "per user", SLOW),
        Rule::new("api", "per users", SLOW),
        Rule::new("ap", "iper user", SLOW),
        Rule::new("api", "per user", SLOW.burst(11)),
        rule.clone().with_quota(SLOW),
        rule.clone().with_kind(Kind::LeakyBucket),
        rule.clone().with_kind(Kind::LeakyQueue),
        rule.clone().with_kind(Kind::SubWindows),
        rule.clone().with_sub_windows(7),
    ];
    for other in &others {
        let limit = store.open(other);
        let (got, fresh) = (left(&store, &limit, "alice"), left(&store, &limit, "nobody"));
        assert_eq!(got, fresh, "{other:?}");
    }
    assert_eq!(left(&store, &store.open(&rule), "alice"), [0]);
    assert_eq!(left(&store, &store.open(&windows), "alice"), [0]);
}

#[test]
fn the_order_of_quotas_and_the_same_one_twice_count() {
    let (store, _) = memory();
    let (day, hour) = (SLOW, Quota::per_hour(1).burst(5));
    let limit = store.open(&Rule::new("d", "n", day).with_quota(hour));
    assert!(take(&store, &limit, "alice", 2));
    assert_eq!(left(&store, &limit, "alice"), [8, 3]);
    let turned = store.open(&Rule::new("d", "n", hour).with_quota(day));
    assert_eq!(left(&store, &turned, "alice"), [5, 10]);
    let twice = store.open(&Rule::new("d", "n", day).with_quota(day));
    assert!(take(&store, &twice, "alice", 10), "each of the two has ten");
    assert_eq!(left(&store, &twice, "alice"), [0, 0]);
}

#[test]
fn keys_are_any_bytes_and_no_two_are_the_same() {
    let (store, _) = memory();
    let limit = store.open(&per_user());
    let long = vec![b'x'; 100_000];
    let keys: [&[u8]; 6] = [b"", b"\0", b"\0\0", b"\xff\xfe", &long, &long[1..]];
    for key in keys {
        let answer = decide(&store, Mode::Take, &[Hit::new(&limit, key).costing(10)]);
        assert!(answer.is_admitted(), "{} bytes", key.len());
    }
    assert_eq!(usage(&store).keys, Some(6));
}

// Modes.

#[test]
fn a_peek_says_what_taking_would_and_writes_nothing() {
    for kind in Kind::ALL {
        let (store, _) = memory();
        let limit = store.open(&Rule::new("d", "n", Quota::per_hour(5)).with_kind(kind));
        let other = store.open(&Rule::new("d", "other", Quota::per_hour(5)).with_kind(kind));
        for _ in 0..6 {
            let one = [Hit::new(&limit, b"k")];
            let peeks = [(); 2].map(|()| decide(&store, Mode::Peek, &one).decision());
            assert_eq!(peeks[0], peeks[1], "{kind}");
            assert_eq!(decide(&store, Mode::Take, &one).decision(), peeks[0], "{kind}");
            let keys = usage(&store).keys;
            let both = [Hit::new(&limit, b"k"), Hit::new(&other, b"k")];
            let _ = decide(&store, Mode::Peek, &both);
            assert_eq!(usage(&store).keys, keys, "{kind}: nothing is remembered of a look");
        }
    }
}

#[test]
fn a_refusal_takes_nothing_of_anything() {
    let (store, _) = memory();
    let [tight, wide] = [SLOW.burst(1), SLOW].map(|quota| store.open(&Rule::new("d", "n", quota)));
    let hits = [Hit::new(&wide, b"k").costing(2), Hit::new(&tight, b"k").costing(2)];
    let refused = decide(&store, Mode::Take, &hits);
    assert!(!refused.is_admitted());
    assert_eq!(refused.decided_by().map(|said| said.hit), Some(1));
    assert_eq!((refused.retry_after(), usage(&store).keys), (None, Some(0)), "never, and nothing written");
    assert_eq!((left(&store, &wide, "k"), left(&store, &tight, "k")), (vec![10], vec![1]));
}

#[test]
fn who_counts_what_is_refused_uses_up_the_window_and_owes_nothing_for_the_next() {
    let (store, clock) = memory();
    let limit = store.open(&Rule::new("d", "n", Quota::per_minute(10)).with_kind(Kind::FixedWindow));
    let count = |cost| decide(&store, Mode::Count, &[Hit::new(&limit, b"k").costing(cost)]).decision();
    assert!(count(8).is_allowed());
    let refused = count(5); // thirteen
    assert_eq!((refused.verdict(), refused.remaining()), (Verdict::Deny, 0));
    assert_eq!(refused.retry_after(), Some(secs(60)));
    assert!(!count(1).is_allowed(), "fourteen");
    clock.advance(secs(60));
    assert!(count(10).is_allowed());
    assert!(!count(1_000_000).is_allowed());
    clock.advance(secs(60));
    assert!(count(10).is_allowed());
}

#[test]
fn who_counts_counts_each_by_itself() {
    let (store, _) = memory();
    let [tight, wide] = [SLOW.burst(1), SLOW].map(|quota| store.open(&Rule::new("d", "n", quota)));
    let hits = [Hit::new(&wide, b"k").costing(2), Hit::new(&tight, b"k").costing(2), Hit::new(&wide, b"k")];
    let answer = decide(&store, Mode::Count, &hits);
    let said: Vec<_> = answer.each().iter().map(|said| (said.hit, said.decision.is_allowed())).collect();
    assert_eq!(said, [(0, true), (1, false), (2, true)]);
    assert!(!answer.is_admitted());
    assert_eq!((left(&store, &wide, "k"), left(&store, &tight, "k")), (vec![7], vec![0]));
}

#[test]
fn a_charge_is_owed_and_the_answer_says_how_things_stand() {
    let (store, clock) = memory();
    let limit = store.open(&Rule::new("d", "n", Quota::per_second(1).burst(5)));
    let charged = decide(&store, Mode::Charge, &[Hit::new(&limit, b"k").costing(8)]);
    assert!(charged.is_admitted());
    assert_eq!((charged.decision().remaining(), charged.decision().reset_after()), (0, Some(secs(8))));
    assert!(!take(&store, &limit, "k", 1));
    clock.advance(secs(4));
    assert!(take(&store, &limit, "k", 1), "eight less four: one of five is left");
}

#[test]
fn nothing_asked_is_admitted() {
    let (store, _) = memory();
    for mode in [Mode::Take, Mode::Peek, Mode::Count, Mode::Charge, Mode::Refund] {
        let answer = decide(&store, mode, &[]);
        assert!(answer.is_admitted() && answer.each().is_empty() && answer.decided_by().is_none());
    }
    let (answer, permit) = store.acquire(&[]).into_inner().unwrap();
    assert!(answer.is_admitted());
    store.settle(&mut permit.expect("of nothing"), &[1, 2]).into_inner().unwrap();
}

#[test]
fn numbers_as_large_as_they_get_do_no_harm() {
    for kind in Kind::ALL {
        let (store, clock) = memory();
        clock.advance(Duration::from_secs(1 << 28));
        let most = if kind == Kind::SlidingLog { SlidingLog::MAX_ENTRIES } else { u64::MAX };
        let quotas = [Quota::per_second(most).burst(u64::MAX), Quota::per_second(0), Quota::UNLIMITED];
        for quota in quotas {
            let limit = store.open(&Rule::new("d", "n", quota).with_kind(kind).with_quota(SLOW));
            for mode in [Mode::Charge, Mode::Take, Mode::Peek, Mode::Count, Mode::Refund, Mode::Take] {
                for cost in [u64::MAX, u64::MAX - 1, 1 << 63, 0] {
                    let hit = Hit::new(&limit, b"k").costing(cost);
                    let _ = decide(&store, mode, &[hit]);
                    let _ = decide(&store, mode, &[hit, hit]);
                }
            }
            let (_, permit) = store.acquire(&[Hit::new(&limit, b"k").costing(0)]).into_inner().unwrap();
            store.settle(&mut permit.expect("nothing is always admitted"), &[u64::MAX]).into_inner().unwrap();
        }
    }
}

#[test]
fn the_same_key_twice_pays_twice_and_both_hits_are_answered() {
    let (store, _) = memory();
    let limit = store.open(&per_user());
    let hits = [Hit::new(&limit, b"k").costing(3), Hit::new(&limit, b"k").costing(4)];
    let (answer, permit) = store.acquire(&hits).into_inner().unwrap();
    let said: Vec<_> = answer.each().iter().map(|said| (said.hit, said.decision.remaining())).collect();
    assert_eq!(said, [(0, 3), (1, 3)]);
    assert!(!decide(&store, Mode::Peek, &hits).is_admitted(), "seven more do not fit");
    assert!(!decide(&store, Mode::Take, &hits).is_admitted());
    store.settle(&mut permit.unwrap(), &[1]).into_inner().unwrap();
    assert_eq!(left(&store, &limit, "k"), [5], "one of the three, and all of the four");
}

#[test]
fn a_queue_delays_who_comes_alone_and_is_a_meter_for_several() {
    let (store, _) = memory();
    let queue =
        store.open(&Rule::new("d", "queue", Quota::per_second(10).burst(2)).with_kind(Kind::LeakyQueue));
    let other = store.open(&per_user());
    let alone = [Hit::new(&queue, b"k")];
    let delays: Vec<_> = (0..2).map(|_| decide(&store, Mode::Take, &alone).delay()).collect();
    assert_eq!(delays, [Duration::ZERO, Duration::from_millis(100)]);
    assert_eq!(decide(&store, Mode::Peek, &alone).delay(), Duration::from_millis(200));
    let (answer, _permit) = store.acquire(&alone).into_inner().unwrap();
    assert_eq!(answer.delay(), Duration::from_millis(200));
    let both = decide(&store, Mode::Take, &[alone[0], Hit::new(&other, b"k")]);
    assert_eq!((both.is_admitted(), both.retry_after()), (false, Some(Duration::from_millis(300))));
    assert_eq!(left(&store, &other, "k"), [10]);
    let counted = decide(&store, Mode::Count, &[alone[0], Hit::new(&other, b"k")]);
    assert_eq!((counted.is_admitted(), counted.delay()), (false, Duration::ZERO));
    assert_eq!(left(&store, &other, "k"), [9], "each by itself");
}

// Permits.

#[test]
fn a_permit_is_settled_down_and_up_for_one_hit_and_for_several() {
    for others in 0..3 {
        let (store, _) = memory();
        let limits: Vec<Limit> = (0..=others)
            .map(|number| store.open(&Rule::new("d", number.to_string(), SLOW.burst(100))))
            .collect();
        let hits: Vec<_> = limits.iter().map(|limit| Hit::new(limit, b"k").costing(60)).collect();
        let settle = |actual: u64| {
            let (answer, permit) = store.acquire(&hits).into_inner().unwrap();
            assert!(answer.is_admitted());
            store.settle(&mut permit.unwrap(), &vec![actual; hits.len()]).into_inner().unwrap();
            left(&store, &limits[others], "k")[0]
        };
        assert_eq!(settle(25), 75);
        assert_eq!(settle(0), 75);
        assert_eq!(settle(60), 15);
        let (refused, none) = store.acquire(&hits).into_inner().unwrap();
        assert!(!refused.is_admitted() && none.is_none());
        assert_eq!(decide(&store, Mode::Refund, &hits).each()[others].decision.remaining(), 75);
        assert_eq!(settle(80), 0, "five are owed");
        let owed: Vec<_> = hits.iter().map(|hit| hit.costing(6)).collect();
        assert_eq!(decide(&store, Mode::Refund, &owed).each()[others].decision.remaining(), 1);
    }
}

#[test]
fn what_was_asked_for_nothing_can_cost_something_after_all() {
    let (store, _) = memory();
    let (one, two) = (store.open(&per_user()), store.open(&Rule::new("d", "n", SLOW)));
    let (_, permit) = store.acquire(&[Hit::new(&one, b"k").costing(0)]).into_inner().unwrap();
    store.settle(&mut permit.unwrap(), &[4]).into_inner().unwrap();
    assert_eq!(left(&store, &one, "k"), [6]);
    let hits = [Hit::new(&one, b"k"), Hit::new(&two, b"k").costing(0)];
    let (_, permit) = store.acquire(&hits).into_inner().unwrap();
    store.settle(&mut permit.unwrap(), &[0, 3]).into_inner().unwrap();
    assert_eq!((left(&store, &one, "k"), left(&store, &two, "k")), (vec![6], vec![7]));
}

#[test]
fn a_permit_that_is_dropped_or_settled_with_nothing_keeps_what_was_taken() {
    let (store, _) = memory();
    let (one, two) = (store.open(&per_user()), store.open(&Rule::new("d", "n", SLOW)));
    let hits = [Hit::new(&one, b"k").costing(2), Hit::new(&two, b"k").costing(3)];
    drop(store.acquire(&hits).into_inner().unwrap().1.unwrap());
    drop(store.acquire(&hits[..1]).into_inner().unwrap().1.unwrap());
    let mut permit = store.acquire(&hits).into_inner().unwrap().1.unwrap();
    store.settle(&mut permit, &[]).into_inner().unwrap();
    let mut permit = store.acquire(&hits).into_inner().unwrap().1.unwrap();
    store.settle(&mut permit, &[1, 3, 9, 9]).into_inner().unwrap();
    assert_eq!((left(&store, &one, "k"), left(&store, &two, "k")), (vec![3], vec![1]));
}

#[test]
fn a_permit_goes_wherever_the_request_goes() {
    let (store, _) = memory();
    let (limit, other) = (store.open(&per_user()), store.open(&Rule::new("d", "n", SLOW)));
    let mut permit = {
        let key = "alice".to_owned();
        let hits = [Hit::new(&limit, key.as_bytes()).costing(5), Hit::new(&other, key.as_bytes())];
        store.acquire(&hits).into_inner().unwrap().1.unwrap()
    };
    let elsewhere = store.clone();
    std::thread::spawn(move || elsewhere.settle(&mut permit, &[2, 1]).into_inner()).join().unwrap().unwrap();
    assert_eq!(left(&store, &limit, "alice"), [8]);
}

#[test]
fn what_time_has_restored_does_not_come_back_by_settling() {
    let (store, clock) = memory();
    let limit = store.open(&Rule::new("d", "n", Quota::per_second(1).burst(10)));
    let hit = [Hit::new(&limit, b"k").costing(6)];
    let mut permit = store.acquire(&hit).into_inner().unwrap().1.unwrap();
    clock.advance(secs(4));
    assert!(take(&store, &limit, "k", 8));
    store.settle(&mut permit, &[0]).into_inner().unwrap();
    assert_eq!(left(&store, &limit, "k"), [2], "four of the six had come back by themselves");
}

#[test]
fn a_reset_forgets_all_quotas_of_a_key_and_nobody_elses() {
    let (store, _) = memory();
    let limit = store.open(&per_user().with_quota(SLOW.burst(20)));
    let hit = [Hit::new(&limit, b"alice").costing(10)];
    let mut permit = store.acquire(&hit).into_inner().unwrap().1.unwrap();
    assert!(take(&store, &limit, "bob", 10));
    assert!(store.reset(&limit, b"alice").into_inner().unwrap());
    assert!(!store.reset(&limit, b"alice").into_inner().unwrap());
    assert_eq!((left(&store, &limit, "alice"), left(&store, &limit, "bob")), (vec![10, 20], vec![0, 10]));
    assert!(take(&store, &limit, "alice", 4));
    store.settle(&mut permit, &[0]).into_inner().unwrap();
    assert_eq!(
        left(&store, &limit, "alice"),
        [6, 16],
        "what was taken before is forgotten, and so is its receipt"
    );
}

// Errors.

#[test]
fn too_many_different_quotas_are_an_error_and_not_a_leak() {
    let store = MemoryStore::builder().clock(ManualClock::new()).max_quotas(3).build();
    let open = |number: u64| store.open(&Rule::new("d", "n", Quota::per_hour(number)));
    let known: Vec<Limit> = (1..=3).map(open).collect();
    let fourth = open(4);
    let both = [Hit::new(&known[0], b"k"), Hit::new(&fourth, b"k")];
    let errors: [StoreError; 3] = [
        store.decide(Mode::Take, &both).into_inner().unwrap_err(),
        store.decide(Mode::Peek, &both[1..]).into_inner().unwrap_err(),
        store.acquire(&both[1..]).into_inner().unwrap_err(),
    ];
    for error in errors {
        assert!(!error.is_transient());
        assert_eq!(
            error.to_string(),
            "the store has seen too many different quotas to open d/n: raise max_quotas, or use fewer of them"
        );
    }
    assert_eq!(usage(&store).keys, Some(0), "nothing was taken of the other");
    assert!(!store.reset(&fourth, b"k").into_inner().unwrap());
    assert!(take(&store, &open(2), "k", 2), "those that are known go on");
    let other = store.open(&Rule::new("other", "limit", Quota::per_hour(3)));
    assert!(take(&store, &other, "k", 3), "also in other limits");
}

#[test]
fn quotas_that_callers_supply_leave_room_for_others() {
    let store = MemoryStore::builder().clock(ManualClock::new()).max_quotas(6).build();
    let written = |number: u64| store.open(&Rule::new("d", "n", Quota::per_hour(number)));
    let supplied = |number: u64| store.open(&Rule::new("own", "n", Quota::per_hour(number)).brought());
    let is_open = |limit: &Limit| store.decide(Mode::Peek, &[Hit::new(limit, b"k")]).into_inner().is_ok();
    let three: Vec<Limit> = (1..=3).map(supplied).collect();
    assert!(three.iter().all(is_open));
    assert!(!is_open(&supplied(4)), "that is half");
    assert!((4..=9).all(|number| is_open(&written(number))));
    assert!(!is_open(&written(10)));
    assert!(is_open(&supplied(3)), "it is open already");
}

// Guards, item 7: what one caller can have of the supplied quotas is bounded, and comes back when it is idle.
#[test]
fn quotas_that_one_caller_supplies_leave_some_for_the_others() {
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clone()).max_quotas(64).build(); // 32 supplied, 4 of each
    let supplied = |caller, count, kind| {
        let rule = Rule::new("own", "n", Quota::per_minute(count)).with_kind(kind).brought_by(caller);
        let limit = store.open(&rule);
        store.decide(Mode::Take, &[Hit::new(&limit, b"k")]).into_inner().map(|answer| answer.is_admitted())
    };
    for kind in Kind::ALL {
        let used = |caller, counts: std::ops::Range<u64>| {
            counts.filter(|count| supplied(caller, *count, kind).is_ok()).count()
        };
        assert_eq!((used(1, 1..100), used(1, 1..5), used(2, 50..100)), (4, 4, 4), "{kind}");
        assert_eq!(
            (3..=10).map(|caller| used(caller, caller as u64 * 100..caller as u64 * 100 + 50)).sum::<usize>(),
            24
        );
        let errors = [(1, 200), (11, 201)].map(|(caller, count)| supplied(caller, count, kind).unwrap_err());
        for (error, (who, most)) in errors.iter().zip([("you supply", 4), ("callers supply", 32)]) {
            let told = format!(
                "{who} limits with {most} different rates, and at most {most} are allowed: use fewer"
            );
            assert!(error.to_string().starts_with(&told) && !error.is_transient(), "{error}");
        }
        clock.advance(secs(180)); // three windows
        store.sweep();
        assert_eq!((used(1, 300..400), used(11, 500..600)), (4, 4), "{kind}: what is idle came back");
    }
}

#[test]
fn a_supplied_quota_is_not_forgotten_while_something_is_held() {
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clone()).max_quotas(2).build(); // one supplied
    let open = |count: u64| store.open(&Rule::new("own", "n", Quota::per_minute(count)).brought());
    let mut held = {
        let limit = open(100);
        store.acquire(&[Hit::new(&limit, b"k").costing(100)]).into_inner().unwrap().1.expect("it is allowed")
    };
    clock.advance(secs(60));
    store.sweep();
    let other = open(7);
    let refused = store.decide(Mode::Take, &[Hit::new(&other, b"k")]).into_inner();
    assert!(refused.is_err(), "the permit can still be settled");
    store.settle(&mut held, &[150]).into_inner().unwrap();
    assert_eq!(left(&store, &open(100), "k"), [50]);
    clock.advance(secs(60));
    store.sweep();
    assert!(take(&store, &open(7), "k", 7) && !take(&store, &open(7), "k", 1));
}

// Names.

#[test]
fn the_busiest_and_the_most_refused_are_known_by_name() {
    let store = MemoryStore::builder().clock(ManualClock::new()).names(10).build();
    let (user, all) = (store.open(&per_user()), store.open(&Rule::new("api", "all", SLOW.burst(1_000))));
    let ask = |key: &[u8], cost| {
        let hits = [Hit::new(&user, key).costing(cost), Hit::new(&all, b"")];
        let _ = decide(&store, Mode::Take, &hits);
    };
    (0..5).for_each(|_| ask(b"alice", 4));
    ask(b"bob", 1);
    let top = |top| -> Vec<(String, String, u64)> {
        let busy = store.busiest(top, 2).into_inner().unwrap();
        let named = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
        busy.iter().map(|busy| (busy.name.to_string(), named(&busy.key), busy.count)).collect()
    };
    let told = |name: &str, key: &str, count| (name.to_owned(), key.to_owned(), count);
    assert_eq!(top(Top::Asked), [told("all", "", 6), told("per user", "alice", 5)]);
    assert_eq!(
        top(Top::Denied),
        [told("per user", "alice", 3)],
        "the limit that refused, and not those beside it"
    );
    let _ = decide(&store, Mode::Peek, &[Hit::new(&user, b"alice").costing(11)]);
    assert_eq!(top(Top::Denied)[0].2, 3, "a look is not counted");
    ask(&[b'x'; 1_000], 0);
    let longest = store.busiest(Top::Asked, 9).into_inner().unwrap().iter().map(|busy| busy.key.len()).max();
    assert_eq!(longest, Some(256));
    let (nameless, _) = memory();
    assert!(take(&nameless, &nameless.open(&per_user()), "alice", 1));
    assert!(nameless.busiest(Top::Asked, 9).into_inner().unwrap().is_empty());
}

#[test]
fn names_change_no_answer() {
    let named = MemoryStore::builder().clock(ManualClock::new()).names(10).build();
    let (nameless, _) = memory();
    let mut rng = fastrand::Rng::with_seed(1);
    let [one, other] = [&named, &nameless].map(|store| store.open(&per_user()));
    for _ in 0..100 {
        let (key, cost) = ([rng.u8(..3)], rng.u64(..3));
        let got = decide(&named, Mode::Take, &[Hit::new(&one, &key).costing(cost)]).decision();
        assert_eq!(got, decide(&nameless, Mode::Take, &[Hit::new(&other, &key).costing(cost)]).decision());
    }
}

// One decision of one limit, without an answer around it.

#[test]
fn one_decision_is_what_the_answer_would_say() {
    let stores = [(); 2].map(|()| MemoryStore::builder().clock(ManualClock::new()).names(9).build());
    let rules = [per_user(), Rule::new("api", "other", SLOW), Rule::floating("api", "own", SLOW)];
    let limits = stores.each_ref().map(|store| rules.each_ref().map(|rule| store.open(rule)));
    let modes = [Mode::Take, Mode::Take, Mode::Take, Mode::Peek, Mode::Count, Mode::Charge, Mode::Refund];
    for step in 0..300_usize {
        let (mode, rule, cost) = (modes[step % 7], step % 3, step as u64 % 4);
        let key = [b'a' + (step % 5) as u8];
        let hits = limits.each_ref().map(|limits| Hit::new(&limits[rule], &key).costing(cost));
        stores[0].prepare(&hits[0]); // which changes nothing
        let one = stores[0].decide_one_now(mode, hits[0]);
        assert_eq!(one, Some(decide(&stores[1], mode, &hits[1..]).decision()), "step {step}");
    }
    for top in [Top::Asked, Top::Denied] {
        let [one, other] = stores.each_ref().map(|store| store.busiest(top, 99).into_inner().unwrap());
        let counts = |busy: &[tollgate::store::Busy]| {
            busy.iter().map(|busy| (busy.name.clone(), busy.key.clone(), busy.count)).collect::<Vec<_>>()
        };
        assert!(!one.is_empty());
        assert_eq!(counts(&one), counts(&other));
    }
}

#[test]
fn what_is_more_than_one_decision_is_not_told_as_one() {
    let (store, _) = memory();
    let limit = store.open(&per_user().with_quota(SLOW.burst(5)));
    assert_eq!(store.decide_one_now(Mode::Take, Hit::new(&limit, b"alice")), None);
    assert_eq!(left(&store, &limit, "alice"), [10, 5], "and nothing was taken");
}

// For any store.

async fn admits<S: Store>(store: &S, rule: &Rule, key: &[u8]) -> Result<bool, StoreError> {
    let limit = store.open(rule);
    let (answer, permit) = store.acquire(&[Hit::new(&limit, key)]).await?;
    if let Some(mut permit) = permit {
        store.settle(&mut permit, &[1]).await?;
    }
    Ok(answer.is_admitted())
}

#[tokio::test]
async fn generic_code_can_be_spawned() {
    let (store, _) = memory();
    let rule = Rule::new("d", "n", SLOW.burst(1));
    for wanted in [true, false] {
        let (store, rule) = (store.clone(), rule.clone());
        let admitted = tokio::spawn(async move { admits(&store, &rule, b"k").await });
        assert_eq!(admitted.await.unwrap().unwrap(), wanted);
    }
}
