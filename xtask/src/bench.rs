//! `cargo xtask bench`: runs the benchmarks, which live outside the workspace.

mod before;

use std::fs;
use std::path::Path;

use before::Before;

use crate::measurements;
use crate::run::{self, Failure, command, root};
use crate::test::{envoy, package};

const BINS: &str = "benches/src/bin";

pub(crate) fn run(args: &[&str]) -> Result<(), Failure> {
    let plan = Plan::new(args, &names(&root().join(BINS))).map_err(Failure::Misuse)?;
    let before = plan.before.as_deref().map(|rev| Before::new(root(), rev)).transpose()?;
    let mut failed = Vec::new();
    for name in &plan.names {
        tools(name)?;
        if plan.publishes {
            measurements::forget(name)?;
        }
        // One that misses its goal must not hide the others.
        if let Err(failure) = run_one(name, &plan.flags, before.as_ref()) {
            let (Failure::Step(message) | Failure::Misuse(message)) = failure;
            eprintln!("xtask: {message}");
            failed.push(name.as_str());
        }
    }
    // After all of them, so that no bench sees files that another one changed and calls its commit dirty.
    if plan.publishes {
        measurements::publish(&plan.names)?;
    }
    if failed.is_empty() {
        Ok(())
    } else {
        Err(Failure::Step(format!("FAILED benches: {}", failed.join(", "))))
    }
}

/// Builds and runs one bench, in turn with the same bench of an earlier commit if there is one.
fn run_one(name: &str, flags: &[String], before: Option<&Before>) -> Result<(), Failure> {
    let mut bench = command("cargo run --release --manifest-path benches/Cargo.toml --bin");
    bench.arg(name).arg("--").args(flags);
    if let Some(before) = before {
        // See benches/src/before.rs.
        bench.env("TOLLGATE_BENCH_BEFORE", before.build(name)?);
        bench.env("TOLLGATE_BENCH_BEFORE_COMMIT", before.commit());
    }
    run::run(&mut bench)
}

/// Makes sure that there is what a bench calls: loads, peers, and what counts instructions.
fn tools(bench: &str) -> Result<(), Failure> {
    let redis = || package("redis-server", "redis-server --version && redis-benchmark --version");
    match bench {
        "server" => package("wrk", "command -v wrk").and_then(|()| redis()),
        "redis" => redis(),
        "rls" => envoy(),
        "direct" | "keyed" | "tower" => package("valgrind", "valgrind --version"),
        _ => Ok(()),
    }
}

/// What to run and how.
#[derive(Debug, PartialEq)]
struct Plan {
    names: Vec<String>,
    flags: Vec<String>,
    /// The revision to compare with.
    before: Option<String>,
    /// Whether the results go into `docs/measurements.md`.
    publishes: bool,
}

impl Plan {
    fn new(args: &[&str], known: &[String]) -> Result<Self, String> {
        let (mut flags, mut wanted, mut before, mut publishes) = (Vec::new(), Vec::new(), None, false);
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match *arg {
                "--check" | "--quick" => flags.push((*arg).to_string()),
                "--publish" => publishes = true,
                "--before" => {
                    let rev = args.next().filter(|rev| !rev.starts_with('-'));
                    before = Some(rev.ok_or("--before needs a git revision, such as HEAD~1")?.to_string());
                }
                flag if flag.starts_with('-') => {
                    return Err(format!(
                        "`bench` has no flag {flag}; it has --check, --quick, --before REV and --publish"
                    ));
                }
                name => wanted.push(name),
            }
        }
        let list =
            if known.is_empty() { format!("none in {BINS}") } else { format!("{}, all", known.join(", ")) };
        let names = match wanted[..] {
            ["all"] if !known.is_empty() => known.to_vec(),
            [name] if known.iter().any(|known| known == name) => vec![name.to_string()],
            [name] => return Err(format!("there is no bench {name:?}; there are: {list}")),
            [] => return Err(format!("`bench` needs a name; there are: {list}")),
            [_, second, ..] => return Err(format!("`bench` takes one name, but got {second:?} as well")),
        };
        let is_quick = flags.iter().any(|flag| flag == "--quick");
        if publishes && is_quick {
            return Err(
                "the results of a --quick run are not published; leave out --quick or --publish".into()
            );
        }
        publishes |= wanted == ["all"] && !is_quick && before.is_none();
        Ok(Self { names, flags, before, publishes })
    }
}

/// The names of the Rust files in a directory, sorted.
pub(crate) fn names(directory: &Path) -> Vec<String> {
    // A directory that cannot be read has none; the message then says where they would be.
    let paths = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut names: Vec<String> = paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_string()))
        .collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(args: &[&str]) -> Result<Plan, String> {
        Plan::new(args, &["direct".into(), "wait".into()])
    }

    #[test]
    fn flags_go_before_or_after_the_name() {
        let expected = Plan {
            names: vec!["wait".into()],
            flags: vec!["--quick".into()],
            before: None,
            publishes: false,
        };
        assert_eq!(plan(&["wait", "--quick"]).as_ref(), Ok(&expected));
        assert_eq!(plan(&["--quick", "wait"]).as_ref(), Ok(&expected));
    }

    #[test]
    fn before_takes_a_revision() {
        let expected = Plan {
            names: vec!["wait".into()],
            flags: vec!["--check".into()],
            before: Some("HEAD~1".into()),
            publishes: false,
        };
        assert_eq!(plan(&["wait", "--before", "HEAD~1", "--check"]).as_ref(), Ok(&expected));
        assert_eq!(plan(&["--check", "--before", "HEAD~1", "wait"]).as_ref(), Ok(&expected));
        let missing = "--before needs a git revision, such as HEAD~1";
        assert_eq!(plan(&["wait", "--before"]).unwrap_err(), missing);
        assert_eq!(plan(&["wait", "--before", "--check"]).unwrap_err(), missing);
    }

    #[test]
    fn all_is_every_name() {
        assert_eq!(plan(&["all"]).unwrap().names, ["direct", "wait"]);
    }

    #[test]
    fn full_runs_are_published_on_request_and_with_all() {
        let publishes = |args: &[&str]| plan(args).unwrap().publishes;
        assert!(publishes(&["all"]) && publishes(&["all", "--check"]));
        assert!(publishes(&["wait", "--publish"]) && publishes(&["wait", "--before", "HEAD", "--publish"]));
        assert!(
            !publishes(&["wait"])
                && !publishes(&["all", "--quick"])
                && !publishes(&["all", "--before", "HEAD"])
        );
        assert_eq!(
            plan(&["wait", "--quick", "--publish"]).unwrap_err(),
            "the results of a --quick run are not published; leave out --quick or --publish"
        );
    }

    #[test]
    fn misuse_lists_the_names() {
        assert_eq!(plan(&[]).unwrap_err(), "`bench` needs a name; there are: direct, wait, all");
        assert_eq!(
            plan(&["drect"]).unwrap_err(),
            "there is no bench \"drect\"; there are: direct, wait, all"
        );
        assert_eq!(
            plan(&["wait", "--fast"]).unwrap_err(),
            "`bench` has no flag --fast; it has --check, --quick, --before REV and --publish"
        );
        assert_eq!(
            plan(&["direct", "wait"]).unwrap_err(),
            "`bench` takes one name, but got \"wait\" as well"
        );
        assert_eq!(
            Plan::new(&["all"], &[]).unwrap_err(),
            "there is no bench \"all\"; there are: none in benches/src/bin"
        );
    }

    #[test]
    fn names_are_the_rust_files() {
        let names_here = names(&root().join("xtask/src")); // where there is also help.txt
        assert!(["bench", "main"].iter().all(|name| names_here.iter().any(|known| known == name)));
        assert!(names_here.is_sorted() && !names_here.iter().any(|name| name.starts_with("help")));
        assert!(names(&root().join("no/such/directory")).is_empty());
    }
}
