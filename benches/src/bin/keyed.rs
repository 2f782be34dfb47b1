//! A limiter for each of a million keys: time per check, memory per key, and the longest pause of a caller.
//!
//! Keys are u64 numbers and 36-byte strings; see `keyed/keys.rs`. All contenders have the same quota, get the same
//! keys in the same order, prepared beforehand, and their answers are used; see `keyed/contenders.rs` for how each is set
//! up. The cases:
//!
//! - `u64-uniform-1t` and its like: a check of a key that is there, of a million, by one thread or two. Two threads have
//!   sequences of their own; the figure is what a check takes its thread. `tollgate-coarse` reads a clock that is refreshed once a
//!   millisecond; `floor` does what none can do without, see `keyed/floor.rs`.
//! - `check-many-…`: ours in batches against ours one by one.
//! - `collide-u64`: keys chosen to collide in a hasher without a seed, against random ones.
//! - `instructions-…`: per check, counted by callgrind.
//! - `bytes-per-key-…`: resident memory of a process, before and after so many keys came; `worst` is the worst of some
//!   seventy looks between 1M and 4M keys, so that a table which has just grown is among them.
//! - `grow-longest-pause-…`: the longest of the 10M calls that brought 10M keys.
//! - `sweep-…`: while 1M idle keys go; see `keyed/sweep.rs`.
//! - `…-longest-recurring-pause`: the longest call that comes back when the same calls are made again; see `keyed/recurring.rs`.
//!
//! A pause is how long a call took, less what the kernel says it was kept waiting for a core; see the harness's
//! `pauses.rs`. Each is the longest of a round, and the table has the median, least and greatest of the rounds. Interrupts
//! and what a hypervisor takes can only make it longer, so the goals go by the best round: a pause that belongs to growing or
//! sweeping is in every one. `-wall` has the same calls with nothing taken off; `no-growth` and `no-sweep` show what the
//! machine alone does.

#[path = "keyed/contenders.rs"]
mod contenders;
#[path = "keyed/floor.rs"]
mod floor;
#[path = "keyed/growth.rs"]
mod growth;
#[path = "keyed/keys.rs"]
mod keys;
#[path = "keyed/ours.rs"]
mod ours;
#[path = "keyed/recurring.rs"]
mod recurring;
#[path = "keyed/speed.rs"]
mod speed;
#[path = "keyed/sweep.rs"]
mod sweep;

use std::process::ExitCode;

use tollgate_benches::{Bench, Findings, Options};

/// How many keys there are, unless a case says otherwise.
const KEYS: u64 = 1_000_000;

// How this program calls itself; not for people.
const COUNT: &str = "--count";
const GROW: &str = "--grow";
const SWEEP: &str = "--sweep";
const RECUR: &str = "--recur";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        [COUNT, what, turns] => speed::count(what, number(turns)),
        [GROW, "u64", name, most] => growth::grow::<u64>(name, number(most)).print(),
        [GROW, _, name, most] => growth::grow::<String>(name, number(most)).print(),
        [SWEEP, "u64", name] => sweep::sweep::<u64>(name).print(),
        [RECUR, what, rounds, keys] => recurring::recur(what, number(rounds), number(keys)).print(),
        [SWEEP, _, name] => sweep::sweep::<String>(name).print(),
        _ => return run(),
    }
    ExitCode::SUCCESS
}

fn number(text: &str) -> u64 {
    text.parse().expect("a number")
}

fn run() -> ExitCode {
    let options = match Options::from_env() {
        Ok(options) => options,
        Err(message) => {
            eprintln!("keyed: {message}");
            return ExitCode::from(2);
        }
    };
    let plan = Plan::new(options);
    let mut bench = Bench::new("keyed", options);
    println!(
        "clocks: tollgate TscClock (its default), governor quanta (its default), throttlecrab and limitador"
    );
    println!(
        "SystemTime, pingora-limits Instant. zipf: exponent 1.0. throttlecrab and limitador take strings only.\n"
    );
    speed::checks::<u64>(&plan, &mut bench);
    speed::checks::<String>(&plan, &mut bench);
    speed::batches(&plan, &mut bench);
    speed::collisions(&plan, &mut bench);
    match speed::instruction_cases() {
        Ok(cases) => cases.into_iter().for_each(|case| bench.add(case)),
        Err(reason) => println!("instructions: not counted: {reason}\n"),
    }
    growth::cases::<u64>(&plan, &mut bench);
    growth::cases::<String>(&plan, &mut bench);
    sweep::cases::<u64>(&plan, &mut bench);
    sweep::cases::<String>(&plan, &mut bench);
    recurring::cases(&plan, &mut bench);
    bench.finish()
}

/// How much to measure.
struct Plan {
    /// Without 10M keys, and without limitador where it would have to be filled anew.
    is_quick: bool,
    rounds: usize,
    /// Calls of each thread in a round.
    turns: usize,
    /// For what takes a process of its own each time.
    rounds_of_children: usize,
    /// How far limiters grow.
    most_keys: u64,
}

impl Plan {
    fn new(options: Options) -> Self {
        if options.is_quick() {
            Self { is_quick: true, rounds: 2, turns: 200_000, rounds_of_children: 1, most_keys: 4 * KEYS }
        } else {
            Self { is_quick: false, rounds: 7, turns: 1_000_000, rounds_of_children: 5, most_keys: 10 * KEYS }
        }
    }
}

/// What a child found; nothing, said aloud, if it failed.
fn child_of(found: Result<Findings, String>) -> Findings {
    found.unwrap_or_else(|reason| {
        eprintln!("not measured: {reason}");
        Findings::default()
    })
}
