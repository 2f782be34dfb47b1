//! `cargo xtask soak`: many simulated decisions, to find drift.

use crate::run::{self, Failure, command};

const DECISIONS: u64 = 100_000_000;

pub(crate) fn run(args: &[&str]) -> Result<(), Failure> {
    let decisions = decisions(args).map_err(Failure::Misuse)?;
    let line = format!("cargo run --release -p tollgate-sim --example soak -- --decisions {decisions}");
    run::run(&mut command(&line))
}

fn decisions(args: &[&str]) -> Result<u64, String> {
    match args {
        [] => Ok(DECISIONS),
        ["--decisions", number] => match number.replace('_', "").parse() {
            Ok(decisions) if decisions > 0 => Ok(decisions),
            _ => Err(format!("--decisions needs a whole number above zero, but got {number:?}")),
        },
        ["--decisions"] => Err("--decisions needs a number".into()),
        [other, ..] => Err(format!("`soak` takes --decisions N, but got {other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_are_read() {
        assert_eq!(decisions(&[]), Ok(100_000_000));
        assert_eq!(decisions(&["--decisions", "1_000"]), Ok(1_000));
        assert_eq!(decisions(&["--decisions"]).unwrap_err(), "--decisions needs a number");
        assert_eq!(
            decisions(&["--decisions", "0"]).unwrap_err(),
            "--decisions needs a whole number above zero, but got \"0\""
        );
        assert_eq!(decisions(&["--fast"]).unwrap_err(), "`soak` takes --decisions N, but got \"--fast\"");
    }
}
