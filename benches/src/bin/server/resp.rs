//! The protocol of Redis: ours, and a Redis, the server on one core and the load on the other.
//!
//! - `resp-pipeline-1` and `-16`: `redis-benchmark` with 50 connections and 100 000 keys. Ours answers `CL.THROTTLE`; a Redis
//!   answers PING, INCR, and a GCRA in Lua by EVALSHA. `-cpu` is what the server's process used per request, which depends
//!   least on the load.
//! - `resp-batch-longest`: the longest of many batches of 16 over one connection, waiting for a core taken off, at both ends.
//! - `resp-bytes-per-key`: resident memory of the server's process, less what it has with no keys, per key that came over
//!   the wire.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::Command;

use tollgate_benches::{Bench, Better, Case, Contender, Goal, Options, Pauses, alternate};
use tollgate_server::resp::Resp;

use crate::SERVE_RESP;
use crate::child::{Server, Started, start as start_by};

/// GCRA as one would write it for Redis: KEYS[1] is the key, ARGV are the interval and the tolerance in microseconds. A script,
/// because reading the time, deciding and writing must not be torn apart.
const LUA: &str = "local t = redis.call('TIME') local now = t[1] * 1000000 + t[2] \
    local tat = tonumber(redis.call('GET', KEYS[1]) or now) if tat < now then tat = now end \
    local new = tat + ARGV[1] if new - now > tonumber(ARGV[2]) then return {1, new - now - ARGV[2]} end \
    redis.call('SET', KEYS[1], string.format('%.17g', new), 'PX', math.ceil((new - now) / 1000)) return {0, 0}";

/// What a contender is asked.
type Asked = Vec<String>;

pub(crate) fn start() -> Started {
    start_by("[limit.none]\nrate = \"1/h\"\nmatch.nobody = \"here\"\n", Resp::new())
}

pub(crate) fn run(options: Options, bench: &mut Bench) {
    let (ours, redis) = (Server::ours(SERVE_RESP), Server::redis());
    let sha = load_script(&redis);
    let key = "key:__rand_int__";
    let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Asked>();
    let contenders: [(&'static str, &Server, Asked); 4] = [
        ("tollgate", &ours, words(&["CL.THROTTLE", key, "15", "30", "60"])),
        ("redis-ping", &redis, words(&["PING"])),
        ("redis-incr", &redis, words(&["INCR", key])),
        ("redis-lua-gcra", &redis, words(&["EVALSHA", &sha, "1", key, "2000000", "32000000"])),
    ];
    for pipeline in [1, 16] {
        throughput(options, bench, pipeline, &contenders);
    }
    batches(options, bench, &ours, &redis);
    drop((ours, redis));
    memory(options, bench);
}

fn throughput(
    options: Options,
    bench: &mut Bench,
    pipeline: u32,
    contenders: &[(&'static str, &Server, Asked)],
) {
    let (rounds, requests) = match (options.is_quick(), pipeline) {
        (true, 1) => (1, 100_000),
        (true, _) => (1, 500_000),
        (false, 1) => (5, 300_000),
        (false, _) => (5, 2_000_000),
    };
    let mut rate = Case::new(format!("resp-pipeline-{pipeline}"), "k req/s", Better::Higher);
    rate = if pipeline == 1 {
        rate.goal(Goal::ratio_at_least("tollgate", "redis-incr", 1.0))
    } else {
        rate.goal(Goal::ratio_at_least("tollgate", "redis-ping", 0.9)).goal(Goal::ratio_at_least(
            "tollgate",
            "redis-lua-gcra",
            6.0,
        ))
    };
    let mut cpu = Case::new(format!("resp-pipeline-{pipeline}-cpu"), "us/req", Better::Lower);
    let runs: Vec<Contender<'_, (f64, f64)>> = contenders
        .iter()
        .map(|(name, server, asked)| {
            let run = move || {
                let before = server.cpu_seconds();
                let rate = load(server.port, pipeline, requests, asked);
                (rate / 1e3, (server.cpu_seconds() - before) * 1e6 / f64::from(requests))
            };
            (*name, Box::new(run) as Box<dyn Fn() -> (f64, f64)>)
        })
        .collect();
    alternate(rounds, &runs, |name, (per_second, used)| {
        rate.sample(name, per_second);
        cpu.sample(name, used);
    });
    bench.add(rate);
    bench.add(cpu);
}

/// Requests per second.
fn load(port: u16, pipeline: u32, requests: u32, asked: &Asked) -> f64 {
    let output = Command::new("redis-benchmark")
        .args(["--csv", "-c", "50", "-r", "100000", "-p", &port.to_string()])
        .args(["-P", &pipeline.to_string(), "-n", &requests.to_string()])
        .args(asked)
        .output()
        .expect("redis-benchmark is installed");
    let text = String::from_utf8_lossy(&output.stdout);
    // "test","rps",…  and then the same for what was asked, whose own quotes do not matter.
    let line = text.lines().last().unwrap_or_default();
    let rate = line.split("\",\"").nth(1).and_then(|rate| rate.trim_matches('"').parse().ok());
    rate.unwrap_or_else(|| panic!("redis-benchmark said: {text}"))
}

fn load_script(redis: &Server) -> String {
    let output =
        Command::new("redis-cli").args(["-p", &redis.port.to_string(), "SCRIPT", "LOAD", LUA]).output();
    String::from_utf8_lossy(&output.expect("redis-cli is installed").stdout).trim().to_owned()
}

/// The longest of many batches over one connection. What a Redis takes for as many PINGs is the noise of the machine.
fn batches(options: Options, bench: &mut Bench, ours: &Server, redis: &Server) {
    let (rounds, count) = if options.is_quick() { (1, 10_000) } else { (5, 100_000) };
    let mut case =
        Case::new("resp-batch-longest", "us", Better::Lower).goal(Goal::least_at_most("tollgate", 1_000.0));
    let throttles =
        |batch: u64| (0..16).flat_map(|place| throttle((batch * 16 + place) % 100_000)).collect::<Vec<u8>>();
    let pings = |_| b"*1\r\n$4\r\nPING\r\n".repeat(16);
    let runs: [Contender<'_, f64>; 2] = [
        ("tollgate", Box::new(|| longest(ours, count, throttles, 16 * 6))),
        ("redis-ping", Box::new(|| longest(redis, count, pings, 16))),
    ];
    alternate(rounds, &runs, |name, longest| case.sample(name, longest));
    bench.add(case);
}

/// The longest time until a batch is answered, in so many lines.
fn longest(server: &Server, count: u64, batch: impl Fn(u64) -> Vec<u8>, lines: usize) -> f64 {
    let mut line = Line::new(server.port);
    let (mut longest, mut waited) = (0.0_f64, server.waited_seconds());
    for number in 0..count {
        let (sent, mut pauses) = (batch(number), Pauses::new());
        pauses.time(|| line.ask(&sent, lines));
        // Only what could be the longest is worth a look at how long the server had no core.
        if pauses.longest_us() > longest || number % 64 == 0 {
            let before = std::mem::replace(&mut waited, server.waited_seconds());
            longest = longest.max(pauses.longest_us() - (waited - before) * 1e6);
        }
    }
    longest
}

/// Resident memory per key, over the wire.
fn memory(options: Options, bench: &mut Bench) {
    for keys in [1_000_000_u64, 10_000_000] {
        if options.is_quick() && keys > 1_000_000 {
            continue;
        }
        let mut case = Case::new(format!("resp-bytes-per-key-{}m", keys / 1_000_000), "bytes", Better::Lower)
            .goal(Goal::at_most("tollgate", 64.0));
        let server = Server::ours(SERVE_RESP);
        let mut line = Line::new(server.port);
        line.ask(&throttle(u64::MAX), 6);
        let before = server.resident_bytes();
        for first in (0..keys).step_by(500) {
            let sent: Vec<u8> = (first..first + 500).flat_map(throttle).collect();
            line.ask(&sent, 500 * 6);
        }
        case.sample("tollgate", (server.resident_bytes() - before) / keys as f64);
        bench.add(case);
    }
}

/// A key that is not idle before the end: an hour for each.
fn throttle(key: u64) -> Vec<u8> {
    let key = format!("user:{key:012}");
    let command = format!(
        "*5\r\n$11\r\nCL.THROTTLE\r\n${}\r\n{key}\r\n$2\r\n99\r\n$1\r\n1\r\n$4\r\n3600\r\n",
        key.len()
    );
    command.into_bytes()
}

/// One connection.
struct Line {
    stream: TcpStream,
    heard: Vec<u8>,
}

impl Line {
    fn new(port: u16) -> Self {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("it listens");
        stream.set_nodelay(true).expect("a socket");
        Self { stream, heard: vec![0; 1 << 20] }
    }

    /// Sends commands, and waits for so many lines of answers.
    fn ask(&mut self, sent: &[u8], mut lines: usize) {
        self.stream.write_all(sent).expect("it listens");
        while lines > 0 {
            let count = self.stream.read(&mut self.heard).expect("it answers");
            assert!(count > 0, "the server closed the connection");
            lines -= self.heard[..count].iter().filter(|byte| **byte == b'\n').count();
        }
    }
}
