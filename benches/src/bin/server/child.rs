//! Servers in processes of their own, on the core of servers.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::os::unix::fs::FileExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use tollgate::store::MemoryStore;
use tollgate_benches::pin_to_core;
use tollgate_policy::Policy;
use tollgate_server::{Engine, Origin, Protocol, Running, Server as OurServer, Timeouts};
use tollgate_testkit::free_port;

use crate::SERVER_CORE;

/// Is the server that the only argument asks for, until whoever started this process is gone; whether it asks for one. For every
/// line that it is sent it begins anew, with nothing in its store and the port told again: in the same process, so that the keys'
/// fingerprints are the same each time.
pub(crate) fn serve(start: impl Fn(&str) -> Option<Started>) -> bool {
    let mut arguments = std::env::args().skip(1);
    let Some(flag) = arguments.next().filter(|_| arguments.next().is_none()) else { return false };
    pin_to_core(SERVER_CORE); // and so the threads that it starts
    while let Some((port, running)) = start(&flag) {
        println!("{port}");
        let line = std::io::stdin().lines().next();
        drop(running);
        if line.is_none() {
            return true;
        }
    }
    false
}

/// More patience than any load needs.
pub(crate) const MINUTE: Timeouts =
    Timeouts { read: Duration::from_secs(60), write: Duration::from_secs(60) };

/// A server that runs, and its port.
pub(crate) type Started = (u16, Running);

/// Starts a protocol by a policy, with one worker.
pub(crate) fn start(policy: &str, protocol: impl Protocol<MemoryStore>) -> Started {
    let policy = Policy::parse("limits.toml", policy).expect("a policy");
    let mut server = OurServer::new(Engine::new(MemoryStore::new(), policy, Origin::default())).workers(1);
    let address = server.listen((Ipv4Addr::LOCALHOST, 0).into(), protocol, None).expect("a port");
    (address.port(), server.start().expect("threads"))
}

/// A server in a process of its own. It ends when this is dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) port: u16,
    /// Where ours is told to begin anew, and tells the port.
    ours: Option<(ChildStdin, BufReader<ChildStdout>)>,
}

impl Server {
    /// This program itself, which prints the port that it listens on.
    pub(crate) fn ours(flag: &str) -> Self {
        let program = std::env::current_exe().expect("this program has a place");
        let mut child = Command::new(program)
            .arg(flag)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program can be run again");
        let tell = child.stdin.take().expect("piped");
        let mut told = BufReader::new(child.stdout.take().expect("piped"));
        Self { port: port_in(&mut told), child, ours: Some((tell, told)) }
    }

    /// Forgets everything, and has another port.
    pub(crate) fn begin_anew(&mut self) {
        let (tell, told) = self.ours.as_mut().expect("one of ours");
        writeln!(tell, "anew").expect("it listens");
        self.port = port_in(told);
    }

    /// A Redis that keeps nothing on disk.
    pub(crate) fn redis() -> Self {
        let port = free_port();
        let mut child = Command::new("taskset")
            .args(["-c", &SERVER_CORE.to_string(), "redis-server", "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no", "--port", &port.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .expect("taskset and redis-server are installed");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let is_ready = lines.any(|line| line.is_ok_and(|line| line.contains("Ready to accept connections")));
        assert!(is_ready, "redis-server ended instead of listening");
        std::thread::spawn(move || lines.for_each(drop)); // so that it never waits for a reader
        Self { child, port, ours: None }
    }

    /// Seconds of a core that it has used.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        self.used().nanos() as f64 / 1e9
    }

    /// What its threads use.
    pub(crate) fn used(&self) -> Used {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).into_iter().flatten().flatten();
        Used(tasks.filter_map(|task| File::open(task.path().join("schedstat")).ok()).collect())
    }

    /// Bytes of resident memory.
    pub(crate) fn resident_bytes(&self) -> f64 {
        let rollup = fs::read_to_string(format!("/proc/{}/smaps_rollup", self.child.id())).expect("it runs");
        let kilobytes = rollup.lines().find_map(|line| line.strip_prefix("Rss:")?.trim().strip_suffix(" kB"));
        kilobytes.and_then(|number| number.parse::<f64>().ok()).expect("a line with the resident memory")
            * 1_024.0
    }
}

fn port_in(told: &mut impl BufRead) -> u16 {
    let mut line = String::new();
    let told = told.read_line(&mut line);
    told.ok().and_then(|_| line.trim().parse().ok()).expect("the port it listens on")
}

/// What the threads that a server had when it was asked use of their core, as the system counts it: up to now if they wait, and
/// else up to when it last looked.
pub(crate) struct Used(Vec<File>);

impl Used {
    pub(crate) fn nanos(&self) -> u64 {
        let of = |file: &File| {
            let mut text = [0; 96];
            let length = file.read_at(&mut text, 0).ok()?;
            std::str::from_utf8(&text[..length]).ok()?.split_whitespace().next()?.parse::<u64>().ok()
        };
        self.0.iter().filter_map(of).sum()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
