//! Where and when a number was measured.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// Keeps the current thread on one core. Threads that it starts afterwards stay there too.
pub fn pin_to_core(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    if let Err(error) = sched_setaffinity(None, &set) {
        eprintln!("cannot pin to core {core}: {error}; the figures will be noisier");
    }
}

/// How long this thread has worked so far: what others do meanwhile hardly shows in it.
pub fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32) // neither is negative
}

/// The commit, with `-dirty` if there is more than it in the tree.
pub(crate) fn commit() -> String {
    output_of("git", &["-C", env!("CARGO_MANIFEST_DIR"), "describe", "--always", "--dirty", "--abbrev=40"])
}

/// The time in UTC.
pub(crate) fn date() -> String {
    output_of("date", &["-u", "+%Y-%m-%dT%H:%M:%SZ"])
}

/// The processor and how much of it.
pub(crate) fn machine() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{}, {cores} cores", model.map_or("unknown processor", |(_, name)| name))
}

/// The versions of the peers: as locked, and Redis as installed.
pub(crate) fn peers() -> String {
    const PEERS: [&str; 14] = [
        "ahash",
        "axum",
        "dashmap",
        "governor",
        "hyper",
        "leaky-bucket",
        "limitador",
        "pingora-limits",
        "quanta",
        "ratelimit",
        "throttlecrab",
        "tokio",
        "tonic",
        "tower_governor",
    ];
    let lock = include_str!("../Cargo.lock");
    let mut lines = lock.lines();
    let mut found = Vec::new();
    while let Some(line) = lines.next() {
        let name = line.strip_prefix("name = ").map(|name| name.trim_matches('"'));
        if let Some(name) = name.filter(|name| PEERS.contains(name)) {
            let version = lines.next().and_then(|line| line.strip_prefix("version = "));
            found.push(format!("{name} {}", version.unwrap_or("?").trim_matches('"')));
        }
    }
    let redis = output_of("redis-server", &["--version"]);
    let version = redis.split(' ').find_map(|word| word.strip_prefix("v="));
    found.extend(version.map(|version| format!("redis-server {version}")));
    found.join(", ")
}

/// How busy the whole machine and this process with its children have been so far, in seconds of one core.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Busy {
    machine: f64,
    own: f64,
    at: Instant,
}

impl Busy {
    pub(crate) fn now() -> Self {
        // Both files count in hundredths of a second: see proc(5), and sysconf(_SC_CLK_TCK).
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let fields: Vec<f64> = numbers(stat.lines().next().unwrap_or_default());
        // user, nice, system, then idle and waiting, then interrupts, then what the host stole
        let machine = fields.iter().take(8).sum::<f64>() - fields.iter().skip(3).take(2).sum::<f64>();
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // The name, in parentheses, may hold anything; user and system time are the 12th and 13th after it.
        let fields: Vec<f64> = numbers(stat.rsplit_once(") ").map_or("", |(_, rest)| rest));
        let own = fields.iter().skip(10).take(4).sum::<f64>();
        Self { machine: machine / 100.0, own: own / 100.0, at: Instant::now() }
    }

    /// Cores that others used since then; nothing can be said of less than a moment.
    pub(crate) fn others_since(self) -> f64 {
        let now = Self::now();
        let (long, moment) = (now.at - self.at, Duration::from_millis(50));
        let others = (now.machine - self.machine) - (now.own - self.own);
        if long < moment { 0.0 } else { (others / long.as_secs_f64()).max(0.0) }
    }
}

fn numbers(line: &str) -> Vec<f64> {
    line.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

fn output_of(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output();
    let text = output.ok().filter(|output| output.status.success()).map(|output| output.stdout);
    text.map_or_else(|| "unknown".to_owned(), |text| String::from_utf8_lossy(&text).trim().to_owned())
}
