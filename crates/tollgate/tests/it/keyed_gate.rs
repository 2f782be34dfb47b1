//! Keys in gates: all or nothing, whoever else is there.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use fastrand::Rng;
use tollgate::{AnyAlgorithm, Ask, AtCap, Gate, KeyedLimiter, Kind, Limiter, ManualClock, Quota, Tick};
use tollgate_sim::Outcome;
use tollgate_sim::conformance::{Held, Subject, small_quota};

type Keyed = KeyedLimiter<u64, AnyAlgorithm, ManualClock>;

fn build(kind: Kind, quota: Quota, clock: &ManualClock) -> Keyed {
    KeyedLimiter::builder(quota).kind(kind).clock(clock.clone()).build()
}

fn poll<F: Future>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// Random calls of a gate of two tiers for each key, compared with bare algorithms that are asked first and then taken from.
fn compare(kind: Kind, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let quotas = [small_quota(&mut rng), small_quota(&mut rng)];
    let clock = ManualClock::new();
    let tiers = quotas.map(|quota| build(kind, quota, &clock));
    let mut model: Vec<[Held<AnyAlgorithm>; 2]> =
        (0..4).map(|_| quotas.map(|quota| Held::new(AnyAlgorithm::new(kind, quota)))).collect();
    let mut now = Tick::ZERO;
    for step in 0..300 {
        now = now + Duration::from_millis(rng.u64(..200));
        clock.advance_to(now);
        let (key, cost) = (rng.u64(..4), rng.u64(..3));
        let ask = Ask::now(cost);
        let held = &mut model[key as usize];
        let want = held.iter_mut().all(|tier| tier.peek(now, ask).is_admitted());
        if want {
            for tier in held.iter_mut() {
                assert!(tier.decide(now, ask).is_admitted());
            }
        }
        let got = tiers[0].key(&key).and(tiers[1].key(&key)).check_n(cost);
        assert_eq!(got.is_allowed(), want, "{kind} {quotas:?}, seed {seed}, step {step}");
        for (tier, held) in tiers.iter().zip(held) {
            let got: Outcome = tier.peek_n(&key, 1).into();
            assert_eq!(got, held.peek(now, Ask::now(1)), "{kind} {quotas:?}, seed {seed}, step {step}");
        }
    }
}

#[test]
fn tiers_of_a_key_admit_together_and_a_refusal_touches_none() {
    for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::LeakyQueue) {
        for seed in 0..60 {
            compare(kind, seed);
        }
    }
}

#[test]
fn threads_in_each_others_way_lose_and_double_nothing() {
    let clock = ManualClock::new();
    let quota = Quota::per_second(0).burst(500);
    let (left, right) =
        (build(Kind::TokenBucket, quota, &clock), build(Kind::SlidingLog, Quota::per_hour(700), &clock));
    let everybody = Limiter::builder(Quota::per_second(0).burst(900)).clock(clock).build();
    let barrier = Barrier::new(8);
    let taken: Vec<[u64; 5]> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..8_u64)
            .map(|thread| {
                let (left, right, everybody, barrier) = (&left, &right, &everybody, &barrier);
                scope.spawn(move || {
                    let mut rng = Rng::with_seed(thread);
                    let mut taken = [0; 5]; // of left 0 and 1, right 0 and 1, everybody
                    barrier.wait();
                    for _ in 0..400 {
                        let (one, two, cost) = (rng.u64(..2), rng.u64(..2), rng.u64(1..3));
                        let admitted = match rng.u8(..3) {
                            0 => left.key(&one).and(right.key(&two)).and(everybody).allow_n(cost),
                            1 => everybody.and(right.key(&two)).and(left.key(&one)).allow_n(cost),
                            _ => {
                                let direct = left.allow_n(&one, cost);
                                taken[one as usize] += if direct { cost } else { 0 };
                                false
                            }
                        };
                        if admitted {
                            taken[one as usize] += cost;
                            taken[2 + two as usize] += cost;
                            taken[4] += cost;
                        }
                        if rng.u8(..) == 0 {
                            left.sweep();
                        }
                    }
                    taken
                })
            })
            .collect();
        handles.into_iter().map(|handle| handle.join().expect("no panic")).collect()
    });
    let sum = |index: usize| taken.iter().map(|taken| taken[index]).sum::<u64>();
    for key in 0..2 {
        assert_eq!(left.peek_n(&key, 0).remaining(), 500 - sum(key as usize));
        assert_eq!(right.peek_n(&key, 0).remaining(), 700 - sum(2 + key as usize));
    }
    assert_eq!(everybody.remaining(), 900 - sum(4));
    assert!(sum(4) > 100, "the gates did admit something: {}", sum(4));
}

#[test]
fn a_new_quota_and_gates_do_not_wait_for_each_other_for_good() {
    let clock = ManualClock::new();
    let keyed = build(Kind::TokenBucket, Quota::per_hour(1).burst(1_000), &clock);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let keyed = &keyed;
            scope.spawn(move || {
                for call in 0..500 {
                    let (one, two) = (call % 3, (call + thread) % 3);
                    let _ = keyed.key(&one).and(keyed.key(&two)).allow();
                }
            });
        }
        for round in 0..50 {
            keyed.set_quota(Quota::per_hour(1).burst(1_000 + round));
        }
    });
    let left: u64 = (0..3).map(|key| keyed.peek_n(&key, 0).remaining()).sum();
    assert!(left < 3 * 1_050);
}

#[test]
fn a_key_that_occurs_twice_pays_twice() {
    let clock = ManualClock::new();
    let keyed = build(Kind::TokenBucket, Quota::per_hour(1).burst(3), &clock);
    assert!(keyed.key(&1).and(keyed.key(&1)).allow());
    assert_eq!(keyed.peek_n(&1, 0).remaining(), 1);
    assert!(!keyed.key(&1).and(keyed.key(&1)).allow());
    assert_eq!(keyed.peek_n(&1, 0).remaining(), 1);
    assert!(keyed.key(&1).and(keyed.key(&2)).allow(), "two keys of one limiter");
}

#[test]
fn a_permit_is_settled_released_or_cancelled() {
    let clock = ManualClock::new();
    let tokens = build(Kind::TokenBucket, Quota::per_hour(1).burst(100), &clock);
    let requests = build(Kind::TokenBucket, Quota::per_hour(1).burst(10), &clock);
    let left = || (tokens.peek_n(&1, 0).remaining(), requests.peek_n(&1, 0).remaining());
    let gate = || requests.key(&1).costing(1).and(tokens.key(&1));
    gate().acquire_n(60).unwrap().settle(25);
    assert_eq!(left(), (75, 9));
    gate().acquire_n(60).unwrap().settle(70);
    assert_eq!(left(), (5, 8));
    gate().acquire_n(5).unwrap().cancel();
    assert_eq!(left(), (5, 8));
    gate().acquire_n(5).unwrap().release();
    assert_eq!(left(), (0, 7));
    let refused = gate().acquire_n(1).unwrap_err();
    assert_eq!(refused.0.decided_by().position(), 1);
    assert_eq!(left(), (0, 7));
}

#[test]
fn a_gate_can_be_waited_at_and_hears_what_comes_back_to_a_key() {
    let clock = ManualClock::new();
    let keyed = build(Kind::TokenBucket, Quota::per_second(1).burst(1), &clock);
    let everybody = Limiter::builder(Quota::per_second(10).burst(10)).clock(clock.clone()).build();
    let gate = Gate::new(keyed.key(&1)).and(&everybody);
    let taken = keyed.reserve(&1).unwrap();
    let mut wait = Box::pin(gate.wait());
    let mut context = Context::from_waker(Waker::noop());
    assert!(wait.as_mut().poll(&mut context).is_pending());
    assert_eq!(everybody.remaining(), 10, "nothing is held while one waits");
    taken.settle(0);
    assert!(wait.as_mut().poll(&mut context).is_ready());
    assert!(!keyed.allow(&1));
    let mut next = Box::pin(gate.wait().within(Duration::from_millis(10)));
    assert!(next.as_mut().poll(&mut context).is_ready(), "too late, and said at once");
    clock.advance(Duration::from_secs(1));
    assert!(gate.allow());
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_gate_hears_what_comes_back_to_a_key_that_somebody_waits_for() {
    let clock = ManualClock::new();
    let keyed = build(Kind::TokenBucket, Quota::per_hour(1).burst(2), &clock);
    let everybody = Limiter::builder(Quota::per_second(10)).clock(clock.clone()).build();
    let (gate, woken) = (keyed.key(&1).and(&everybody), Arc::new(Woken::default()));
    let waker = Waker::from(Arc::clone(&woken));
    let (mut at_gate, mut context) = (Context::from_waker(&waker), Context::from_waker(Waker::noop()));

    let taken = keyed.reserve_n(&1, 2).unwrap();
    let mut wait = Box::pin(gate.wait());
    assert!(wait.as_mut().poll(&mut at_gate).is_pending());
    let mut own = Box::pin(keyed.wait(&1));
    assert!(own.as_mut().poll(&mut context).is_pending());
    taken.settle(0);
    assert!(own.as_mut().poll(&mut context).is_ready());
    assert!(woken.0.swap(false, Ordering::SeqCst), "one is left");
    assert!(wait.as_mut().poll(&mut at_gate).is_ready());
}

#[test]
fn a_gate_hears_of_a_new_quota_of_a_key() {
    let (clock, rate) = (ManualClock::new(), Arc::new(AtomicU64::new(1)));
    let current = Arc::clone(&rate);
    let keyed = KeyedLimiter::<str>::builder(Quota::per_hour(1))
        .quota_of(move |_| Quota::per_second(current.load(Ordering::SeqCst)).burst(1))
        .clock(clock.clone())
        .build();
    let everybody = Limiter::builder(Quota::per_second(10)).clock(clock.clone()).build();
    assert!(keyed.allow("a"));
    let (gate, woken) = (keyed.key("a").and(&everybody), Arc::new(Woken::default()));
    let waker = Waker::from(Arc::clone(&woken));
    let (mut wait, mut context) = (Box::pin(gate.wait()), Context::from_waker(&waker));
    assert!(wait.as_mut().poll(&mut context).is_pending());
    rate.store(1_000, Ordering::SeqCst);
    keyed.refresh("a");
    assert!(woken.0.swap(false, Ordering::SeqCst));
    assert!(wait.as_mut().poll(&mut context).is_pending());
    clock.advance(Duration::from_millis(1));
    assert!(woken.0.load(Ordering::SeqCst));
    assert!(wait.as_mut().poll(&mut context).is_ready());
}

#[test]
fn a_key_that_somebody_waits_for_is_behind_them_in_a_gate_too() {
    let clock = ManualClock::new();
    let keyed = build(Kind::TokenBucket, Quota::per_second(1).burst(2), &clock);
    let everybody = Limiter::builder(Quota::per_second(10)).clock(clock.clone()).build();
    assert!(keyed.allow(&1));
    let mut wait = Box::pin(keyed.wait_n(&1, 2));
    let mut context = Context::from_waker(Waker::noop());
    assert!(wait.as_mut().poll(&mut context).is_pending());
    assert!(!keyed.key(&1).and(&everybody).allow(), "one is left, and is not for those who come later");
    assert_eq!(everybody.remaining(), 10);
    clock.advance(Duration::from_secs(1));
    assert!(wait.as_mut().poll(&mut context).is_ready());
    drop(wait);
    clock.advance(Duration::from_secs(1));
    let permit = keyed.key(&1).and(&everybody).acquire().unwrap();
    permit.cancel();
    assert!(keyed.key(&1).and(&everybody).allow());
    assert_eq!(everybody.remaining(), 9);
}

#[test]
fn a_gate_promises_no_sooner_than_every_member_can() {
    let clock = ManualClock::new();
    let keyed = build(Kind::TokenBucket, Quota::per_second(1).burst(1), &clock);
    let slow = Limiter::builder(Quota::per_minute(6).burst(1)).clock(clock.clone()).build();
    let gate = keyed.key(&1).and(&slow);
    assert_eq!(gate.reserve().unwrap().delay(), Duration::ZERO);
    let later = gate.reserve().unwrap();
    assert_eq!(later.delay(), Duration::from_secs(10));
    later.cancel();
    assert_eq!(gate.reserve().unwrap().delay(), Duration::from_secs(10));
}

#[test]
fn a_full_store_refuses_new_keys_in_a_gate() {
    let keyed = KeyedLimiter::<u64>::builder(Quota::per_hour(1).burst(5))
        .max_keys(1)
        .at_cap(AtCap::Share)
        .clock(ManualClock::new())
        .build();
    assert!(keyed.allow(&1));
    let everybody = Limiter::builder(Quota::per_hour(9)).clock(keyed.clock().clone()).build();
    assert!(!keyed.key(&2).and(&everybody).allow());
    assert!(keyed.key(&1).and(&everybody).allow());
    assert_eq!(everybody.remaining(), 8);
}

#[test]
fn what_a_gate_takes_for_later_drops_nobody_who_is_idle_only_then() {
    let clock = ManualClock::new();
    let each = KeyedLimiter::<u64>::builder(Quota::per_hour(1).burst(100)).clock(clock.clone()).build();
    let all = Limiter::builder(Quota::per_hour(1).burst(1)).clock(clock).build();
    for key in 0..2_000 {
        assert!(each.allow(&key));
    }
    for call in 0..20_000 {
        let key = call % 2_000;
        let later = each.key(&key).and(&all).reserve();
        assert!(later.is_ok(), "hours from now");
    }
    assert_eq!((each.len(), each.stats().swept), (2_000, 0), "an hour has not passed");
}

#[test]
fn a_store_that_is_full_of_bytes_stays_within_them_and_answers() {
    for at_cap in [AtCap::Evict, AtCap::Refuse, AtCap::Share] {
        let clock = ManualClock::new();
        let each = KeyedLimiter::<u64>::builder(Quota::per_hour(1).burst(4))
            .max_bytes(1 << 16)
            .at_cap(at_cap)
            .clock(clock.clone())
            .build();
        let all = Limiter::builder(Quota::per_hour(1_000_000)).clock(clock).build();
        let passed = (0..20_000).filter(|key| each.key(key).and(&all).allow()).count();
        assert!(passed >= 500, "{at_cap:?}: {passed}");
        assert!(each.bytes() <= (1 << 16) + (1 << 16) / 4, "{at_cap:?}: {} bytes", each.bytes());
    }
}

#[test]
fn a_key_that_finds_no_room_is_told_when_there_will_be() {
    let clock = ManualClock::new();
    let each = KeyedLimiter::<u64>::builder(Quota::per_second(1).burst(4))
        .max_keys(1)
        .at_cap(AtCap::Refuse)
        .clock(clock.clone())
        .build();
    let all = Limiter::builder(Quota::per_second(100)).clock(clock.clone()).build();
    assert!(each.allow_n(&1, 2));
    // Somebody in the same part of the store, who sees when the one who is there will be idle.
    let refused =
        |key: u64| Some((key, each.key(&key).and(&all).check())).filter(|(_, said)| !said.is_allowed());
    let (neighbour, said) = (2..10_000).find_map(refused).expect("one of so many");
    let (wait, left) = (said.retry_after().expect("somebody will be idle"), all.peek_n(0).remaining());
    let tick = Duration::from_nanos(1);
    assert!(!each.key(&neighbour).and(&all).allow());
    assert_eq!(all.peek_n(0).remaining(), left, "nothing was taken of the other");
    clock.advance(wait.saturating_sub(tick));
    assert!(!each.key(&neighbour).and(&all).allow(), "{wait:?} is too long");
    clock.advance(tick);
    assert!(each.key(&neighbour).and(&all).allow(), "{wait:?} is too short");
}

/// What a gate admits counts for all keys, what it refuses for those that would not have admitted it by themselves.
#[test]
fn a_refusal_counts_for_the_keys_that_made_it() {
    let clock = ManualClock::new();
    let [tight, wide] =
        [2, 100].map(|burst| build(Kind::TokenBucket, Quota::per_hour(1).burst(burst), &clock));
    let gate = tight.key(&1).and(wide.key(&1));
    let counts = || [&tight, &wide].map(|limiter| (limiter.stats().admitted, limiter.stats().denied));
    assert!(gate.allow() && gate.acquire().is_ok());
    assert_eq!(counts(), [(2, 0); 2]);
    let hour = Duration::from_secs(3_600);
    assert!(
        !gate.allow() && !gate.check_n(3).is_allowed() && gate.acquire_noting(1, &mut Vec::new()).is_err()
    );
    assert_eq!(counts(), [(2, 3), (2, 0)]);
    assert!(gate.reserve_within(1, hour / 2).is_err() && gate.reserve_n(101).is_err());
    assert_eq!(counts(), [(2, 5), (2, 1)]);
    assert!(gate.reserve_within(1, hour).is_ok(), "in an hour");
    assert!(!gate.peek().is_allowed() && gate.peek_within(1, 9 * hour).is_admitted());
    assert_eq!(counts(), [(3, 5), (3, 1)]);
}

#[test]
fn a_wait_at_a_gate_counts_when_it_is_over() {
    let clock = ManualClock::new();
    let keyed = build(Kind::TokenBucket, Quota::per_second(1), &clock);
    let gate = Gate::new(keyed.key(&1));
    let counts = || (keyed.stats().admitted, keyed.stats().denied);
    assert!(gate.allow());
    let mut wait = Box::pin(gate.wait());
    for _ in 0..3 {
        assert!(poll(&mut wait).is_pending());
    }
    assert_eq!(counts(), (1, 0), "nobody was denied anything");
    let mut late = Box::pin(gate.wait().within(Duration::from_millis(1)));
    assert!(matches!(poll(&mut late), Poll::Ready(Err(_))));
    assert_eq!(counts(), (1, 1));
    clock.advance(Duration::from_secs(1));
    assert!(poll(&mut wait).is_ready());
    assert_eq!(counts(), (2, 1));
    // By the limiter that the key has of its own.
    let mut own = Box::pin(keyed.wait(&1));
    assert!(poll(&mut own).is_pending());
    assert!(!gate.allow());
    assert_eq!(counts(), (2, 2));
}
