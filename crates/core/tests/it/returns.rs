//! What comes back, and what is charged, of every kind of limit.

use core::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use tollgate_core::{Algorithm, AnyAlgorithm, AnyState, Ask, GiveBack, Kind, Log, Quota, SlidingLog, Tick};

/// So late in its window that all of it may be had of a paced one.
const NOW: Tick = Tick::from_nanos(60_000_000_000 - 1);

fn limit(kind: Kind) -> (AnyAlgorithm, AnyState) {
    (AnyAlgorithm::new(kind, Quota::per_minute(10)), AnyState::default())
}

fn at_once(algorithm: &AnyAlgorithm, state: &AnyState, cost: u64) -> bool {
    algorithm.decide(state, NOW, Ask::now(cost)).decision.is_allowed()
}

/// The most that can be had at once of a fresh one.
fn most(kind: Kind) -> u64 {
    let (algorithm, state) = limit(kind);
    (1..=10).rev().find(|cost| at_once(&algorithm, &state, *cost)).expect("one at least")
}

#[test]
fn what_is_given_back_can_be_had_again() {
    for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::LeakyQueue) {
        let ((algorithm, mut state), most) = (limit(kind), most(kind));
        let change = algorithm.decide(&state, NOW, Ask::now(most)).change.expect("it admits");
        let claim = algorithm.claim(&change, most, NOW);
        algorithm.apply(&mut state, change);
        assert!(!at_once(&algorithm, &state, 1), "{kind}: all is taken");
        let back = GiveBack { claim, amount: most, ahead: NOW };
        let change = algorithm.give_back(&state, back, NOW).expect("nobody came after");
        algorithm.apply(&mut state, change);
        assert!(at_once(&algorithm, &state, most), "{kind}: all is back");
        assert!(!at_once(&algorithm, &state, most + 1), "{kind}: and no more");
    }
}

#[test]
fn what_is_charged_cannot_be_had() {
    for kind in Kind::ALL {
        let ((algorithm, mut state), most) = (limit(kind), most(kind));
        let change = algorithm.charge(&state, most, NOW).expect("it counts");
        algorithm.apply(&mut state, change);
        assert!(!at_once(&algorithm, &state, 1), "{kind}");
        let wait = algorithm.decide(&state, NOW, Ask::now(1)).decision.retry_after();
        assert!(
            wait.is_some_and(|wait| wait > Duration::ZERO && wait <= Duration::from_secs(66)),
            "{kind}: {wait:?}"
        );
    }
}

/// Law 7: two that lie on each other, the last one first.
#[test]
fn the_last_that_was_taken_is_known() {
    for kind in [Kind::TokenBucket, Kind::LeakyBucket, Kind::LeakyQueue, Kind::FixedWindow, Kind::PacedWindow]
    {
        let (algorithm, mut state) = limit(kind);
        let mut take = || {
            let step = algorithm.decide(&state, NOW, Ask::whenever(1));
            let change = step.change.expect("in time");
            let claim = algorithm.claim(&change, 1, NOW + step.decision.delay());
            algorithm.apply(&mut state, change);
            claim
        };
        let [first, second] = [take(), take()];
        assert!(!algorithm.is_last(&state, &first) && algorithm.is_last(&state, &second), "{kind}");
    }
}

/// Law 6: what a log forgot still counts for a clock that is behind, though nothing is left in it that would tell.
#[test]
fn an_empty_log_has_not_forgotten_by_when_it_forgot() {
    let log = SlidingLog::new(Quota::per_second(5));
    let (mut state, second) = (Log::default(), Tick::from_nanos(1_000_000_000));
    assert!(log.step(&mut state, Tick::ZERO, Ask::now(5)).is_allowed());
    let change = log.decide(&state, second, Ask::now(1)).change.expect("the five have left");
    let claim = log.claim(&change, 1, second);
    log.apply(&mut state, change);
    let back = log.give_back(&state, GiveBack { claim, amount: 1, ahead: second }, second);
    log.apply(&mut state, back.expect("it counts"));
    let behind = Tick::from_nanos(999_999_999);
    let mut words = Vec::new();
    log.write_state(&state, &mut words);
    for mut state in [log.read_state(&words).expect("as it was written"), state] {
        let decision = log.decide(&state, behind, Ask::now(1)).decision;
        assert_eq!((decision.is_allowed(), decision.remaining()), (false, 0));
        assert_eq!(decision.retry_after(), Some(Duration::from_nanos(1)));
        assert!(!log.is_idle(&state, behind) && log.is_idle(&state, second));
        assert!(log.step(&mut state, second, Ask::now(5)).is_allowed());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    /// What is left can be had, and what cannot be had is not left: with promises, and by a clock that is behind.
    #[test]
    fn what_is_left_can_be_had(
        kind in select(Kind::ALL.to_vec()),
        count in select(vec![0, 3, 10]),
        calls in vec((0..30_u64, 1..4_u64, select(vec![0, 0, 100, 700, 3_000])), 1..12),
    ) {
        let algorithm = AnyAlgorithm::new(kind, Quota::per_second(count).burst(count.max(5)));
        let mut state = AnyState::default();
        for (at, cost, patience) in calls {
            let now = Tick::from_nanos(at * 100_000_000);
            let told = algorithm.step(&mut state, now, Ask::within(cost, Duration::from_millis(patience)));
            let can_be_had = |cost| algorithm.decide(&state, now, Ask::within(cost, algorithm.patience())).decision.is_admitted();
            let left = algorithm.decide(&state, now, Ask::now(0)).decision.remaining();
            prop_assert_eq!(told.remaining(), left);
            prop_assert!(left == 0 || can_be_had(left), "{} at {}", left, now);
            // One may leave a queue as the next comes in.
            prop_assert!(kind == Kind::LeakyQueue || !can_be_had(left + 1), "more than {} at {}", left, now);
        }
    }
}
