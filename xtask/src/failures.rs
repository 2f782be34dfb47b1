//! `cargo xtask failures`: breaks Redis in every way the tests know, and writes down what callers saw.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use crate::run::{self, Failure, command, root};
use crate::test::{package, target};

const PAGE: &str = "docs/redis-failures.md";
const HEAD: &str = include_str!("failures.md");

pub(crate) fn run() -> Result<(), Failure> {
    package("redis-server", "redis-server --version")?;
    let rows = target().join("tmp/redis-failures");
    // What an earlier run left says nothing about this one.
    let _ = fs::remove_dir_all(&rows);
    run::run(&mut command(
        "cargo test -p tollgate-redis --test it failures:: -- --test-threads 1 --skip the_page",
    ))?;
    let written = page(&rows).and_then(|page| fs::write(root().join(PAGE), page));
    written.map_err(|error| Failure::Step(format!("{PAGE} could not be written: {error}")))
}

/// The page, from a row for each fault.
fn page(rows: &Path) -> io::Result<String> {
    let mut files = fs::read_dir(rows)?.map(|file| Ok(file?.path())).collect::<io::Result<Vec<_>>>()?;
    files.sort();
    let mut page = HEAD.to_owned();
    for file in files {
        page += &fs::read_to_string(file)?;
    }
    let (date, server) = (said("date", "-u +%F"), said("redis-server", "--version"));
    let version =
        server.split(' ').find_map(|word| word.strip_prefix("v=")).unwrap_or("of an unknown version");
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let _ = writeln!(
        page,
        "\nMeasured on {date} with redis-server {version} on {cores} cores, which the callers share with it."
    );
    Ok(page)
}

/// What a program says.
fn said(program: &str, arguments: &str) -> String {
    let output = Command::new(program).args(arguments.split(' ')).output();
    output.map_or(String::new(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_rows_in_their_order() {
        let folder = std::env::temp_dir().join(format!("tollgate-failures-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        for (name, row) in [("1.md", "| second |\n"), ("0.md", "| first |\n")] {
            fs::write(folder.join(name), row).unwrap();
        }
        let page = page(&folder).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert!(page.contains("| --- |\n| first |\n| second |\n\nMeasured on "), "{page}");
    }
}
