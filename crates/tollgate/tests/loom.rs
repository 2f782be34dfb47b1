//! Every interleaving of two or three threads on the cell and the queue, within loom's bounds.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p tollgate --release --test loom`; `cargo xtask test` does.
#![cfg(loom)]

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use loom::future::block_on;
use loom::thread;
use tollgate::{
    Clock, ConcurrencyLimit, Gate, KeyedLimiter, Kind, Limiter, Quota, Sharded, Tick, Timer, TokenBucket,
    WaitError,
};

/// A clock that stands still, and a timer that rings when told to.
#[derive(Clone, Debug, Default)]
struct Still {
    alarms: Arc<Mutex<Vec<Waker>>>,
    delays: Arc<Mutex<Vec<Duration>>>,
}

impl Clock for Still {
    fn now(&self) -> Tick {
        Tick::ZERO
    }

    fn is_same(&self, _other: &Self) -> bool {
        true
    }

    fn timer(&self) -> Arc<dyn Timer> {
        Arc::new(self.clone())
    }
}

impl Timer for Still {
    fn wake_after(&self, delay: Duration, waker: Waker) {
        self.delays.lock().unwrap().push(delay);
        self.alarms.lock().unwrap().push(waker);
    }
}

type Bucket = Limiter<TokenBucket, Still>;

fn bucket(quota: Quota) -> Bucket {
    Limiter::builder(quota).clock(Still::default()).build()
}

fn per_hour(burst: u64) -> Quota {
    Quota::per_hour(1).burst(burst)
}

fn at(ns: u64) -> Tick {
    Tick::from_nanos(ns)
}

fn left(limiter: &Bucket) -> u64 {
    limiter.peek_n_at(0, at(0)).remaining()
}

#[test]
fn allow_and_allow_share_the_burst() {
    loom::model(|| {
        let limiter = bucket(per_hour(3));
        let other = limiter.clone();
        let thread = thread::spawn(move || (0..2).filter(|_| other.allow_at(at(0))).count());
        let here = (0..2).filter(|_| limiter.allow_at(at(0))).count();
        assert_eq!(here + thread.join().unwrap(), 3);
    });
}

#[test]
fn callers_with_skewed_clocks_never_admit_more() {
    loom::model(|| {
        // One token comes back every 10 ns; the readings are 0, 10 and 20, so at most 2 + 2 fit.
        let limiter = bucket(Quota::every(Duration::from_nanos(10)).burst(2));
        let threads = [20, 0].map(|now| {
            let limiter = limiter.clone();
            thread::spawn(move || (0..2).filter(|_| limiter.allow_at(at(now))).count())
        });
        let here = usize::from(limiter.allow_at(at(10)));
        let admitted = here + threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>();
        assert!((2..=4).contains(&admitted), "{admitted}");
    });
}

#[test]
fn allow_and_set_quota_carry_over_what_was_used() {
    loom::model(|| {
        let limiter = bucket(per_hour(1));
        let other = limiter.clone();
        let thread = thread::spawn(move || other.set_quota_at(Quota::per_second(7).burst(3), at(0)));
        let admitted = (0..2).filter(|_| limiter.allow_at(at(0))).count();
        thread.join().unwrap();
        // One was there, whenever the quota changed: a larger bucket does not come with more in it.
        assert_eq!(admitted, 1);
        assert_eq!(left(&limiter), 0);
    });
}

#[test]
fn allow_and_set_quota_never_mix_two_curves() {
    loom::model(|| {
        // Two are left. A token of the old quota is worth billions of the new one: whoever took one by the old numbers from the
        // new level would leave nothing for hours.
        let limiter = bucket(per_hour(3));
        assert!(limiter.allow_at(at(0)));
        let other = limiter.clone();
        let quota = Quota::every(Duration::from_nanos(10)).burst(5);
        let thread = thread::spawn(move || other.set_quota_at(quota, at(0)));
        let admitted = (0..2).filter(|_| limiter.allow_at(at(0))).count();
        thread.join().unwrap();
        assert_eq!((admitted, left(&limiter)), (2, 0));
    });
}

#[test]
fn allow_and_refund_lose_and_double_nothing() {
    loom::model(|| {
        let limiter = bucket(per_hour(2));
        let other = limiter.clone();
        let thread = thread::spawn(move || usize::from(other.allow_at(at(0))));
        let reserved = limiter.reserve_within_at(1, Duration::ZERO, at(0)).expect("two are there");
        reserved.refund_at(1, at(0));
        let admitted = thread.join().unwrap();
        assert_eq!(admitted, 1);
        assert_eq!(left(&limiter), 1);
    });
}

#[test]
fn reserve_and_reset_give_back_nothing_from_before() {
    loom::model(|| {
        let limiter = bucket(per_hour(2));
        let other = limiter.clone();
        let thread = thread::spawn(move || other.reserve_n_at(1, at(0)).expect("two are there"));
        limiter.reset_at(at(0));
        let reserved = thread.join().unwrap();
        let count = || (0..3).filter(|_| limiter.allow_at(at(0))).count();
        let before = count();
        reserved.refund_at(1, at(0));
        assert!((1..=2).contains(&before) && before + count() <= 2, "two since the reset");
    });
}

#[test]
fn refund_and_refund_never_create_capacity() {
    loom::model(|| {
        // Ten tokens taken in three claims; at the time of the refunds six are back. At most four more can be.
        let limiter = bucket(Quota::every(Duration::from_nanos(10)).burst(10));
        let other = limiter.clone();
        let first = limiter.reserve_n_at(4, at(0)).expect("ten are there");
        let thread = thread::spawn(move || {
            let second = other.reserve_n_at(4, at(0)).expect("six are there");
            second.refund_at(4, at(60));
        });
        first.refund_at(4, at(60));
        thread.join().unwrap();
        let admitted = (0..12).filter(|_| limiter.allow_at(at(60))).count();
        assert!(admitted <= 10, "{admitted} from a bucket of ten");
        assert!(admitted >= 8, "{admitted}: ten, less at most what overlapped");
    });
}

#[test]
fn reserve_and_cancel_restore_the_bucket() {
    loom::model(|| {
        let limiter = bucket(Quota::every(Duration::from_nanos(10)).burst(1));
        assert!(limiter.allow_at(at(0)));
        let other = limiter.clone();
        let thread = thread::spawn(move || {
            other.reserve_n_at(1, at(0)).expect("for later").cancel_at(at(0));
        });
        let act = limiter.reserve_n_at(1, at(0)).expect("for later").act_time();
        thread.join().unwrap();
        assert!(act == at(10) || act == at(20), "{act}");
        // The other's slot came back if it was the last, and was lost if this one lay on top of it.
        let next = limiter.reserve_n_at(1, at(0)).expect("for later").act_time();
        assert!(next > act && next <= at(30), "{act} then {next}");
    });
}

#[test]
fn wait_and_cancel_hand_the_turn_on() {
    loom::model(|| {
        let limiter = bucket(per_hour(1));
        let held = limiter.reserve_n_at(1, at(0)).expect("one is there");
        let other = limiter.clone();
        let thread = thread::spawn(move || block_on(async { other.wait().await.map(drop) }));
        {
            // Lines up before or after the other, and gives up in any state: waiting, or granted and not seen.
            let mut wait = std::pin::pin!(limiter.wait());
            let _ = wait.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
            held.refund_at(1, at(0));
        }
        assert_eq!(thread.join().unwrap(), Ok(()), "whoever stays is served");
        assert_eq!(limiter.waiting(), 0);
        assert_eq!(left(&limiter), 0, "one token, one turn");
    });
}

#[test]
fn wait_and_close_never_hang() {
    loom::model(|| {
        let limiter = bucket(per_hour(1));
        assert!(limiter.allow_at(at(0)));
        let other = limiter.clone();
        let thread = thread::spawn(move || other.close());
        assert_eq!(block_on(async { limiter.wait().await.map(drop) }), Err(WaitError::Closed));
        thread.join().unwrap();
        assert_eq!(limiter.waiting(), 0);
    });
}

#[test]
fn wait_and_set_quota_never_hang() {
    loom::model(|| {
        let limiter = bucket(per_hour(1));
        assert!(limiter.allow_at(at(0)));
        let other = limiter.clone();
        let thread = thread::spawn(move || other.set_quota_at(Quota::UNLIMITED, at(0)));
        assert_eq!(block_on(async { limiter.wait().await.map(drop) }), Ok(()));
        thread.join().unwrap();
        assert_eq!(limiter.waiting(), 0);
        assert!(limiter.allow_at(at(0)));
    });
}

#[test]
fn wait_and_allow_share_what_comes_back() {
    loom::model(|| {
        let limiter = bucket(per_hour(1));
        let held = limiter.reserve_n_at(1, at(0)).expect("one is there");
        let other = limiter.clone();
        let thread = thread::spawn(move || usize::from(other.allow_at(at(0))));
        let mut wait = Box::pin(limiter.wait());
        let mut context = Context::from_waker(Waker::noop());
        let mut served = wait.as_mut().poll(&mut context).is_ready();
        held.refund_at(1, at(0));
        let barged = thread.join().unwrap();
        served = served || wait.as_mut().poll(&mut context).is_ready();
        assert_eq!(barged + usize::from(served), 1, "one token, one turn");
    });
}

#[test]
fn two_waiters_and_the_timer() {
    loom::model(|| {
        let clock = Still::default();
        let limiter: Bucket = Limiter::builder(per_hour(2)).clock(clock.clone()).build();
        let held = limiter.reserve_n_at(2, at(0)).expect("two are there");
        let threads = [(); 2].map(|()| {
            let limiter = limiter.clone();
            thread::spawn(move || block_on(async { limiter.wait().await.map(drop) }))
        });
        let early: Vec<_> = std::mem::take(&mut *clock.alarms.lock().unwrap());
        for alarm in early {
            alarm.wake(); // too early: nothing may be granted, and nothing lost
        }
        held.refund_at(2, at(0));
        for thread in threads {
            assert_eq!(thread.join().unwrap(), Ok(()));
        }
        assert_eq!((limiter.waiting(), left(&limiter)), (0, 0));
    });
}

#[test]
fn gate_and_gate_in_opposite_order_both_go_through() {
    loom::model(|| {
        // Just enough for both: nobody may be refused because the other had one of them in hand.
        let (a, b) = (bucket(per_hour(2)), bucket(per_hour(2)));
        let (other_a, other_b) = (a.clone(), b.clone());
        let thread = thread::spawn(move || other_b.and(&other_a).allow());
        assert!(a.and(&b).allow());
        assert!(thread.join().unwrap());
        assert_eq!((left(&a), left(&b)), (0, 0));
    });
}

#[test]
fn gate_and_gate_share_the_last_one() {
    loom::model(|| {
        let (a, b) = (bucket(per_hour(1)), bucket(per_hour(2)));
        let (other_a, other_b) = (a.clone(), b.clone());
        let thread = thread::spawn(move || usize::from(other_b.and(&other_a).allow()));
        let here = usize::from(a.and(&b).allow());
        assert_eq!(here + thread.join().unwrap(), 1, "exactly one of them");
        assert_eq!((left(&a), left(&b)), (0, 1), "the other one took nothing");
    });
}

#[test]
fn gate_and_allow_never_see_a_part() {
    loom::model(|| {
        let (a, b) = (bucket(per_hour(2)), bucket(per_hour(1)));
        let (other_a, other_b) = (a.clone(), b.clone());
        let thread = thread::spawn(move || (other_a.allow_at(at(0)), other_b.allow_at(at(0))));
        let here = a.and(&b).allow();
        let (of_a, of_b) = thread.join().unwrap();
        assert!(of_a, "there are two of the first, so nobody stands in its way");
        assert!(here != of_b, "one of them has the last of the second");
        assert_eq!((left(&a), left(&b)), (u64::from(!here), 0));
    });
}

#[test]
fn gate_and_a_locked_limit_agree() {
    loom::model(|| {
        let a = bucket(per_hour(1));
        let log = Limiter::builder(Quota::per_hour(2)).kind(Kind::SlidingLog).clock(Still::default()).build();
        let (other_a, other_log) = (a.clone(), log.clone());
        let thread = thread::spawn(move || other_log.and(&other_a).allow());
        let here = a.and(&log).allow();
        assert!(here != thread.join().unwrap());
        assert_eq!((left(&a), log.peek_n_at(0, at(0)).remaining()), (0, 1));
    });
}

#[test]
fn gate_and_set_quota_never_mix_two_curves() {
    loom::model(|| {
        let (a, b) = (bucket(per_hour(3)), bucket(per_hour(3)));
        assert!(a.allow_at(at(0)));
        let other = a.clone();
        let quota = Quota::every(Duration::from_nanos(10)).burst(5);
        let thread = thread::spawn(move || other.set_quota_at(quota, at(0)));
        let admitted = a.and(&b).allow();
        thread.join().unwrap();
        assert_eq!((admitted, left(&a), left(&b)), (true, 1, 2));
    });
}

#[test]
fn gate_wait_and_refund_never_hang() {
    loom::model(|| {
        let (a, b) = (bucket(per_hour(1)), bucket(per_hour(1)));
        let held = a.reserve_n_at(1, at(0)).expect("one is there");
        let thread = thread::spawn(move || held.refund_at(1, at(0)));
        assert!(block_on(async { a.and(&b).wait().await.map(drop) }).is_ok());
        thread.join().unwrap();
        assert_eq!((left(&a), left(&b)), (0, 0));
    });
}

#[test]
fn gate_wait_and_release_never_hang() {
    loom::model(|| {
        let (rate, slots) = (bucket(per_hour(1)), ConcurrencyLimit::new(1));
        let held = slots.try_acquire().expect("one is free").into_owned();
        let thread = thread::spawn(move || drop(held));
        assert!(block_on(async { rate.and(&slots).wait().await.map(drop) }).is_ok());
        thread.join().unwrap();
        assert_eq!((left(&rate), slots.in_use()), (0, 0));
    });
}

#[test]
fn a_gate_and_a_slot_that_comes_back() {
    loom::model(|| {
        let (rate, slots) = (bucket(per_hour(2)), ConcurrencyLimit::new(1));
        let held = slots.try_acquire().expect("one is free").into_owned();
        let other = slots.clone();
        let thread = thread::spawn(move || {
            drop(held);
            other.try_acquire().is_some()
        });
        let here = rate.and(&slots).acquire();
        let there = thread.join().unwrap();
        assert!(there || here.is_ok(), "it was free for somebody");
        assert_eq!(left(&rate), if here.is_ok() { 1 } else { 2 });
        drop(here);
        assert_eq!(slots.in_use(), 0);
    });
}

#[test]
fn release_and_cancel_hand_the_slot_on() {
    loom::model(|| {
        let slots = ConcurrencyLimit::new(1);
        let held = slots.try_acquire().expect("one is free").into_owned();
        let other = slots.clone();
        let thread = thread::spawn(move || block_on(async { other.acquire().await.map(drop) }));
        {
            let mut acquire = std::pin::pin!(slots.acquire());
            let polled = acquire.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            drop(held);
            drop(polled);
        }
        assert_eq!(thread.join().unwrap(), Ok(()), "whoever stays is served");
        assert_eq!((slots.in_use(), slots.waiting()), (0, 0));
    });
}

#[test]
fn acquire_and_set_limit_never_hang() {
    loom::model(|| {
        let slots = ConcurrencyLimit::new(0);
        let other = slots.clone();
        let thread = thread::spawn(move || other.set_limit(1));
        block_on(async { slots.acquire().await.map(drop) }).expect("a pause is over");
        thread.join().unwrap();
        assert_eq!((slots.in_use(), slots.limit(), slots.waiting()), (0, 1, 0));
    });
}

#[test]
fn acquire_and_a_smaller_limit() {
    loom::model(|| {
        let slots = ConcurrencyLimit::new(2);
        let other = slots.clone();
        let thread = thread::spawn(move || other.set_limit(1));
        let (first, second) = (slots.try_acquire(), slots.try_acquire());
        thread.join().unwrap();
        assert!(first.is_some());
        assert!(slots.try_acquire().is_none(), "{} in use", slots.in_use());
        let held = 1 + u64::from(second.is_some());
        assert_eq!(slots.in_use(), held);
        drop((first, second));
        assert!(slots.try_acquire_n(2).is_none() && slots.try_acquire().is_some());
    });
}

type Lanes = Limiter<Sharded, Still>;

/// A bucket of 120 for each lane, with leases of 8. It is never full again within a model, so that nothing is lost to time.
fn sharded(lanes: u64) -> Lanes {
    let quota = per_hour(128 * lanes);
    Limiter::builder(quota).algorithm(|quota| Sharded::new(quota, lanes)).clock(Still::default()).build()
}

fn left_in_all(limiter: &Lanes) -> u64 {
    limiter.peek_n_at(0, at(0)).remaining()
}

/// Leaves `tokens` in the lane of this thread, at most seven, and none in the bucket.
fn leave_in_lane(limiter: &Lanes, tokens: usize) {
    assert!((tokens..8).all(|_| limiter.allow()));
    assert!(limiter.allow_n_at(left_in_all(limiter) - tokens as u64, at(0)));
}

#[test]
fn spend_and_spend_share_a_lane() {
    loom::model(|| {
        let limiter = sharded(1);
        leave_in_lane(&limiter, 1);
        let other = limiter.clone();
        let thread = thread::spawn(move || usize::from(other.allow()));
        let here = usize::from(limiter.allow());
        assert_eq!(here + thread.join().unwrap(), 1);
        assert_eq!(left_in_all(&limiter), 0);
    });
}

#[test]
fn spend_and_steal_lose_and_double_nothing() {
    loom::model(|| {
        let limiter = sharded(2);
        leave_in_lane(&limiter, 1);
        let other = limiter.clone();
        let thread = thread::spawn(move || usize::from(other.allow())); // from the lane of this one
        let here = usize::from(limiter.allow());
        assert_eq!(here + thread.join().unwrap(), 1);
        assert_eq!(left_in_all(&limiter), 0);
    });
}

#[test]
fn spend_and_sweep_lose_and_double_nothing() {
    loom::model(|| {
        let limiter = sharded(2);
        leave_in_lane(&limiter, 2);
        let other = limiter.clone();
        let thread = thread::spawn(move || if other.check_n_at(2, at(0)).is_allowed() { 2 } else { 0 });
        let here = u64::from(limiter.allow());
        let swept = thread.join().unwrap();
        // Whoever comes while the other has the lane in hand may be refused; what it had in hand is then still there.
        assert_eq!(here + swept + left_in_all(&limiter), 2);
        assert!(here + swept > 0, "one of them was first");
    });
}

#[test]
fn fill_and_fill_never_exceed_the_reserve() {
    loom::model(|| {
        let limiter = sharded(1);
        let other = limiter.clone();
        let thread = thread::spawn(move || other.allow());
        assert!(limiter.allow());
        assert!(thread.join().unwrap());
        assert_eq!(left_in_all(&limiter), 118);
        // In a week the bucket is full again. With what lies in the lane that may be the burst, and not more.
        let later = Tick::ZERO + Duration::from_secs(7 * 86_400);
        let most = limiter.peek_n_at(0, later).remaining();
        assert!((121..=128).contains(&most), "{most}");
    });
}

#[test]
fn fill_and_sweep_lose_nothing() {
    loom::model(|| {
        let limiter = sharded(1);
        let other = limiter.clone();
        let thread = thread::spawn(move || u64::from(other.allow()));
        let swept = if limiter.check_n_at(119, at(0)).is_allowed() { 119 } else { 0 };
        let admitted = swept + thread.join().unwrap();
        assert_eq!(admitted + left_in_all(&limiter), 120);
    });
}

#[test]
fn fill_and_wait_leave_nobody_behind() {
    loom::model(|| {
        let limiter = sharded(1);
        let other = limiter.clone();
        let thread = thread::spawn(move || other.allow());
        // There is enough for both, whoever comes first and however much of it is just on its way into the lane.
        let mut wait = Box::pin(limiter.wait_n(119));
        let mut context = Context::from_waker(Waker::noop());
        let mut served = wait.as_mut().poll(&mut context).is_ready();
        let allowed = thread.join().unwrap();
        served = served || wait.as_mut().poll(&mut context).is_ready();
        assert!(served && allowed, "served: {served}, allowed: {allowed}");
        assert_eq!((limiter.waiting(), left_in_all(&limiter)), (0, 0));
    });
}

#[test]
fn spend_and_wait_keep_the_order() {
    loom::model(|| {
        let limiter = sharded(1);
        leave_in_lane(&limiter, 1);
        let other = limiter.clone();
        let thread = thread::spawn(move || usize::from(other.allow()));
        let mut wait = Box::pin(limiter.wait());
        let mut context = Context::from_waker(Waker::noop());
        let served = wait.as_mut().poll(&mut context).is_ready();
        let spent = thread.join().unwrap();
        assert_eq!(usize::from(served) + spent, 1, "one token, one turn");
        assert!(served || !limiter.allow(), "nobody slips past who waits");
    });
}

/// A keyed limiter in which an idle key is remembered: it took everything at time zero, and is full again at one second.
fn keyed_with_an_idle_key() -> KeyedLimiter<u64, TokenBucket, Still> {
    let quota = Quota::per_second(2).burst(2);
    let limiter = KeyedLimiter::builder(quota).max_keys(256).clock(Still::default()).build(); // two shards only
    assert!(limiter.allow_n_at(&1, 2, Tick::ZERO));
    limiter
}

#[test]
fn keyed_insert_insert_of_one_key() {
    loom::model(|| {
        let limiter: KeyedLimiter<u64, _, _> = KeyedLimiter::builder(Quota::per_second(1).burst(1))
            .max_keys(256)
            .clock(Still::default())
            .build();
        let other = limiter.clone();
        let thread = thread::spawn(move || u32::from(other.allow_at(&1, Tick::ZERO)));
        let admitted = u32::from(limiter.allow_at(&1, Tick::ZERO)) + thread.join().unwrap();
        assert_eq!((admitted, limiter.len()), (1, 1));
    });
}

#[test]
fn keyed_insert_against_sweep_against_allow() {
    loom::model(|| {
        let limiter = keyed_with_an_idle_key();
        let later = at(1_000_000_000);
        let (sweeper, inserter) = (limiter.clone(), limiter.clone());
        let sweeping = thread::spawn(move || sweeper.sweep_at(later));
        let inserting = thread::spawn(move || {
            assert!(inserter.allow_at(&2, later));
            u32::from(inserter.allow_at(&1, later))
        });
        let mut admitted = (0..2).map(|_| u32::from(limiter.allow_at(&1, later))).sum::<u32>();
        admitted += inserting.join().unwrap();
        sweeping.join().unwrap();
        assert_eq!(admitted, 2, "the burst, dropped in between or not");
        assert_eq!(limiter.len(), 2);
    });
}

#[test]
fn keyed_refund_against_sweep() {
    loom::model(|| {
        let limiter = keyed_with_an_idle_key();
        let later = at(1_000_000_000);
        let taken = limiter.reserve_within_at(&1, 1, Duration::ZERO, later).unwrap();
        let sweeper = limiter.clone();
        let sweeping = thread::spawn(move || sweeper.sweep_at(later));
        taken.refund_at(1, later);
        sweeping.join().unwrap();
        let admitted = (0..3).filter(|_| limiter.allow_at(&1, later)).count();
        assert_eq!(admitted, 2, "what came back came back once");
    });
}

#[test]
fn gate_of_keys_and_allow_never_see_a_part() {
    loom::model(|| {
        let keyed: KeyedLimiter<u64, _, _> =
            KeyedLimiter::builder(per_hour(1)).max_keys(256).clock(Still::default()).build();
        let other = keyed.clone();
        let thread = thread::spawn(move || other.allow_at(&1, at(0)));
        let both = keyed.key(&1).and(keyed.key(&2)).allow();
        let alone = thread.join().unwrap();
        assert!(both != alone, "one of them has the only one of the first");
        assert_eq!(
            keyed.peek_n_at(&2, 0, at(0)).remaining(),
            u64::from(!both),
            "and the second is as it was or taken"
        );
    });
}

#[test]
fn a_free_slot_is_had_though_a_gate_has_the_limit_in_hand() {
    loom::model(|| {
        let slots = ConcurrencyLimit::new(2);
        let other = slots.clone();
        let thread = thread::spawn(move || Gate::new(other).acquire().map(drop).is_ok());
        assert!(slots.try_acquire().is_some(), "two are free, and only one other wants one");
        assert!(thread.join().unwrap());
    });
}

#[test]
fn nobody_is_left_in_line_though_a_slot_is_free() {
    loom::model(|| {
        let slots = ConcurrencyLimit::new(3);
        let other = slots.clone();
        let thread = thread::spawn(move || {
            let gate = Gate::new(other);
            [gate.acquire(), gate.acquire()] // and keeps them
        });
        // One of three is left for this one, whatever the other does.
        assert!(block_on(async { slots.acquire().await.map(drop) }).is_ok());
        drop(thread.join().unwrap());
    });
}

/// Whoever has an hour, and would have to wait for two, is refused: at once, or when somebody goes ahead of it.
#[test]
fn a_deadline_is_kept_though_somebody_reserves_ahead_of_it() {
    loom::model(|| {
        let hour = Duration::from_secs(3_600);
        let clock = Still::default();
        let limiter: Bucket = Limiter::builder(per_hour(1)).clock(clock.clone()).build();
        assert!(limiter.allow_at(Tick::ZERO));
        let other = limiter.clone();
        let thread = thread::spawn(move || {
            drop(other.reserve_n_at(1, Tick::ZERO).unwrap());
        });
        let mut wait = Box::pin(limiter.wait().within(hour));
        let mut context = Context::from_waker(Waker::noop());
        let first = wait.as_mut().poll(&mut context);
        thread.join().unwrap();
        let told = match first {
            Poll::Ready(_) => true,
            Poll::Pending => wait.as_mut().poll(&mut context).is_ready(),
        };
        if !told {
            let earliest = clock.delays.lock().unwrap().iter().min().copied();
            assert!(
                earliest.is_some_and(|delay| delay <= hour),
                "it waits, and the alarm rings after {earliest:?}"
            );
        }
    });
}
