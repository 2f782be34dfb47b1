//! The part of a benchmark that an earlier commit's process plays when a later commit's process compares itself with it.
//!
//! The later process starts the earlier one with [`TURNS`] in its environment. The earlier process then prints [`READY`] before each
//! of its rounds and waits for a line on its standard input. It prints every case as JSON behind [`CASE`]. So only one of the
//! two processes works at any time. Benchmarks of many commits speak this protocol: `xtask/src/bench/turns.patch` teaches it to
//! commits from before it existed, and must change with it.

use std::{env, io};

use crate::case::Case;

/// The environment variable that makes a process take turns.
pub(crate) const TURNS: &str = "TOLLGATE_BENCH_TURNS";
/// The line that says that the process waits for its next turn.
pub(crate) const READY: &str = "@ready";
/// The beginning of a line that holds a case.
pub(crate) const CASE: &str = "@case ";

/// Returns whether a later commit's benchmark started this process.
pub(crate) fn are_taken() -> bool {
    env::var_os(TURNS).is_some()
}

/// Waits for the next turn, if this process takes turns.
pub(crate) fn wait() {
    if are_taken() {
        println!("{READY}");
        let read = io::stdin().read_line(&mut String::new());
        assert!(read.is_ok_and(|length| length > 0), "the benchmark that started this one has ended");
    }
}

/// Prints a case for the later commit's process, if this process takes turns.
pub(crate) fn report(case: &Case) {
    if are_taken() {
        println!("{CASE}{}", case.json());
    }
}
