//! Ending a run, in every state, with every job accounted for.

use std::sync::Arc;
use std::time::Duration;

use tollgate_flow::{Fault, Outcome, Outcomes, Pool, Rest};

use crate::support::{Crowd, MS, all, evenly, for_a_while, limiter, nap, sleep_ms};

const JOBS: u64 = 40;

/// Every job there was is in exactly one place.
fn assert_all_accounted_for<V, S: Iterator<Item = u64>>(read: Vec<Outcome<u64, V>>, rest: Rest<u64, V, S>) {
    let outcomes = read.iter().chain(&rest.outcomes).map(|outcome| *outcome.job);
    let unfinished = rest.unfinished.iter().map(|left| *left.job);
    let mut jobs: Vec<u64> = outcomes.chain(unfinished).chain(rest.source).collect();
    jobs.sort_unstable();
    assert_eq!(jobs, (0..JOBS).collect::<Vec<_>>());
}
