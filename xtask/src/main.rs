//! Developer chores: `cargo xtask test`, `bench`, `measurements`, `fuzz`, `soak`, `attack`, `vectors`, `failures`, `proto` and `plots`.

mod attack;
mod bench;
mod failures;
mod fuzz;
mod measurements;
mod number;
mod plots;
mod proto;
mod run;
mod soak;
mod test;
mod vectors;

use std::env;
use std::process::ExitCode;

use run::Failure;

const HELP: &str = include_str!("help.txt");

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match call(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Step(message)) => {
            eprintln!("xtask: {message}");
            ExitCode::from(1)
        }
        Err(Failure::Misuse(message)) => {
            eprintln!("xtask: {message}\n\n{HELP}");
            ExitCode::from(2)
        }
    }
}

fn call(args: &[&str]) -> Result<(), Failure> {
    if args.iter().any(|arg| matches!(*arg, "-h" | "--help")) {
        print!("{HELP}");
        return Ok(());
    }
    match args {
        ["test"] => test::run(),
        ["test", extra, ..] => Err(Failure::Misuse(format!("`test` takes no arguments, but got {extra:?}"))),
        ["bench", rest @ ..] => bench::run(rest),
        ["measurements"] => measurements::run(),
        ["measurements", extra, ..] => {
            Err(Failure::Misuse(format!("`measurements` takes no arguments, but got {extra:?}")))
        }
        ["fuzz", rest @ ..] => fuzz::run(rest),
        ["soak", rest @ ..] => soak::run(rest),
        ["attack", rest @ ..] => attack::run(rest),
        ["vectors"] => vectors::run(),
        ["vectors", extra, ..] => {
            Err(Failure::Misuse(format!("`vectors` takes no arguments, but got {extra:?}")))
        }
        ["failures"] => failures::run(),
        ["failures", extra, ..] => {
            Err(Failure::Misuse(format!("`failures` takes no arguments, but got {extra:?}")))
        }
        ["proto"] => proto::run(),
        ["proto", extra, ..] => {
            Err(Failure::Misuse(format!("`proto` takes no arguments, but got {extra:?}")))
        }
        ["plots"] => plots::run(),
        ["plots", extra, ..] => {
            Err(Failure::Misuse(format!("`plots` takes no arguments, but got {extra:?}")))
        }
        ["help"] => {
            print!("{HELP}");
            Ok(())
        }
        [] => Err(Failure::Misuse("a command is missing".into())),
        [other, ..] => Err(Failure::Misuse(format!("there is no command {other:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misuse_says_what_was_wrong() {
        let message = |args: &[&str]| match call(args) {
            Err(Failure::Misuse(message)) => message,
            other => panic!("{args:?} gave {other:?}"),
        };
        assert_eq!(message(&[]), "a command is missing");
        assert_eq!(message(&["tset"]), "there is no command \"tset\"");
        assert_eq!(message(&["test", "core"]), "`test` takes no arguments, but got \"core\"");
    }

    #[test]
    fn help_names_every_command() {
        for command in [
            "test",
            "bench",
            "measurements",
            "fuzz",
            "soak",
            "attack",
            "vectors",
            "failures",
            "proto",
            "plots",
            "help",
        ] {
            assert!(HELP.lines().any(|line| line.starts_with(&format!("  {command} "))), "{command}");
        }
    }
}
