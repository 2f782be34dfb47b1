//! A primary, a replica, and a sentinel that watches them.

use std::fs;

use tempfile::TempDir;

use super::{Redis, ask, server, wait_until};
use crate::free_port;
use crate::program::{Program, Says};

/// A primary, a replica of it, and one sentinel, which may promote the replica all by itself.
#[derive(Debug)]
pub struct RedisSentinel {
    servers: [Redis; 2],
    port: u16,
    _sentinel: Program,
    _directory: TempDir,
}

impl RedisSentinel {
    /// Starts them, and returns when the sentinel knows both servers.
    pub fn start() -> Self {
        let primary = Redis::start();
        let of = primary.port().to_string();
        let replica =
            Redis::start_with(&["--replicaof", "127.0.0.1", &of, "--repl-diskless-sync-delay", "0"]);
        let (port, directory) = (free_port(), tempfile::tempdir().expect("a directory for a sentinel"));
        let settings = directory.path().join("sentinel.conf");
        let text = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor main 127.0.0.1 {of} 1\n\
             sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 2000\n",
            directory.path().display()
        );
        fs::write(&settings, text).expect("settings for a sentinel");
        let mut command = server();
        command.arg(&settings).arg("--sentinel");
        let sentinel = Program::start(&mut command, Says::Out, "+monitor");
        let info = |of: u16, words: &[&str], wanted: &str| {
            wait_until(of, words, |answer| answer.contains(wanted));
        };
        info(replica.port(), &["INFO", "replication"], "master_link_status:up");
        info(port, &["INFO", "sentinel"], "slaves=1");
        Self { servers: [primary, replica], port, _sentinel: sentinel, _directory: directory }
    }

    /// The servers: the first was the primary when all began.
    pub fn servers(&self) -> &[Redis; 2] {
        &self.servers
    }

    /// Where the sentinel is, as `redis+sentinel://…`.
    pub fn url(&self) -> String {
        format!("redis+sentinel://127.0.0.1:{}/main", self.port)
    }

    /// Has the replica promoted, and returns when it is.
    pub fn fail_over(&self) {
        wait_until(self.port, &["SENTINEL", "FAILOVER", "main"], |answer| answer == "OK");
        wait_until(self.servers[1].port(), &["INFO", "replication"], |answer| answer.contains("role:master"));
        let new = self.servers[1].port().to_string();
        wait_until(self.port, &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main"], |answer| {
            answer.contains(&new)
        });
    }

    /// What the sentinel answers to a command.
    pub fn ask(&self, words: &[&str]) -> String {
        ask(self.port, words)
    }
}
