//! The same benchmark of an earlier commit, run in turn with this one.
//!
//! `cargo xtask bench NAME --before REV` builds the earlier benchmark and names it in the environment. This process starts it and lets
//! it run one round before each round of its own; see `turns.rs` for the protocol. The earlier benchmark runs its peers too, so
//! that its contenders meet the same conditions as ours. If both have the same cases and rounds, they stay in step.

use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{env, mem};

use serde_json::Value;

use crate::bench::Options;
use crate::case::Case;
use crate::turns::{CASE, READY, TURNS};

/// The environment variable with the program of the earlier commit.
const PROGRAM: &str = "TOLLGATE_BENCH_BEFORE";
/// The environment variable with that commit.
const COMMIT: &str = "TOLLGATE_BENCH_BEFORE_COMMIT";

/// Rounds are run by free functions, which have no other way to reach it.
static BEFORE: Mutex<Option<Before>> = Mutex::new(None);

/// Starts the earlier benchmark if the environment names one. Returns its commit.
pub(crate) fn start(options: Options) -> Option<String> {
    let program = env::var_os(PROGRAM)?;
    let mut command = Command::new(&program);
    command.args(options.is_quick().then_some("--quick")).env(TURNS, "").env_remove(PROGRAM);
    if env::var_os("CARGO_TARGET_DIR").is_none() {
        // Where xtask put Envoy.
        command.env("CARGO_TARGET_DIR", Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"));
    }
    let before = Before::start(&mut command)
        .unwrap_or_else(|error| panic!("{} did not start: {error}", program.display()));
    *lock() = Some(before);
    Some(env::var(COMMIT).unwrap_or_else(|_| "unknown".to_owned()))
}

/// Returns whether there is an earlier benchmark.
pub(crate) fn is_there() -> bool {
    lock().is_some()
}

/// Lets the earlier benchmark run one round, if there is one.
pub(crate) fn run_round() {
    if let Some(before) = &mut *lock() {
        before.run_round();
    }
}

/// Adds the earlier figures to a case, if they are known by now. Returns whether they were added.
pub(crate) fn add_to(case: &mut Case) -> bool {
    lock().as_mut().is_some_and(|before| before.add_to(case))
}

/// Lets the earlier benchmark run to its end, adds the figures that came late, and prints the cases that they belong to.
///
/// # Errors
/// If there was nothing to compare with, or only a part of it.
pub(crate) fn finish(cases: &mut [Case]) -> Result<(), String> {
    let Some(mut before) = lock().take() else { return Ok(()) };
    before.finish(cases)
}

fn lock() -> MutexGuard<'static, Option<Before>> {
    BEFORE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The process of the earlier benchmark.
#[derive(Debug)]
struct Before {
    process: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    is_over: bool,
    /// How many rounds it was asked to run.
    rounds: usize,
    /// The cases that it printed and that were not yet added to ours, with `rounds` at that time.
    reported: Vec<(usize, Value)>,
    has_compared: bool,
}

impl Before {
    /// Starts it and waits until it is ready for its first round.
    fn start(command: &mut Command) -> io::Result<Self> {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdin = process.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let stdout = BufReader::new(process.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?);
        let reported = Vec::new();
        let mut before =
            Self { process, stdin, stdout, is_over: false, rounds: 0, reported, has_compared: false };
        before.read_until_ready();
        Ok(before)
    }

    fn run_round(&mut self) {
        self.rounds += 1;
        if !self.is_over {
            // If it has ended meanwhile, reading says so.
            let _ = writeln!(self.stdin, "next");
            self.read_until_ready();
        }
    }

    /// Reads what it prints until it waits for its next turn, or ends.
    fn read_until_ready(&mut self) {
        let mut line = String::new();
        loop {
            line.clear();
            if !self.stdout.read_line(&mut line).is_ok_and(|length| length > 0) {
                self.is_over = true;
                return;
            }
            if line.trim_end() == READY {
                return;
            }
            if let Some(Ok(case)) = line.strip_prefix(CASE).map(serde_json::from_str) {
                self.reported.push((self.rounds, case));
            }
        }
    }

    fn add_to(&mut self, case: &mut Case) -> bool {
        let Some(index) = self.reported.iter().position(|(_, earlier)| earlier["case"] == case.name()) else {
            return false;
        };
        let (rounds, earlier) = self.reported.remove(index);
        case.add_before(&earlier);
        // It prints a case after its last round of it, and that is right before our own last round.
        if rounds != self.rounds {
            case.note("not in turn: before ran its rounds of this case earlier or later than this commit");
        }
        self.has_compared = true;
        true
    }

    fn finish(&mut self, cases: &mut [Case]) -> Result<(), String> {
        while !self.is_over {
            self.run_round();
        }
        self.rounds += 1; // so that a case added from here on is one that came late
        for case in cases {
            if self.add_to(case) {
                println!("{}", case.table());
            }
        }
        for (_, earlier) in mem::take(&mut self.reported) {
            println!("only in before: {}", earlier["case"].as_str().unwrap_or("?"));
        }
        match self.process.wait() {
            Ok(status) if !status.success() => Err(format!("the benchmark of before failed: {status}")),
            Err(error) => Err(format!("the benchmark of before cannot be waited for: {error}")),
            Ok(_) if !self.has_compared => Err("before has none of these cases".to_owned()),
            Ok(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::{Better, Summary};

    const CASE_A: &str = r#"{"case":"a","unit":"ns","better":"lower","contenders":{"tollgate":{"median":10,"min":9,"max":11}}}"#;

    /// A benchmark of an earlier commit, as a shell script.
    fn before(script: &str) -> Before {
        Before::start(Command::new("sh").args(["-c", script])).expect("there is a shell")
    }

    fn case(name: &str) -> Case {
        let mut case = Case::new(name, "ns", Better::Lower);
        case.sample("tollgate", 10.0);
        case
    }

    #[test]
    fn a_round_is_run_for_each_turn() {
        let script =
            format!("echo @ready; read go; echo a table; echo @ready; read go; echo '@case {CASE_A}'");
        let (mut before, mut ours) = (before(&script), case("a"));
        before.run_round();
        assert!(!before.add_to(&mut ours), "its second round is still to come");
        before.run_round();
        assert!(before.add_to(&mut ours));
        assert_eq!(ours.summary("before"), Some(Summary { median: 10.0, min: 9.0, max: 11.0 }));
        assert!(!ours.table().contains("not in turn"), "{}", ours.table());
        assert_eq!(before.finish(&mut [ours]), Ok(()));
    }

    #[test]
    fn a_case_that_comes_later_is_added_at_the_end_and_said_to_be_out_of_turn() {
        let script = format!("echo @ready; read go; echo @ready; read go; echo '@case {CASE_A}'");
        let (mut before, mut cases) = (before(&script), [case("new"), case("a")]);
        before.run_round();
        assert_eq!(before.finish(&mut cases), Ok(()));
        assert!(cases[1].table().contains("not in turn"), "{}", cases[1].table());
        assert!(cases[0].summary("before").is_none());
    }

    #[test]
    fn a_benchmark_that_fails_or_has_no_common_case_is_an_error() {
        let failed = before("echo @ready; exit 3").finish(&mut []);
        assert_eq!(failed, Err("the benchmark of before failed: exit status: 3".to_owned()));
        let script = format!("echo '@case {CASE_A}'");
        let nothing = before(&script).finish(&mut [case("b")]);
        assert_eq!(nothing, Err("before has none of these cases".to_owned()));
    }
}
