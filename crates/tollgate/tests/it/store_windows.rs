//! Windows of a store begin when those of the wall clock do.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use tollgate::store::{Hit, MemoryStore, Mode, Rule, Store};
use tollgate::{Clock, Decision, Kind, ManualClock, Quota};

/// 2026-11-15 18:39:20 UTC: 40 s before the minute ends, 1 240 s before the hour, 19 240 s before the day.
const EVENING: Duration = Duration::from_secs(1_794_767_960);

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn rule(kind: Kind, quota: Quota) -> Rule {
    Rule::new("d", "n", quota).with_kind(kind)
}

fn hit<C: Clock>(store: &MemoryStore<C>, rule: &Rule, mode: Mode, cost: u64) -> Decision {
    let limit = store.open(rule);
    store.decide(mode, &[Hit::new(&limit, b"k").costing(cost)]).into_inner().unwrap().decision()
}

#[test]
fn windows_end_when_those_of_the_wall_clock_do() {
    let day = secs(86_400);
    let cases = [
        (Quota::per_second(1), Duration::from_millis(750)),
        (Quota::per_minute(1), Duration::from_millis(39_750)),
        (Quota::per_hour(1), Duration::from_millis(1_239_750)),
        (Quota::per_day(1), Duration::from_millis(19_239_750)),
        // 1 794 767 960.25 = 2967·604 800 + 326 360.25 = 692·2 592 000 + 1 103 960.25
        (Quota::per(1, 7 * day), Duration::from_millis(604_800_000 - 326_360_250)),
        (Quota::per(1, 30 * day), Duration::from_millis(2_592_000_000 - 1_103_960_250)),
        (Quota::per(1, secs(11)), Duration::from_millis(3_750)), // 163 160 723·11 + 7.25
    ];
    for (quota, left) in cases {
        let store = MemoryStore::builder().clock(ManualClock::starting_at(EVENING)).build();
        store.clock().advance(Duration::from_millis(250)); // the limit is opened when the clock has gone for a while
        let rule = rule(Kind::FixedWindow, quota);
        let first = hit(&store, &rule, Mode::Take, 1);
        assert!(first.is_allowed(), "{quota}");
        assert_eq!(first.reset_after(), Some(left), "{quota}");
        assert_eq!(hit(&store, &rule, Mode::Take, 1).retry_after(), Some(left), "{quota}");
        store.clock().advance(left.saturating_sub(Duration::from_nanos(1)));
        assert!(!hit(&store, &rule, Mode::Take, 1).is_allowed(), "{quota}");
        store.clock().advance(Duration::from_nanos(1));
        assert!(hit(&store, &rule, Mode::Take, 1).is_allowed(), "{quota}");
    }
}

#[test]
fn a_paced_window_has_released_what_the_wall_clock_says() {
    let store = MemoryStore::builder().clock(ManualClock::starting_at(EVENING)).build();
    let rule = rule(Kind::PacedWindow, Quota::per_minute(60));
    // Twenty seconds of the minute have passed: twenty calls are released, and one more.
    assert_eq!(hit(&store, &rule, Mode::Peek, 1).remaining(), 20);
    assert!(hit(&store, &rule, Mode::Take, 21).is_allowed());
    assert_eq!(hit(&store, &rule, Mode::Take, 1).retry_after(), Some(secs(1)));
    store.clock().advance(secs(40));
    assert_eq!(hit(&store, &rule, Mode::Peek, 1).remaining(), 0);
    assert!(hit(&store, &rule, Mode::Take, 1).is_allowed());
    assert_eq!(hit(&store, &rule, Mode::Take, 1).retry_after(), Some(secs(1)));
}

#[test]
fn what_is_refused_counted_charged_or_given_back_stays_in_its_window() {
    let store = MemoryStore::builder().clock(ManualClock::starting_at(EVENING)).build();
    let rule = rule(Kind::FixedWindow, Quota::per_minute(10));
    assert_eq!(hit(&store, &rule, Mode::Count, 11).retry_after(), None); // never so many
    assert_eq!(hit(&store, &rule, Mode::Peek, 1).retry_after(), Some(secs(40)));
    assert_eq!(hit(&store, &rule, Mode::Refund, 4).remaining(), 4);
    assert_eq!(hit(&store, &rule, Mode::Charge, 6).remaining(), 0);
    store.clock().advance(secs(40));
    assert_eq!(hit(&store, &rule, Mode::Peek, 0).remaining(), 8); // two are still owed
    store.clock().advance(secs(60));
    assert_eq!(hit(&store, &rule, Mode::Peek, 0).remaining(), 10);
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tollgate-windows-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_restored_store_goes_on_in_the_same_windows() {
    let folder = Folder::new("same");
    let rule = rule(Kind::FixedWindow, Quota::per_minute(3));
    let store = MemoryStore::builder().clock(ManualClock::starting_at(EVENING)).build();
    assert!(hit(&store, &rule, Mode::Take, 2).is_allowed());
    store.clock().advance(secs(7));
    assert_eq!(store.save(&folder.0).unwrap(), 1);

    // Ten seconds later another process, whose clock begins anew.
    let clock = ManualClock::starting_at(EVENING + secs(17));
    let (store, restored) = MemoryStore::builder().clock(clock).restore(&folder.0);
    assert_eq!((restored.keys, restored.problems.len()), (1, 0));
    let last = hit(&store, &rule, Mode::Take, 1);
    assert_eq!((last.remaining(), last.reset_after()), (0, Some(secs(23))));
    assert_eq!(hit(&store, &rule, Mode::Take, 1).retry_after(), Some(secs(23)));
    store.clock().advance(secs(23));
    assert!(hit(&store, &rule, Mode::Take, 3).is_allowed());
    assert_eq!(hit(&store, &rule, Mode::Take, 1).retry_after(), Some(secs(60)));

    // And a third, after the window.
    store.save(&folder.0).unwrap();
    let clock = ManualClock::starting_at(EVENING + secs(40 + 61));
    let (store, _) = MemoryStore::builder().clock(clock).restore(&folder.0);
    assert_eq!(hit(&store, &rule, Mode::Peek, 0).remaining(), 3);
    assert!(hit(&store, &rule, Mode::Take, 3).is_allowed());
    assert_eq!(hit(&store, &rule, Mode::Take, 1).retry_after(), Some(secs(59)));
}

#[test]
fn a_wall_clock_that_is_set_back_grants_nothing() {
    let folder = Folder::new("back");
    let rule = rule(Kind::FixedWindow, Quota::per_minute(3));
    let store = MemoryStore::builder().clock(ManualClock::starting_at(EVENING)).build();
    assert!(hit(&store, &rule, Mode::Take, 3).is_allowed());
    store.save(&folder.0).unwrap();
    for back in [1, 20, 25, 3_600] {
        let clock = ManualClock::starting_at(EVENING.saturating_sub(secs(back)));
        let (store, _) = MemoryStore::builder().clock(clock).restore(&folder.0);
        assert_eq!(hit(&store, &rule, Mode::Take, 1).retry_after(), Some(secs(40)), "{back} s");
    }
}
