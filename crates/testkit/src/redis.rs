//! A database of Redis: one server, a cluster, or servers with sentinels.

mod cluster;
mod sentinel;

use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use crate::free_port;
use crate::program::{Program, Says, find};
pub use cluster::RedisCluster;
pub use sentinel::RedisSentinel;

/// A `redis-server` that keeps nothing on disk.
#[derive(Debug)]
pub struct Redis {
    port: u16,
    program: Program,
    _directory: TempDir,
}

impl Redis {
    /// Starts one.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts one with further settings, such as `["--maxmemory", "2mb"]`.
    pub fn start_with(settings: &[&str]) -> Self {
        Self::start_on(free_port(), settings)
    }

    /// Starts one on a port that is known to be free: that of one that has ended, say.
    pub fn start_on(port: u16, settings: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a directory for redis");
        let mut command = server();
        command
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port"])
            .arg(port.to_string());
        command.arg("--dir").arg(directory.path()).args(settings);
        let program = Program::start(&mut command, Says::Out, "Ready to accept connections");
        Self { port, program, _directory: directory }
    }

    /// Returns the path of `redis-server`, or of the program that `TOLLGATE_REDIS_SERVER` names, such as `valkey-server`.
    pub fn program() -> PathBuf {
        let name = std::env::var("TOLLGATE_REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
        find(&name, &[], &name)
    }

    /// Where it listens, as `redis://…`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its process, for those who want to send it a signal.
    pub fn process(&self) -> u32 {
        self.program.id()
    }

    /// What it answers to a command.
    pub fn ask(&self, words: &[&str]) -> String {
        ask(self.port, words)
    }
}

/// `redis-server`, or what `TOLLGATE_REDIS_SERVER` names instead, such as `valkey-server`.
fn server() -> Command {
    Command::new(Redis::program())
}

/// What a server answers to a command.
fn ask(port: u16, words: &[&str]) -> String {
    let mut cli = Command::new(find("redis-cli", &[], "redis-tools"));
    let answer = cli.args(["-p", &port.to_string()]).args(words).output().expect("redis-cli starts");
    String::from_utf8_lossy(&answer.stdout).trim().to_owned()
}

/// Asks until the answer is as wanted, for some seconds at most; each question takes some milliseconds by itself.
fn wait_until(port: u16, words: &[&str], is_wanted: impl Fn(&str) -> bool) -> String {
    const QUESTIONS: u32 = 5_000;
    let mut answer = String::new();
    for _ in 0..QUESTIONS {
        answer = ask(port, words);
        if is_wanted(&answer) {
            return answer;
        }
    }
    panic!("redis on port {port} still answers {words:?} with:\n{answer}");
}
