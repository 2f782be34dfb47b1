//! A database of `PostgreSQL`.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::free_port;
use crate::program::{Program, Says, find};

/// A `postgres` with an empty database; it lets everybody on loopback in.
#[derive(Debug)]
pub struct Postgres {
    port: u16,
    _program: Program,
    _directory: TempDir,
}

impl Postgres {
    /// Makes a database and starts it.
    pub fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory for postgres");
        let (port, data) = (free_port(), directory.path().join("data"));
        let mut make = as_itself("initdb", directory.path());
        make.args([
            "--username=postgres",
            "--auth=trust",
            "--encoding=UTF8",
            "--no-locale",
            "--no-sync",
            "--pgdata",
        ]);
        let made = make.arg(&data).output().expect("initdb starts");
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        let mut serve = as_itself("postgres", directory.path());
        serve.args(["-h", "127.0.0.1", "-c", "fsync=off", "-p"]).arg(port.to_string());
        serve.arg("-k").arg(directory.path()).arg("-D").arg(&data);
        // Killed outright, it would leave shared memory behind.
        let program = Program::start(&mut serve, Says::Err, "ready to accept connections").ending_by("INT");
        Self { port, _program: program, _directory: directory }
    }

    /// Where it listens, as `postgres://…`.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }
}

/// One of its programs, which refuse to run as root: then they run as the user that the package made.
fn as_itself(name: &str, directory: &Path) -> Command {
    let program = find(name, &hidden(), "postgresql");
    if !is_root() {
        return Command::new(program);
    }
    let given = Command::new("chown").arg("postgres").arg(directory).status();
    assert!(given.is_ok_and(|status| status.success()), "the package postgresql makes the user postgres");
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]).arg(program);
    command.current_dir(directory);
    command
}

fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().any(|line| line.starts_with("Uid:\t0\t"))
}

/// Debian keeps each version's programs in a directory of its own.
fn hidden() -> Vec<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    versions.filter_map(Result::ok).map(|version| version.path().join("bin")).collect()
}
