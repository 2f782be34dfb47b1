//! A run of one benchmark: its flags, its table, its file.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs, io};

use serde_json::{Value, json};

use crate::case::Case;
use crate::{before, machine, turns};

/// How thorough a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quickness {
    /// For publishing.
    Full,
    /// For a first look.
    Quick,
}

/// The flags, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Exit with 1 if a goal is not met.
    pub check: bool,
    /// How thorough.
    pub quickness: Quickness,
}

impl Options {
    /// The flags of this process.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn from_env() -> Result<Self, String> {
        Self::parse(env::args().skip(1))
    }

    fn parse(args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self { check: false, quickness: Quickness::Full };
        for arg in args {
            match arg.as_str() {
                "--check" => options.check = true,
                "--quick" => options.quickness = Quickness::Quick,
                other => return Err(format!("there is no flag {other:?}; there are --check and --quick")),
            }
        }
        Ok(options)
    }

    /// Whether this is only a first look.
    pub fn is_quick(&self) -> bool {
        self.quickness == Quickness::Quick
    }
}

/// One benchmark's run.
#[derive(Debug)]
pub struct Bench {
    name: &'static str,
    options: Options,
    /// The earlier commit that this one is compared with.
    before: Option<String>,
    cases: Vec<Case>,
}

impl Bench {
    /// Begins a run, and says where and when.
    pub fn new(name: &'static str, options: Options) -> Self {
        let quick = if options.is_quick() { " -- QUICK, not for publishing" } else { "" };
        println!("{name} at {} on {}, {}{quick}", machine::commit(), machine::machine(), machine::date());
        println!("profile: cargo's default release profile and line tables; no LTO beyond the default");
        println!("peers: {}\n", machine::peers());
        let before = before::start(options);
        if let Some(commit) = &before {
            println!(
                "before: {commit}, in a process of its own with all its contenders. Each round is run there"
            );
            println!("first, then here, and no round is repeated.\n");
        }
        Self { name, options, before, cases: Vec::new() }
    }

    /// Adds a case that was measured, and prints it.
    pub fn add(&mut self, mut case: Case) {
        turns::report(&case);
        before::add_to(&mut case);
        println!("{}", case.table());
        self.cases.push(case);
    }

    /// Writes the file, and names the goals that are not met.
    pub fn finish(mut self) -> ExitCode {
        let compared = before::finish(&mut self.cases);
        match self.write() {
            Ok(path) => println!("written to {}", path.display()),
            Err(error) => {
                eprintln!("cannot write the results: {error}");
                return ExitCode::FAILURE;
            }
        }
        let unmet: Vec<String> = self.cases.iter().flat_map(Case::unmet).chain(compared.err()).collect();
        for goal in &unmet {
            println!("not met: {goal}");
        }
        if self.options.check && !unmet.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }

    fn write(&self) -> io::Result<PathBuf> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/bench");
        fs::create_dir_all(&directory)?;
        let path = directory.canonicalize()?.join(self.name).with_extension("json");
        fs::write(&path, format!("{:#}\n", self.json()))?;
        Ok(path)
    }

    fn json(&self) -> Value {
        let mut json = json!({
            "bench": self.name,
            "commit": machine::commit(),
            "machine": machine::machine(),
            "date": machine::date(),
            "peers": machine::peers(),
            "cases": self.cases.iter().map(Case::json).collect::<Vec<_>>(),
        });
        if let Some(commit) = &self.before {
            json["before"] = json!(commit);
        }
        if self.options.is_quick() {
            json["quick"] = json!(true);
        }
        json
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Options, String> {
        Options::parse(args.iter().map(ToString::to_string))
    }

    #[test]
    fn flags_are_checked() {
        assert_eq!(parse(&["--check", "--quick"]), Ok(Options { check: true, quickness: Quickness::Quick }));
        assert_eq!(
            parse(&["--fast"]).unwrap_err(),
            "there is no flag \"--fast\"; there are --check and --quick"
        );
    }
}
