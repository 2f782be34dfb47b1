//! A database of Redis.

use std::process::Command;

use tempfile::TempDir;

use crate::free_port;
use crate::program::{Program, Says, find};

/// A `redis-server` that keeps nothing on disk.
#[derive(Debug)]
pub struct Redis {
    port: u16,
    _program: Program,
    _directory: TempDir,
}

impl Redis {
    /// Starts one.
    pub fn start() -> Self {
        let (port, directory) = (free_port(), tempfile::tempdir().expect("a directory for redis"));
        let mut command = Command::new(find("redis-server", &[], "redis-server"));
        command
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port"])
            .arg(port.to_string());
        command.arg("--dir").arg(directory.path());
        let program = Program::start(&mut command, Says::Out, "Ready to accept connections");
        Self { port, _program: program, _directory: directory }
    }

    /// Where it listens, as `redis://…`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }
}
