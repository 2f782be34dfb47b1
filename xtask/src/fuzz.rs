//! `cargo xtask fuzz`: what nobody thought of, for a while.
//!
//! Without sanitizers, which need a nightly toolchain: there is no unsafe code here for them to watch.

use std::fs;

use crate::bench::names;
use crate::number::number;
use crate::run::{self, Failure, command, root, works};
use crate::test::target;

const TARGETS: &str = "fuzz/fuzz_targets";
const SECONDS: u64 = 60;

pub(crate) fn run(args: &[&str]) -> Result<(), Failure> {
    let plan = Plan::new(args, &names(&root().join(TARGETS))).map_err(Failure::Misuse)?;
    let program = cargo_fuzz()?;
    for name in &plan.names {
        fuzz(&program, name, plan.seconds)?;
    }
    Ok(())
}

/// Starts from the seeds and from whatever earlier runs found; what is new goes to `fuzz/corpus/`.
fn fuzz(program: &str, name: &str, seconds: u64) -> Result<(), Failure> {
    let corpus = format!("fuzz/corpus/{name}");
    fs::create_dir_all(root().join(&corpus))
        .map_err(|error| Failure::Step(format!("{corpus} could not be made: {error}")))?;
    let line = format!(
        "{program} run --sanitizer none {name} {corpus} fuzz/seeds/{name} -- -max_total_time={seconds} -timeout=10"
    );
    run::run(&mut command(&line))
}

/// How to call cargo-fuzz, which is built if it is missing.
fn cargo_fuzz() -> Result<String, Failure> {
    if works("cargo fuzz --version") {
        return Ok("cargo fuzz".into());
    }
    let tools = target().join("tools");
    let program = tools.join("bin/cargo-fuzz");
    if !program.exists() {
        println!("cargo-fuzz is not installed: building it, which takes a minute");
        run::run(command("cargo install --quiet --locked cargo-fuzz --root").arg(&tools))?;
    }
    Ok(program.display().to_string())
}

/// What to run and for how long.
#[derive(Debug, PartialEq)]
struct Plan {
    names: Vec<String>,
    seconds: u64,
}

impl Plan {
    fn new(args: &[&str], known: &[String]) -> Result<Self, String> {
        let list = format!("{}, all", known.join(", "));
        let (name, rest) = match args {
            [name, rest @ ..] if !name.starts_with('-') => (*name, rest),
            _ => return Err(format!("`fuzz` needs a name first; there are: {list}")),
        };
        let names = match name {
            "all" => known.to_vec(),
            name if known.iter().any(|known| known == name) => vec![name.to_string()],
            name => return Err(format!("there is no fuzz target {name:?}; there are: {list}")),
        };
        Ok(Self { names, seconds: number("fuzz", "--seconds", SECONDS, rest)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(args: &[&str]) -> Result<Plan, String> {
        Plan::new(args, &["advice".into(), "forwarded".into()])
    }

    #[test]
    fn a_minute_unless_told_otherwise() {
        assert_eq!(plan(&["advice"]), Ok(Plan { names: vec!["advice".into()], seconds: 60 }));
        assert_eq!(
            plan(&["forwarded", "--seconds", "5"]),
            Ok(Plan { names: vec!["forwarded".into()], seconds: 5 })
        );
        assert_eq!(plan(&["all"]).unwrap().names, ["advice", "forwarded"]);
    }

    #[test]
    fn misuse_lists_the_names() {
        assert_eq!(plan(&[]).unwrap_err(), "`fuzz` needs a name first; there are: advice, forwarded, all");
        assert_eq!(
            plan(&["--seconds", "5"]).unwrap_err(),
            "`fuzz` needs a name first; there are: advice, forwarded, all"
        );
        assert_eq!(
            plan(&["advise"]).unwrap_err(),
            "there is no fuzz target \"advise\"; there are: advice, forwarded, all"
        );
        assert_eq!(plan(&["advice", "--fast"]).unwrap_err(), "`fuzz` takes --seconds N, but got \"--fast\"");
    }

    #[test]
    fn every_target_has_seeds() {
        let names = names(&root().join(TARGETS));
        assert!(!names.is_empty());
        for name in names {
            let seeds = fs::read_dir(root().join("fuzz/seeds").join(&name));
            assert!(seeds.is_ok_and(|mut seeds| seeds.next().is_some()), "{name}");
        }
    }
}
