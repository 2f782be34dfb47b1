//! The bounds are kept, and they are reached: a bound that nothing comes near would prove little.

use std::time::Duration;

use fastrand::Rng;
use tollgate_core::{AnyAlgorithm, Ask, Kind, Quota, Tick};
use tollgate_sim::bound::Bound;
use tollgate_sim::history::Operation;
use tollgate_sim::subject::{Held, Subject};
use tollgate_sim::time::VirtualTime;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

/// Asks for one at each of these moments, as often as it is given, and lists what was admitted.
fn greedy(kind: Kind, quota: Quota, moments_ns: &[u64]) -> Vec<Operation> {
    let mut subject = Held::new(AnyAlgorithm::new(kind, quota));
    let mut admitted = Vec::new();
    for at_ns in moments_ns {
        while subject.decide(Tick::from_nanos(*at_ns), Ask::now(1)).is_admitted() {
            admitted.push(Operation::at(*at_ns, 1));
        }
    }
    admitted
}

/// The worst that each algorithm can be brought to with ten a second, from the first of the moments to the last.
#[test]
fn every_bound_is_reached() {
    let quota = Quota::per_second(10);
    let last = SECOND - 1;
    let cases: [(Kind, Vec<u64>); 6] = [
        // All at once, and then as it comes in: 10 + 10.
        (Kind::TokenBucket, (0..=10).map(|tenth| SECOND + tenth * 100 * MS).collect()),
        // Both sides of a boundary.
        (Kind::FixedWindow, vec![last, SECOND]),
        // Everything at the end of a window, one at the start of the next, and nine more by its last tenth.
        (Kind::PacedWindow, (0..10).map(|tenth| SECOND + tenth * 100 * MS).fold(vec![last], push)),
        (Kind::SlidingLog, vec![last, SECOND, 2 * SECOND - 2]),
        (Kind::SubWindows, vec![last, SECOND, 2 * SECOND - 2]),
        // At the end of a window, and again as its weight falls, until one nanosecond before it would all be forgotten.
        (Kind::SlidingCounter, (1..1_000).map(|part| SECOND + part * MS).fold(vec![last], push)),
    ];
    for (kind, moments) in cases {
        let admitted = greedy(kind, quota, &moments);
        let span_ns = moments[moments.len() - 1] - moments[0];
        let most = Bound::of(kind, quota).most_in(span_ns).expect("limited");
        assert_eq!(admitted.len() as u128, most, "{kind} over {span_ns} ns");
        assert_eq!(Bound::of(kind, quota).check(&admitted), Ok(()), "{kind}");
    }
}

fn push(mut moments: Vec<u64>, moment: u64) -> Vec<u64> {
    moments.push(moment);
    moments
}

/// Two hundred rounds of traffic under clocks that drift, jitter and step back: no span by the clock's own readings holds
/// more than the bound says.
#[test]
fn no_span_holds_more_than_the_bound_whatever_the_clock_does() {
    for kind in Kind::ALL {
        for seed in 0..200 {
            let operations = under_a_bad_clock(kind, seed);
            let bound = Bound::of(kind, QUOTA);
            assert_eq!(bound.check(&operations), Ok(()), "{kind}, seed {seed}");
            for first in &operations {
                for last in operations.iter().filter(|last| last.response_ns >= first.invoke_ns) {
                    let within =
                        |o: &&Operation| first.invoke_ns <= o.invoke_ns && o.response_ns <= last.response_ns;
                    let cost: u128 = operations.iter().filter(within).map(|o| u128::from(o.cost)).sum();
                    let most = bound.most_in(last.response_ns - first.invoke_ns).expect("limited");
                    assert!(
                        cost <= most,
                        "{kind}, seed {seed}: {cost} from {first:?} to {last:?}, not {most}"
                    );
                }
            }
        }
    }
}

const QUOTA: Quota = Quota::per_second(5).burst(4);

fn under_a_bad_clock(kind: Kind, seed: u64) -> Vec<Operation> {
    let ms = std::time::Duration::from_millis;
    let mut clock = match seed % 3 {
        0 => VirtualTime::drifting(-200_000),
        1 => VirtualTime::jittering(seed, ms(300)),
        _ => VirtualTime::stepping_back(seed, 20, ms(2_000)),
    };
    let (mut rng, mut subject) = (Rng::with_seed(seed), Held::new(AnyAlgorithm::new(kind, QUOTA)));
    let mut admitted = Vec::new();
    for _ in 0..100 {
        let now = clock.advance(ms(rng.u64(..150)));
        let cost = rng.u64(1..4);
        if subject.decide(now, Ask::now(cost)).is_admitted() {
            admitted.push(Operation::at(now.as_nanos(), cost));
        }
    }
    admitted
}

#[test]
fn a_violation_names_the_span() {
    let one_too_many = [0, 0, 0].map(|at_ns| Operation::at(at_ns, 1));
    let violation = Bound::of(Kind::TokenBucket, Quota::per_second(2)).check(&one_too_many).unwrap_err();
    assert_eq!(violation.to_string(), "3 admitted from 0 ns to 0 ns, where 2 is the most");
    let too_close = [0, 499 * MS].map(|at_ns| Operation::at(at_ns, 1));
    assert!(Bound::of(Kind::LeakyBucket, Quota::per_second(2)).check(&too_close).is_err());
    let too_soon = [0, 499 * MS].map(|at_ns| Operation::at(at_ns, 1));
    assert!(Bound::of(Kind::PacedWindow, Quota::per_second(2)).check(&too_soon).is_err());
    let in_a_second = [500 * MS, 600 * MS, 1_400 * MS].map(|at_ns| Operation::at(at_ns, 1));
    assert!(Bound::of(Kind::SlidingLog, Quota::per_second(2)).check(&in_a_second).is_err());
    assert!(Bound::of(Kind::FixedWindow, Quota::per_second(2)).check(&in_a_second).is_ok());
}

/// Of a call that took a while only that it was decided at some moment of it is known.
#[test]
fn what_may_have_been_in_time_is_no_violation() {
    let operation = |invoke_ns, response_ns| Operation { invoke_ns, response_ns, cost: 1 };
    let leaky = Bound::of(Kind::LeakyBucket, Quota::every(Duration::from_nanos(8)));
    assert_eq!(leaky.check(&[operation(0, 10), operation(7, 8)]), Ok(()), "at 0 and 8");
    assert_eq!(leaky.check(&[operation(0, 16), operation(8, 8)]), Ok(()), "at 0 or 16, and 8");
    assert!(leaky.check(&[operation(1, 10), operation(7, 8)]).is_err(), "never eight apart");
    let paced = Bound::of(Kind::PacedWindow, Quota::per_second(10));
    let across = [1, 2].map(|late| operation(999 * MS, SECOND + late));
    assert_eq!(paced.check(&across), Ok(()), "both in the window before");
    assert!(
        paced.check(&[1, 2].map(|late| operation(SECOND, SECOND + late))).is_err(),
        "two where one may be"
    );
}
