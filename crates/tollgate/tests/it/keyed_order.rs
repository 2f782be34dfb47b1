//! A keyed limiter keeps what it promises in whatever order things come: late readings and looks ahead, keys in line and out of
//! it, changes of quota, a full store.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use fastrand::Rng;
use tollgate::{
    AnyAlgorithm, AtCap, Clock, Gate, KeyedLimiter, Kind, Limiter, ManualClock, Quota, Tick, TokenBucket,
    WaitError,
};

type Keyed = KeyedLimiter<u64, TokenBucket, ManualClock>;

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn at(s: u64) -> Tick {
    Tick::ZERO + secs(s)
}

const HOUR: u64 = 3_600;

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

fn capped(keys: usize, at_cap: AtCap) -> Keyed {
    KeyedLimiter::builder(Quota::per_second(1).burst(4))
        .max_keys(keys)
        .at_cap(at_cap)
        .clock(ManualClock::new())
        .build()
}

/// Law 6: a dropped key is decided about as of the time at which it was dropped, through a gate as directly.
#[test]
fn a_late_reading_does_not_use_a_dropped_key_twice_through_a_gate() {
    for through_gate in [false, true] {
        let clock = ManualClock::new();
        let keyed = KeyedLimiter::<u64>::builder(Quota::per_second(1).burst(3)).clock(clock.clone()).build();
        let free = Limiter::builder(Quota::UNLIMITED).clock(clock.clone()).build();
        assert!(keyed.allow_n(&1, 3));
        clock.set(at(3));
        keyed.sweep();
        assert!(keyed.is_empty());
        clock.set(Tick::ZERO);
        let passed = (0..10)
            .filter(|_| if through_gate { keyed.key(&1).and(&free).allow() } else { keyed.allow(&1) })
            .count();
        clock.set(at(3));
        let rest = (0..10).filter(|_| keyed.allow(&1)).count();
        assert_eq!((passed, rest), (1, 2), "through a gate: {through_gate}");
    }
}

/// After a change of quota those who were never seen begin with what the others have; that must not be forgotten for a time to come.
#[test]
fn a_reservation_through_a_gate_gives_never_seen_keys_no_free_burst() {
    let clock = ManualClock::new();
    let keyed: Keyed =
        KeyedLimiter::builder(Quota::per_hour(1).burst(4)).max_keys(256).clock(clock.clone()).build();
    keyed.set_quota(Quota::per_hour(1).burst(10));
    assert!((2..100).all(|key| keyed.remaining(&key) == 4));
    let slow = Limiter::builder(Quota::every(secs(10 * HOUR))).clock(clock).build();
    assert!(slow.allow());
    let permit = keyed.key(&1).and(&slow).reserve().unwrap();
    assert_eq!(permit.delay(), secs(10 * HOUR));
    let free = (2..100).filter(|key| keyed.remaining(key) != 4).count();
    assert_eq!(free, 0, "so many of 98 never-seen keys got a free burst, now");
}

#[test]
fn a_look_ahead_gives_never_seen_keys_no_free_burst() {
    let keyed: Keyed =
        KeyedLimiter::builder(Quota::per_hour(1).burst(4)).max_keys(256).clock(ManualClock::new()).build();
    keyed.set_quota(Quota::per_hour(1).burst(10));
    assert!((2..100).all(|key| keyed.remaining(&key) == 4));
    assert_eq!(keyed.peek_n_at(&1, 0, at(10 * HOUR)).remaining(), 10);
    let free = (2..100).filter(|key| keyed.remaining(key) != 4).count();
    assert_eq!(free, 0, "so many of 98 never-seen keys got a free burst by a peek");
}

#[test]
fn a_look_ahead_at_a_full_store_drops_nobody_who_counts() {
    for at_cap in [AtCap::Refuse, AtCap::Share] {
        let keyed: Keyed = KeyedLimiter::builder(Quota::per_hour(1).burst(1))
            .max_keys(100)
            .at_cap(at_cap)
            .clock(ManualClock::new())
            .build();
        for key in 0..100 {
            assert!(keyed.allow(&key));
        }
        assert!(!keyed.peek(&1_000).is_allowed() || at_cap == AtCap::Share);
        let _ = keyed.peek_at(&1_000, at(2 * HOUR));
        let again = (0..100).filter(|key| keyed.allow(key)).count();
        assert_eq!(again, 0, "{at_cap:?}: so many exhausted keys were admitted again after a peek");
    }
}

#[test]
fn a_look_ahead_drops_nobody_who_was_waited_for() {
    let keyed: Keyed =
        KeyedLimiter::builder(Quota::per_hour(1).burst(1)).max_keys(256).clock(ManualClock::new()).build();
    for key in 0..20 {
        assert!(keyed.allow(&key));
        assert!(poll(&mut keyed.wait(&key)).is_pending());
    }
    for key in 0..20 {
        let _ = keyed.peek_at(&key, at(2 * HOUR));
    }
    let again = (0..20).filter(|key| keyed.allow(key)).count();
    assert_eq!(again, 0, "so many exhausted keys were admitted again after a peek");
}

#[test]
fn what_was_taken_too_little_of_the_shared_state_is_charged() {
    let keyed = capped(1, AtCap::Share);
    assert!(keyed.allow(&1));
    keyed.reserve_n(&2, 1).unwrap().settle(4);
    assert_eq!(keyed.remaining(&3), 0, "four of four were used");
    let keyed = capped(1, AtCap::Share);
    assert!(keyed.allow(&1));
    keyed.reserve_n(&2, 4).unwrap().settle(1);
    assert_eq!(keyed.remaining(&3), 0, "nothing comes back: others may have had it since");
}

fn changing(
    kind: Kind,
    burst: &Arc<AtomicU64>,
    quotas: [Quota; 2],
) -> KeyedLimiter<u64, AnyAlgorithm, ManualClock> {
    let which = Arc::clone(burst);
    KeyedLimiter::builder(quotas[0])
        .kind(kind)
        .quota_of(move |_: &u64| quotas[which.load(Ordering::SeqCst) as usize])
        .max_keys(256)
        .clock(ManualClock::new())
        .build()
}

/// Whether the key was in line when it got another plan or not.
#[test]
fn what_was_taken_under_another_plan_does_not_come_back() {
    for in_line in [false, true] {
        let which = Arc::new(AtomicU64::new(0));
        let keyed = changing(Kind::FixedWindow, &which, [Quota::per_second(5), Quota::per_minute(5)]);
        keyed.clock().set(at(61));
        let old = keyed.reserve_n(&1, 5).unwrap();
        keyed.clock().set(at(62));
        assert!(keyed.allow_n(&1, 5), "the old window is over: time has restored the first five");
        which.store(1, Ordering::SeqCst);
        if in_line {
            let mut wait = keyed.wait(&1);
            assert!(poll(&mut wait).is_pending());
            keyed.refresh(&1);
        } else {
            keyed.refresh(&1);
        }
        assert_eq!((keyed.peek_n(&1, 0).limit(), keyed.remaining(&1), keyed.keys_in_line()), (5, 0, 0));
        old.settle(0);
        assert_eq!(keyed.remaining(&1), 0, "in line: {in_line}: what time had restored came back again");
    }
}

/// A permit knows its key, and so can ask; a reservation does not.
#[test]
fn settling_what_was_dearer_asks_a_dropped_key_for_its_quota() {
    let which = Arc::new(AtomicU64::new(0));
    let quotas = [5, 50].map(|burst| Quota::per_second(1).burst(burst));
    let keyed = changing(Kind::TokenBucket, &which, quotas);
    let permit = Gate::new(keyed.key(&1)).acquire().unwrap();
    let reservation = keyed.reserve(&2).unwrap();
    which.store(1, Ordering::SeqCst);
    keyed.refresh(&1);
    keyed.refresh(&2);
    keyed.clock().advance(secs(100));
    keyed.sweep();
    assert!(keyed.is_empty());
    permit.settle(4);
    assert_eq!((keyed.peek(&1).limit(), keyed.remaining(&1)), (50, 47));
    reservation.settle(4);
    assert_eq!((keyed.peek(&2).limit(), keyed.remaining(&2)), (5, 2), "as it was");
    keyed.refresh(&2);
    assert_eq!((keyed.peek(&2).limit(), keyed.remaining(&2)), (50, 2), "no free burst");
}

#[test]
fn a_wait_that_was_given_up_keeps_nobody_out() {
    let mut refused = Vec::new();
    for round in 0..100_u64 {
        let (keyed, first) = (capped(1, AtCap::Evict), round * 1_000);
        assert!(keyed.allow_n(&first, 4));
        assert!(poll(&mut keyed.wait(&first)).is_pending()); // and given up
        let other = first + 1;
        let decision = keyed.check(&other);
        if !decision.is_admitted() {
            keyed.clock().advance(secs(1_000_000));
            refused.push((decision.is_never(), keyed.allow(&other)));
        }
    }
    assert!(refused.is_empty(), "(told never, admitted later): {} {:?}", refused.len(), refused.first());
}

/// Law 5, for a key for which there is no room.
#[test]
fn a_new_key_is_told_when_the_first_of_the_others_is_idle() {
    let mut wrong = Vec::new();
    for kind in Kind::ALL {
        let keyed = KeyedLimiter::<u64>::builder(Quota::per(4, secs(10)))
            .kind(kind)
            .max_keys(40)
            .at_cap(AtCap::Refuse)
            .clock(ManualClock::new())
            .build();
        for key in 0..20 {
            let all = (0..4).filter(|_| keyed.allow(&key)).count();
            assert!(all >= 1);
        }
        keyed.clock().set(at(9));
        for key in 20..40 {
            assert!(keyed.allow(&key));
        }
        let Some(new) = (100..1_000).find(|key| !keyed.peek(key).is_admitted()) else { continue };
        let told = keyed.peek(&new).retry_after().unwrap();
        let just_before = Tick::ZERO + secs(9) + told.saturating_sub(Duration::from_nanos(1));
        keyed.clock().set(just_before);
        if keyed.peek(&new).is_admitted() {
            wrong.push((kind, told));
        }
    }
    assert!(wrong.is_empty(), "admitted a nanosecond sooner than told: {wrong:?}");
}

/// Does something to one of a few keys, so that it will be idle sooner or later than before.
fn stir(keyed: &KeyedLimiter<u64, AnyAlgorithm, ManualClock>, rng: &mut Rng) {
    let (key, n) = (rng.u64(..60), rng.u64(1..4));
    match rng.u8(..7) {
        0 => _ = keyed.allow_n(&key, n),
        1 => _ = keyed.reserve_n(&key, n).map(|taken| taken.settle(rng.u64(..6))),
        2 => keyed.refund(&key, n),
        3 => _ = keyed.charge(&key, n),
        4 => _ = Gate::new(keyed.key(&key)).acquire_n(n).map(|taken| taken.settle(rng.u64(..6))),
        5 => _ = keyed.peek_at(&rng.u64(..), keyed.clock().now() + secs(rng.u64(..30))),
        _ => keyed.clock().advance(Duration::from_millis(rng.u64(..3_000))),
    }
}

/// What it is told is never too late, all verbs say the same, and whoever comes back when it was told gets in before long.
#[test]
fn a_new_key_of_a_full_store_is_told_when_somebody_may_be_idle() {
    for seed in 0..400 {
        let (mut rng, kind) = (Rng::with_seed(seed), Kind::ALL[seed as usize % 8]);
        let keyed = KeyedLimiter::<u64>::builder(Quota::per(4, secs(10)))
            .kind(kind)
            .max_keys(40)
            .at_cap(AtCap::Refuse)
            .clock(ManualClock::new())
            .build();
        for _ in 0..300 {
            stir(&keyed, &mut rng);
            let (new, n) = (rng.u64(100..), rng.u64(1..=2));
            for times in 0.. {
                let (now, told) = (keyed.clock().now(), keyed.peek_n(&new, n).retry_after());
                let told = told.unwrap_or_default(); // a meter never admits two
                if told.is_zero() {
                    break;
                }
                let checked = [keyed.check_n(&new, n), Gate::new(keyed.key(&new)).check_n(n).decision()];
                assert_eq!(checked.map(|said| said.retry_after()), [Some(told); 2], "{kind}, seed {seed}");
                let just_before = now + told.saturating_sub(Duration::from_nanos(1));
                assert!(
                    !keyed.peek_n_at(&new, n, just_before).is_admitted(),
                    "{kind}, seed {seed}: {told:?} is late"
                );
                if rng.bool() {
                    break;
                }
                assert!(times < 40, "{kind}, seed {seed}: told {told:?} for ever");
                keyed.clock().advance(told);
            }
        }
    }
}

/// A paced window gives the third of ten not before two tenths of it have passed: also to whoever finds room when another ends.
#[test]
fn a_new_key_is_told_when_there_is_room_and_it_is_admitted_too() {
    let keyed = KeyedLimiter::<u64>::builder(Quota::per(10, secs(10)))
        .kind(Kind::PacedWindow)
        .max_keys(1)
        .at_cap(AtCap::Refuse)
        .clock(ManualClock::new())
        .build();
    assert!(keyed.allow(&1)); // idle at the end of the window
    let new = (2..10_000).find(|key| !keyed.peek(key).is_admitted()).expect("one of so many");
    for (cost, told) in [(1, secs(10)), (3, secs(12))] {
        let gate = Gate::new(keyed.key(&new));
        let said = [keyed.peek_n(&new, cost), keyed.check_n(&new, cost), gate.check_n(cost).decision()];
        assert_eq!(said.map(|said| said.retry_after()), [Some(told); 3], "{cost}");
        let then = Tick::ZERO + told;
        assert!(keyed.peek_n_at(&new, cost, then).is_admitted());
    }
}

/// Its states' time is ahead of its clock's.
#[test]
fn a_far_deadline_of_a_restored_limiter_is_far() {
    let path = std::env::temp_dir().join(format!("tollgate-far-deadline-{}", std::process::id()));
    let quota = Quota::per_second(1).burst(1);
    let clock = ManualClock::starting_at(secs(1_700_000_000));
    clock.set(at(100));
    let old: Keyed = KeyedLimiter::builder(quota).clock(clock).build();
    assert!(old.allow(&1));
    old.save(&path).unwrap();
    let clock = ManualClock::starting_at(secs(1_700_000_100));
    let (new, restored) = KeyedLimiter::<u64>::builder(quota).clock(clock).restore(&path);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(restored.unwrap(), 1);
    let mut wait = new.wait(&1).until(Tick::from_nanos(u64::MAX - 1));
    match poll(&mut wait) {
        Poll::Pending => {}
        Poll::Ready(Err(WaitError::TooLate { would_take })) => {
            panic!("too late, by {would_take:?}, for a deadline in 584 years")
        }
        Poll::Ready(other) => panic!("{other:?}"),
    }
}

/// Law 5, by a reading from before the key was dropped.
#[test]
fn what_a_new_key_is_told_by_a_late_reading_is_counted_from_that_reading() {
    let build = || {
        let keyed = KeyedLimiter::<u64>::builder(Quota::per_minute(60))
            .kind(Kind::PacedWindow)
            .clock(ManualClock::new())
            .build();
        assert!(keyed.allow(&1));
        keyed.sweep_at(at(60));
        assert!(keyed.is_empty());
        keyed
    };
    // The third of the window that begins at 60 s is due at 62 s.
    let keyed = build();
    let told = keyed.check_n_at(&1, 3, at(50)).retry_after().unwrap();
    let (sooner, then) = (
        keyed.peek_n_at(&1, 3, at(50) + told.saturating_sub(Duration::from_nanos(1))),
        keyed.peek_n_at(&1, 3, at(50) + told),
    );
    assert!(then.is_allowed() && !sooner.is_allowed(), "law 5: told {told:?} at 50 s");
}

#[test]
fn a_slot_of_a_new_key_by_a_late_reading_is_not_before_its_time() {
    let keyed = KeyedLimiter::<u64>::builder(Quota::per_minute(60))
        .kind(Kind::PacedWindow)
        .clock(ManualClock::new())
        .build();
    assert!(keyed.allow(&1));
    keyed.sweep_at(at(60));
    let slot = keyed.reserve_n_at(&1, 3, at(50)).unwrap();
    assert_eq!(slot.act_time(), at(62));
}

/// After a change of quota a fresh key is one that was never seen.
#[test]
fn a_key_that_is_reset_in_line_starts_like_any_other() {
    let left = [false, true].map(|in_line| {
        let keyed: Keyed =
            KeyedLimiter::builder(Quota::per_hour(1).burst(4)).clock(ManualClock::new()).build();
        keyed.set_quota(Quota::per_hour(1).burst(10));
        assert!(keyed.allow_n(&1, 4));
        let mut wait = keyed.wait_n(&1, 10);
        if in_line {
            assert!(poll(&mut wait).is_pending());
        }
        assert_eq!(keyed.remaining(&2), 4);
        if in_line {
            drop(wait);
            let mut other = keyed.wait_n(&1, 9);
            assert!(poll(&mut other).is_pending());
            assert!(keyed.reset(&1));
            let served = poll(&mut other).is_ready();
            return if served { 10 } else { 4 };
        }
        assert!(keyed.reset(&1));
        keyed.remaining(&1)
    });
    assert_eq!(left[0], left[1], "in the table, in line");
}

/// Law 3.
#[test]
fn dropping_idle_keys_changes_no_decision_after_a_change_of_quota() {
    let mut wrong = Vec::new();
    for kind in Kind::ALL {
        let left = [false, true].map(|sweeps| {
            let keyed = KeyedLimiter::<u64>::builder(Quota::per_second(5))
                .kind(kind)
                .clock(ManualClock::new())
                .build();
            for _ in 0..5 {
                let _ = keyed.allow(&1);
                keyed.clock().advance(Duration::from_millis(200));
            }
            keyed.clock().advance(secs(5));
            if sweeps {
                keyed.sweep();
                assert!(keyed.is_empty());
            }
            keyed.set_quota(Quota::per_minute(5));
            (0..10).filter(|_| keyed.allow(&1)).count()
        });
        if left[0] != left[1] {
            wrong.push((kind, left));
        }
    }
    assert!(wrong.is_empty(), "(kind, [admitted if kept, if dropped]): {wrong:?}");
}

/// A refresh that comes while a key goes back from its line.
#[test]
fn a_refresh_is_not_lost_while_a_key_gets_out_of_line() {
    let burst = Arc::new(AtomicU64::new(10));
    let known = Arc::clone(&burst);
    let limiter: KeyedLimiter<u64, TokenBucket, ManualClock> =
        KeyedLimiter::builder(Quota::per_hour(1).burst(10))
            .quota_of(move |_: &u64| Quota::per_hour(1).burst(known.load(Ordering::SeqCst)))
            .max_keys(256)
            .clock(ManualClock::new())
            .build();
    limiter.charge(&1, 1_000); // it stays
    let done = AtomicBool::new(false);
    let mut lost = 0;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let mut wait = limiter.wait(&1);
                    let _ = Pin::new(&mut wait).poll(&mut Context::from_waker(Waker::noop()));
                    drop(wait);
                    let _ = limiter.peek(&1);
                }
            });
        }
        for round in 0..300_000_u64 {
            let now = 10 + round % 64;
            burst.store(now, Ordering::SeqCst);
            limiter.refresh(&1);
            lost += u64::from(limiter.peek(&1).limit() != now);
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(lost, 0, "of 300 000 refreshes");
}

#[test]
fn a_look_does_not_take_the_room_that_a_call_would_have_had() {
    let (mut without, mut with) = (0, 0);
    for round in 0..200_u64 {
        for looks in [false, true] {
            let keyed: Keyed = KeyedLimiter::builder(Quota::per_second(1).burst(4))
                .max_keys(2)
                .at_cap(AtCap::Refuse)
                .clock(ManualClock::new())
                .build();
            // As many as there is room for; with two places in the table that may be three.
            let known: Vec<u64> = (round * 1_000..round * 1_000 + 50)
                .filter(|key| keyed.allow_n(key, 1 + 3 * (key % 2)))
                .collect();
            keyed.clock().advance(secs(1)); // some are idle
            let new = known.last().unwrap() + 500;
            let seen = !looks || keyed.peek(&new).is_allowed();
            let passed = keyed.allow(&new);
            if looks {
                with += u64::from(passed);
                assert_eq!(seen, passed, "round {round}: a look said otherwise");
            } else {
                without += u64::from(passed);
            }
        }
    }
    assert_eq!(with, without, "admitted with and without a look before");
}

/// In a small store too: whoever has something left is forgotten before anybody who has used all.
#[test]
fn nobody_who_used_all_goes_before_somebody_who_did_not() {
    for (cap, round) in
        [1, 2, 3, 8, 40, 200].into_iter().flat_map(|cap| (0..20).map(move |round| (cap, round)))
    {
        let keyed = capped(cap, AtCap::Evict);
        let exhausted = round * 1_000..round * 1_000 + cap as u64 - 1;
        assert!(
            exhausted.clone().all(|key| keyed.allow_n(&key, 4)),
            "there is room for all but one of {cap}"
        );
        for new in 500..520 {
            assert!(keyed.allow(&(round * 1_000 + new)), "another one has three left, and goes");
        }
        assert_eq!(keyed.len(), cap);
        let again = exhausted.filter(|key| keyed.allow(key)).count();
        assert_eq!(again, 0, "of those who used all, with room for {cap}, in round {round}");
    }
}
