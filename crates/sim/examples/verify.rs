//! Judges a recorded history: did it ever go beyond burst + rate·T?
//!
//! `cargo run --release -p tollgate-sim --example verify -- "100/s burst 20" < history.jsonl`
//!
//! Each line is one admitted call: `{"invoke_ns":1,"response_ns":2,"cost":1}`. Exit code 0 if the limit was kept, 1 if it
//! was not, 2 if the question makes no sense.

use std::io;
use std::process::ExitCode;

use tollgate_core::Quota;
use tollgate_sim::history::{self, Excess, Operation};

fn main() -> ExitCode {
    match question() {
        Ok((quota, operations)) => answer(quota, &operations),
        Err(message) => {
            eprintln!("verify: {message}");
            ExitCode::from(2)
        }
    }
}

fn question() -> Result<(Quota, Vec<Operation>), String> {
    let mut args = std::env::args().skip(1);
    let (Some(quota), None) = (args.next(), args.next()) else {
        return Err(
            "expected one argument, a quota such as \"100/s burst 20\", and a history on standard input"
                .into(),
        );
    };
    let quota = quota.parse().map_err(|error| format!("{error}"))?;
    let operations = history::read_lines(io::stdin().lock()).map_err(|error| error.to_string())?;
    Ok((quota, operations))
}

fn answer(quota: Quota, operations: &[Operation]) -> ExitCode {
    println!("{} calls against {quota}", operations.len());
    let Some(worst) = history::largest_excess(quota, operations) else {
        println!("kept: nothing to check");
        return ExitCode::SUCCESS;
    };
    let Excess { start_ns, end_ns, cost, numerator, denominator } = worst;
    println!("fullest span: {cost} from {start_ns} ns to {end_ns} ns");
    if worst.is_violation() {
        println!("BROKEN: {numerator}/{denominator} too many");
        return ExitCode::FAILURE;
    }
    println!("kept");
    ExitCode::SUCCESS
}
