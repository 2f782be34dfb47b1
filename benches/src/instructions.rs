//! Instructions per operation, counted by callgrind.
//!
//! The program calls itself under valgrind, with the operation's name and a number of turns. Only what happens inside
//! [`counted`] is collected: calibrating a clock takes a different number of instructions every time. Two runs with
//! different turns are compared, so that what lies around the loop cancels.

use std::env;
use std::process::Command;

const TURNS: [u64; 2] = [100_000, 200_000];

/// Runs `operation` so many times; the loop that is counted.
#[inline(never)]
pub fn counted(turns: u64, mut operation: impl FnMut()) {
    for _ in 0..turns {
        operation();
    }
}

/// Instructions per operation, loop included, of this program called with `arguments` and a number of turns.
///
/// # Errors
/// Why there is no answer: usually that valgrind is not installed.
pub fn instructions(arguments: &[&str]) -> Result<f64, String> {
    instructions_between(TURNS, arguments)
}

/// [`instructions`] of what takes long, by fewer turns.
///
/// # Errors
/// As [`instructions`].
pub fn instructions_between([fewer, more]: [u64; 2], arguments: &[&str]) -> Result<f64, String> {
    let difference = total(arguments, more)?.saturating_sub(total(arguments, fewer)?);
    Ok(difference as f64 / (more - fewer) as f64)
}

fn total(arguments: &[&str], turns: u64) -> Result<u64, String> {
    let program = env::current_exe().map_err(|error| error.to_string())?;
    let mut valgrind = Command::new("valgrind");
    valgrind.args([
        "--tool=callgrind",
        "--callgrind-out-file=/dev/null",
        "--toggle-collect=*instructions*counted*",
    ]);
    let output = valgrind.arg(program).args(arguments).arg(turns.to_string()).output();
    let output = output.map_err(|error| format!("cannot run valgrind: {error}"))?;
    let report = String::from_utf8_lossy(&output.stderr);
    let collected = report.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok());
    collected.ok_or_else(|| format!("valgrind collected nothing: {}", report.trim()))
}
