//! Waiting for a key: as for a limiter of its own, and without a trace once nobody waits any more.
#![cfg(not(loom))]

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use fastrand::Rng;
use tollgate::{
    AnyAlgorithm, KeyedLimiter, KeyedReservation, KeyedWait, Kind, Limiter, ManualClock, Quota, Reservation,
    TokenBucket, Wait, WaitError,
};

type Keyed = KeyedLimiter<u64, TokenBucket, ManualClock>;

fn build(quota: Quota) -> Keyed {
    KeyedLimiter::builder(quota).clock(ManualClock::new()).build()
}

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// `Some` once a wait is over: how long it still is until it may act, or why not.
fn outcome<T>(poll: Poll<Result<T, WaitError>>) -> Option<Result<T, WaitError>> {
    match poll {
        Poll::Ready(outcome) => Some(outcome),
        Poll::Pending => None,
    }
}

#[test]
fn those_who_wait_for_a_key_are_served_in_order_and_others_at_once() {
    let limiter = build(Quota::per_second(1).burst(1));
    assert!(limiter.allow(&1));
    let (mut first, mut second, mut other) = (limiter.wait(&1), limiter.wait(&1), limiter.wait(&2));
    assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
    assert!(poll(&mut other).is_ready());
    assert_eq!(limiter.keys_in_line(), 1);
    limiter.clock().advance(Duration::from_millis(999));
    assert!(poll(&mut first).is_pending());
    limiter.clock().advance(Duration::from_millis(1));
    assert!(!limiter.allow(&1), "nobody gets past those who wait");
    assert!(poll(&mut second).is_pending() && poll(&mut first).is_ready());
    limiter.clock().advance(Duration::from_secs(1));
    assert!(poll(&mut second).is_ready());
}

#[test]
fn a_key_that_nobody_waits_for_any_more_goes_back_into_the_table() {
    let limiter = build(Quota::per_second(1).burst(4));
    assert!(limiter.allow_n(&1, 3));
    {
        let mut wait = limiter.wait_n(&1, 2);
        assert!(poll(&mut wait).is_pending());
        assert_eq!((limiter.keys_in_line(), limiter.len()), (1, 1));
        assert_eq!(limiter.peek_n(&1, 0).remaining(), 0, "one is left, and is somebody else's");
    }
    assert_eq!(limiter.peek_n(&1, 0).remaining(), 1);
    assert_eq!((limiter.keys_in_line(), limiter.len()), (0, 1));
    limiter.clock().advance(Duration::from_secs(3));
    limiter.sweep();
    assert!(limiter.is_empty());
}

#[test]
fn a_sweep_takes_back_keys_that_nobody_asks_about() {
    let limiter = build(Quota::per_second(1).burst(1));
    for key in 0..100 {
        assert!(limiter.allow(&key));
        assert!(poll(&mut limiter.wait(&key)).is_pending());
    }
    assert_eq!((limiter.keys_in_line(), limiter.len()), (100, 100));
    limiter.sweep();
    assert_eq!((limiter.keys_in_line(), limiter.len()), (0, 100));
    assert!((0..100).all(|key| !limiter.allow(&key)), "nothing was forgotten");
}

#[test]
fn what_cannot_be_had_in_time_is_refused_at_once() {
    let limiter = build(Quota::per_second(1).burst(1));
    assert!(limiter.allow(&1));
    let refused =
        outcome(poll(&mut limiter.wait(&1).within(Duration::from_millis(500)))).map(|o| o.unwrap_err());
    assert_eq!(refused, Some(WaitError::TooLate { would_take: Duration::from_secs(1) }));
    let never = outcome(poll(&mut limiter.wait_n(&1, 2))).map(|o| o.unwrap_err());
    assert_eq!(never, Some(WaitError::Never { cost: 2, limit: 1 }));
}

#[test]
fn closing_ends_all_waiting() {
    let limiter = build(Quota::per_second(1).burst(1));
    assert!(limiter.allow(&1) && limiter.allow(&2));
    let (mut one, mut two) = (limiter.wait(&1), limiter.wait(&2));
    assert!(poll(&mut one).is_pending() && poll(&mut two).is_pending());
    limiter.close();
    for wait in [&mut one, &mut two, &mut limiter.wait(&3)] {
        assert_eq!(outcome(poll(wait)).map(|o| o.unwrap_err()), Some(WaitError::Closed));
    }
    assert!(limiter.allow(&3), "the other verbs go on");
}

#[test]
fn what_was_taken_before_can_be_given_back_while_somebody_waits() {
    let limiter = build(Quota::per_hour(1).burst(2));
    let taken = limiter.reserve_n(&1, 2).unwrap();
    let mut wait = limiter.wait(&1);
    assert!(poll(&mut wait).is_pending());
    taken.settle(1);
    assert!(poll(&mut wait).is_ready());
}

#[test]
fn what_was_taken_in_line_can_be_given_back_afterwards() {
    let limiter = build(Quota::per_hour(1).burst(2));
    assert!(limiter.allow_n(&1, 2));
    let mut wait = limiter.wait(&1);
    assert!(poll(&mut wait).is_pending());
    limiter.clock().advance(Duration::from_secs(3_600));
    let turn = outcome(poll(&mut wait)).expect("it is due").expect("it is granted");
    drop(wait);
    assert_eq!(limiter.peek_n(&1, 0).remaining(), 0);
    turn.settle(0);
    assert_eq!(limiter.peek_n(&1, 0).remaining(), 1);
}

#[test]
fn a_reset_serves_those_who_wait() {
    let limiter = build(Quota::per_hour(1).burst(2));
    let taken = limiter.reserve_n(&1, 2).unwrap();
    let mut wait = limiter.wait(&1);
    assert!(poll(&mut wait).is_pending());
    assert!(limiter.reset(&1));
    assert!(poll(&mut wait).is_ready());
    drop(wait);
    taken.settle(0); // forgotten
    assert_eq!(limiter.peek_n(&1, 0).remaining(), 1);
}

#[test]
fn a_new_quota_re_times_those_who_wait() {
    let limiter = build(Quota::per_hour(1).burst(1));
    assert!(limiter.allow(&1));
    let mut wait = limiter.wait(&1);
    assert!(poll(&mut wait).is_pending());
    limiter.set_quota(Quota::per_second(1).burst(1));
    limiter.clock().advance(Duration::from_secs(1));
    assert!(poll(&mut wait).is_ready());
}

/// The same things done to a key and to a limiter, which must answer alike.
struct Pair {
    keyed: KeyedLimiter<u64, AnyAlgorithm, ManualClock>,
    limiter: Limiter<AnyAlgorithm, ManualClock>,
}

type Slots = (KeyedReservation<u64, AnyAlgorithm, ManualClock>, Reservation<AnyAlgorithm, ManualClock>);
type Waits<'a> = (KeyedWait<'a, u64, AnyAlgorithm, ManualClock>, Wait<'a, AnyAlgorithm, ManualClock>);

impl Pair {
    fn new(kind: Kind, quota: Quota) -> Self {
        let clock = ManualClock::new();
        Self {
            keyed: KeyedLimiter::builder(quota).kind(kind).clock(clock.clone()).build(),
            limiter: Limiter::builder(quota).kind(kind).clock(clock).build(),
        }
    }

    fn reserve(&self, n: u64, patience: Duration) -> Option<Slots> {
        let keyed = self.keyed.reserve_within(&1, n, patience);
        let limiter = self.limiter.reserve_within(n, patience);
        match (keyed, limiter) {
            (Ok(keyed), Ok(limiter)) => {
                assert_eq!(keyed.decision(), limiter.decision());
                Some((keyed, limiter))
            }
            (Err(keyed), Err(limiter)) => {
                assert_eq!(keyed, limiter);
                None
            }
            (keyed, limiter) => panic!("{keyed:?}, but {limiter:?}"),
        }
    }
}

fn compare(kind: Kind, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let quota = Quota::per_second(rng.u64(1..5)).burst(rng.u64(1..6));
    let pair = Pair::new(kind, quota);
    let (mut waits, mut slots): (Vec<Waits>, Vec<Slots>) = (Vec::new(), Vec::new());
    for step in 0..200 {
        let context = format!("{kind} {quota}, seed {seed}, step {step}");
        match rng.u8(..10) {
            0..3 => pair.limiter.clock().advance(Duration::from_millis(rng.u64(..800))),
            3 => assert_eq!(pair.keyed.allow(&1), pair.limiter.allow(), "{context}"),
            4 => assert_eq!(pair.keyed.peek_n(&1, 1), pair.limiter.peek_n(1), "{context}"),
            5 => slots.extend(pair.reserve(rng.u64(1..3), Duration::from_millis(rng.u64(..2_000)))),
            6 if !slots.is_empty() => {
                // The last one taken: what came back of others would be counted more carefully for a key.
                let (keyed, limiter) = slots.pop().expect("not empty");
                let actual = rng.u64(..3);
                keyed.settle(actual);
                limiter.settle(actual);
            }
            7 if !waits.is_empty() => drop(waits.swap_remove(rng.usize(..waits.len()))),
            _ => {
                let n = rng.u64(1..3);
                waits.push((pair.keyed.wait_n(&1, n), pair.limiter.wait_n(n)));
            }
        }
        waits.retain_mut(|(keyed, limiter)| match (outcome(poll(keyed)), outcome(poll(limiter))) {
            (None, None) => true,
            (Some(Ok(keyed)), Some(Ok(limiter))) => {
                assert_eq!(keyed.act_time(), limiter.act_time(), "{context}");
                slots.push((keyed, limiter));
                false
            }
            (Some(Err(keyed)), Some(Err(limiter))) => {
                assert_eq!(keyed, limiter, "{context}");
                false
            }
            (keyed, limiter) => panic!("{context}: {keyed:?}, but {limiter:?}"),
        });
    }
}

#[test]
fn a_key_with_people_waiting_is_like_a_limiter() {
    for kind in
        [Kind::TokenBucket, Kind::FixedWindow, Kind::SlidingLog, Kind::SlidingCounter, Kind::SubWindows]
    {
        for seed in 0..400 {
            compare(kind, seed);
        }
    }
}

#[test]
fn thousands_of_keys_go_back_at_once_after_the_table_has_shrunk() {
    let limiter = build(Quota::per_hour(1).burst(1));
    let keys: Vec<u64> = (0..5_000).collect();
    let mut waits: Vec<_> = keys.iter().map(|key| limiter.wait(key)).collect();
    for (key, wait) in keys.iter().zip(&mut waits) {
        assert!(limiter.allow(key));
        assert!(poll(wait).is_pending());
    }
    assert_eq!(limiter.keys_in_line(), 5_000);
    limiter.sweep(); // the table is empty
    drop(waits);
    limiter.sweep();
    assert_eq!((limiter.keys_in_line(), limiter.len()), (0, 5_000));
    assert!(keys.iter().all(|key| !limiter.allow(key)), "nobody is forgotten");
}

#[test]
fn a_key_that_went_through_a_change_of_quota_in_line_does_not_go_through_it_again() {
    let limiter = build(Quota::per_hour(1).burst(10));
    assert!(limiter.allow_n(&1, 8));
    let mut wait = limiter.wait_n(&1, 5);
    assert!(poll(&mut wait).is_pending());
    limiter.set_quota(Quota::per_hour(1).burst(20));
    drop(wait);
    let alone: Limiter<TokenBucket, ManualClock> =
        Limiter::builder(Quota::per_hour(1).burst(10)).clock(ManualClock::new()).build();
    assert!(alone.allow_n(8));
    alone.set_quota(Quota::per_hour(1).burst(20));
    limiter.sweep(); // puts it back
    assert_eq!((limiter.keys_in_line(), limiter.len()), (0, 1));
    assert_eq!(limiter.peek_n(&1, 0).remaining(), alone.remaining());
}
