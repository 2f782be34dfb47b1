//! `cargo xtask soak`: many simulated decisions, to find drift.

use crate::number::number;
use crate::run::{self, Failure, command};

const DECISIONS: u64 = 100_000_000;

pub(crate) fn run(args: &[&str]) -> Result<(), Failure> {
    let decisions = number("soak", "--decisions", DECISIONS, args).map_err(Failure::Misuse)?;
    let line = format!("cargo run --release -p tollgate-sim --example soak -- --decisions {decisions}");
    run::run(&mut command(&line))
}
