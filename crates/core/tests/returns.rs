//! What comes back, and what is charged, of every kind of limit.

use core::time::Duration;

use tollgate_core::{Algorithm, AnyAlgorithm, AnyState, Ask, GiveBack, Kind, Quota, Tick};

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
