//! The longest call while a table grows or idle keys go, told from what the machine does besides: the same calls are made several
//! times, under a clock that stands still, and for each of them its shortest time counts. (In one process, so that the keys'
//! fingerprints are the same each time.)
//!
//! Only ours: it stores no keys, so u64 stands for all; and whoever cleans up from another thread meets other calls each time.

use std::time::Duration;

use tollgate::{KeyedLimiter, ManualClock, Quota};
use tollgate_benches::{Bench, Better, Case, Findings, Goal, Pauses, findings_of, on_core};

use crate::{KEYS, Plan, RECUR, child_of};

const GROW: &str = "grow";
const SWEEP: &str = "sweep";

/// How long a key is busy after its only call.
const BUSY: Duration = Duration::from_secs(1);
/// How many others call while idle keys go.
const OTHERS: u64 = 1_000;

pub(crate) fn cases(plan: &Plan, bench: &mut Bench) {
    for (what, most) in [(GROW, 500.0), (SWEEP, 100.0)] {
        let case = Case::new(format!("{what}-longest-recurring-pause"), "us", Better::Lower);
        let mut case = case.goal(Goal::at_most("tollgate", most));
        let (rounds, keys) =
            (plan.rounds_of_children.max(3), if what == GROW { plan.most_keys } else { KEYS });
        let arguments = [RECUR, what, &rounds.to_string(), &keys.to_string()];
        let found = child_of(findings_of(&arguments, Duration::from_secs(300)));
        if let Some(longest) = found.get(what) {
            case.sample("tollgate", longest);
        }
        bench.add(case);
    }
}

/// The child.
pub(crate) fn recur(what: &str, rounds: u64, keys: u64) -> Findings {
    let round = |_| on_core(1, || if what == GROW { grown(keys) } else { swept(keys) });
    let rounds: Vec<Pauses> = (0..rounds).map(round).collect();
    let mut found = Findings::default();
    found.note(what, Pauses::longest_recurring_us(&rounds));
    found
}

fn limiter(clock: &ManualClock) -> KeyedLimiter<u64, tollgate::TokenBucket, ManualClock> {
    let quota = Quota::every(BUSY).burst(5_000_000);
    KeyedLimiter::builder(quota).clock(clock.clone()).build()
}

fn grown(keys: u64) -> Pauses {
    let (limiter, mut pauses) = (limiter(&ManualClock::new()), Pauses::new());
    for key in 0..keys {
        assert!(pauses.time(|| limiter.allow(&key)), "key {key} was refused; the set-up is wrong");
    }
    pauses
}

fn swept(keys: u64) -> Pauses {
    let clock = ManualClock::new();
    let limiter = limiter(&clock);
    (0..keys).for_each(|key| assert!(limiter.allow(&key)));
    clock.advance(BUSY);
    let mut pauses = Pauses::new();
    while limiter.len() > 2 * OTHERS as usize {
        for key in keys..keys + OTHERS {
            pauses.time(|| limiter.allow(&key));
        }
    }
    pauses
}
