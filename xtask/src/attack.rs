//! `cargo xtask attack`: a flood of keys against a bounded store, longer than in the tests.

use crate::number::number;
use crate::run::{self, Failure, command};

const KEYS: u64 = 100_000_000;

pub(crate) fn run(args: &[&str]) -> Result<(), Failure> {
    let keys = number("attack", "--keys", KEYS, args).map_err(Failure::Misuse)?;
    let mut attack = command("cargo test --release -p tollgate --test it attack::");
    run::run(attack.env("TOLLGATE_ATTACK_KEYS", keys.to_string()))
}
