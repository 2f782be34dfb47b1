//! The harness of the benchmarks: interleaved rounds, medians, goals, a table for people and a JSON file for programs.
//!
//! A benchmark is a program in `src/bin/`. It measures its contenders in turns (A B C A B C …), hands the samples to
//! [`Case`]s, each with the [`Goal`]s that the project has set itself, and gives the cases to a [`Bench`].

mod before;
mod bench;
mod case;
mod child;
mod instructions;
mod load;
mod machine;
mod pauses;
mod resident;
mod spin;
mod turns;

pub use bench::{Bench, Options, Quickness};
pub use case::{Better, Case, Goal, Summary};
pub use child::{Findings, findings_of};
pub use instructions::{counted, instructions, instructions_between};
pub use load::{Asked, Load, on_both_cores, on_core};
pub use machine::{pin_to_core, thread_cpu};
pub use pauses::Pauses;
pub use resident::resident_bytes;
pub use spin::SpinBarrier;

use machine::Busy;

/// The value that `part` of all lie below.
pub fn percentile(sorted: &[f64], part: f64) -> f64 {
    let index = (sorted.len() as f64 * part) as usize;
    sorted.get(index.min(sorted.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

/// A contender's name, and one measurement of it.
pub type Contender<'a, T> = (&'static str, Box<dyn Fn() -> T + 'a>);

/// Runs every contender once a round, in order, so that whatever drifts drifts for all of them.
///
/// A round during which others used the machine is run again, but not for ever: on a machine that is never idle the
/// noisy rounds have to do, and the table says so.
pub fn interleave<T>(
    rounds: usize,
    contenders: &[Contender<'_, T>],
    mut sample: impl FnMut(&'static str, T),
) {
    if turns::are_taken() || before::is_there() {
        // Two processes stay in step only if neither repeats a round.
        return take_turns(rounds, contenders, sample);
    }
    let (mut quiet, mut noisy) = (0, Vec::new());
    for _ in 0..ATTEMPTS * rounds {
        let busy = Busy::now();
        let round: Vec<_> = contenders.iter().map(|(name, run)| (*name, run())).collect();
        if busy.others_since() > BUSY_CORES {
            noisy.push(round);
            noisy.truncate(rounds);
        } else {
            for (name, value) in round {
                sample(name, value);
            }
            quiet += 1;
        }
        if quiet == rounds {
            break;
        }
    }
    if !noisy.is_empty() {
        let used = rounds - quiet;
        println!("others were busy in some rounds; {used} of {rounds} rounds below are such ones");
        for (name, value) in noisy.into_iter().take(used).flatten() {
            sample(name, value);
        }
    }
}

/// Runs every contender once a round, in order, and every round once: for what takes long and is little disturbed by others, such
/// as memory, or pauses that are told from waiting for a core.
pub fn take_turns<T>(
    rounds: usize,
    contenders: &[Contender<'_, T>],
    mut sample: impl FnMut(&'static str, T),
) {
    let mut noisy = 0;
    for _ in 0..rounds {
        await_turn();
        let busy = Busy::now();
        for (name, run) in contenders {
            sample(name, run());
        }
        noisy += usize::from(busy.others_since() > BUSY_CORES);
    }
    if noisy > 0 {
        println!("others were busy in {noisy} of the {rounds} rounds below");
    }
}

/// Runs every contender once a round, in order: for those that are, or need, processes of their own, whose use of the machine
/// cannot be told from that of others. Whoever runs such a bench sees to it that nothing else does.
pub fn alternate<T>(rounds: usize, contenders: &[Contender<'_, T>], mut sample: impl FnMut(&'static str, T)) {
    for _ in 0..rounds {
        await_turn();
        for (name, run) in contenders {
            sample(name, run());
        }
    }
}

/// Waits until this process may run its next round, if two commits are compared; see `before.rs` and `turns.rs`.
fn await_turn() {
    turns::wait();
    before::run_round();
}

/// How often a round may be run for one that counts.
const ATTEMPTS: usize = 3;
/// Others' use of the machine above which a round is noisy.
const BUSY_CORES: f64 = 0.06;
