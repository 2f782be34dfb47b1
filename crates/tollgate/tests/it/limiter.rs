//! The verbs of a limiter, and the awkward cases by name.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tollgate::cell::Held;
use tollgate::{
    Clock, CoarseClock, KeyedLimiter, Kind, LeakyBucket, Limiter, ManualClock, MonotonicClock, Quota,
    Sometimes, SubWindows, Tick, Verdict,
};
use tollgate_sim::history::{Operation, fullest_trailing};

fn manual(quota: Quota) -> (Limiter<tollgate::TokenBucket, ManualClock>, ManualClock) {
    let clock = ManualClock::new();
    (Limiter::builder(quota).clock(clock.clone()).build(), clock)
}

fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn a_decision_tells_all() {
    let (limiter, _clock) = manual(Quota::per_second(10).burst(5));
    let decision = limiter.check_n(2);
    assert_eq!(decision.verdict(), Verdict::Allow);
    assert_eq!((decision.limit(), decision.remaining()), (5, 3));
    assert_eq!((decision.retry_after(), decision.reset_after()), (Some(Duration::ZERO), Some(millis(200))));
    let refused = limiter.check_n(4);
    assert_eq!(refused.verdict(), Verdict::Deny);
    assert_eq!((refused.limit(), refused.remaining()), (5, 3));
    assert_eq!((refused.retry_after(), refused.reset_after()), (Some(millis(100)), Some(millis(200))));
}

#[test]
fn a_look_says_what_a_check_then_says() {
    for kind in Kind::ALL {
        let (clock, mut rng) = (ManualClock::new(), fastrand::Rng::with_seed(4));
        let quota = Quota::per_second(7).burst(3);
        let one = Limiter::builder(quota).kind(kind).clock(clock.clone()).build();
        let each = KeyedLimiter::<u64>::builder(quota).kind(kind).clock(clock.clone()).build();
        for step in 0..500 {
            let n = rng.u64(..3);
            assert_eq!(one.peek_n(n), one.check_n(n), "{kind:?}, step {step}");
            assert_eq!(each.peek_n(&1, n), each.check_n(&1, n), "{kind:?}, step {step}, of a key");
            clock.advance(millis(rng.u64(..200)));
        }
    }
}

#[test]
fn retry_after_is_true_to_the_nanosecond_for_every_algorithm() {
    for kind in Kind::ALL {
        for quota in [Quota::per_second(7).burst(3), Quota::per_minute(17).burst(2), Quota::per_second(3)] {
            let limiter = Limiter::builder(quota).kind(kind).clock(ManualClock::new()).build();
            let mut now = Tick::from_nanos(123_456_789);
            for _ in 0..20 {
                while limiter.allow_at(now) {}
                let wait = limiter.peek_within_at(1, Duration::ZERO, now).retry_after().expect("it refills");
                let early = Tick::from_nanos((now + wait).as_nanos() - 1);
                assert!(!limiter.allow_at(early), "{kind} {quota}: not one nanosecond sooner");
                now = now + wait;
                assert!(limiter.allow_at(now), "{kind} {quota}: at that very moment");
            }
        }
    }
}

#[test]
fn peeking_takes_nothing() {
    for kind in Kind::ALL {
        let limiter = Limiter::builder(Quota::per_second(1)).kind(kind).clock(ManualClock::new()).build();
        for _ in 0..3 {
            assert!(limiter.peek().is_allowed(), "{kind}");
        }
        assert!(limiter.allow(), "{kind}");
        assert!(!limiter.peek().is_allowed(), "{kind}");
    }
}

#[test]
fn unlimited_zero_and_never_have_named_answers() {
    for kind in Kind::ALL {
        let build = |quota| Limiter::builder(quota).kind(kind).clock(ManualClock::new()).build();
        let unlimited = build(Quota::UNLIMITED);
        assert!(unlimited.allow_n(u64::MAX) && unlimited.allow_n(u64::MAX), "{kind}");
        assert_eq!(unlimited.check().remaining(), u64::MAX, "{kind}");

        let limiter = build(Quota::per_second(5).burst(5));
        let never = limiter.check_n(6);
        assert!(never.is_never() && !never.is_admitted(), "{kind}: above the limit");
        let refused = limiter.reserve_n(6).unwrap_err();
        assert!(refused.0.is_never(), "{kind}");
        assert!(
            refused.to_string().starts_with("never available: the cost exceeds the limit of 5"),
            "{kind}: {refused}"
        );
        assert!(limiter.check_n(0).is_allowed(), "{kind}: nothing costs nothing");
        assert!(limiter.peek().is_allowed(), "{kind}: and nothing was taken");

        let nothing = build(Quota::per_second(0).burst(0));
        assert!(nothing.check().is_never(), "{kind}: a quota of nothing");
    }
    let (dry, clock) = manual(Quota::per_second(0).burst(2));
    assert!(dry.allow_n(2));
    clock.advance(Duration::from_secs(3_600));
    assert!(dry.check().is_never(), "rate zero never refills");
    assert_eq!(dry.check().reset_after(), None);
}

#[test]
fn the_ends_of_time_neither_panic_nor_open_the_gate() {
    for kind in Kind::ALL {
        let limiter = Limiter::builder(Quota::per_second(10)).kind(kind).clock(ManualClock::new()).build();
        let ends = [0, 1, u64::MAX - 1, u64::MAX, 1 << 59, (1 << 59) - 1, 0, u64::MAX];
        let admitted: u64 = ends
            .iter()
            .flat_map(|now| (0..100).map(move |_| Tick::from_nanos(*now)))
            .map(|now| u64::from(limiter.allow_at(now)) + u64::from(limiter.reserve_n_at(3, now).is_ok()) * 3)
            .sum();
        // Eight visits; at each at most what two windows hold, and what was promised for later.
        assert!(admitted <= 8 * (20 + 3 * 100), "{kind}: {admitted}");
        assert!(limiter.peek_n_at(u64::MAX, Tick::MAX).is_never(), "{kind}");
    }
}

#[test]
fn a_clock_that_steps_back_only_refuses() {
    let (limiter, clock) = manual(Quota::per_second(10).burst(2));
    clock.advance(Duration::from_secs(10));
    assert!(limiter.allow_n(2));
    clock.set(Tick::from_nanos(5_000_000_000));
    assert_eq!(
        limiter.check().retry_after(),
        Some(millis(5_100)),
        "it waits for the time it has already seen"
    );
    clock.advance(millis(5_100));
    assert!(limiter.allow());
    assert!(!limiter.allow());
}

#[test]
fn a_new_quota_is_no_free_burst() {
    let (limiter, clock) = manual(Quota::per_second(10).burst(10));
    assert!(limiter.allow_n(8));
    limiter.set_quota(Quota::per_second(10).burst(1_000));
    assert_eq!(limiter.peek_n(0).remaining(), 2, "what is left stays left");
    limiter.set_quota(Quota::per_hour(3_600).burst(1));
    assert_eq!(limiter.peek_n(0).remaining(), 1, "a smaller bucket holds less");
    assert!(limiter.allow());
    clock.advance(Duration::from_secs(1));
    assert!(limiter.allow() && !limiter.allow(), "the new rate holds from now on");
    assert_eq!(limiter.quota(), Quota::per_hour(3_600).burst(1));
}

#[test]
fn a_quota_can_change_often_without_losing_anything() {
    let (limiter, clock) = manual(Quota::per_second(1_000).burst(2));
    assert!(limiter.allow_n(2));
    let mut admitted = 0;
    for round in 0..100_000_u64 {
        limiter.set_quota(
            [Quota::per_second(101), Quota::per_minute(7), Quota::per_second(3_000)][round as usize % 3],
        );
        limiter.set_quota(Quota::per_second(1_000).burst(2));
        clock.advance(Duration::from_micros(100));
        admitted += u64::from(limiter.allow());
    }
    // 10 s at 1 000/s. Each change rounds what is left against the caller, by a few millionths of a token.
    assert!((9_990..=10_000).contains(&admitted), "{admitted}");
}

#[test]
fn clones_share_one_state() {
    let (limiter, _clock) = manual(Quota::per_second(1));
    assert!(limiter.clone().allow());
    assert!(!limiter.allow());
}

#[test]
fn settling_for_less_gives_back_only_what_time_has_not() {
    let (limiter, clock) = manual(Quota::per_second(10).burst(10));
    let estimate = limiter.reserve_n(10).unwrap();
    clock.advance(millis(700)); // seven are back already
    estimate.settle(2);
    assert_eq!(limiter.peek_n(0).remaining(), 10, "not fifteen");
    let estimate = limiter.reserve_n(10).unwrap();
    clock.advance(millis(100));
    estimate.settle(10);
    assert_eq!(limiter.peek_n(0).remaining(), 1);
}

/// A clock during whose next reading something else happens, as if whoever reads it were held up just then.
#[derive(Clone, Default)]
struct HeldUp {
    clock: ManualClock,
    meanwhile: Arc<Mutex<Option<Deed>>>,
}

type Deed = Box<dyn FnOnce() + Send>;

impl std::fmt::Debug for HeldUp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.clock.fmt(f)
    }
}

impl Clock for HeldUp {
    fn now(&self) -> Tick {
        let now = self.clock.now();
        let meanwhile = self.meanwhile.lock().unwrap().take();
        if let Some(happens) = meanwhile {
            happens();
        }
        now
    }
}

/// Law 7, whatever the time at which others take: they come between a reading and what is done by it.
#[test]
fn settling_by_a_reading_that_others_have_overtaken_gives_back_nothing_twice() {
    let clock = HeldUp::default();
    let limiter = Limiter::builder(Quota::per_second(10).burst(10)).clock(clock.clone()).build();
    let taken = limiter.reserve_n(10).unwrap();
    let (other, manual) = (limiter.clone(), clock.clock.clone());
    *clock.meanwhile.lock().unwrap() = Some(Box::new(move || {
        manual.advance(Duration::from_secs(1)); // all ten are there again
        assert!(other.allow_n(5));
    }));
    taken.settle(0);
    assert!(clock.meanwhile.lock().unwrap().is_none(), "the others came");
    assert_eq!((0..20).filter(|_| limiter.allow()).count(), 5, "ten in all, at one moment");
}

#[test]
fn an_estimate_of_nothing_can_be_settled() {
    let (limiter, _clock) = manual(Quota::per_second(1).burst(10));
    limiter.reserve_n(0).unwrap().settle(5);
    assert_eq!(limiter.remaining(), 5);
    limiter.wait_n(0).block().unwrap().settle(2);
    assert_eq!(limiter.remaining(), 3);
    // What began when nothing was limited is not counted.
    limiter.set_quota(Quota::UNLIMITED);
    let free = limiter.reserve_n(4).unwrap();
    limiter.set_quota(Quota::per_second(1).burst(10));
    let before = limiter.remaining();
    free.settle(9);
    assert_eq!(limiter.remaining(), before);
}

#[test]
fn overlapping_estimates_can_be_settled() {
    let (limiter, _clock) = manual(Quota::per_second(10).burst(100));
    let estimates: Vec<_> = (0..4).map(|_| limiter.reserve_n(20).unwrap()).collect();
    for estimate in estimates {
        estimate.settle(5);
    }
    assert_eq!(limiter.peek_n(0).remaining(), 80, "four times five are used");

    // The other way round less is certain to come back, and never too much.
    let (limiter, _clock) = manual(Quota::per_second(10).burst(100));
    let estimates: Vec<_> = (0..4).map(|_| limiter.reserve_n(20).unwrap()).collect();
    for estimate in estimates.into_iter().rev() {
        estimate.settle(5);
    }
    let remaining = limiter.peek_n(0).remaining();
    assert!((20 + 15..=80).contains(&remaining), "{remaining}");
}

#[test]
fn a_claim_outlives_a_change_of_quota() {
    let (limiter, clock) = manual(Quota::per_second(2).burst(2));
    let early = limiter.reserve_n(2).unwrap();
    clock.advance(Duration::from_secs(1)); // both are back
    limiter.set_quota(Quota::per_second(2).burst(8));
    early.settle(0);
    assert_eq!(limiter.peek_n(0).remaining(), 2, "what time had restored does not come back twice");

    let (limiter, _clock) = manual(Quota::per_second(2).burst(4));
    let estimate = limiter.reserve_n(4).unwrap();
    limiter.set_quota(Quota::per_minute(7).burst(8));
    estimate.settle(1);
    assert_eq!(limiter.peek_n(0).remaining(), 3);
    assert!(limiter.allow_n(3) && !limiter.allow());
}

#[test]
fn cancelling_too_late_changes_nothing() {
    let (limiter, clock) = manual(Quota::per_second(10).burst(1));
    let first = limiter.reserve_n(1).unwrap();
    clock.advance(Duration::from_nanos(1));
    first.cancel();
    assert!(!limiter.allow());
}

#[test]
fn a_leaky_queue_spaces_calls_out() {
    let clock = ManualClock::new();
    let limiter =
        Limiter::builder(Quota::per_second(10).burst(3)).algorithm(LeakyBucket::queue).clock(clock).build();
    let delays: Vec<_> = (0..4).map(|_| limiter.check().delay()).collect();
    assert_eq!(delays, [0, 100, 200, 300].map(millis));
    assert_eq!(limiter.check().verdict(), Verdict::Deny);
    assert!(!limiter.allow(), "allow does not wait");
}

#[test]
fn sometimes_runs_once_an_interval() {
    let clock = ManualClock::new();
    let sometimes = Sometimes::with_clock(clock.clone()).interval(Duration::from_secs(10));
    let mut ran = Vec::new();
    for second in 0..30 {
        sometimes.run(|| ran.push(second));
        clock.advance(Duration::from_secs(1));
    }
    assert_eq!(ran, [0, 10, 20]);
}

#[test]
fn sometimes_adds_up_its_conditions() {
    let clock = ManualClock::new();
    let sometimes = Sometimes::with_clock(clock.clone()).first(2).every(7).interval(Duration::from_secs(100));
    let ran: Vec<_> =
        (0..20).filter(|_| sometimes.run(|| clock.advance(Duration::from_secs(1))).is_some()).collect();
    assert_eq!(ran, [0, 1, 7, 14]);
    clock.advance(Duration::from_secs(100));
    assert!(sometimes.run(|| ()).is_some());
}

#[test]
fn clocks_go_forward_and_agree() {
    let (monotonic, default) = (MonotonicClock::new(), tollgate::DefaultClock::new());
    let start = (monotonic.now(), default.now());
    while monotonic.now().since(start.0) < millis(20) {
        std::hint::spin_loop();
    }
    let (a, b) = (monotonic.now().since(start.0), default.now().since(start.1));
    let difference = a.abs_diff(b);
    assert!(difference < a / 20, "{a:?} by one clock, {b:?} by the other");
}

#[test]
fn a_coarse_clock_is_wound_in_the_background() {
    let coarse = CoarseClock::new(Duration::from_micros(100));
    let start = coarse.now();
    while coarse.now() < start + millis(2) {
        std::hint::spin_loop(); // ends because somebody else moves it
    }
    let limiter = Limiter::builder(Quota::per_day(1)).clock(coarse).build();
    assert!(limiter.allow() && !limiter.allow());
}

#[test]
fn what_is_left_is_counted_right_where_a_token_is_one_unit() {
    let (limiter, _clock) = manual(Quota::per_second(1_000_000_000).burst(10));
    assert_eq!(limiter.check().remaining(), 9);
    assert_eq!(limiter.remaining(), 9);
}

#[test]
fn a_leaky_queue_stays_a_queue_whatever_quota_it_had() {
    let clock = ManualClock::new();
    let quota = Quota::per_second(10).burst(3);
    let limiter = Limiter::builder(quota).algorithm(LeakyBucket::queue).clock(clock).build();
    for detour in [Quota::UNLIMITED, Quota::per_second(0).burst(0)] {
        limiter.set_quota(detour);
        limiter.set_quota(quota);
    }
    assert_eq!((limiter.check().delay(), limiter.check().delay()), (Duration::ZERO, millis(100)));
}

#[test]
fn a_new_quota_forgets_no_promise() {
    for kind in
        [Kind::SubWindows, Kind::SlidingCounter, Kind::SlidingLog, Kind::FixedWindow, Kind::TokenBucket]
    {
        let quota = Quota::per_second(10);
        let limiter = Limiter::builder(quota).kind(kind).clock(ManualClock::new()).build();
        let promised = (0..4).map(|_| limiter.reserve_n(10).unwrap().act_time()).max().unwrap();
        limiter.set_quota(quota);
        let next = limiter.reserve_n(10).unwrap().act_time();
        assert!(next > promised, "{kind}: {next} is not after {promised}");
    }
}

#[test]
fn a_level_that_fell_does_not_come_back_after_a_change_of_quota() {
    // Claims of the old quota that are given back after changes must leave the new bucket whole.
    let (limiter, _clock) = manual(Quota::per_second(10).burst(100));
    let (first, second) = (limiter.reserve_n(40).unwrap(), limiter.reserve_n(40).unwrap());
    first.settle(10);
    limiter.set_quota(Quota::per_second(1_000_000_000).burst(100));
    assert_eq!(limiter.remaining(), 50);
    second.settle(0);
    assert_eq!(limiter.remaining(), 90);
    limiter.set_quota(Quota::per_minute(7).burst(95));
    assert_eq!(limiter.remaining(), 90);
    assert!(limiter.allow_n(90) && !limiter.allow());
}

/// What can be had at once.
fn drain<A: Held>(limiter: &Limiter<A, ManualClock>) -> u64 {
    (0..100).take_while(|_| limiter.allow()).count() as u64
}

#[test]
fn a_reset_forgives_whatever_is_owed() {
    let quota = Quota::per_second(20).burst(5);
    for kind in Kind::ALL {
        let clock = ManualClock::new();
        let build = || Limiter::builder(quota).kind(kind).clock(clock.clone()).build();
        let limiter = build();
        for round in 0..5 {
            clock.advance(millis(1_234));
            assert!(limiter.allow(), "{kind}, round {round}");
            limiter.charge(u64::MAX);
            limiter.charge(1);
            assert!(!limiter.allow(), "{kind}, round {round}");
            limiter.reset();
            assert_eq!(limiter.peek(), build().peek(), "{kind}, round {round}");
            limiter.set_quota(quota);
            assert_eq!(limiter.peek(), build().peek(), "{kind}, round {round}, after a change of quota");
            assert_eq!(drain(&limiter), drain(&build()), "{kind}, round {round}");
        }
    }
}

#[test]
fn a_reset_forgives_what_was_owed_before_a_change_of_quota() {
    for kind in Kind::ALL {
        let clock = ManualClock::new();
        let build = |quota| Limiter::builder(quota).kind(kind).clock(clock.clone()).build();
        let (limiter, quota) = (build(Quota::per_second(20).burst(5)), Quota::per_minute(7).burst(3));
        clock.advance(millis(1_234));
        limiter.charge(u64::MAX);
        limiter.set_quota(quota);
        assert!(!limiter.allow(), "{kind}");
        limiter.reset();
        assert_eq!(limiter.peek(), build(quota).peek(), "{kind}");
        assert_eq!(drain(&limiter), drain(&build(quota)), "{kind}");
    }
}

#[test]
fn nothing_that_was_taken_before_a_reset_comes_back() {
    let quota = Quota::per_second(20).burst(5);
    for kind in Kind::ALL {
        for changes in 0..3 {
            let clock = ManualClock::new();
            let limiter = Limiter::builder(quota).kind(kind).clock(clock).build();
            let promises: Vec<_> = (0..8).map(|_| limiter.reserve().unwrap()).collect();
            limiter.reset();
            (0..changes).for_each(|_| limiter.set_quota(quota));
            assert!(drain(&limiter) > 0, "{kind}");
            for (index, promise) in promises.into_iter().enumerate() {
                if index % 2 == 0 {
                    promise.settle(0);
                } else {
                    promise.cancel();
                }
                assert!(!limiter.allow(), "{kind}, {changes} changes");
            }
        }
    }
}

#[test]
fn a_reset_gives_no_more_than_a_burst_where_something_is_on_lease() {
    let quota = Quota::per_second(1).burst(10_000);
    let limiter = Limiter::builder(quota).clock(ManualClock::new()).sharded().build();
    assert!(limiter.allow(), "and with it a lease");
    limiter.reset();
    let admitted = (0..20_000).take_while(|_| limiter.allow()).count();
    assert!((9_000..=10_000).contains(&admitted), "{admitted}");
}

#[test]
fn every_verb_has_a_twin_that_is_told_the_time() {
    let quota = Quota::per_second(10).burst(3);
    let ((by_clock, clock), (told, stopped)) = (manual(quota), manual(quota));
    for _ in 0..20 {
        clock.advance(millis(130));
        let (now, far) = (clock.now(), Duration::from_secs(9));
        assert_eq!(by_clock.remaining(), told.remaining_at(now));
        assert_eq!(by_clock.allow(), told.allow_at(now));
        assert_eq!(by_clock.check_n(2), told.check_n_at(2, now));
        assert_eq!(by_clock.peek_n(2), told.peek_n_at(2, now));
        assert_eq!(by_clock.peek_within(2, far), told.peek_within_at(2, far, now));
        assert_eq!(by_clock.reserve().unwrap().act_time(), told.reserve_at(now).unwrap().act_time());
        by_clock.charge(1);
        told.charge_at(1, now);
        by_clock.set_quota(quota.burst(4));
        told.set_quota_at(quota.burst(4), now);
        assert_eq!(by_clock.peek(), told.peek_at(now));
        by_clock.reset();
        told.reset_at(now);
        assert_eq!(by_clock.check(), told.check_at(now));
    }
    assert_eq!(stopped.now(), Tick::ZERO);
}

#[cfg(feature = "tokio")]
#[test]
fn tokios_clock_tells_one_time_on_every_thread() {
    let build =
        || tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let (runtime, other) = (build(), build());
    let hour = Duration::from_secs(3_600);
    let clock = runtime.block_on(async {
        let clock = tollgate::TokioClock::new();
        tokio::time::advance(hour).await;
        clock
    });
    let inside = runtime.block_on(async { clock.now() });
    assert_eq!(inside, Tick::ZERO + hour);
    assert_eq!(clock.now(), inside, "on no runtime");
    assert_eq!(other.block_on(async { clock.now() }), inside, "on another");
    let thread = std::thread::spawn(move || clock.now());
    assert_eq!(thread.join().unwrap(), inside, "on another thread");
}

#[test]
fn an_estimate_is_settled_though_the_quota_changed_up_to_eight_times_since() {
    for kind in Kind::ALL {
        for changes in [0, 1, 2, 8, 9] {
            let quota = Quota::per_second(100).burst(100);
            let limiter = Limiter::builder(quota).kind(kind).clock(ManualClock::new()).build();
            let reserved = limiter.reserve().unwrap();
            for more in 0..changes {
                limiter.set_quota(Quota::per_second(100 + more % 2).burst(100));
            }
            let before = limiter.remaining();
            reserved.settle(0);
            assert_eq!(limiter.remaining() > before, changes <= 8, "{kind}, {changes} changes");
        }
    }
}

#[test]
fn sliding_windows_whose_quota_is_set_again_go_on_as_if_it_were_not() {
    let quota = Quota::per_second(10);
    let kinds = [Kind::SlidingLog, Kind::SlidingCounter, Kind::SubWindows];
    for (kind, seed) in kinds.iter().flat_map(|kind| (0..200).map(move |seed| (*kind, seed))) {
        let (clock, mut rng) = (ManualClock::new(), fastrand::Rng::with_seed(seed));
        let both = [(); 2].map(|()| Limiter::builder(quota).kind(kind).clock(clock.clone()).build());
        let (mut taken, mut changes) = (Vec::new(), 0);
        for step in 0..200 {
            let (n, patience) = (rng.u64(1..5), millis(rng.u64(..2_000)));
            match rng.u8(..4) {
                0 => clock.advance(millis(rng.u64(..400))),
                1 => {
                    both[1].set_quota(quota);
                    changes += 1;
                    taken.retain(|(since, _, _): &(u64, _, _)| changes - since <= 8); // what is older gives nothing back
                }
                2 => {
                    let mut pair = both.each_ref().map(|limiter| limiter.reserve_within(n, patience).ok());
                    let pair = pair[0].take().zip(pair[1].take());
                    taken.extend(pair.map(|(one, other)| (changes, one, other)));
                }
                _ if taken.is_empty() => {}
                _ => {
                    let (_, one, other) = taken.swap_remove(rng.usize(..taken.len()));
                    let actual = rng.u64(..3);
                    one.settle(actual);
                    other.settle(actual);
                }
            }
            let [one, other] = both.each_ref().map(|limiter| limiter.peek_within(n, patience));
            assert_eq!(one, other, "{kind}, seed {seed}, step {step}");
        }
    }
}

/// Sub-windows promise the most, so with them whatever came back twice would show.
#[test]
fn what_comes_back_after_changes_of_the_count_keeps_the_greatest_of_their_bounds() {
    for seed in 0..500 {
        let (clock, mut rng) = (ManualClock::new(), fastrand::Rng::with_seed(seed));
        let builder = Limiter::builder(Quota::per_second(10)).algorithm(SubWindows::new);
        let limiter = builder.clock(clock.clone()).build();
        let (mut history, mut taken) = (Vec::new(), Vec::new());
        for _ in 0..300 {
            match rng.u8(..4) {
                0 => clock.advance(millis(rng.u64(..300))),
                1 => limiter.set_quota(Quota::per_second(rng.u64(3..=10))),
                2 => {
                    let (n, patience) = (rng.u64(1..4), millis(rng.u64(..1_500)));
                    if let Ok(reserved) = limiter.reserve_within(n, patience) {
                        history.push(Operation::at(reserved.act_time().as_nanos(), n));
                        taken.push((history.len() - 1, reserved));
                    }
                }
                _ if taken.is_empty() => {}
                _ => {
                    let (index, reserved) = taken.swap_remove(rng.usize(..taken.len()));
                    history[index].cost = rng.u64(..history[index].cost);
                    reserved.settle(history[index].cost);
                }
            }
        }
        let fullest = fullest_trailing(1_000_000_000, &history).expect("something was admitted").cost;
        assert!((1..=10).contains(&fullest), "{fullest} in a second, seed {seed}");
    }
}
