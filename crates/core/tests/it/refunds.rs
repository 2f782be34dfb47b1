//! Giving back without a receipt: what time would restore first, never more than counts, never better than fresh.

use core::time::Duration;

use proptest::prelude::*;
use tollgate_core::{Algorithm, AnyAlgorithm, AnyLevel, AnyState, Ask, Kind, Quota, Tick};

fn at(ms: u64) -> Tick {
    Tick::ZERO + Duration::from_millis(ms)
}

/// An algorithm and its state, asked by hand.
struct Tried {
    algorithm: AnyAlgorithm,
    state: AnyState,
}

impl Tried {
    fn new(kind: Kind, quota: Quota) -> Self {
        Self { algorithm: AnyAlgorithm::new(kind, quota), state: AnyState::default() }
    }

    fn take(&mut self, ms: u64, cost: u64) -> bool {
        self.algorithm.step(&mut self.state, at(ms), Ask::now(cost)).is_allowed()
    }

    /// Whether anything came back.
    fn refund(&mut self, ms: u64, amount: u64) -> bool {
        let change = self.algorithm.refund(&self.state, amount, at(ms));
        let comes_back = change.is_some();
        if let Some(change) = change {
            self.algorithm.apply(&mut self.state, change);
        }
        comes_back
    }

    fn left(&self, ms: u64) -> u64 {
        self.algorithm.decide(&self.state, at(ms), Ask::now(0)).decision.remaining()
    }
}

#[test]
fn a_fresh_state_has_nothing_to_give_back() {
    for kind in Kind::ALL {
        let mut tried = Tried::new(kind, Quota::per_second(5));
        assert!(!tried.refund(0, 1), "{kind}");
        assert!(!tried.refund(1_000, u64::MAX), "{kind}");
        assert_eq!(tried.state, AnyState::default(), "{kind}");
    }
}

#[test]
fn what_was_just_taken_comes_back_and_no_more_than_that() {
    for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::LeakyQueue) {
        let mut tried = Tried::new(kind, Quota::per_second(5));
        let cost = if kind == Kind::PacedWindow { 1 } else { 4 };
        let fresh = tried.left(0);
        assert!(tried.take(0, cost), "{kind}");
        assert!(tried.refund(0, u64::MAX), "{kind}: more than was ever taken");
        assert_eq!(tried.left(0), fresh, "{kind}");
        assert!(!tried.refund(0, 1), "{kind}: it is full");
    }
}

#[test]
fn a_bucket_gets_back_what_time_has_not_restored() {
    let mut bucket = Tried::new(Kind::TokenBucket, Quota::per_second(10).burst(10));
    assert!(bucket.take(0, 10));
    assert!(bucket.refund(400, 3)); // 4 are back already
    assert_eq!(bucket.left(400), 7);
    assert!(bucket.refund(500, 5)); // 8, and only 2 are missing
    assert_eq!(bucket.left(500), 10);
    assert!(bucket.take(500, 10) && !bucket.take(500, 1));
}

#[test]
fn a_debt_is_paid_by_a_refund() {
    let mut bucket = Tried::new(Kind::TokenBucket, Quota::per_second(10).burst(10));
    let debt = bucket.algorithm.charge(&bucket.state, 25, at(0)).unwrap();
    bucket.algorithm.apply(&mut bucket.state, debt);
    assert!(bucket.refund(0, 16));
    assert_eq!(bucket.left(0), 1); // 25 less 16 are 9 of 10
}

#[test]
fn a_window_that_is_over_gets_nothing() {
    for kind in [Kind::FixedWindow, Kind::PacedWindow] {
        let mut window = Tried::new(kind, Quota::per_second(5));
        assert!(window.take(999, 5));
        assert!(!window.refund(1_000, 5), "{kind}");
    }
}

#[test]
fn a_meter_is_free_again_sooner_and_a_queue_keeps_its_promises() {
    let mut meter = Tried::new(Kind::LeakyBucket, Quota::per_second(10).burst(5));
    assert!(meter.take(0, 5) && !meter.take(300, 1));
    assert!(meter.refund(300, 2)); // it cost three: free since 300 ms
    assert!(meter.take(300, 1));
    let mut queue = Tried::new(Kind::LeakyQueue, Quota::per_second(10).burst(5));
    assert!(queue.take(0, 5));
    assert!(!queue.refund(0, 5));
}

#[test]
fn the_oldest_goes_first_where_moments_are_remembered() {
    // Until when the one of 500 ms counts: for a second, or until its part is a second old.
    for (kind, gone) in [(Kind::SlidingLog, 1_500), (Kind::SubWindows, 1_600)] {
        let mut window = Tried::new(kind, Quota::per_second(5));
        assert!(window.take(0, 2) && window.take(500, 2));
        assert!(window.refund(600, 3)); // both of 0 ms and one of 500 ms
        assert_eq!(window.left(600), 4, "{kind}");
        assert!(window.take(600, 4));
        assert_eq!((window.left(gone - 1), window.left(gone)), (0, 1), "{kind}");
    }
}

#[test]
fn a_counter_gives_back_of_the_previous_window_first() {
    let mut counter = Tried::new(Kind::SlidingCounter, Quota::per_second(10));
    assert!(counter.take(900, 8) && counter.take(1_500, 5)); // 4 of the 8 still count
    assert_eq!(counter.left(1_500), 1);
    assert!(counter.refund(1_500, 4));
    assert_eq!(counter.left(1_500), 3, "four of the previous, of which half had faded");
    assert!(counter.refund(1_500, 5));
    assert_eq!(counter.left(1_500), 6, "the other four, and one of the current");
}

fn level_kind() -> impl Strategy<Value = Kind> {
    let kinds: Vec<Kind> =
        Kind::ALL.into_iter().filter(|kind| AnyLevel::new(*kind, Quota::per_second(1)).is_some()).collect();
    prop::sample::select(kinds)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// One word or any: the same answers, whatever is done.
    #[test]
    fn any_level_does_as_any_algorithm(
        kind in level_kind(),
        (count, burst) in (0..20_u64, 0..20_u64),
        calls in prop::collection::vec((0..700_000_000_u64, 0..4_u64, 0..6_u8), 1..40),
        other in 1..20_u64,
    ) {
        let quota = Quota::per_second(count).burst(burst);
        let (mut any, mut one) = (AnyAlgorithm::new(kind, quota), AnyLevel::new(kind, quota).unwrap());
        prop_assert_eq!((any.kind(), Algorithm::patience(&any)), (one.kind(), Algorithm::patience(&one)));
        let (mut state, mut level, mut now) = (AnyState::default(), 0, Tick::ZERO);
        for (pause, cost, act) in calls {
            now = now.plus_nanos(pause);
            let (change, next) = match act {
                0 => (any.charge(&state, cost, now), one.charge(&level, cost, now)),
                1 => (any.refund(&state, cost, now), one.refund(&level, cost, now)),
                2 => {
                    let (wanted, got) = (any.retune(&state, now, Quota::per_second(other)), one.retune(&level, now, Quota::per_second(other)));
                    prop_assert_eq!(wanted.1.level(), got.1);
                    ((any, state), (one, level)) = (wanted, got);
                    continue;
                }
                _ => {
                    let (wanted, got) = (any.decide(&state, now, Ask::now(cost)), one.decide(&level, now, Ask::now(cost)));
                    prop_assert_eq!(wanted.decision, got.decision);
                    prop_assert_eq!(any.is_idle(&state, now), one.is_idle(&level, now));
                    (wanted.change, got.change)
                }
            };
            prop_assert_eq!(change.is_some(), next.is_some());
            if let (Some(change), Some(next)) = (change, next) {
                prop_assert_eq!(any.fall(&state, &change), one.fall(&level, &next));
                any.apply(&mut state, change);
                one.apply(&mut level, next);
            }
            prop_assert_eq!(state.level(), level);
        }
    }

    /// After any refund a state is at most as good as a fresh one, and at least as good as before.
    #[test]
    fn a_refund_never_makes_a_state_better_than_fresh(
        kind in prop::sample::select(Kind::ALL.to_vec()),
        count in 1..20_u64,
        calls in prop::collection::vec((0..700_u64, 0..5_u64, any::<bool>()), 1..40),
        later in 0..3_000_u64,
    ) {
        let mut tried = Tried::new(kind, Quota::per_second(count));
        let mut ms = 0;
        for (pause, cost, takes) in calls {
            ms += pause;
            if takes {
                let _ = tried.take(ms, cost);
                continue;
            }
            let before = tried.left(ms);
            let _ = tried.refund(ms, cost);
            let fresh = Tried::new(kind, Quota::per_second(count));
            prop_assert!(tried.left(ms) >= before && tried.left(ms) <= fresh.left(ms));
            prop_assert!(tried.left(ms + later) <= fresh.left(ms + later));
        }
    }
}
