//! A limiter that was saved and restored decides as if it had been there all along; a file that is not as it was saved gives
//! an error and an empty limiter.
#![cfg(not(loom))]

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

/// Two limiters of which one was restored from the other, side by side.
struct Twins {
    old: Any,
    new: Any,
}

const KEYS: u64 = 12;

impl Twins {
    fn advance(&self, span: Duration) {
        self.old.clock().advance(span);
        self.new.clock().advance(span);
    }

    /// Asks both the same, for long.
    fn compare(&self, rng: &mut Rng, steps: u32, case: &str) {
        for step in 0..steps {
            self.advance(pause(rng));
            let (key, cost) = (rng.u64(..KEYS + 3), rng.u64(..4));
            let at = format!("{case}, step {step}, key {key}, cost {cost}");
            match rng.u8(..8) {
                0 => {
                    let patience = secs(rng.u64(..20));
                    let take = |limiter: &Any| match limiter.reserve_within(&key, cost, patience) {
                        Ok(reservation) => (reservation.decision(), reservation.delay()),
                        Err(refused) => (refused.0, Duration::ZERO),
                    };
                    assert_eq!(take(&self.new), take(&self.old), "{at}");
                }
                1 => {
                    self.old.charge(&key, cost);
                    self.new.charge(&key, cost);
                }
                2 => assert_eq!(self.new.allow_n(&key, cost), self.old.allow_n(&key, cost), "{at}"),
                3 => assert_eq!(self.new.allow(&key), self.old.allow(&key), "{at}"),
                _ => assert_eq!(self.new.check_n(&key, cost), self.old.check_n(&key, cost), "{at}"),
            }
        }
    }
}

fn pause(rng: &mut Rng) -> Duration {
    Duration::from_millis(rng.u64(..30) * rng.u64(..30) * rng.u64(..4))
}

/// Does all sorts of things to some keys.
fn use_at_random(limiter: &Any, rng: &mut Rng, steps: u32) {
    let mut reserved: Vec<KeyedReservation<u64, AnyAlgorithm, ManualClock>> = Vec::new();
    for _ in 0..steps {
        limiter.clock().advance(pause(rng));
        let (key, cost) = (rng.u64(..KEYS), rng.u64(..4));
        match rng.u8(..12) {
            0 => limiter.charge(&key, cost),
            1 => reserved.extend(limiter.reserve_within(&key, cost, secs(5))),
            2 if !reserved.is_empty() => reserved.swap_remove(rng.usize(..reserved.len())).settle(1),
            3 if rng.u8(..4) == 0 => limiter.sweep(),
            4 if rng.u8(..4) == 0 => drop(limiter.reset(&key)),
            _ => drop(limiter.check_n(&key, cost)),
        }
    }
}

/// Saves, lets time pass, and restores with another quota if one is given.
fn twins(kind: Kind, quota: Quota, new_quota: Option<Quota>, rng: &mut Rng) -> Twins {
    let folder = Folder::new();
    let old = KeyedLimiter::builder(quota).kind(kind).clock(some_clock()).build();
    use_at_random(&old, rng, 150);
    if rng.bool() {
        old.set_quota(quota.burst(quota.burst_size() + 1));
        old.set_quota(quota);
        use_at_random(&old, rng, 5);
    }
    old.save(folder.file()).expect("it can be written");
    old.clock().advance(pause(rng));
    // A clock that has gone for less, or for much more than the old one.
    let bits = rng.u32(1..50);
    let clock = clock_beside(old.clock(), Duration::from_nanos(rng.u64(..1 << bits)));
    let (new, restored) =
        KeyedLimiter::builder(new_quota.unwrap_or(quota)).kind(kind).clock(clock).restore(folder.file());
    assert_eq!(restored.unwrap_or_else(|error| panic!("{error}")), new.len());
    if let Some(quota) = new_quota {
        old.set_quota(quota);
    }
    Twins { old, new }
}

#[test]
fn a_restored_limiter_decides_as_if_it_had_been_there_all_along() {
    for kind in Kind::ALL {
        for seed in 0..40 {
            let mut rng = Rng::with_seed(seed);
            let quota = conformance::small_quota(&mut rng);
            let twins = twins(kind, quota, None, &mut rng);
            twins.compare(&mut rng, 400, &format!("{kind} {quota}, seed {seed}"));
        }
    }
}

#[test]
fn another_quota_gives_no_free_burst_and_forgives_no_debt() {
    // A queue's patience is its builder's, and `set_quota` leaves it alone, so that the two would differ.
    for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::LeakyQueue) {
        for seed in 0..40 {
            let mut rng = Rng::with_seed(seed);
            let (quota, other) = (conformance::small_quota(&mut rng), conformance::small_quota(&mut rng));
            let twins = twins(kind, quota, Some(other), &mut rng);
            assert_eq!(twins.new.quota(), other);
            twins.compare(&mut rng, 200, &format!("{kind} {quota} to {other}, seed {seed}"));
        }
    }
    let (folder, clock) = (Folder::new(), some_clock());
    let old = buckets(Quota::per_hour(1).burst(4), clock.clone()).build();
    assert!(old.allow_n(&1, 3));
    old.charge(&2, 6);
    old.save(folder.file()).unwrap();
    let (new, restored) = buckets(Quota::per_hour(1).burst(10), clock).restore(folder.file());
    assert_eq!(restored.unwrap(), 2);
    assert_eq!(new.peek_n(&1, 0).remaining(), 1);
    assert_eq!(new.check(&2).retry_after(), Some(secs(3 * 3_600)), "two owed, one wanted");
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

mod writing {
    use super::*;

    fn limiter() -> Buckets {
        let limiter = buckets(Quota::per_hour(3), some_clock()).build();
        assert!(limiter.allow_n(&1, 3));
        limiter
    }

    #[test]
    fn a_path_that_cannot_be_written_is_an_error_that_names_it() {
        let folder = Folder::new();
        let missing = folder.0.join("no-such-folder").join("limits");
        let error = limiter().save(&missing).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
        let start = format!("cannot save a limiter as {}: ", missing.display());
        assert!(error.to_string().starts_with(&start), "{error}");

        let error = limiter().save("..").unwrap_err();
        let expected = "cannot save a limiter as ..: it is a folder; expected the name of a file";
        assert_eq!(error.to_string(), expected);

        fs::create_dir(folder.file()).unwrap();
        assert!(limiter().save(folder.file()).is_err());
        assert_eq!(folder.names(), ["limits.snapshot"], "nothing is left behind");
    }

    #[test]
    fn the_old_file_stays_as_it_was_if_a_new_one_cannot_be_written() {
        let folder = Folder::new();
        let limiter = limiter();
        limiter.save(folder.file()).unwrap();
        let before = fs::read(folder.file()).unwrap();
        for number in 0..=100 {
            fs::write(folder.0.join(format!("limits.snapshot.{number}.tmp")), "of somebody else").unwrap();
        }
        assert!(limiter.allow_n(&2, 3));
        let error = limiter.save(folder.file()).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(folder.file()).unwrap(), before);
        fs::remove_file(folder.0.join("limits.snapshot.7.tmp")).unwrap();
        assert_eq!(limiter.save(folder.file()).unwrap(), 2);
        assert_ne!(fs::read(folder.file()).unwrap(), before);
        assert_eq!(folder.names().len(), 101, "all but the seventh, and the snapshot");
    }

    #[cfg(unix)]
    #[test]
    fn nobody_else_may_read_it() {
        use std::os::unix::fs::PermissionsExt;
        let folder = Folder::new();
        limiter().save(folder.file()).unwrap();
        assert_eq!(fs::metadata(folder.file()).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

mod damage {
    use super::*;

    const QUOTA: Quota = Quota::per_hour(10);

    fn builder() -> KeyedBuilder<u64, TokenBucket, ManualClock> {
        buckets(QUOTA, some_clock()).quota_of(|key| Quota::per_hour(9).burst(*key))
    }

    /// A small file with a bit of everything.
    fn small(path: &Path) -> Vec<u8> {
        let limiter = builder().build();
        for key in 5..8 {
            assert!(limiter.allow_n(&key, 2));
        }
        limiter.save(path).unwrap();
        fs::read(path).unwrap()
    }

    /// Restores from these bytes: the error, after seeing that the limiter is empty, and that it works.
    fn restore(path: &Path, bytes: &[u8], case: &str) -> Result<usize, tollgate::SnapshotError> {
        fs::write(path, bytes).unwrap();
        let (limiter, restored) = builder().restore(path);
        if let Err(error) = &restored {
            assert_eq!((limiter.len(), limiter.quota()), (0, QUOTA), "{case}");
            assert!(error.to_string().starts_with(&format!("{}: ", path.display())), "{case}: {error}");
            assert_eq!(error.path(), path);
        }
        assert!(limiter.allow_n(&100, 100) && !limiter.allow(&100), "{case}");
        restored
    }

    /// Puts the checksum right, as nobody would but for malice.
    fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
        let end = bytes.len() - 4;
        let checksum = crc32fast::hash(&bytes[..end]);
        bytes[end..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    #[test]
    fn every_byte_counts() {
        let folder = Folder::new();
        let good = small(&folder.file());
        assert_eq!(restore(&folder.file(), &good, "as it was").unwrap(), 3);
        for at in 0..good.len() {
            for change in [0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0xFF] {
                let mut bad = good.clone();
                bad[at] ^= change;
                let restored = restore(&folder.file(), &bad, &format!("byte {at} changed by {change:02x}"));
                assert!(restored.is_err(), "byte {at} changed by {change:02x}");
            }
        }
    }

    #[test]
    fn every_cut_is_seen_and_so_is_anything_added() {
        let folder = Folder::new();
        let good = small(&folder.file());
        for length in 0..good.len() {
            let error = restore(&folder.file(), &good[..length], &format!("cut to {length}")).unwrap_err();
            let is_cut =
                matches!(error.problem(), SnapshotProblem::CutShort { bytes } if *bytes == length as u64);
            assert!(is_cut, "cut to {length}: {error}");
        }
        for more in [&[0][..], &[0; 100], &good] {
            let longer = [&good, more].concat();
            assert!(restore(&folder.file(), &longer, "longer").is_err(), "{} more", more.len());
        }
    }

    #[test]
    fn garbage_is_not_a_snapshot() {
        let folder = Folder::new();
        let mut rng = Rng::with_seed(1);
        for case in 0..300 {
            let mut bytes: Vec<u8> = (0..rng.usize(1..400)).map(|_| rng.u8(..)).collect();
            if case % 2 == 0 {
                bytes.splice(..0, *b"tollgate\x01\0\0\0");
                bytes.extend(b"gatetoll");
            }
            assert!(restore(&folder.file(), &bytes, &format!("case {case}")).is_err(), "case {case}");
        }
    }

    /// Whatever a file says, with a checksum that is right: no panic, no huge allocation, and what is restored works.
    #[test]
    fn a_file_made_in_malice_does_no_harm() {
        let folder = Folder::new();
        let path = folder.file();
        let mut rng = Rng::with_seed(2);
        for kind in Kind::ALL {
            let restore = |clock| KeyedLimiter::<u64>::builder(QUOTA).kind(kind).clock(clock).restore(&path);
            let limiter = KeyedLimiter::<u64>::builder(QUOTA).kind(kind).clock(some_clock()).build();
            use_at_random(&limiter, &mut rng, 50);
            limiter.save(&path).unwrap();
            let good = fs::read(&path).unwrap();
            let mut restored = 0;
            for case in 0..1_500 {
                let mut bad = good.clone();
                for _ in 0..rng.usize(1..4) {
                    let (at, width) = (rng.usize(12..bad.len() - 20), rng.usize(1..9));
                    let filler = [0, 0xFF, rng.u8(..)][rng.usize(..3)];
                    let end = (at + width).min(bad.len() - 20);
                    bad[at..end].fill(filler);
                }
                fs::write(&path, sealed(bad)).unwrap();
                let (limiter, result) = restore(some_clock());
                assert!(result.is_ok() || limiter.is_empty(), "{kind}, case {case}");
                restored += u32::from(result.is_ok());
                use_at_random(&limiter, &mut rng, 20);
                limiter.set_quota(Quota::per_second(3));
                use_at_random(&limiter, &mut rng, 20);
            }
            assert!(restored > 100, "{kind}: {restored} were believed");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let folder = Folder::new();
        let path = folder.file();
        let good = small(&path);
        let position =
            |text: &str| good.windows(text.len()).position(|part| part == text.as_bytes()).unwrap();
        let with = |at: usize, bytes: &[u8]| {
            let mut bad = good.clone();
            bad[at..at + bytes.len()].copy_from_slice(bytes);
            sealed(bad)
        };
        let (kind, quota) = (position("token-bucket"), position("10/h"));
        let plan = position("9/h burst");
        let key = good[plan..].iter().position(|byte| *byte == b'k').unwrap() + plan;
        let cases = [
            (
                b"something else".to_vec(),
                "it is not a snapshot of a limiter, which would begin with \"tollgate\"",
            ),
            (with(8, &[7]), "it is a snapshot of version 7, and this program reads version 2"),
            (
                with(28, &[0; 8]),
                "its keys were hashed in another way; it was saved by another program or on another machine",
            ),
            (with(kind, b"taken"), "it is of a limiter with taken-bucket, and this one has token-bucket"),
            (with(quota, b"ten/"), &format!("there should be a quota at byte {}", quota - 1)),
            (with(quota, b"\xFF"), &format!("at byte {}: the text is not UTF-8", quota - 1)),
            (
                with(plan - 2, b"x"),
                &format!("at byte {}: expected 'p' for a quota or 'k' for a key", plan - 2),
            ),
            (with(key + 1, &[0; 8]), &format!("at byte {}: no key has the fingerprint zero", key + 1)),
            (
                with(key + 9, &[9]),
                &format!("at byte {}: no quota with that number comes before the key", key + 1),
            ),
            (
                with(good.len() - 20, &[9]),
                &format!("at byte {}: there should be as many keys as it says here", good.len() - 20),
            ),
            (with(key + 13, &[2]), &format!("at byte {}: the algorithm has no such state", key + 13)),
            (
                with(key + 13, &[0xFF; 4]),
                &format!("at byte {}: the entry goes on beyond the end", good.len() - 24),
            ),
        ];
        for (bytes, message) in cases {
            let error = restore(&path, &bytes, message).expect_err(message);
            assert_eq!(error.to_string(), format!("{}: {message}", path.display()));
        }
        let error = restore(&path, &with(quota, b"ten/"), "a bad quota").unwrap_err();
        let cause = error.source().expect("what the quota is not").to_string();
        assert_eq!(cause, "quota \"ten/\": expected a number such as 10, found \"ten\"");

        let mut damaged = good.clone();
        damaged[quota] = b'2';
        let error = restore(&path, &damaged, "a damaged quota").unwrap_err();
        let SnapshotProblem::Damaged { written, found } = *error.problem() else { panic!("{error}") };
        assert_eq!(
            (found, written),
            (crc32fast::hash(&damaged[..good.len() - 4]), crc32fast::hash(&good[..good.len() - 4]))
        );
        let message = format!(
            "{}: it is damaged: its checksum is {found:08x} and should be {written:08x}",
            path.display()
        );
        assert_eq!(error.to_string(), message);
        let error = restore(&path, &good[..50], "cut").unwrap_err();
        let message = format!(
            "{}: it was cut short: it ends after 50 bytes without the mark of the end",
            path.display()
        );
        assert_eq!(error.to_string(), message);
    }

    #[test]
    fn a_missing_file_is_told_from_one_that_cannot_be_read() {
        let folder = Folder::new();
        let (_, missing) = builder().restore(folder.file());
        let missing = missing.unwrap_err();
        assert!(missing.is_not_found() && missing.source().is_none());
        let (limiter, unreadable) = builder().restore(&folder.0);
        let unreadable = unreadable.unwrap_err();
        assert!(!unreadable.is_not_found() && unreadable.source().is_some() && limiter.is_empty());
        assert_eq!(unreadable.to_string(), format!("{}: it cannot be read", folder.0.display()));
    }

    #[test]
    fn the_kind_of_algorithm_must_agree() {
        let folder = Folder::new();
        for kind in Kind::ALL {
            let old = KeyedLimiter::<u64>::builder(QUOTA).kind(kind).clock(some_clock()).build();
            assert!(old.allow(&1));
            old.save(folder.file()).unwrap();
            for other in Kind::ALL {
                let builder = KeyedLimiter::<u64>::builder(QUOTA).kind(other).clock(some_clock());
                let (new, restored) = builder.restore(folder.file());
                assert_eq!(restored.is_ok(), kind == other, "{kind} to {other}");
                assert_eq!(new.len(), usize::from(kind == other));
            }
        }
        let in_parts = |parts| {
            let builder = KeyedLimiter::<u64>::builder(QUOTA).clock(some_clock());
            builder.algorithm(move |quota| SubWindows::new(quota).parts(parts))
        };
        let old = in_parts(60).build();
        assert!(old.allow(&1));
        old.save(folder.file()).unwrap();
        assert_eq!(in_parts(60).restore(folder.file()).1.unwrap(), 1);
        let error = in_parts(10).restore(folder.file()).1.unwrap_err();
        let message =
            "it is of a limiter with sub-windows in 60 parts, and this one has sub-windows in 10 parts";
        assert_eq!(error.problem().to_string(), message);
    }
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
