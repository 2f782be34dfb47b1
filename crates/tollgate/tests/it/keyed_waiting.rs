//! Waiting for a key: as for a limiter of its own, and without a trace once nobody waits any more.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use fastrand::Rng;
use tollgate::{
    AnyAlgorithm, AtCap, KeyedLimiter, KeyedReservation, KeyedWait, Kind, Limiter, ManualClock, Quota,
    Reservation, TokenBucket, Wait, WaitError,
};

type Keyed = KeyedLimiter<u64, TokenBucket, ManualClock>;

fn build(quota: Quota) -> Keyed {
    KeyedLimiter::builder(quota).clock(ManualClock::new()).build()
}

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Takes one of each key and waits for another, as far as that can be.
fn line_up_for<'a>(limiter: &'a Keyed, keys: &'a [u64]) -> Vec<KeyedWait<'a, u64, TokenBucket, ManualClock>> {
    let mut waits = Vec::new();
    for key in keys {
        let mut wait = limiter.wait(key);
        if limiter.allow(key) && poll(&mut wait).is_pending() {
            waits.push(wait);
        }
    }
    waits
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
    let keys: Vec<u64> = (0..100).collect();
    let waits = line_up_for(&limiter, &keys);
    drop(waits);
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
            keyed: KeyedLimiter::builder(quota).kind(kind).max_keys(256).clock(clock.clone()).build(),
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
        let _ = pair.keyed.allow(&rng.u64(2..9)); // if nobody waits for the key any more, it goes back by the way
        match rng.u8(..11) {
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
            7 => {
                let n = rng.u64(1..3);
                let foreseen = (pair.keyed.peek_n(&1, n), pair.limiter.peek_n(n));
                let said = (pair.keyed.check_n(&1, n), pair.limiter.check_n(n));
                assert!(said.0 == said.1 && said == foreseen, "{context}: {foreseen:?}, but {said:?}");
            }
            8 if !waits.is_empty() => drop(waits.swap_remove(rng.usize(..waits.len()))),
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
    for kind in Kind::ALL {
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

#[test]
fn keys_that_were_waited_for_are_dropped_like_others() {
    let limiter: Keyed = KeyedLimiter::builder(Quota::per_second(1).burst(1))
        .max_keys(1_000)
        .clock(ManualClock::new())
        .build();
    let empty = limiter.bytes();
    for key in 0..20_000 {
        assert!(limiter.allow(&key));
        let mut wait = limiter.wait(&key);
        assert!(poll(&mut wait).is_pending());
        if key % 2 == 0 {
            limiter.clock().advance(Duration::from_secs(1));
            assert!(poll(&mut wait).is_ready());
        } // else it is given up
    }
    assert!(limiter.len() <= 1_000, "{} keys", limiter.len());
    assert!(limiter.keys_in_line() <= 16, "{} in line", limiter.keys_in_line());
    assert!(limiter.bytes() - empty < 1 << 16, "{} bytes more", limiter.bytes() - empty);
}

#[test]
fn calls_about_others_put_keys_back_that_nobody_waits_for() {
    let limiter = build(Quota::per_hour(1).burst(1));
    let keys: Vec<u64> = (0..2_000).collect();
    let mut waits = line_up_for(&limiter, &keys);
    assert_eq!((waits.len(), limiter.keys_in_line(), limiter.len()), (2_000, 2_000, 2_000));
    waits.truncate(1);
    for other in 2_000..12_000 {
        let _ = limiter.check_n(&other, 2); // more than there ever is, so it is not remembered
    }
    assert_eq!((limiter.keys_in_line(), limiter.len()), (1, 2_000));
    assert!(keys.iter().all(|key| !limiter.allow(key)), "nothing was forgotten");
    limiter.clock().advance(Duration::from_secs(3_600));
    assert!(poll(&mut waits[0]).is_ready());
}

#[test]
fn keys_in_line_count_for_the_cap() {
    for at_cap in [AtCap::Evict, AtCap::Refuse, AtCap::Share] {
        let limiter: Keyed = KeyedLimiter::builder(Quota::per_hour(1).burst(1))
            .max_keys(100)
            .at_cap(at_cap)
            .clock(ManualClock::new())
            .build();
        let keys: Vec<u64> = (0..5_000).collect();
        let mut waits = line_up_for(&limiter, &keys);
        let most = 100 + 8; // one more in each segment that would be empty
        let waiting = waits.len();
        assert!((100..=most).contains(&waiting) && limiter.len() <= most, "{at_cap:?}: {waiting} wait");
        let refused = outcome(poll(&mut limiter.wait(&9_999))).and_then(Result::err);
        assert_eq!(refused, Some(WaitError::Full { waiting }), "{at_cap:?}: no room to be had");
        assert!(!limiter.peek(&9_999).is_admitted() && !limiter.check(&9_999).is_admitted(), "{at_cap:?}");
        assert!(!limiter.key(&9_998).and(limiter.key(&9_997)).allow(), "{at_cap:?}");
        assert!(waits.iter_mut().all(|wait| poll(wait).is_pending()), "{at_cap:?}: whoever waits stays");
        drop(waits);
        limiter.sweep();
        assert!(limiter.keys_in_line() == 0 && limiter.len() <= most, "{at_cap:?}: {} keys", limiter.len());
        assert_eq!(limiter.allow(&9_999), at_cap == AtCap::Evict, "{at_cap:?}");
        assert!(limiter.len() <= most);
    }
}

#[test]
fn keys_in_line_count_for_the_memory() {
    for at_cap in [AtCap::Evict, AtCap::Refuse] {
        let most = 1 << 18;
        let limiter: Keyed = KeyedLimiter::builder(Quota::per_hour(1).burst(1))
            .max_bytes(most)
            .at_cap(at_cap)
            .clock(ManualClock::new())
            .build();
        let keys: Vec<u64> = (0..50_000).collect();
        let waits = line_up_for(&limiter, &keys);
        assert!((50..500).contains(&waits.len()), "{at_cap:?}: {} wait", waits.len());
        assert!(limiter.bytes() <= most, "{at_cap:?}: {} bytes", limiter.bytes());
        let full = WaitError::Full { waiting: waits.len() };
        let known = keys.iter().rfind(|key| !limiter.peek(key).is_admitted()).expect("somebody is known");
        assert_eq!(outcome(poll(&mut limiter.wait(known))).and_then(Result::err), Some(full));
        drop(waits);
        limiter.sweep();
        assert!(limiter.bytes() <= most, "{at_cap:?}: {} bytes afterwards", limiter.bytes());
        limiter.clock().advance(Duration::from_secs(3_600));
        limiter.sweep();
        assert!(limiter.is_empty() && limiter.keys_in_line() == 0, "{at_cap:?}");
    }
}

#[test]
fn a_key_without_a_place_in_the_table_is_not_forgotten_where_nobody_may_be() {
    let limiter: Keyed = KeyedLimiter::builder(Quota::per_hour(1).burst(1))
        .max_bytes(1 << 16)
        .at_cap(AtCap::Refuse)
        .clock(ManualClock::new())
        .build();
    let keys: Vec<u64> = (0..10).collect();
    let waits = line_up_for(&limiter, &keys);
    assert_eq!(waits.len(), 10);
    let others: Vec<u64> = (10..50_000).filter(|other| limiter.allow(other)).collect();
    drop(waits);
    limiter.sweep();
    for known in keys.iter().chain(&others) {
        assert!(!limiter.allow(known), "{known} has used all of its quota");
    }
    assert!(limiter.bytes() <= 1 << 16);
    assert_eq!(limiter.stats().evicted, 0);
}

/// Whoever is woken by it asks the limiter about everything that a lock guards, and says so.
struct Nosy {
    limiter: Keyed,
    has_asked: Mutex<Sender<()>>,
}

impl Wake for Nosy {
    fn wake(self: Arc<Self>) {
        let _ =
            (self.limiter.keys_in_line(), self.limiter.quota(), self.limiter.check(&1), self.limiter.stats());
        self.limiter.set_quota(self.limiter.quota());
        self.has_asked.lock().unwrap().send(()).unwrap();
    }
}

/// Whether whoever waits for a key is woken by `change` and may ask the limiter then. If not, a thread hangs for good.
fn may_ask_when_woken_by(limiter: &Keyed, change: impl FnOnce(&Keyed) + Send + 'static) -> bool {
    let (has_asked, asked) = channel();
    let nosy = Arc::new(Nosy { limiter: limiter.clone(), has_asked: Mutex::new(has_asked) });
    let changed = limiter.clone();
    std::thread::spawn(move || {
        assert!(changed.allow(&1));
        let mut wait = changed.wait(&1);
        assert!(Pin::new(&mut wait).poll(&mut Context::from_waker(&Waker::from(nosy))).is_pending());
        change(&changed);
    });
    asked.recv_timeout(Duration::from_secs(20)).is_ok()
}

#[test]
fn whoever_is_woken_by_a_new_quota_may_ask() {
    let limiter = build(Quota::per_hour(1).burst(1));
    assert!(may_ask_when_woken_by(&limiter, |limiter| limiter.set_quota(Quota::UNLIMITED)));
}

#[test]
fn whoever_is_woken_by_a_refresh_may_ask() {
    let is_paying = Arc::new(AtomicBool::new(false));
    let known = Arc::clone(&is_paying);
    let limiter: Keyed =
        KeyedLimiter::builder(Quota::per_hour(1).burst(1))
            .quota_of(move |_: &u64| {
                if known.load(Ordering::SeqCst) { Quota::UNLIMITED } else { Quota::per_hour(1).burst(1) }
            })
            .clock(ManualClock::new())
            .build();
    assert!(may_ask_when_woken_by(&limiter, move |limiter| {
        is_paying.store(true, Ordering::SeqCst);
        limiter.refresh(&1);
    }));
}

#[test]
fn a_check_of_a_leaky_queue_does_not_go_ahead_of_those_who_wait() {
    let Pair { keyed, limiter } = Pair::new(Kind::LeakyQueue, Quota::per_second(10).burst(5));
    assert!(keyed.check(&1).is_allowed() && limiter.check().is_allowed());
    let patience = Duration::from_millis(150);
    let (mut wait, mut other) = (keyed.wait(&1).within(patience), limiter.wait().within(patience));
    assert!(poll(&mut wait).is_pending() && poll(&mut other).is_pending());
    for _ in 0..2 {
        assert_eq!((keyed.peek(&1), limiter.peek()), (keyed.check(&1), limiter.check()));
        assert_eq!(keyed.check(&1), limiter.check());
        assert!(!keyed.check(&1).is_admitted(), "only who waits behind them gets a turn");
    }
    limiter.clock().advance(Duration::from_millis(100));
    assert!(poll(&mut wait).is_ready() && poll(&mut other).is_ready());
    assert_eq!(keyed.peek(&1).delay(), Duration::from_millis(100), "nobody waits any more");
    assert_eq!((keyed.peek(&1), limiter.peek()), (keyed.check(&1), limiter.check()));
}

#[test]
fn nothing_is_lost_or_gained_while_keys_get_in_line_and_out_again() {
    const BURST: u64 = 200;
    let limiter: Keyed = KeyedLimiter::builder(Quota::per_hour(1).burst(BURST))
        .max_keys(256)
        .clock(ManualClock::new())
        .build();
    let admitted: Mutex<[u64; 8]> = Mutex::default();
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (limiter, admitted) = (&limiter, &admitted);
            scope.spawn(move || {
                let mut rng = Rng::with_seed(seed);
                for _ in 0..4_000 {
                    let (key, n) = (rng.u64(..8), rng.u64(1..40));
                    let taken = match rng.u8(..4) {
                        // Whoever asks for much lines up before all is gone, and gives up.
                        0 | 1 => matches!(poll(&mut limiter.wait_n(&key, n)), Poll::Ready(Ok(_))),
                        2 => limiter.allow_n(&key, n),
                        _ => limiter.reserve_within(&key, n, Duration::ZERO).is_ok(),
                    };
                    admitted.lock().unwrap()[key as usize] += if taken { n } else { 0 };
                }
            });
        }
    });
    for (key, admitted) in admitted.into_inner().unwrap().into_iter().enumerate() {
        assert_eq!(admitted + limiter.remaining(&(key as u64)), BURST, "key {key}");
    }
    limiter.sweep();
    assert_eq!((limiter.keys_in_line(), limiter.len()), (0, 8));
}
