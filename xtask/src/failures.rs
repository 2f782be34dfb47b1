//! `cargo xtask failures`: runs the tests that break Redis, and writes `docs/redis-failures.md` from their results.

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
    // Remove the rows of an earlier run.
    let _ = fs::remove_dir_all(&rows);
    run::run(&mut command(
        "cargo test -p tollgate-redis --test it failures:: -- --test-threads 1 --skip the_page",
    ))?;
    let written = page(&rows).and_then(|page| fs::write(root().join(PAGE), page));
    written.map_err(|error| Failure::Step(format!("cannot write {PAGE}: {error}")))
}

/// Returns the page: the introduction, and one row for each fault.
fn page(rows: &Path) -> io::Result<String> {
    let mut files = fs::read_dir(rows)?.map(|file| Ok(file?.path())).collect::<io::Result<Vec<_>>>()?;
    files.sort();
    let mut page = HEAD.to_owned();
    for file in files {
        page += &fs::read_to_string(file)?;
    }
    let (date, server) = (output_of("date", "-u +%F"), output_of("redis-server", "--version"));
    let version = server.split(' ').find_map(|word| word.strip_prefix("v=")).unwrap_or("(unknown version)");
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let _ = writeln!(
        page,
        "\nMeasured on {date} with redis-server {version}. Redis and its clients shared {cores} CPU cores."
    );
    Ok(page)
}

/// Returns the output of a program.
fn output_of(program: &str, arguments: &str) -> String {
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
