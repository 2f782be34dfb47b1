//! Gates keep what they promise in whatever order things come: looks, promises for later, members that are waited for, panics.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tollgate::store::{self, MemoryStore, Rule};
use tollgate::{
    AtCap, Clock, ConcurrencyLimit, Gate, KeyedLimiter, Kind, Limiter, ManualClock, Permit, Quota, Tick,
    Timer, TokenBucket,
};

type Bucket = Limiter<TokenBucket, ManualClock>;

fn bucket(clock: &ManualClock, quota: Quota) -> Bucket {
    Limiter::builder(quota).clock(clock.clone()).build()
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn noop() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

fn now<F: Future>(future: F) -> F::Output {
    match pin!(future).as_mut().poll(&mut noop()) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits"),
    }
}

/// Burst 4: whoever waits for four more has them in four seconds, whatever a gate plans.
#[test]
fn whoever_waits_at_a_member_is_served_as_of_the_present() {
    let mut early = Vec::new();
    for verb in 0..6 {
        let clock = ManualClock::new();
        let (a, b) = (bucket(&clock, Quota::per_second(1).burst(4)), bucket(&clock, Quota::per_second(100)));
        assert!(a.allow_n(4));
        let mut own = Box::pin(a.wait_n(4));
        assert!(own.as_mut().poll(&mut noop()).is_pending());
        let gate = a.and(&b);
        match verb {
            0 => _ = gate.peek(),
            1 => _ = gate.peek_within(1, secs(60)),
            2 => _ = gate.reserve_within(1, secs(60)).map(drop),
            3 => _ = gate.check(),
            4 => {
                let slow = bucket(&clock, Quota::per_hour(1));
                assert!(slow.allow());
                let _ = a.and(&slow).reserve(); // it is the slow one that says when
            }
            _ => {
                let mut one = Box::pin(gate.wait());
                assert!(one.as_mut().poll(&mut noop()).is_pending());
                let mut two = Box::pin(gate.wait());
                assert!(two.as_mut().poll(&mut noop()).is_pending());
            }
        }
        let granted = own.as_mut().poll(&mut noop()).is_ready();
        eprintln!("verb {verb}: granted {granted}, a line of {}", a.waiting());
        early.extend(granted.then_some(verb));
    }
    assert_eq!(early, [0; 0], "verbs by which eight go in no time of a burst of four");
}

#[test]
fn a_look_turns_nobody_away() {
    let clock = ManualClock::new();
    let (a, b) = (bucket(&clock, Quota::per_second(1).burst(4)), bucket(&clock, Quota::per_second(100)));
    assert!(a.allow_n(4));
    let mut own = Box::pin(a.wait_n(4).within(secs(4)));
    assert!(own.as_mut().poll(&mut noop()).is_pending());
    let _ = a.and(&b).peek();
    assert!(own.as_mut().poll(&mut noop()).is_pending(), "it is still in time");
}

#[test]
fn a_look_at_keys_serves_nobody_early() {
    let clock = ManualClock::new();
    let keyed = KeyedLimiter::<u64>::builder(Quota::per_second(1).burst(4)).clock(clock.clone()).build();
    assert!(keyed.allow_n(&1, 4));
    let mut own = Box::pin(keyed.wait_n(&1, 4));
    assert!(own.as_mut().poll(&mut noop()).is_pending());
    let _ = Gate::new(keyed.key(&1)).peek();
    assert!(own.as_mut().poll(&mut noop()).is_pending());
}

#[test]
fn what_was_taken_for_later_stays_taken_when_something_before_it_comes_back() {
    let clock = ManualClock::new();
    let (a, b) =
        (bucket(&clock, Quota::per_second(1).burst(6)), bucket(&clock, Quota::per_second(1).burst(3)));
    let gate = a.and(&b);
    let first = gate.acquire_n(3).unwrap();
    let second = gate.reserve_n(3).unwrap();
    assert_eq!(second.delay(), secs(3));
    first.cancel();
    clock.advance(secs(3));
    second.release(); // it acts now, and uses three
    assert_eq!(a.remaining(), 3, "a burst of six, of which three are used at this very moment");
}

#[test]
fn what_was_taken_of_a_key_for_later_stays_taken() {
    let clock = ManualClock::new();
    let keyed =
        |burst| KeyedLimiter::<u64>::builder(Quota::per_second(1).burst(burst)).clock(clock.clone()).build();
    let (a, b) = (keyed(6), keyed(3));
    let gate = a.key(&1).and(b.key(&1));
    let first = gate.acquire_n(3).unwrap();
    let second = gate.reserve_n(3).unwrap();
    first.cancel();
    clock.advance(secs(3));
    second.release();
    assert_eq!(a.remaining(&1), 3);
}

/// With a limit that does not go on to admit.
#[test]
fn a_look_says_what_a_check_would() {
    let mut different = 0;
    for seed in 0..2_000 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let clock = ManualClock::new();
        let paced = Limiter::builder(Quota::per_second(rng.u64(2..9)))
            .kind(Kind::PacedWindow)
            .clock(clock.clone())
            .build();
        let other = Limiter::builder(Quota::per_second(rng.u64(1..9)).burst(9)).clock(clock.clone()).build();
        let gate = paced.and(&other);
        for step in 0..30 {
            clock.advance(Duration::from_millis(rng.u64(..700)));
            let n = rng.u64(1..5);
            let (peek, check) = (gate.peek_n(n), gate.check_n(n));
            if peek != check {
                if different == 0 {
                    eprintln!(
                        "seed {seed} step {step} n {n} at {:?}: {:?} {:?}\n  peek  {peek:?}\n  check {check:?}",
                        clock.now(),
                        paced.quota(),
                        other.quota()
                    );
                }
                different += 1;
            }
        }
    }
    assert_eq!(different, 0);
}

/// Paced windows that give ten in their last tenth only, and so seldom both.
#[test]
fn a_reservation_looks_far_ahead_for_a_moment_of_all() {
    let paced = |clock: &ManualClock, millis| {
        let quota = Quota::per(10, Duration::from_millis(millis));
        Limiter::builder(quota).kind(Kind::PacedWindow).clock(clock.clone()).build()
    };
    let clock = ManualClock::new();
    let gate = Gate::new([1_000, 700].map(|millis| paced(&clock, millis)));
    let soon = gate.reserve_n(10).map(|permit| permit.delay());
    assert_eq!(soon, Ok(Duration::from_millis(6_930)));
    // Half a window out of step, and a thousandth of one less with each.
    clock.set(Tick::ZERO + secs(500));
    let gate = Gate::new([1_000, 1_001].map(|millis| paced(&clock, millis)));
    let mut rounds = 0;
    while let Err(refused) = gate.reserve_n(10) {
        let wait = refused.0.retry_after().expect("not never");
        assert!(wait >= secs(100), "{wait:?}");
        clock.advance(wait);
        rounds += 1;
    }
    assert!((1..5).contains(&rounds), "{rounds}");
}

#[test]
fn behind_somebody_who_stays_in_line_nobody_is_admitted() {
    let clock = ManualClock::new();
    let limiter = bucket(&clock, Quota::per_second(10).burst(5));
    assert!(limiter.allow_n(4));
    let mut head = Box::pin(limiter.wait_n(5));
    assert!(head.as_mut().poll(&mut noop()).is_pending());
    limiter.set_quota(Quota::per_second(0).burst(5));
    assert!(head.as_mut().poll(&mut noop()).is_pending(), "it stays: the next change may help");
    let plain = (0..100).filter(|_| limiter.check().is_allowed()).count();
    let by_n = (0..100).filter(|_| limiter.allow_n(1)).count();
    let allow = (0..100).filter(|_| limiter.allow()).count();
    let other = bucket(&clock, Quota::per_second(1000).burst(1000));
    let gate = (0..100).filter(|_| limiter.and(&other).allow()).count();
    assert_eq!((plain, by_n, allow, gate), (0, 0, 0, 0), "check, allow_n, allow, gate; one was left");
}

#[test]
fn a_look_with_patience_says_what_a_reservation_would() {
    let clock = ManualClock::new();
    let (a, b) = (bucket(&clock, Quota::per_second(1).burst(4)), bucket(&clock, Quota::per_second(100)));
    assert!(a.allow_n(4));
    let mut own = Box::pin(a.wait_n(4));
    assert!(own.as_mut().poll(&mut noop()).is_pending());
    let gate = a.and(&b);
    let alone = a.peek_within(1, secs(60));
    let peek = gate.peek_within(1, secs(60));
    let got = gate.reserve_within(1, secs(60)).unwrap();
    assert_eq!((peek.delay(), alone.delay()), (got.delay(), got.delay()));
}

#[test]
fn a_look_with_patience_refuses_what_a_reservation_would() {
    let clock = ManualClock::new();
    let (a, b) = (bucket(&clock, Quota::per_second(1).burst(4)), bucket(&clock, Quota::per_second(100)));
    assert!(a.allow_n(4));
    let mut own = Box::pin(a.wait_n(4));
    assert!(own.as_mut().poll(&mut noop()).is_pending());
    let gate = a.and(&b);
    let peek = gate.peek_within(1, secs(2));
    let got = gate.reserve_within(1, secs(2));
    assert_eq!(peek.is_admitted(), got.is_ok());
}

#[test]
fn a_reservation_without_patience_does_not_go_ahead_of_those_who_wait() {
    let clock = ManualClock::new();
    let (a, b) = (bucket(&clock, Quota::per_second(1).burst(4)), bucket(&clock, Quota::per_second(100)));
    assert!(a.allow_n(2));
    let mut own = Box::pin(a.wait_n(4));
    assert!(own.as_mut().poll(&mut noop()).is_pending());
    let gate = a.and(&b);
    assert_eq!(
        (a.reserve_within(1, Duration::ZERO).is_ok(), gate.reserve_within(1, Duration::ZERO).is_ok()),
        (false, false),
        "limiter, gate"
    );
}

#[test]
fn a_key_in_line_keeps_its_name() {
    let clock = ManualClock::new();
    let keyed = KeyedLimiter::<str>::builder(Quota::per_second(1).burst(1))
        .name("per user")
        .clock(clock.clone())
        .build();
    let all = bucket(&clock, Quota::per_second(100));
    assert!(keyed.allow("a"));
    assert_eq!(keyed.key("a").and(&all).check().decided_by().name(), "per user");
    let mut own = Box::pin(keyed.wait("a"));
    assert!(own.as_mut().poll(&mut noop()).is_pending());
    assert_eq!(keyed.key("a").and(&all).check().decided_by().name(), "per user");
}

#[test]
fn a_full_store_in_a_gate_says_the_same_to_all_verbs() {
    let clock = ManualClock::new();
    let each = KeyedLimiter::<u64>::builder(Quota::per_second(1).burst(4))
        .max_keys(1)
        .at_cap(AtCap::Refuse)
        .clock(clock.clone())
        .build();
    assert!(each.allow_n(&1, 2));
    let (key, said) = (2..10_000)
        .find_map(|key: u64| {
            Some((key, Gate::new(each.key(&key)).check())).filter(|(_, said)| !said.is_allowed())
        })
        .unwrap();
    let gate = Gate::new(each.key(&key));
    assert_eq!(gate.check().retry_after(), each.peek(&key).retry_after());
    let peek = gate.peek();
    let reserve = gate.reserve().unwrap_err();
    let own = each.reserve(&key).unwrap_err();
    assert_eq!(
        (peek.retry_after(), reserve.0.retry_after()),
        (said.retry_after(), own.0.retry_after()),
        "peek = check, and reserve as by the limiter itself: {reserve}"
    );
}

#[test]
fn a_panic_while_settling_loses_no_slot() {
    let clock = ManualClock::new();
    let (rate, slots) = (bucket(&clock, Quota::per_second(10)), ConcurrencyLimit::new(1));
    let permit = rate.and(&slots).acquire().unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| permit.settle_each(|_, _| panic!("on purpose"))));
    assert!(panicked.is_err());
    assert_eq!(slots.in_use(), 0);
}

struct Panics;
impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("on purpose");
    }
}

#[test]
fn a_waker_that_panics_loses_no_slot() {
    let clock = ManualClock::new();
    let (rate, slots) = (bucket(&clock, Quota::per_hour(1).burst(1)), ConcurrencyLimit::new(1));
    let permit = rate.and(&slots).acquire().unwrap();
    let waker = Waker::from(Arc::new(Panics));
    let mut waits = Box::pin(rate.wait());
    assert!(waits.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let panicked = catch_unwind(AssertUnwindSafe(|| permit.cancel()));
    assert!(panicked.is_err());
    assert_eq!(slots.in_use(), 0);
}

#[test]
fn a_limit_of_which_nothing_is_taken_is_not_the_tightest() {
    let clock = ManualClock::new();
    let empty = bucket(&clock, Quota::per_hour(1).burst(1));
    assert!(empty.allow());
    let some = bucket(&clock, Quota::per_hour(1).burst(5));
    let one = empty.costing(0).and(&some).peek();
    let other = some.and(empty.costing(0)).peek();
    assert_eq!((one.tightest().position(), other.tightest().position()), (1, 0));
}

/// A clock whose timer rings when told to.
#[derive(Clone, Debug, Default)]
struct Early {
    clock: ManualClock,
    set: Arc<Mutex<Vec<Waker>>>,
}
impl Clock for Early {
    fn now(&self) -> Tick {
        self.clock.now()
    }
    fn timer(&self) -> Arc<dyn Timer> {
        Arc::new(self.clone())
    }
}
impl Timer for Early {
    fn wake_after(&self, _: Duration, waker: Waker) {
        self.set.lock().unwrap().push(waker);
    }
}

#[test]
fn a_timer_that_rings_early_does_no_harm() {
    let clock = Early::default();
    let memory = MemoryStore::builder().clock(clock.clone()).build();
    let limiter =
        store::Limiter::new(&memory, &Rule::new("d", "n", Quota::per_second(1))).clock(clock.clone());
    assert!(now(limiter.allow("k")).unwrap());
    let mut wait = pin!(limiter.wait("k", secs(10)));
    assert!(wait.as_mut().poll(&mut noop()).is_pending());
    clock.clock.set(Tick::ZERO + Duration::from_nanos(999_999_999));
    clock.set.lock().unwrap().drain(..).for_each(Waker::wake); // a nanosecond early
    assert!(wait.as_mut().poll(&mut noop()).is_pending());
    assert!(!clock.set.lock().unwrap().is_empty(), "nobody will ever wake it again");
}

#[test]
fn a_check_holds_no_slots() {
    let clock = ManualClock::new();
    let (rate, slots) = (bucket(&clock, Quota::per_second(100)), ConcurrencyLimit::new(2));
    let gate = rate.and(&slots);
    let first: Vec<bool> = (0..4).map(|_| gate.allow()).collect();
    assert_eq!(slots.in_use(), 0, "{first:?}: nobody can ever give them back");
}

/// A gate over two keys of one limiter, one of which somebody waits for, while the quota changes and all is saved: nobody waits
/// for each other.
#[test]
fn a_gate_over_a_key_in_line_and_one_that_is_not_gets_on_while_others_do() {
    let keyed = KeyedLimiter::<u64>::builder(Quota::per_hour(1).burst(9)).clock(ManualClock::new()).build();
    let keys: Vec<u64> = (0..20).collect();
    let waits: Vec<_> = keys
        .iter()
        .map(|key| {
            assert!(keyed.allow_n(key, 9));
            let mut wait = Box::pin(keyed.wait_n(key, 9));
            assert!(wait.as_mut().poll(&mut noop()).is_pending());
            wait
        })
        .collect();
    let path = std::env::temp_dir().join(format!("tollgate-gate-order-{}.snapshot", std::process::id()));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut call = 0;
            while !stop.load(Ordering::Relaxed) {
                call += 1;
                // A promise is made ahead of those who wait.
                let _ = keyed.key(&keys[call % 20]).and(keyed.key(&1_000)).reserve().map(Permit::cancel);
            }
        });
        for round in 0..2_000 {
            keyed.set_quota(Quota::per_hour(1).burst(9 + round % 3));
            if round % 40 == 0 {
                keyed.save(&path).unwrap();
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    std::fs::remove_file(&path).unwrap();
    assert_eq!(keyed.keys_in_line(), 20);
    drop(waits);
}
