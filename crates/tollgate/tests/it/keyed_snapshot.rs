//! A limiter that was saved and restored decides as if it had been there all along; a file that is not as it was saved gives
//! an error and an empty limiter.

mod damage;
mod twins;
mod writing;

use std::error::Error;
use std::fs;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use fastrand::Rng;
use tollgate::{
    AnyAlgorithm, AtCap, Clock, KeyedBuilder, KeyedLimiter, KeyedReservation, Kind, ManualClock, Quota,
    SnapshotProblem, SubWindows, Tick, TokenBucket,
};
use tollgate_sim::conformance;

type Any = KeyedLimiter<u64, AnyAlgorithm, ManualClock>;
type Buckets = KeyedLimiter<u64, TokenBucket, ManualClock>;
type BucketsBuilder = KeyedBuilder<u64, TokenBucket, ManualClock>;

/// A folder that is gone after the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("tollgate-{}-{number}", std::process::id()));
        fs::create_dir(&path).expect("a new folder for temporary files");
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("limits.snapshot")
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name());
        entries.map(|name| name.into_string().unwrap()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Says that it is over, also if a test fails: others would go on for ever.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// A clock that reads `reading` when `other` says it is whatever it is.
fn clock_beside(other: &ManualClock, reading: Duration) -> ManualClock {
    let clock = ManualClock::starting_at(other.unix().checked_sub(reading).expect("it was long ago"));
    clock.set(Tick::ZERO + reading);
    clock
}

/// A clock well after 1970, so that others can stand before it.
fn some_clock() -> ManualClock {
    ManualClock::starting_at(secs(1_700_000_000))
}

fn buckets(quota: Quota, clock: ManualClock) -> KeyedBuilder<u64, TokenBucket, ManualClock> {
    KeyedLimiter::builder(quota).clock(clock)
}

#[test]
fn what_has_passed_meanwhile_counts() {
    let (folder, clock) = (Folder::new(), some_clock());
    let old = buckets(Quota::per_second(1).burst(10), clock.clone()).build();
    assert!(old.allow_n(&1, 10) && old.allow_n(&2, 2));
    assert_eq!(old.save(folder.file()).unwrap(), 2);
    clock.advance(secs(3));
    let (new, restored) =
        buckets(Quota::per_second(1).burst(10), clock_beside(&clock, secs(500))).restore(folder.file());
    assert_eq!(restored.unwrap(), 1, "the other one is full again");
    assert_eq!(new.peek_n(&1, 0).remaining(), 3);
}

#[test]
fn a_reading_from_before_the_restart_grants_no_more() {
    let (folder, clock) = (Folder::new(), some_clock());
    let quota = Quota::per_second(1).burst(3);
    let old = buckets(quota, clock.clone()).build();
    assert!(old.allow_n(&1, 3));
    clock.advance(secs(3));
    assert_eq!(old.save(folder.file()).unwrap(), 0, "it is full again");
    let (new, _) = buckets(quota, clock_beside(&clock, secs(100))).restore(folder.file());
    let passed = (97..=100).map(|at| (0..5).filter(|_| new.allow_at(&1, Tick::ZERO + secs(at))).count());
    assert_eq!(passed.sum::<usize>(), 3, "a burst, as at the time of the restart");
}

#[test]
fn who_was_never_seen_gets_no_free_burst_of_a_new_quota_after_a_restart() {
    let (folder, clock) = (Folder::new(), some_clock());
    let old = buckets(Quota::per_hour(1).burst(4), clock.clone()).build();
    old.set_quota(Quota::per_hour(1).burst(10));
    assert_eq!(old.peek_n(&1, 0).remaining(), 4);
    old.save(folder.file()).unwrap();
    let (new, _) = buckets(Quota::per_hour(1).burst(10), clock.clone()).restore(folder.file());
    assert!((0..1_000).all(|key| new.peek_n(&key, 0).remaining() == 4));
    clock.advance(secs(2 * 3_600));
    assert_eq!(new.peek_n(&1, 0).remaining(), 6);
}

#[test]
fn a_time_of_day_that_went_back_gives_nothing() {
    let (folder, clock) = (Folder::new(), some_clock());
    let old = buckets(Quota::per_second(1).burst(10), clock).build();
    assert!(old.allow_n(&1, 10));
    old.save(folder.file()).unwrap();
    let (new, _) = buckets(Quota::per_second(1).burst(10), ManualClock::new()).restore(folder.file());
    assert_eq!(new.peek_n(&1, 0).remaining(), 0);
    new.clock().advance(secs(2));
    assert_eq!(new.peek_n(&1, 0).remaining(), 2);
}

#[test]
fn after_ages_a_limiter_starts_afresh() {
    let (folder, clock) = (Folder::new(), ManualClock::new()); // a machine that thinks it is 1970
    let old = buckets(Quota::per_second(1).burst(10), clock).build();
    assert!(old.allow_n(&1, 10));
    old.save(folder.file()).unwrap();
    let (new, restored) = buckets(Quota::per_second(1).burst(10), some_clock()).restore(folder.file());
    assert_eq!(restored.unwrap(), 0);
    new.clock().advance(secs(10 * 365 * 86_400));
    assert!(new.allow_n(&1, 10), "its time has begun again, and lasts for longer");
    assert_eq!(new.check(&1).retry_after(), Some(secs(1)));
}

#[test]
fn explicit_times_are_those_of_the_limiters_clock() {
    let (folder, clock) = (Folder::new(), some_clock());
    clock.set(Tick::ZERO + secs(1_000));
    let old = buckets(Quota::per_second(1).burst(2), clock.clone()).build();
    assert!(old.allow_n(&1, 2));
    old.save(folder.file()).unwrap();
    for reading in [0, 7, 999, 5_000] {
        let clock = clock_beside(&clock, secs(reading));
        let (new, _) = buckets(Quota::per_second(1).burst(2), clock.clone()).restore(folder.file());
        let later = clock.now() + secs(1);
        assert!(!new.allow_at(&1, clock.now()), "reading {reading}");
        assert!(!new.allow_n_at(&1, 1, clock.now()) && !new.peek_at(&1, clock.now()).is_allowed());
        assert!(
            new.peek_at(&1, later).is_allowed()
                && new.peek_within_at(&1, 1, secs(1), clock.now()).is_admitted()
        );
        let slot = new.reserve_n_at(&1, 2, clock.now()).unwrap();
        assert_eq!((slot.act_time(), slot.delay()), (clock.now() + secs(2), secs(2)), "reading {reading}");
        slot.cancel_at(later);
        assert_eq!(new.check_n_at(&1, 1, later).remaining(), 0, "one came, and is gone");
        let early = new.reserve_n_at(&3, 1, clock.now()).unwrap();
        assert!(new.allow_at(&3, later));
        early.settle_at(0, later);
        assert_eq!(new.peek_n_at(&3, 0, later).remaining(), 1, "time had restored it already");
        new.reserve_n_at(&2, 1, later).unwrap().settle_at(2, later);
        new.charge_at(&2, 1, later);
        assert_eq!(new.check_at(&2, later).retry_after(), Some(secs(2)), "one owed, one wanted");
        new.set_quota_at(Quota::per_second(2).burst(2), later);
        assert_eq!(new.peek_at(&2, later).retry_after(), Some(secs(1)), "reading {reading}");
        let mut answers = Vec::new();
        new.check_many_at(&[&1, &2], later + secs(1), |_, decision| answers.push(decision.is_allowed()));
        assert_eq!(answers, [true, true]);
        new.sweep_at(later + secs(60));
        assert!(new.is_empty());
        assert!(new.peek_at(&1, Tick::ZERO).remaining() <= 2, "a reading from before does not overflow");
    }
}

#[test]
fn keys_keep_the_quotas_they_have_of_their_own() {
    let (folder, clock) = (Folder::new(), some_clock());
    clock.set(Tick::ZERO + secs(100_000));
    let builder = |clock| KeyedLimiter::<u64>::builder(Quota::per_hour(1)).clock(clock);
    let old = builder(clock.clone()).quota_of(|key| Quota::per_hour(1).burst(10 + key % 5)).build();
    for key in 0..50 {
        assert!(old.allow_n(&key, 8));
    }
    assert_eq!(old.save(folder.file()).unwrap(), 50);

    let raised = |key: &u64| Quota::per_hour(7).burst(20 + key % 5);
    let (new, restored) = builder(clock_beside(&clock, secs(5))).quota_of(raised).restore(folder.file());
    assert_eq!(restored.unwrap(), 50);
    for key in 0..50 {
        let facts = new.peek_n(&key, 0);
        assert_eq!((facts.limit(), facts.remaining()), (10 + key % 5, 2 + key % 5), "key {key}");
        new.refresh(&key);
        let facts = new.peek_n(&key, 0);
        assert_eq!((facts.limit(), facts.remaining()), (20 + key % 5, 2 + key % 5), "key {key}");
    }
    assert_eq!(new.peek_n(&50, 0).limit(), 20, "a new one is asked for");

    let common = Quota::per_hour(1).burst(11);
    let (new, restored) = KeyedLimiter::<u64>::builder(common).clock(clock.clone()).restore(folder.file());
    assert_eq!(restored.unwrap(), 50);
    for key in 0..50 {
        let facts = new.peek_n(&key, 0);
        assert_eq!((facts.limit(), facts.remaining()), (11, 2 + key % 5), "key {key}: what was left is left");
    }
}

#[test]
fn a_limiter_without_quotas_by_key_can_get_them() {
    let (folder, clock) = (Folder::new(), some_clock());
    let old = buckets(Quota::per_hour(4), clock.clone()).build();
    assert!(old.allow_n(&1, 3));
    old.save(folder.file()).unwrap();
    let (new, restored) =
        buckets(Quota::per_hour(4), clock).quota_of(|_| Quota::per_hour(9)).restore(folder.file());
    assert_eq!(restored.unwrap(), 1);
    assert_eq!(new.peek_n(&1, 0).remaining(), 1);
    new.refresh(&1);
    assert_eq!((new.peek_n(&1, 0).limit(), new.peek_n(&1, 0).remaining()), (9, 1));
}

#[test]
fn the_state_that_new_keys_share_is_kept() {
    let (folder, clock) = (Folder::new(), some_clock());
    let builder = || buckets(Quota::per_second(1).burst(4), clock.clone()).max_keys(100).at_cap(AtCap::Share);
    let old = builder().build();
    for key in 0..100 {
        assert!(old.allow_n(&key, 4));
    }
    assert_eq!((100..200).filter(|key| old.allow(key)).count(), 4);
    old.save(folder.file()).unwrap();
    let (new, restored) = builder().restore(folder.file());
    assert_eq!(restored.unwrap(), 100);
    assert_eq!((100..200).filter(|key| new.allow(key)).count(), 0);
    clock.advance(secs(1));
    assert_eq!((100..200).filter(|key| new.allow(key)).count(), 1);
}

#[test]
fn a_smaller_limiter_keeps_to_its_cap() {
    let (folder, clock) = (Folder::new(), some_clock());
    let old = buckets(Quota::per_hour(4), clock.clone()).build();
    for key in 0..1_000 {
        assert!(old.allow_n(&key, if key < 40 { 4 } else { 1 }));
    }
    old.save(folder.file()).unwrap();
    for at_cap in [AtCap::Evict, AtCap::Refuse, AtCap::Share] {
        let builder = buckets(Quota::per_hour(4), clock.clone()).max_keys(100).at_cap(at_cap);
        let (new, restored) = builder.restore(folder.file());
        assert_eq!(restored.unwrap(), new.len());
        assert!((95..=105).contains(&new.len()), "{at_cap:?}: {} keys", new.len());
        assert_eq!(new.stats().evicted + new.len() as u64, 1_000, "{at_cap:?}");
        if at_cap == AtCap::Evict {
            assert!((0..40).all(|key| !new.allow(&key)), "the exhausted are remembered");
        }
    }
}

#[test]
fn the_exhausted_are_remembered_in_a_smaller_limiter_of_many_shards() {
    let (folder, clock) = (Folder::new(), some_clock());
    let old = buckets(Quota::per_hour(4), clock.clone()).build();
    for key in 0..60_000 {
        assert!(old.allow_n(&key, if key % 10 == 0 { 4 } else { 1 }));
    }
    old.save(folder.file()).unwrap();
    let builder = || buckets(Quota::per_hour(4), clock.clone());
    for (smaller, most_bytes) in
        [(builder().max_keys(20_000), usize::MAX), (builder().max_bytes(600_000), 640_000)]
    {
        let (new, restored) = smaller.restore(folder.file());
        assert!((15_000..=30_000).contains(&restored.unwrap()), "{new:?}");
        assert!(new.bytes() <= most_bytes, "{} bytes", new.bytes());
        assert_eq!(new.stats().evicted + new.len() as u64, 60_000);
        let forgotten = (0..60_000).step_by(10).filter(|key| new.allow(key)).count();
        assert_eq!(forgotten, 0, "{new:?}");
    }
}

#[test]
fn a_full_limiter_is_restored_without_loss() {
    let (folder, clock) = (Folder::new(), some_clock());
    let builder = || buckets(Quota::per_hour(4), clock.clone());
    let full: [fn(BucketsBuilder) -> BucketsBuilder; 2] =
        [|builder: KeyedBuilder<_, _, _>| builder.max_keys(20_000), |builder| builder.max_bytes(1 << 20)];
    for cap in full {
        let old = cap(builder()).build();
        for key in 0..60_000 {
            assert!(old.allow_n(&key, 4));
        }
        let saved = old.save(folder.file()).unwrap();
        assert!(saved >= 15_000 && old.stats().evicted > 0);
        let (new, restored) = cap(builder()).restore(folder.file());
        let lost = saved - restored.unwrap();
        assert!(lost <= saved / 100, "{lost} of {saved}: {new:?}");
    }
}

#[test]
fn it_does_not_matter_whether_the_algorithm_was_chosen_at_run_time() {
    let (folder, clock) = (Folder::new(), some_clock());
    let quota = Quota::per_hour(2);
    let old = buckets(quota, clock.clone()).kind(Kind::TokenBucket).build();
    assert!(old.allow_n(&1, 2));
    old.save(folder.file()).unwrap();
    let (new, restored) = buckets(quota, clock.clone()).restore(folder.file());
    assert_eq!(restored.unwrap(), 1);
    assert!(!new.allow(&1));
    new.save(folder.file()).unwrap();
    let (again, restored) = buckets(quota, clock).kind(Kind::TokenBucket).restore(folder.file());
    assert_eq!(restored.unwrap(), 1);
    assert!(!again.allow(&1));
}

#[test]
fn idle_keys_are_not_saved() {
    let (folder, clock) = (Folder::new(), some_clock());
    let old = buckets(Quota::per_second(1).burst(5), clock.clone()).build();
    for key in 0..3_000 {
        assert!(old.allow_n(&key, 1 + key % 2));
    }
    clock.advance(secs(1));
    assert_eq!(old.save(folder.file()).unwrap(), 1_500);
    assert_eq!(old.len(), 3_000, "saving drops nothing");
}

#[test]
fn what_was_settled_before_is_saved_whatever_others_do_meanwhile() {
    const SETTLED: u64 = 5_000;
    let (folder, clock) = (Folder::new(), some_clock());
    let limiter: Buckets = buckets(Quota::per_hour(3), clock.clone()).build();
    for key in 0..SETTLED {
        assert!(limiter.allow_n(&key, 3));
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ends = Ends(&done);
        for thread in 0..2_u64 {
            let (limiter, done) = (&limiter, &done);
            scope.spawn(move || {
                let first = (thread + 1) << 40;
                while !done.load(Ordering::Relaxed) {
                    for key in first..first + 60_000 {
                        let _ = limiter.allow(&key);
                    }
                    for key in first..first + 60_000 {
                        limiter.reset(&key);
                    }
                    limiter.sweep(); // joins segments again
                }
            });
        }
        for round in 0..5 {
            let saved = limiter.save(folder.file()).unwrap();
            assert!(saved as u64 >= SETTLED, "round {round}: {saved} keys");
            let (restored, keys) = buckets(Quota::per_hour(3), clock.clone()).restore(folder.file());
            assert_eq!(keys.unwrap(), saved, "round {round}: each key once");
            let lost = (0..SETTLED).filter(|key| restored.allow(key)).count();
            assert_eq!(lost, 0, "round {round}");
        }
    });
    assert_eq!(folder.names(), ["limits.snapshot"]);
}

#[test]
fn all_keys_in_a_file_have_the_same_quota_though_it_changes_all_the_time() {
    let (folder, clock) = (Folder::new(), some_clock());
    clock.set(Tick::ZERO + secs(1));
    // A state of the one would be almost a fresh one of the other.
    let quotas = [Quota::per_hour(1).burst(4), Quota::per_second(1_000_000_000).burst(4)];
    let limiter: Buckets = buckets(quotas[0], clock.clone()).build();
    for key in 0..5_000 {
        assert!(limiter.allow_n(&key, 4));
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ends = Ends(&done);
        scope.spawn(|| {
            for quota in quotas.into_iter().cycle().take_while(|_| !done.load(Ordering::Relaxed)) {
                limiter.set_quota(quota);
            }
        });
        for round in 0..30 {
            assert_eq!(limiter.save(folder.file()).unwrap(), 5_000);
            let (restored, keys) = buckets(quotas[0], clock.clone()).restore(folder.file());
            assert_eq!(keys.unwrap(), 5_000);
            assert_eq!((0..5_000).filter(|key| restored.allow(key)).count(), 0, "round {round}");
        }
    });
}

#[test]
fn a_key_that_somebody_waits_for_is_saved_too_and_can_be_waited_for_afterwards() {
    let (folder, quota) = (Folder::new(), Quota::per_second(1).burst(2));
    let clock = some_clock();
    let limiter = buckets(quota, clock.clone()).build();
    assert!(limiter.allow_n(&1, 2));
    let mut context = Context::from_waker(Waker::noop());
    let mut wait = Box::pin(limiter.wait(&1));
    assert!(wait.as_mut().poll(&mut context).is_pending());
    assert_eq!(limiter.save(folder.file()).expect("it is saved"), 1);
    drop(wait);

    let later = clock_beside(&clock, secs(5_000));
    let (restored, keys) = buckets(quota, later.clone()).restore(folder.file());
    assert_eq!(keys.expect("it is restored"), 1);
    assert!(!restored.allow(&1));
    let mut wait = Box::pin(restored.wait(&1).within(secs(1)));
    assert!(wait.as_mut().poll(&mut context).is_pending());
    later.advance(secs(1));
    let Poll::Ready(Ok(turn)) = wait.as_mut().poll(&mut context) else { panic!("it is due") };
    assert_eq!(turn.act_time(), later.now(), "by the limiter's own clock");
}
