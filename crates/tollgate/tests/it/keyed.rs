//! A keyed limiter: every key decides as a limiter of its own would, whatever happens to the others.

use std::collections::HashMap;
use std::sync::Barrier;
use std::time::Duration;

use fastrand::Rng;
use tollgate::{
    AnyAlgorithm, Ask, AtCap, Clock, KeyedLimiter, KeyedReservation, Kind, ManualClock, MonotonicClock,
    Quota, Tick, TokenBucket,
};
use tollgate_sim::Outcome;
use tollgate_sim::conformance::{self, Held, Subject};
use tollgate_sim::history::{Operation, largest_excess};

type Any = KeyedLimiter<u64, AnyAlgorithm, ManualClock>;

fn build(kind: Kind, quota: Quota) -> Any {
    KeyedLimiter::builder(quota).kind(kind).clock(ManualClock::new()).build()
}

/// One key of a limiter in which others come and go.
struct OneOfMany {
    limiter: Any,
    admitted: Vec<Option<KeyedReservation<u64, AnyAlgorithm, ManualClock>>>,
    rng: Rng,
    /// Whether idle keys are dropped meanwhile.
    sweeps: bool,
}

const KEY: u64 = 7;

impl OneOfMany {
    fn new(kind: Kind, quota: Quota, sweeps: bool) -> Self {
        Self { limiter: build(kind, quota), admitted: Vec::new(), rng: Rng::with_seed(1), sweeps }
    }

    /// What others do meanwhile.
    fn noise(&mut self, now: Tick) {
        for _ in 0..self.rng.u8(..4) {
            let _ = self.limiter.allow_at(&self.rng.u64(100..200), now);
        }
        if self.sweeps && self.rng.u8(..8) == 0 {
            self.limiter.sweep_at(now);
        }
    }
}

impl Subject for OneOfMany {
    fn decide(&mut self, now: Tick, ask: Ask) -> Outcome {
        self.noise(now);
        match self.limiter.reserve_within_at(&KEY, ask.cost(), ask.patience(), now) {
            Ok(reservation) => {
                let outcome = reservation.decision().into();
                self.admitted.push(Some(reservation));
                outcome
            }
            Err(refused) => refused.0.into(),
        }
    }

    fn peek(&mut self, now: Tick, ask: Ask) -> Outcome {
        self.limiter.peek_within_at(&KEY, ask.cost(), ask.patience(), now).into()
    }

    fn give_back(&mut self, now: Tick, admission: usize, amount: u64) {
        if let Some(reservation) = self.admitted.get_mut(admission).and_then(Option::take) {
            reservation.refund_at(amount, now);
        }
    }

    fn charge(&mut self, now: Tick, extra: u64) {
        self.limiter.charge_at(&KEY, extra, now);
    }

    fn set_quota(&mut self, now: Tick, quota: Quota) {
        self.limiter.set_quota_at(quota, now);
    }

    fn reset(&mut self) {
        self.limiter.reset(&KEY);
        self.admitted.clear();
    }
}

#[test]
fn a_key_decides_as_its_algorithm_does() {
    for kind in Kind::ALL {
        // Not swept: the suite's clocks step back, and who was dropped by then is taken to stand where it was dropped.
        conformance::run(kind, |quota| OneOfMany::new(kind, quota, false), 0..1_000);
    }
}

#[test]
fn what_is_given_back_is_never_handed_out_twice_though_keys_are_dropped() {
    for kind in Kind::ALL {
        for seed in 0..1_000 {
            let mut rng = Rng::with_seed(seed);
            let quota = conformance::small_quota(&mut rng);
            let mut subject = OneOfMany::new(kind, quota, true);
            let kept = conformance::returns(kind, quota, &mut subject, rng, 60);
            assert!(kept.is_ok(), "{kind} {quota}, seed {seed}: {kept:?}");
        }
    }
}

#[test]
fn a_clock_that_steps_back_after_a_sweep_grants_no_more_than_one_that_stands_still() {
    let limiter = build_bucket(Quota::per_second(1).burst(3));
    assert!(limiter.allow_n_at(&1, 3, Tick::ZERO));
    let later = Tick::ZERO + Duration::from_secs(3);
    limiter.sweep_at(later);
    assert!(limiter.is_empty());
    let passed = (0..10).filter(|ms| limiter.allow_at(&1, Tick::from_nanos(ms * 1_000_000))).count();
    assert_eq!(passed, 1, "one as at the time of the sweep, and none until that time comes again");
    assert!(limiter.allow_n_at(&1, 2, later), "the rest of the burst");
    assert!(!limiter.allow_at(&1, later));
}

/// Many keys at random, compared with a map of bare algorithms that forgets nothing.
fn compare_with_a_map(kind: Kind, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let quota = conformance::small_quota(&mut rng);
    let limiter = build(kind, quota);
    let mut model: HashMap<u64, Held<AnyAlgorithm>> = HashMap::new();
    let mut now = Tick::ZERO;
    let keys = 1 << rng.u32(0..12);
    for step in 0..4_000 {
        now = now + Duration::from_millis(rng.u64(..20) * rng.u64(..20));
        let (key, cost) = (rng.u64(..keys), rng.u64(..3));
        let held = model.entry(key).or_insert_with(|| Held::new(AnyAlgorithm::new(kind, quota)));
        let got: Outcome = limiter.check_n_at(&key, cost, now).into();
        let patience = if kind == Kind::LeakyQueue { queue_patience(quota) } else { Duration::ZERO };
        let want = held.decide(now, Ask::within(cost, patience));
        assert_eq!(got, want, "{kind} {quota}, seed {seed}, step {step}, key {key}");
        if rng.u8(..) == 0 {
            limiter.sweep_at(now);
        }
    }
    assert!(limiter.len() as u64 <= keys);
}

fn queue_patience(quota: Quota) -> Duration {
    tollgate::Algorithm::patience(&AnyAlgorithm::new(Kind::LeakyQueue, quota))
}

#[test]
fn dropping_idle_keys_changes_no_decision() {
    for kind in Kind::ALL {
        for seed in 0..30 {
            compare_with_a_map(kind, seed);
        }
    }
}

#[test]
fn a_sweep_drops_what_is_idle_and_nothing_else() {
    let limiter = build(Kind::TokenBucket, Quota::per_second(1).burst(10));
    for key in 0..5_000 {
        assert!(limiter.allow_n(&key, 1 + key % 2));
    }
    assert_eq!(limiter.len(), 5_000);
    let full = limiter.bytes();
    limiter.clock().advance(Duration::from_secs(1)); // those that took one are full again
    limiter.sweep();
    assert_eq!((limiter.len(), limiter.stats().swept), (2_500, 2_500));
    limiter.clock().advance(Duration::from_secs(1));
    limiter.sweep();
    assert!(limiter.is_empty());
    limiter.sweep(); // a round more, for segments that could only now be joined
    assert!(limiter.bytes() < full / 4, "{} of {full} bytes", limiter.bytes());
    assert_eq!(limiter.stats().evicted, 0);
}

#[test]
fn a_sweep_of_a_large_store_gets_down_to_the_smallest_size() {
    let limiter = build_bucket(Quota::per_second(1).burst(10));
    let empty = limiter.bytes();
    for key in 0..400_000 {
        assert!(limiter.allow(&key));
    }
    for call in 0..100_000 {
        let _ = limiter.allow(&(call % 1_000)); // sweeps by the way, and so stops somewhere in the middle
    }
    limiter.clock().advance(Duration::from_secs(1_000));
    limiter.sweep();
    assert_eq!(limiter.len(), 0);
    assert_eq!(limiter.bytes(), empty);
}

#[test]
fn calls_sweep_by_the_way() {
    let limiter = build(Kind::TokenBucket, Quota::per_second(1).burst(10));
    for key in 0..20_000 {
        assert!(limiter.allow(&key));
    }
    limiter.clock().advance(Duration::from_secs(1));
    let full = limiter.bytes();
    for call in 0..16_000_000_u64 {
        let _ = limiter.allow(&(call % 1_000));
    }
    assert!(limiter.len() <= 1_000, "{} keys", limiter.len());
    assert!(limiter.bytes() < full / 4, "{} of {full} bytes", limiter.bytes());
}

#[test]
fn memory_grows_with_the_keys_and_in_small_steps() {
    let limiter = build_bucket(Quota::per_second(1).burst(10));
    let mut before = limiter.bytes();
    for key in 0..300_000_u64 {
        assert!(limiter.allow(&key));
        if key % 64 == 0 {
            let bytes = limiter.bytes();
            assert!(bytes - before < 200_000, "{} bytes at once for key {key}", bytes - before);
            before = bytes;
            assert!(key < 50_000 || bytes as u64 <= 35 * key, "{bytes} bytes for {key} keys");
        }
    }
    assert_eq!(limiter.len(), 300_000);
}

fn build_bucket(quota: Quota) -> KeyedLimiter<u64, TokenBucket, ManualClock> {
    KeyedLimiter::builder(quota).clock(ManualClock::new()).build()
}

#[test]
fn keys_of_any_kind_and_length() {
    let by_text = KeyedLimiter::<str>::new(Quota::per_hour(1));
    let long = "x".repeat(10_000);
    assert!(by_text.allow("a") && by_text.allow(&long) && !by_text.allow("a") && !by_text.allow(&long));
    let by_pair: KeyedLimiter<(u32, String)> = KeyedLimiter::new(Quota::per_hour(1));
    assert!(
        by_pair.allow(&(1, "a".into()))
            && by_pair.allow(&(2, "a".into()))
            && !by_pair.allow(&(1, "a".into()))
    );
    let by_bytes = KeyedLimiter::<[u8]>::new(Quota::per_hour(1));
    assert!(by_bytes.allow(b"a") && !by_bytes.allow(b"a"));
}

#[test]
fn a_refusal_leaves_no_trace() {
    let limiter = build_bucket(Quota::per_second(1).burst(1));
    assert!(limiter.check_n(&1, 2).is_never());
    assert!(limiter.check_n(&1, 0).is_allowed());
    assert!(limiter.peek(&1).is_allowed());
    assert!(limiter.is_empty());
    assert!(limiter.allow(&1));
    assert_eq!(limiter.check(&1).retry_after(), Some(Duration::from_secs(1)));
    assert_eq!(limiter.stats().denied, 2);
    assert_eq!(limiter.stats().admitted, 2);
}

#[test]
fn a_reset_key_starts_afresh_and_owes_nothing_back() {
    let limiter = build_bucket(Quota::per_hour(1).burst(4));
    let taken = limiter.reserve_n(&1, 3).unwrap();
    assert!(limiter.reset(&1));
    assert!(!limiter.reset(&1));
    assert!(limiter.allow_n(&1, 4));
    taken.settle(0); // it was forgotten: giving it back would hand it out twice
    assert!(!limiter.allow(&1));
}

#[test]
fn settling_charges_what_was_dearer_and_returns_what_was_not() {
    let limiter = build_bucket(Quota::per_hour(1).burst(10));
    limiter.reserve_n(&1, 5).unwrap().settle(2);
    assert_eq!(limiter.peek_n(&1, 0).remaining(), 8);
    limiter.reserve_n(&1, 5).unwrap().settle(9);
    assert_eq!(limiter.check(&1).retry_after(), Some(Duration::from_secs(7_200)), "one owed, one wanted");
    limiter.charge(&2, 12); // a key that was never seen
    assert_eq!(limiter.check(&2).retry_after(), Some(Duration::from_secs(3 * 3_600)));
}

#[test]
fn an_estimate_of_nothing_can_be_settled() {
    let keys = build_bucket(Quota::per_second(1).burst(10));
    for expected in [5, 0] {
        keys.reserve_n(&7, 0).unwrap().settle(5); // a key that is new, and one that is not
        assert_eq!(keys.remaining(&7), expected);
    }
    keys.reserve_n(&8, 0).unwrap().refund(3);
    assert_eq!(keys.remaining(&8), 10);
    keys.wait_n(&8, 0).block().unwrap().settle(4);
    assert_eq!(keys.remaining(&8), 6);
}

#[test]
fn each_key_has_the_quota_that_the_caller_says() {
    let limiter = KeyedLimiter::<str>::builder(Quota::per_hour(1))
        .quota_of(|user: &str| Quota::per_hour(1).burst(user.len() as u64))
        .clock(ManualClock::new())
        .build();
    for user in ["a", "bb", "ccc", "dd"] {
        assert!(limiter.allow_n(user, user.len() as u64));
        assert!(!limiter.allow(user));
        assert_eq!(limiter.peek(user).limit(), user.len() as u64);
    }
    limiter.clock().advance(Duration::from_secs(3_600));
    limiter.sweep();
    assert_eq!(limiter.len(), 3, "only the one with a burst of one is idle");
}

#[test]
fn a_leaky_queue_delays_each_key_as_long_as_its_own_quota_says() {
    let limiter = KeyedLimiter::<str>::builder(Quota::per_second(1).burst(1))
        .kind(Kind::LeakyQueue)
        .quota_of(|user: &str| Quota::per_second(1).burst(user.len() as u64))
        .clock(ManualClock::new())
        .build();
    for user in ["a", "bbb"] {
        let admitted = (0..10).filter(|_| limiter.check(user).is_admitted()).count();
        let queue = AnyAlgorithm::new(Kind::LeakyQueue, Quota::per_second(1).burst(user.len() as u64));
        let mut held = Held::new(queue);
        let ask = Ask::within(1, queue_patience(Quota::per_second(1).burst(user.len() as u64)));
        let wanted = (0..10).filter(|_| held.decide(Tick::ZERO, ask).is_admitted()).count();
        assert_eq!(admitted, wanted, "{user}");
        assert!(admitted >= user.len(), "{user}: {admitted}");
    }
}

#[test]
fn a_new_quota_for_one_key_gives_no_free_burst() {
    use std::sync::atomic::{AtomicU64, Ordering};
    static BURST: AtomicU64 = AtomicU64::new(4);
    let limiter = KeyedLimiter::<u64>::builder(Quota::per_hour(1))
        .quota_of(|_| Quota::per_hour(1).burst(BURST.load(Ordering::SeqCst)))
        .clock(ManualClock::new())
        .build();
    assert!(limiter.allow_n(&1, 3));
    BURST.store(10, Ordering::SeqCst);
    assert_eq!(limiter.peek_n(&1, 0).limit(), 4, "it is asked once");
    limiter.refresh(&1);
    assert_eq!((limiter.peek_n(&1, 0).limit(), limiter.peek_n(&1, 0).remaining()), (10, 1));
    assert_eq!(limiter.peek_n(&2, 0).remaining(), 10);
}

#[test]
fn a_new_quota_for_all_keys_gives_no_free_burst() {
    let limiter = build_bucket(Quota::per_hour(1).burst(4));
    for key in 0..10_000 {
        assert!(limiter.allow_n(&key, 3));
    }
    limiter.set_quota(Quota::per_hour(2).burst(10));
    limiter.set_quota(Quota::per_hour(2).burst(8));
    assert_eq!(limiter.quota(), Quota::per_hour(2).burst(8));
    for key in 0..10_000 {
        assert_eq!(limiter.peek_n(&key, 0).remaining(), 1);
    }
    limiter.clock().advance(Duration::from_secs(3_600));
    assert_eq!((limiter.peek_n(&5, 0).remaining(), limiter.remaining(&5)), (3, 3));
}

mod at_the_cap {
    use super::*;

    fn capped(keys: usize, at_cap: AtCap) -> KeyedLimiter<u64, TokenBucket, ManualClock> {
        KeyedLimiter::builder(Quota::per_second(1).burst(4))
            .max_keys(keys)
            .at_cap(at_cap)
            .clock(ManualClock::new())
            .build()
    }

    #[test]
    fn idle_keys_go_first_and_do_not_count_as_evicted() {
        let limiter = capped(1_000, AtCap::Evict);
        for key in 0..1_000 {
            assert!(limiter.allow(&key));
        }
        limiter.clock().advance(Duration::from_secs(1));
        for key in 1_000..2_000 {
            assert!(limiter.allow(&key));
        }
        assert!(limiter.len() <= 1_000);
        let stats = limiter.stats();
        assert_eq!(stats.swept + stats.evicted + limiter.len() as u64, 2_000);
        // It looks for idle ones where the new key goes, not in the other shards.
        assert!(stats.evicted < 50, "{} evicted", stats.evicted);
    }

    #[test]
    fn the_fullest_goes_next_and_the_exhausted_last() {
        let limiter = capped(2_000, AtCap::Evict);
        let exhausted = 0..1_000;
        for key in exhausted.clone() {
            assert!(limiter.allow_n(&key, 4));
        }
        for key in 1_000..40_000 {
            assert!(limiter.allow(&key)); // three of four left
        }
        assert!(limiter.len() <= 2_000);
        assert_eq!(limiter.stats().evicted, 38_000);
        for key in exhausted {
            assert!(!limiter.allow(&key), "{key} was forgotten");
        }
    }

    #[test]
    fn what_was_evicted_cannot_be_given_back() {
        let limiter = capped(1, AtCap::Evict);
        let taken = limiter.reserve_n(&1, 3).unwrap();
        for key in 2..100 {
            assert!(limiter.allow(&key));
        }
        assert!(limiter.allow_n(&1, 4), "it was forgotten");
        taken.settle(0);
        assert!(!limiter.allow(&1));
    }

    #[test]
    fn new_keys_are_refused_until_others_are_idle() {
        let limiter = capped(100, AtCap::Refuse);
        for key in 0..100 {
            assert!(limiter.allow_n(&key, 2));
        }
        let refused = limiter.check(&100);
        assert_eq!(refused.retry_after(), Some(Duration::from_secs(2)), "when a slot is free");
        assert_eq!((limiter.len(), limiter.stats().refused), (100, 1));
        assert_eq!(limiter.peek(&100), refused);
        assert!(limiter.peek_n(&100, 0).is_allowed(), "nothing is always allowed");
        assert!(limiter.charge(&5, 1) && !limiter.charge(&100, 1), "who is not known is not charged");
        assert_eq!(limiter.stats().refused, 2, "which is counted");
        assert!(limiter.allow(&5), "who is known is served");
        limiter.clock().advance(Duration::from_secs(3));
        assert!(limiter.allow(&100));
        assert_eq!(limiter.stats().evicted, 0);
    }

    #[test]
    fn a_new_key_is_not_refused_for_ever_where_nobody_is_in_its_way() {
        for seed in 0..50 {
            let limiter = capped(2, AtCap::Refuse);
            let mut keys = seed * 1_000..;
            let known = keys.by_ref().filter(|key| limiter.allow(key)).take(2).count();
            assert_eq!(known, 2);
            let refused = keys.find(|key| !limiter.allow(key)).expect("it is full, sooner or later");
            assert!(!limiter.check(&refused).is_never());
            assert!(limiter.len() <= 3, "one for each shard that has nobody");
            limiter.clock().advance(Duration::from_secs(60));
            assert!(limiter.allow(&refused), "all others are idle");
        }
    }

    #[test]
    fn new_keys_share_one_state() {
        let limiter = capped(100, AtCap::Share);
        for key in 0..100 {
            assert!(limiter.allow_n(&key, 2));
        }
        let foreseen = |key: &u64| {
            let seen = limiter.peek(key);
            assert_eq!(seen, limiter.check(key));
            seen.is_allowed()
        };
        assert_eq!((100..200).filter(foreseen).count(), 4, "one burst for all of them");
        assert_eq!((limiter.len(), limiter.stats().overflowed), (100, 100));
        assert_eq!((limiter.stats().admitted, limiter.stats().denied), (104, 96));
    }

    #[test]
    fn nothing_is_left_to_a_new_key_for_which_there_is_no_room() {
        let limiter = capped(100, AtCap::Refuse);
        assert_eq!(limiter.remaining(&100), 4, "there is room");
        for key in 0..100 {
            assert!(limiter.allow(&key));
        }
        assert_eq!((limiter.remaining(&5), limiter.remaining(&100)), (3, 0));
        assert_eq!(limiter.check_n(&100, 0), limiter.peek_n(&100, 0));
        assert_eq!(limiter.stats().denied, 0, "nothing is always allowed");
        limiter.clock().advance(Duration::from_secs(1));
        assert_eq!(limiter.remaining(&100), 4, "others are idle");
    }

    #[test]
    fn what_is_left_to_a_new_key_is_what_it_shares() {
        let limiter = capped(100, AtCap::Share);
        for key in 0..100 {
            assert!(limiter.allow(&key));
        }
        for left in (0..4).rev() {
            assert!(limiter.allow(&100));
            assert_eq!(
                (limiter.remaining(&5), limiter.remaining(&100), limiter.remaining(&101)),
                (3, left, left)
            );
            assert_eq!(limiter.check_n(&100, 0), limiter.peek_n(&100, 0));
        }
    }

    #[test]
    fn a_look_at_a_full_store_says_what_a_call_would_hear_though_nothing_is_counted() {
        let limiter: KeyedLimiter<u64, TokenBucket, ManualClock> =
            KeyedLimiter::builder(Quota::per_second(1).burst(4))
                .quota_of(
                    |key: &u64| if *key == 100 { Quota::UNLIMITED } else { Quota::per_second(1).burst(4) },
                )
                .max_keys(100)
                .at_cap(AtCap::Refuse)
                .clock(ManualClock::new())
                .build();
        for key in 0..100 {
            assert!(limiter.allow(&key));
        }
        assert!(!limiter.allow(&101), "it is full");
        assert_eq!(limiter.peek(&100), limiter.check(&100));
        assert!(
            limiter.peek(&100).is_allowed() && limiter.remaining(&100) > 4,
            "there is nothing to remember"
        );
        assert_eq!(limiter.peek_n(&101, 5), limiter.check_n(&101, 5));
        assert!(limiter.peek_n(&101, 5).is_never(), "more than there ever is");
    }

    #[test]
    fn a_charge_that_finds_no_room_is_not_a_denial() {
        let limiter = capped(1, AtCap::Refuse);
        limiter.charge(&1, 1);
        for key in 2..100 {
            limiter.charge(&key, 1);
        }
        let stats = limiter.stats();
        assert_eq!((stats.admitted, stats.denied), (0, 0), "nobody asked anything");
        assert_eq!(stats.refused + limiter.len() as u64, 99);
    }

    #[test]
    fn bytes_are_bounded_too() {
        let limiter = KeyedLimiter::<u64>::builder(Quota::per_hour(1).burst(4))
            .max_bytes(1 << 20)
            .clock(ManualClock::new())
            .build();
        for key in 0..200_000 {
            assert!(limiter.allow(&key));
        }
        assert!(limiter.bytes() <= (1 << 20) + (1 << 20) / 20, "{} bytes", limiter.bytes());
        assert!(limiter.len() > 30_000, "{} keys", limiter.len());
        assert_eq!(limiter.stats().evicted + limiter.len() as u64, 200_000);
    }
}

mod histories {
    use super::*;

    const THREADS: [usize; 3] = [2, 8, 64];

    fn quotas() -> [Quota; 6] {
        [
            Quota::per_second(1_000_000).burst(1_000),
            Quota::per_second(100_000).burst(100),
            Quota::per_second(10_000_000).burst(1),
            Quota::per_second(300_000_000).burst(3),
            Quota::per_minute(7).burst(20),
            Quota::per_second(3).burst(5),
        ]
    }

    /// Every thread asks for three keys in turn while it brings in new ones; what each of the three was admitted.
    fn hammer<C: Clock>(
        limiter: &KeyedLimiter<u64, TokenBucket, C>,
        threads: usize,
        calls: usize,
    ) -> [Vec<Operation>; 3] {
        let barrier = Barrier::new(threads);
        std::thread::scope(|scope| {
            let one = |thread: usize| {
                let barrier = &barrier;
                move || {
                    barrier.wait();
                    let mut admitted: [Vec<Operation>; 3] = Default::default();
                    for call in 0..calls {
                        let key = call % 3;
                        let invoke_ns = limiter.clock().now().as_nanos();
                        if limiter.allow(&(key as u64)) {
                            let response_ns = limiter.clock().now().as_nanos();
                            admitted[key].push(Operation { invoke_ns, response_ns, cost: 1 });
                        }
                        let _ = limiter.allow(&((thread * calls + call + 3) as u64));
                    }
                    admitted
                }
            };
            let handles: Vec<_> = (0..threads).map(|thread| scope.spawn(one(thread))).collect();
            let mut all: [Vec<Operation>; 3] = Default::default();
            for handle in handles {
                for (all, one) in all.iter_mut().zip(handle.join().expect("no panic")) {
                    all.extend(one);
                }
            }
            all
        })
    }

    #[test]
    fn no_key_exceeds_its_bound_while_others_come_and_go() {
        for quota in quotas() {
            for threads in THREADS {
                let limiter = KeyedLimiter::builder(quota).clock(MonotonicClock::new()).build();
                for history in hammer(&limiter, threads, 60_000 / threads) {
                    assert!(
                        history.len() as u64 >= quota.burst_size().min(100),
                        "{quota}: the burst was there"
                    );
                    let worst = largest_excess(quota, &history).expect("something was admitted");
                    assert!(!worst.is_violation(), "{quota} with {threads} threads: {worst:?}");
                }
            }
        }
    }

    #[test]
    fn drain_then_idle_until_full_then_burst() {
        for quota in quotas() {
            for threads in THREADS {
                let limiter = KeyedLimiter::builder(quota).clock(ManualClock::new()).build();
                let calls = 3 * (2 * quota.burst_size() as usize / threads + 1);
                let mut all: [Vec<Operation>; 3] = Default::default();
                for _ in 0..4 {
                    for (all, one) in all.iter_mut().zip(hammer(&limiter, threads, calls)) {
                        all.extend(one);
                    }
                    let full = limiter.peek_n(&0, 0).reset_after().expect("it refills");
                    limiter.clock().advance(full);
                }
                for history in all {
                    assert_eq!(history.len() as u64, 4 * quota.burst_size(), "{quota}: full every time");
                    let worst = largest_excess(quota, &history).expect("something was admitted");
                    assert!(!worst.is_violation(), "{quota} with {threads} threads: {worst:?}");
                }
            }
        }
    }
}
