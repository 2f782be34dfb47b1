//! `cargo xtask test`: everything a change must pass.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use crate::run::{self, Failure, command, root, works};

const LOOM_TEST: &str = "crates/tollgate/tests/loom.rs";

pub(crate) fn run() -> Result<(), Failure> {
    let mut report = Report::default();
    component("rustfmt", "cargo fmt --version")?;
    component("clippy", "cargo clippy --version")?;

    report.step("format", &mut command("cargo fmt --all --check"))?;
    // Clippy also checks that nothing newer than `rust-version` is used.
    let lints = "cargo clippy --workspace --all-targets --all-features -- -D warnings";
    report.step("lints", &mut command(lints))?;
    report.step("tests", &mut command("cargo test --workspace --all-features"))?;
    let mut docs = command("cargo doc --workspace --no-deps --all-features");
    report.step("docs", docs.env("RUSTDOCFLAGS", "-D warnings"))?;
    // Without debug assertions an overflow wraps silently: the answers must be right there too.
    report.step("core without debug assertions", &mut command("cargo test -p tollgate-core --release"))?;
    loom(&mut report)?;
    dependency_rules(&mut report)?;

    println!("{}", report.summary());
    Ok(())
}

/// Makes sure that a part of the toolchain is there.
fn component(name: &str, probe: &str) -> Result<(), Failure> {
    if works(probe) {
        return Ok(());
    }
    println!("{name} is not installed: adding it");
    run::run(&mut command(&format!("rustup component add {name}")))
}

fn loom(report: &mut Report) -> Result<(), Failure> {
    if !root().join(LOOM_TEST).exists() {
        report.leave_out(format!("loom ({LOOM_TEST} does not exist)"));
        return Ok(());
    }
    // Its own directory: the other flags would make cargo rebuild everything, here and again in the next run.
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    let mut loom = command("cargo test -p tollgate --release --test loom --target-dir");
    loom.arg(target.join("loom")).env("RUSTFLAGS", "--cfg loom").env("LOOM_MAX_PREEMPTIONS", "3");
    report.step("loom", &mut loom)
}

/// Only if it is there already: compiling cargo-deny takes minutes.
fn dependency_rules(report: &mut Report) -> Result<(), Failure> {
    if !works("cargo deny --version") {
        report.leave_out("dependency rules (`cargo install --locked cargo-deny` adds them)".into());
        return Ok(());
    }
    report.step("dependency rules", &mut command("cargo deny check"))
}

/// What was run and what was not.
#[derive(Default)]
struct Report {
    passed: Vec<&'static str>,
    left_out: Vec<String>,
}

impl Report {
    fn step(&mut self, name: &'static str, command: &mut Command) -> Result<(), Failure> {
        run::run(command).map_err(|failure| match failure {
            Failure::Step(message) => Failure::Step(format!("FAILED at {name}: {message}")),
            misuse @ Failure::Misuse(_) => misuse,
        })?;
        self.passed.push(name);
        Ok(())
    }

    fn leave_out(&mut self, what: String) {
        println!("left out: {what}");
        self.left_out.push(what);
    }

    fn summary(&self) -> String {
        let passed = self.passed.join(", ");
        if self.left_out.is_empty() {
            return format!("passed: {passed}");
        }
        format!("passed: {passed}; left out: {}", self.left_out.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_names_what_was_left_out() {
        let mut report = Report { passed: vec!["format", "lints"], left_out: Vec::new() };
        assert_eq!(report.summary(), "passed: format, lints");
        report.leave_out("loom".into());
        assert_eq!(report.summary(), "passed: format, lints; left out: loom");
    }

    #[test]
    fn a_failure_names_its_step() {
        let mut report = Report::default();
        let Err(Failure::Step(message)) = report.step("format", &mut command("no-such-program-anywhere"))
        else {
            panic!("it ran")
        };
        assert!(
            message.starts_with("FAILED at format: `no-such-program-anywhere` did not start"),
            "{message}"
        );
        assert!(report.passed.is_empty());
    }
}
