//! The protocol of Redis: ours, and a Redis, the server on one core and the load on the other.
//!
//! - `resp-pipeline-1` and `-16`: `redis-benchmark` with 50 connections and 100 000 keys. Ours answers `CL.THROTTLE`, and as
//!   `tollgate-allow` `TG.ALLOW`, whose answer is one number and not five; a Redis answers PING, INCR, and a GCRA in Lua by EVALSHA; `nothing` is asked what ours is and answers without deciding, so it is the
//!   most that this load gets out of any server that answers so. `-cpu` is what the server's process used per request, which depends
//!   least on the load, and `-load` how much of its own core the load used: near 1, it is the load that is measured.
//! - `resp-lean-16`: the same with a [load that takes less](super::lean), so that it is the server that is measured.
//! - `resp-batch-longest`: many batches of 16 over one connection, every key another one and so a table that grows, the same in
//!   every round, to a server that has just begun in the same process (so that fingerprints, and with them what the table does when,
//!   are the same): the longest that a caller waits for the same batch in every one of the rounds. What the machine's other work, and the
//!   hypervisor's, keep a batch waiting in one round, it does not in all of them. `resp-batch-longest-seen` is the longest of single
//!   rounds, `resp-batch-longest-used` the most that the server's process used of its core for one batch, `resp-batch-p9999` what
//!   callers see of one in 10 000. What a Redis takes for PINGs, and `nothing` for the same batches, is how much of that is the
//!   machine; `machine` is a thread there that sends back a byte, and no server at all.
//! - `resp-bytes-per-key`: resident memory of the server's process, less what it has with no keys, per key that came over
//!   the wire.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::{Duration, Instant};

use tollgate_benches::{
    Bench, Better, Case, Contender, Goal, Options, alternate, on_core, percentile, thread_cpu,
};
use tollgate_server::resp::Resp;

use crate::child::{Server, Started, start as start_by};
use crate::lean::{Lean, Line};
use crate::{SERVE_NOTHING, SERVE_RESP, SERVER_CORE};

/// GCRA as one would write it for Redis: KEYS[1] is the key, ARGV are the interval and the tolerance in microseconds. A script,
/// because reading the time, deciding and writing must not be torn apart.
const LUA: &str = "local t = redis.call('TIME') local now = t[1] * 1000000 + t[2] \
    local tat = tonumber(redis.call('GET', KEYS[1]) or now) if tat < now then tat = now end \
    local new = tat + ARGV[1] if new - now > tonumber(ARGV[2]) then return {1, new - now - ARGV[2]} end \
    redis.call('SET', KEYS[1], string.format('%.17g', new), 'PX', math.ceil((new - now) / 1000)) return {0, 0}";

/// Who is asked what.
struct Contestant<'a> {
    name: &'static str,
    server: &'a Server,
    words: Vec<String>,
    /// Of one answer.
    lines: usize,
}

impl Contestant<'_> {
    /// Whether it takes so long that fewer requests tell as much.
    fn is_slow(&self) -> bool {
        self.words[0] == "EVALSHA"
    }
}

/// What stands for one of 100 000 keys, for `redis-benchmark`.
const ANY_KEY: &str = "key:__rand_int__";
const KEYS: u64 = 100_000;

pub(crate) fn start() -> Started {
    start_by("[limit.none]\nrate = \"1/h\"\nmatch.nobody = \"here\"\n", Resp::new())
}

pub(crate) fn run(options: Options, bench: &mut Bench) {
    let (ours, nothing, redis) = (Server::ours(SERVE_RESP), Server::ours(SERVE_NOTHING), Server::redis());
    let sha = load_script(&redis);
    let contestant = |name, server, words: &[&str], lines| Contestant {
        name,
        server,
        words: words.iter().map(ToString::to_string).collect(),
        lines,
    };
    let throttle = ["CL.THROTTLE", ANY_KEY, "15", "30", "60"];
    let contestants = [
        contestant("tollgate", &ours, &throttle, 6),
        contestant("tollgate-allow", &ours, &["TG.ALLOW", ANY_KEY, "30/min"], 1),
        contestant("nothing", &nothing, &throttle, 6),
        contestant("redis-ping", &redis, &["PING"], 1),
        contestant("redis-incr", &redis, &["INCR", ANY_KEY], 1),
        contestant("redis-lua-gcra", &redis, &["EVALSHA", &sha, "1", ANY_KEY, "2000000", "32000000"], 3),
    ];
    for pipeline in [1, 16] {
        throughput(options, bench, pipeline, &contestants);
    }
    lean(options, bench, &contestants);
    drop(ours);
    batches(options, bench, &nothing, &redis);
    drop((nothing, redis));
    memory(options, bench);
}

fn throughput(options: Options, bench: &mut Bench, pipeline: u32, contestants: &[Contestant<'_>]) {
    let (rounds, requests) = match (options.is_quick(), pipeline) {
        (true, 1) => (1, 100_000),
        (true, _) => (1, 500_000),
        (false, 1) => (15, 150_000),
        (false, _) => (15, 1_000_000),
    };
    let name = format!("resp-pipeline-{pipeline}");
    let rate = Case::new(name.as_str(), "k req/s", Better::Higher);
    let mut rate = if pipeline == 1 {
        rate.goal(Goal::ratio_at_least("tollgate", "redis-incr", 1.0))
    } else {
        // The load takes so long for an answer of five numbers that no server which sends them comes near one that answers PING;
        // `nothing` shows how near.
        rate.goal(Goal::ratio_at_least("tollgate", "redis-ping", 0.9))
            .goal(Goal::ratio_at_least("tollgate-allow", "redis-ping", 0.9))
            .goal(Goal::ratio_at_least("tollgate", "nothing", 0.95))
            .goal(Goal::ratio_at_least("tollgate", "redis-lua-gcra", 6.0))
    };
    let mut cpu = Case::new(format!("{name}-cpu"), "us/req", Better::Lower);
    let mut of_load = Case::new(format!("{name}-load"), "of a core", Better::Lower);
    let runs: Vec<Contender<'_, [f64; 3]>> = contestants
        .iter()
        .map(|contestant| {
            let server = contestant.server;
            let requests = if contestant.is_slow() { requests / 8 } else { requests };
            let run = move || {
                let (before, began, load_before) = (server.cpu_seconds(), Instant::now(), children_cpu());
                let rate = load(server.port, pipeline, requests, &contestant.words);
                let of_load = (children_cpu() - load_before) / began.elapsed().as_secs_f64();
                [rate / 1e3, (server.cpu_seconds() - before) * 1e6 / f64::from(requests), of_load]
            };
            (contestant.name, Box::new(run) as Box<dyn Fn() -> [f64; 3]>)
        })
        .collect();
    alternate(rounds, &runs, |name, [per_second, used, used_by_load]| {
        rate.sample(name, per_second);
        cpu.sample(name, used);
        of_load.sample(name, used_by_load);
    });
    for case in [rate, cpu, of_load] {
        bench.add(case);
    }
}

/// Seconds of a core that programs which have ended have used.
fn children_cpu() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the program, in brackets, may contain anything.
    let numbers = text.rsplit(')').next().unwrap_or_default().split_whitespace();
    // User and system time of children, in hundredths of a second.
    numbers.skip(13).take(2).filter_map(|number| number.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// What the servers can do if they are asked for more.
fn lean(options: Options, bench: &mut Bench, contestants: &[Contestant<'_>]) {
    let (rounds, span) =
        if options.is_quick() { (1, Duration::from_millis(500)) } else { (21, Duration::from_millis(500)) };
    let mut rate = Case::new("resp-lean-16", "k req/s", Better::Higher)
        .goal(Goal::ratio_at_least("tollgate", "redis-ping", 0.9))
        .goal(Goal::ratio_at_least("tollgate", "redis-lua-gcra", 6.0));
    let mut cpu = Case::new("resp-lean-16-cpu", "us/req", Better::Lower);
    let loads: Vec<RefCell<Lean>> = contestants
        .iter()
        .map(|contestant| {
            let mut rng = fastrand::Rng::with_seed(16);
            let mut command = || command_of(&contestant.words, rng.u64(..KEYS));
            let batches = (0..KEYS / 16).map(|_| (0..16).flat_map(|_| command()).collect()).collect();
            RefCell::new(Lean::new(contestant.server.port, batches, 16 * contestant.lines))
        })
        .collect();
    let runs: Vec<Contender<'_, [f64; 2]>> = contestants
        .iter()
        .zip(&loads)
        .map(|(contestant, load)| {
            let server = contestant.server;
            let run = move || {
                let (before, began) = (server.cpu_seconds(), Instant::now());
                let requests = 16.0 * load.borrow_mut().run(span) as f64;
                let (used, wall) = (server.cpu_seconds() - before, began.elapsed().as_secs_f64());
                [requests / wall / 1e3, used * 1e6 / requests]
            };
            (contestant.name, Box::new(run) as Box<dyn Fn() -> [f64; 2]>)
        })
        .collect();
    alternate(rounds, &runs, |name, [per_second, used]| {
        rate.sample(name, per_second);
        cpu.sample(name, used);
    });
    for case in [rate, cpu] {
        bench.add(case);
    }
}

/// A command as clients send it, about one of the keys.
fn command_of(words: &[String], key: u64) -> Vec<u8> {
    let mut command = format!("*{}\r\n", words.len());
    for word in words {
        let word = if word == ANY_KEY { format!("key:{key:012}") } else { word.clone() };
        let _ = write!(command, "${}\r\n{word}\r\n", word.len()); // a text takes everything
    }
    command.into_bytes()
}

/// Requests per second.
fn load(port: u16, pipeline: u32, requests: u32, asked: &[String]) -> f64 {
    let output = Command::new("redis-benchmark")
        .args(["--csv", "-c", "50", "-r", &KEYS.to_string(), "-p", &port.to_string()])
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

/// Many batches over one connection, one after the other.
fn batches(options: Options, bench: &mut Bench, nothing: &Server, redis: &Server) {
    let (rounds, count) = if options.is_quick() { (3, 10_000) } else { (5, 50_000) };
    let mut repeated =
        Case::new("resp-batch-longest", "us", Better::Lower).goal(Goal::at_most("tollgate", 1_000.0));
    let mut longest_seen = Case::new("resp-batch-longest-seen", "us", Better::Lower);
    let mut longest_used = Case::new("resp-batch-longest-used", "us", Better::Lower)
        .goal(Goal::always_at_most("tollgate", 1_000.0));
    let mut p9999 = Case::new("resp-batch-p9999", "us", Better::Lower);
    let throttles = |batch: u64| (0..16).flat_map(|place| throttle(batch * 16 + place)).collect::<Vec<u8>>();
    let pings = |_| b"*1\r\n$4\r\nPING\r\n".repeat(16);
    let ours = RefCell::new(Server::ours(SERVE_RESP));
    let ours_anew = || {
        let mut ours = ours.borrow_mut();
        ours.begin_anew();
        one_by_one(&ours, count, throttles, 16 * 6)
    };
    let runs: [Contender<'_, Batches>; 4] = [
        ("tollgate", Box::new(ours_anew)),
        ("nothing", Box::new(|| one_by_one(nothing, count, throttles, 16 * 6))),
        ("redis-ping", Box::new(|| one_by_one(redis, count, pings, 16))),
        ("machine", Box::new(|| echoed(count))),
    ];
    let mut least = HashMap::new();
    alternate(rounds, &runs, |name, Batches { mut waited, most_used }| {
        let least = least.entry(name).or_insert_with(|| waited.clone());
        for (least, waited) in least.iter_mut().zip(&waited) {
            *least = least.min(*waited);
        }
        waited.sort_by(f64::total_cmp);
        longest_seen.sample(name, waited[waited.len() - 1]);
        p9999.sample(name, percentile(&waited, 0.9999));
        longest_used.sample(name, most_used);
    });
    for (name, _) in &runs {
        repeated.sample(name, least[name].iter().copied().fold(0.0, f64::max));
    }
    for case in [repeated, longest_seen, longest_used, p9999] {
        bench.add(case);
    }
}

/// What came of some batches, in microseconds.
struct Batches {
    /// By the caller, for each.
    waited: Vec<f64>,
    /// The most that the server used between two answers.
    most_used: f64,
}

fn one_by_one(server: &Server, count: u64, batch: impl Fn(u64) -> Vec<u8>, lines: usize) -> Batches {
    let (mut line, used) = (Line::new(server.port), server.used());
    line.ask(&batch(0), lines);
    let (mut most_used, mut before) = (0, used.nanos());
    let mut waited = Vec::with_capacity(count as usize);
    for number in 0..count {
        let (sent, began) = (batch(number), Instant::now());
        line.ask(&sent, lines);
        waited.push(began.elapsed().as_secs_f64() * 1e6);
        let now = used.nanos();
        most_used = most_used.max(now - before);
        before = now;
    }
    Batches { waited, most_used: most_used as f64 / 1e3 }
}

/// The same without a server: a thread on the servers' core that sends back the byte it was sent.
fn echoed(count: u64) -> Batches {
    let (mut ours, mut theirs) = UnixStream::pair().expect("two ends of a socket");
    let echo = || {
        let (mut most_used, mut before, mut byte) = (Duration::ZERO, thread_cpu(), [0]);
        while theirs.read_exact(&mut byte).and_then(|()| theirs.write_all(&byte)).is_ok() {
            let now = thread_cpu();
            most_used = most_used.max(now.saturating_sub(before));
            before = now;
        }
        most_used
    };
    std::thread::scope(|scope| {
        let echo = scope.spawn(|| on_core(SERVER_CORE, echo));
        let mut waited = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let (began, mut byte) = (Instant::now(), [0]);
            ours.write_all(&byte).and_then(|()| ours.read_exact(&mut byte)).expect("an echo");
            waited.push(began.elapsed().as_secs_f64() * 1e6);
        }
        drop(ours);
        let most_used = echo.join().expect("an echo does not panic").as_secs_f64() * 1e6;
        Batches { waited, most_used }
    })
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
