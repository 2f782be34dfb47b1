//! The longer command: every algorithm against the exact oracle, for as many decisions as asked for.
//!
//! ```text
//! cargo run --release -p tollgate-sim --example soak -- --decisions 100000000 [--seed N]
//! ```
//!
//! Prints progress and, in the end, how many sequences and decisions there were and every difference with its seed. The exit
//! code is 1 if there was one, 2 if the flags make no sense.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use tollgate_core::{AnyAlgorithm, Kind};
use tollgate_sim::compare::{self, Difference};
use tollgate_sim::subject::Held;

/// Seeds that a worker takes at a time.
const BATCH: u64 = 1_000;
/// How often progress is shown on the way.
const PROGRESS_LINES: u64 = 20;

fn main() -> ExitCode {
    let plan = match Plan::from_flags(std::env::args().skip(1)) {
        Ok(plan) => plan,
        Err(problem) => {
            eprintln!("soak: {problem}\nusage: soak --decisions COUNT [--seed N]");
            return ExitCode::from(2);
        }
    };
    let soak = Soak::run(&plan);
    soak.report();
    if soak.differences().is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What was asked for.
struct Plan {
    decisions: u64,
    seed: u64,
}

impl Plan {
    fn from_flags(mut flags: impl Iterator<Item = String>) -> Result<Self, String> {
        let (mut decisions, mut seed) = (None, 0);
        while let Some(flag) = flags.next() {
            let mut number = || {
                let text = flags.next().ok_or_else(|| format!("{flag} needs a number after it"))?;
                text.parse().map_err(|_| format!("{flag} needs a whole number, not {text:?}"))
            };
            match flag.as_str() {
                "--decisions" => decisions = Some(number()?),
                "--seed" => seed = number()?,
                _ => return Err(format!("there is no flag {flag:?}; the flags are --decisions and --seed")),
            }
        }
        let decisions =
            decisions.ok_or("say how many with --decisions, for example --decisions 100000000")?;
        Ok(Self { decisions, seed })
    }
}

/// What was done so far.
#[derive(Default)]
struct Soak {
    next_batch: AtomicU64,
    sequences: AtomicU64,
    decisions: AtomicU64,
    rounded: AtomicU64,
    differences: Mutex<Vec<Difference>>,
}

impl Soak {
    fn run(plan: &Plan) -> Self {
        let soak = Self::default();
        let cores = thread::available_parallelism().map_or(1, usize::from);
        thread::scope(|scope| {
            for _ in 0..cores {
                scope.spawn(|| soak.work(plan));
            }
        });
        soak
    }

    /// Takes batches until there are decisions enough.
    fn work(&self, plan: &Plan) {
        while self.decisions.load(Ordering::Relaxed) < plan.decisions {
            let batch = self.next_batch.fetch_add(1, Ordering::Relaxed);
            let first = plan.seed.wrapping_add(batch * BATCH);
            let made: u64 = (0..BATCH).map(|offset| self.sequences_of(first.wrapping_add(offset))).sum();
            let before = self.decisions.fetch_add(made, Ordering::Relaxed);
            show_progress(before, before + made, plan.decisions);
        }
    }

    /// One sequence for each algorithm; answers how many decisions that were.
    fn sequences_of(&self, seed: u64) -> u64 {
        let run = |kind| compare::sequence(kind, |quota| Held::new(AnyAlgorithm::new(kind, quota)), seed);
        let mut decisions = 0;
        for kind in Kind::ALL {
            match run(kind) {
                Ok(agreement) => {
                    decisions += u64::from(agreement.questions);
                    self.rounded.fetch_add(agreement.rounded.into(), Ordering::Relaxed);
                }
                Err(difference) => self.differences().push(difference),
            }
        }
        self.sequences.fetch_add(Kind::ALL.len() as u64, Ordering::Relaxed);
        decisions
    }

    fn differences(&self) -> std::sync::MutexGuard<'_, Vec<Difference>> {
        self.differences.lock().expect("no worker panics while it holds the list")
    }

    fn report(&self) {
        let (sequences, decisions) =
            (self.sequences.load(Ordering::Relaxed), self.decisions.load(Ordering::Relaxed));
        let differences = self.differences();
        println!("{sequences} sequences, {decisions} decisions, {} differences", differences.len());
        println!(
            "{} answers at rounded rates decided otherwise, or named a moment more than 1 ns away, within what they may",
            self.rounded.load(Ordering::Relaxed)
        );
        for difference in differences.iter() {
            println!("{difference}");
        }
    }
}

fn show_progress(before: u64, after: u64, all: u64) {
    let line = |decisions: u64| u128::from(decisions) * u128::from(PROGRESS_LINES) / u128::from(all.max(1));
    if line(before) != line(after) {
        println!("{after} of {all} decisions");
    }
}
