//! The suite and the laws over every algorithm, by its own type and chosen at run time.

use tollgate_core::{
    Algorithm, AnyAlgorithm, FixedWindow, Kind, LeakyBucket, PacedWindow, Quota, SlidingCounter, SlidingLog,
    SubWindows, TokenBucket,
};
use tollgate_sim::conformance::{self, Held};
use tollgate_sim::laws::{self, Broken};

const SEEDS: std::ops::Range<u64> = 0..10_000;

fn conforms<A: Algorithm>(kind: Kind, make: impl Fn(Quota) -> A) {
    conformance::run(kind, |quota| Held::new(make(quota)), SEEDS);
    keep(SEEDS.map(|seed| laws::walk(kind, &make, seed)));
    keep(SEEDS.map(|seed| laws::give_back(kind, &make, seed, 100)));
    keep(SEEDS.map(|seed| laws::extremes(kind, &make, seed)));
}

fn keep(results: impl Iterator<Item = Result<(), Broken>>) {
    for result in results {
        assert!(result.is_ok(), "{}", result.unwrap_err());
    }
}

#[test]
fn token_bucket() {
    conforms(Kind::TokenBucket, TokenBucket::new);
}

#[test]
fn leaky_meter() {
    conforms(Kind::LeakyBucket, LeakyBucket::meter);
}

#[test]
fn leaky_queue() {
    conforms(Kind::LeakyQueue, LeakyBucket::queue);
}

#[test]
fn fixed_window() {
    conforms(Kind::FixedWindow, FixedWindow::new);
}

#[test]
fn paced_window() {
    conforms(Kind::PacedWindow, PacedWindow::new);
}

#[test]
fn sliding_log() {
    conforms(Kind::SlidingLog, SlidingLog::new);
}

#[test]
fn sliding_counter() {
    conforms(Kind::SlidingCounter, SlidingCounter::new);
}

#[test]
fn sub_windows() {
    conforms(Kind::SubWindows, SubWindows::new);
}

#[test]
fn any_algorithm() {
    for kind in Kind::ALL {
        conformance::run(kind, |quota| Held::new(AnyAlgorithm::new(kind, quota)), 0..1_000);
        let make = |quota| AnyAlgorithm::new(kind, quota);
        keep((0..1_000).map(|seed| laws::walk(kind, make, seed)));
    }
}

/// Law 7 in depth: long histories of claims and returns at once, promised and part by part.
#[test]
fn a_token_bucket_never_gives_back_what_time_has_restored() {
    keep((0..4_000).map(|seed| laws::give_back(Kind::TokenBucket, TokenBucket::new, seed, 400)));
}
