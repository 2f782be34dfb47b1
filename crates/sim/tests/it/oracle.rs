//! Three million random sequences of questions against the exact oracle.

use std::thread;

use tollgate_core::{
    AnyAlgorithm, FixedWindow, Kind, LeakyBucket, PacedWindow, Quota, SlidingCounter, SlidingLog, SubWindows,
    TokenBucket,
};
use tollgate_sim::Outcome;
use tollgate_sim::compare::{self, Difference};
use tollgate_sim::oracle;
use tollgate_sim::subject::{Held, Subject};

/// Sequences for each algorithm; eight algorithms make three million and a bit.
const SEQUENCES: u64 = 400_000;

/// What came of many sequences.
#[derive(Default)]
struct Outcomes {
    differences: Vec<Difference>,
    questions: u64,
    rounded: u64,
}

fn outcomes<S: Subject>(kind: Kind, make: impl Fn(Quota) -> S, seeds: std::ops::Range<u64>) -> Outcomes {
    let mut all = Outcomes::default();
    for seed in seeds {
        match compare::sequence(kind, &make, seed) {
            Ok(agreement) => {
                all.questions += u64::from(agreement.questions);
                all.rounded += u64::from(agreement.rounded);
            }
            Err(difference) => all.differences.push(difference),
        }
    }
    all
}

/// Runs every second seed on each of two cores, and reports the first few differences.
fn agrees<S: Subject>(kind: Kind, make: impl Fn(Quota) -> S + Sync) {
    let halves = [0..SEQUENCES / 2, SEQUENCES / 2..SEQUENCES];
    let found = thread::scope(|scope| {
        let workers = halves.map(|seeds| scope.spawn(|| outcomes(kind, &make, seeds)));
        workers.map(|worker| worker.join().expect("a worker panicked"))
    });
    let differences: Vec<&Difference> = found.iter().flat_map(|half| &half.differences).collect();
    let shown: Vec<String> = differences.iter().take(5).map(ToString::to_string).collect();
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), shown.join("\n"));
    // Of answers that a rounded rate moved, though by no more than it may, there are few.
    let questions: u64 = found.iter().map(|half| half.questions).sum();
    let rounded: u64 = found.iter().map(|half| half.rounded).sum();
    assert!(rounded * 400 <= questions, "{rounded} of {questions} answers were rounded");
    println!("{kind}: {rounded} of {questions} answers were rounded");
}

#[test]
fn the_token_bucket_agrees() {
    agrees(Kind::TokenBucket, |quota| Held::new(TokenBucket::new(quota)));
}

#[test]
fn the_leaky_meter_agrees() {
    agrees(Kind::LeakyBucket, |quota| Held::new(LeakyBucket::meter(quota)));
}

#[test]
fn the_leaky_queue_agrees() {
    agrees(Kind::LeakyQueue, |quota| Held::new(LeakyBucket::queue(quota)));
}

#[test]
fn the_fixed_window_agrees() {
    agrees(Kind::FixedWindow, |quota| Held::new(FixedWindow::new(quota)));
}

#[test]
fn the_paced_window_agrees() {
    agrees(Kind::PacedWindow, |quota| Held::new(PacedWindow::new(quota)));
}

#[test]
fn the_sliding_log_agrees() {
    agrees(Kind::SlidingLog, |quota| Held::new(SlidingLog::new(quota)));
}

#[test]
fn the_sliding_counter_agrees() {
    agrees(Kind::SlidingCounter, |quota| Held::new(SlidingCounter::new(quota)));
}

#[test]
fn the_sub_windows_agree() {
    agrees(Kind::SubWindows, |quota| Held::new(SubWindows::new(quota)));
}

#[test]
fn an_algorithm_chosen_at_run_time_agrees() {
    for kind in Kind::ALL {
        let found = outcomes(kind, |quota| Held::new(AnyAlgorithm::new(kind, quota)), 0..2_000).differences;
        assert!(found.is_empty(), "{}", found[0]);
    }
}

/// The oracles themselves, against answers worked out by hand.
#[test]
fn the_oracles_know_what_a_person_can_work_out() {
    const MS: u64 = 1_000_000;
    let cases = [
        // Two at once; a third after 1/3 s, rounded up to a whole nanosecond.
        (Kind::TokenBucket, Quota::per_second(3).burst(2), [(0, 2), (0, 1)], Some(333_333_334)),
        // Even with nothing admitted before, four never fit.
        (Kind::TokenBucket, Quota::per_second(3).burst(2), [(0, 0), (0, 4)], None),
        // After a cost of five at 10/s the next comes half a second later.
        (Kind::LeakyBucket, Quota::per_second(10), [(0, 5), (100 * MS, 1)], Some(400 * MS)),
        // The window is full until its end.
        (Kind::FixedWindow, Quota::per_second(3), [(900 * MS, 3), (950 * MS, 1)], Some(50 * MS)),
        // The third of four may come half way through.
        (Kind::PacedWindow, Quota::per_second(4), [(250 * MS, 2), (300 * MS, 1)], Some(200 * MS)),
        // Two of three leave the window a second after they came.
        (Kind::SlidingLog, Quota::per_second(3), [(400 * MS, 2), (900 * MS, 2)], Some(500 * MS)),
        // Four in the window before weigh 3 when a quarter of this one has passed.
        (Kind::SlidingCounter, Quota::per_second(4), [(900 * MS, 4), (1_100 * MS, 1)], Some(150 * MS)),
        // The part from 100 to 200 ms counts until 1.2 s.
        (Kind::SubWindows, Quota::per_second(2), [(150 * MS, 2), (1_150 * MS, 1)], Some(50 * MS)),
    ];
    for (kind, quota, [(first, taken), (second, wanted)], wait) in cases {
        let mut exact = oracle::of(kind, quota);
        assert_eq!(exact.decide(first, taken, 0), Outcome::Admit { delay_ns: 0 }, "{kind}");
        assert_eq!(exact.decide(second, wanted, 0), Outcome::of(wait, 0), "{kind}");
    }
}
