//! A limit in Redis beside the bare calls that it is made of, on one server.
//!
//! Everything goes through one multiplexed connection of the same client, with so many tasks asking at once. The bare calls are
//! EVALSHA of a script that does nothing, of the one that tollgate runs (with its arguments made ready beforehand), and of one that
//! is written the way redis-cell works. What Redis needs for each, it says itself. Then the same with leases, which ask only now and then.

#[path = "redis/leased.rs"]
mod leased;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Script};
use tokio::runtime::{Builder, Runtime};
use tollgate::Quota;
use tollgate::store::{Hit, Mode, Rule, Store};
use tollgate_benches::{Bench, Better, Case, Contender, Goal, Options, alternate};
use tollgate_redis::{RedisLimit, RedisStore};
use tollgate_testkit::Redis;

const TASKS: usize = 64;
const KEYS: usize = 10_000;

/// The script of redis-cell, near enough: one GCRA, with the server's time and the answers as integers.
const CELL: &str = r"
local time = redis.call('TIME')
local now = (time[1] - 1704067200) * 1000000 + time[2]
local interval, burst, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local tat = math.max(tonumber(redis.call('GET', KEYS[1]) or 0), now)
local new = tat + interval * cost
local since = now - (new - interval * burst)
if since < 0 then
  return { 1, burst, math.floor((now - (tat - interval * burst)) / interval), math.ceil(-since), math.ceil(tat - now) }
end
redis.call('SET', KEYS[1], string.format('%.17g', new), 'PX', math.ceil((new - now) / 1000))
return { 0, burst, math.floor(since / interval), -1, math.ceil(new - now) }";

fn main() -> ExitCode {
    let options = match Options::from_env() {
        Ok(options) => options,
        Err(message) => {
            eprintln!("redis: {message}");
            return ExitCode::from(2);
        }
    };
    let mut bench = Bench::new("redis", options);
    let (rounds, calls) = if options.is_quick() { (3, 20_000) } else { (10, 100_000) };
    for case in exact(rounds, calls).into_iter().chain(leased::cases(rounds, calls)) {
        bench.add(case);
    }
    bench.finish()
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

/// What one round came to.
struct Round {
    calls_a_second: f64,
    /// Microseconds of Redis's processor time for each call.
    server_us: f64,
}

/// Calls a second of 64 tasks, and what Redis needs for each.
fn exact(rounds: usize, calls: u64) -> Vec<Case> {
    let speed = Case::new("exact-64-at-once", "calls/s", Better::Higher);
    let mut speed = speed.goal(Goal::ratio_at_least("tollgate", "evalsha-of-the-same", 0.9));
    let mut server = Case::new("exact-redis-cpu", "us a call", Better::Lower);
    let (redis, runtime) = (Redis::start(), runtime());
    let place = Arc::new(Place::new(redis, runtime));
    let contender = |name, what: fn(&Arc<Place>) -> What| -> Contender<'static, Round> {
        let place = Arc::clone(&place);
        let what = what(&place);
        (name, Box::new(move || place.round(&what, calls)))
    };
    let contenders = vec![
        contender("tollgate", |place| What::Store(place.store.clone(), place.limit.clone())),
        contender("evalsha-of-the-same", |place| What::Bare(place.recorded())),
        contender("evalsha-of-nothing", |place| What::Bare(place.ready("return 1", &[]))),
        contender("redis-cell-like", |place| What::Bare(place.ready(CELL, &["10", "1000000", "1"]))),
    ];
    alternate(rounds, &contenders, |name, round| {
        speed.sample(name, round.calls_a_second);
        server.sample(name, round.server_us);
    });
    vec![speed, server]
}

/// What is called.
#[derive(Clone)]
enum What {
    Store(RedisStore, RedisLimit),
    /// One command for each key.
    Bare(Arc<[Cmd]>),
}

/// A server, and everything that is needed to ask it.
struct Place {
    redis: Redis,
    runtime: Runtime,
    store: RedisStore,
    limit: RedisLimit,
    connection: MultiplexedConnection,
}

impl Place {
    fn new(redis: Redis, runtime: Runtime) -> Self {
        let store = RedisStore::new(&redis.url()).expect("a good address");
        // Nobody is ever refused.
        let limit = store.open(&Rule::new("bench", "exact", Quota::per_second(100_000).burst(1_000_000)));
        let connection = runtime.block_on(async {
            let info: redis::ConnectionInfo = redis.url().parse().expect("a good address");
            let tcp = redis::io::tcp::TcpSettings::default().set_nodelay(true);
            let client = redis::Client::open(info.set_tcp_settings(tcp)).expect("a good address");
            client.get_multiplexed_async_connection().await.expect("it is there")
        });
        Self { redis, runtime, store, limit, connection }
    }

    /// A bare call of a script for each key.
    fn ready(&self, text: &str, arguments: &[&str]) -> Arc<[Cmd]> {
        let script = Script::new(text);
        self.runtime
            .block_on(script.prepare_invoke().load_async(&mut self.connection.clone()))
            .expect("loaded");
        let command = |number: usize| {
            let mut command = redis::cmd("EVALSHA");
            command.arg(script.get_hash()).arg(1).arg(format!("bare:{number}")).arg(arguments);
            command
        };
        (0..KEYS).map(command).collect()
    }

    /// What tollgate sends, taken from the server's own record of it, and for every key.
    fn recorded(&self) -> Arc<[Cmd]> {
        self.runtime.block_on(async {
            let mut connection = self.connection.clone();
            let ask = |words: &[&str]| {
                let mut command = Cmd::new();
                command.arg(words);
                command
            };
            let _: () = ask(&["CONFIG", "SET", "slowlog-log-slower-than", "0"])
                .query_async(&mut connection)
                .await
                .expect("set");
            let hit = [Hit::new(&self.limit, b"0")];
            for _ in 0..2 {
                let _ = self.store.decide(Mode::Take, &hit).await.expect("decided");
            }
            let log: redis::Value =
                ask(&["SLOWLOG", "GET", "10"]).query_async(&mut connection).await.expect("its log");
            let _: () = ask(&["CONFIG", "SET", "slowlog-log-slower-than", "-1"])
                .query_async(&mut connection)
                .await
                .expect("set");
            let words = last_script(&log).expect("it was recorded");
            (0..KEYS).map(|number| again(&words, number)).collect()
        })
    }

    fn round(self: &Arc<Self>, what: &What, calls: u64) -> Round {
        let (next, before, start) = (Arc::new(AtomicU64::new(0)), self.server_seconds(), Instant::now());
        self.runtime.block_on(async {
            let mut tasks = tokio::task::JoinSet::new();
            for _ in 0..TASKS {
                tasks.spawn(ask(what.clone(), self.connection.clone(), Arc::clone(&next), calls));
            }
            tasks.join_all().await;
        });
        let (seconds, server) = (start.elapsed().as_secs_f64(), self.server_seconds() - before);
        Round { calls_a_second: calls as f64 / seconds, server_us: server * 1e6 / calls as f64 }
    }

    /// The processor time that Redis has used.
    fn server_seconds(&self) -> f64 {
        let info = self.redis.ask(&["INFO", "cpu"]);
        let field = |name: &str| -> f64 {
            let line = info.lines().find_map(|line| line.strip_prefix(name)).expect("INFO says so");
            line.trim().parse().expect("a number")
        };
        field("used_cpu_user:") + field("used_cpu_sys:")
    }
}

/// Asks for one key after another until all calls have been made.
async fn ask(what: What, mut connection: MultiplexedConnection, next: Arc<AtomicU64>, calls: u64) {
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= calls {
            return;
        }
        let key = number as usize % KEYS;
        match &what {
            What::Store(store, limit) => {
                let name = key.to_string();
                let answer = store.decide(Mode::Take, &[Hit::new(limit, name.as_bytes())]).await;
                assert!(answer.expect("decided").is_admitted());
            }
            What::Bare(commands) => {
                let answer: redis::RedisResult<redis::Value> =
                    commands[key].query_async(&mut connection).await;
                assert!(answer.is_ok());
            }
        }
    }
}

/// An entry of a slow log: its number, when, how long, the words, and whose.
type SlowEntry = (i64, i64, i64, Vec<Vec<u8>>, Vec<u8>, Vec<u8>);

/// The words of the newest EVALSHA in a slow log.
fn last_script(log: &redis::Value) -> Option<Vec<Vec<u8>>> {
    let entries: Vec<SlowEntry> = redis::from_redis_value_ref(log).ok()?;
    let words = |(_, _, _, words, ..): SlowEntry| words;
    entries.into_iter().map(words).find(|words| words[0].eq_ignore_ascii_case(b"EVALSHA"))
}

/// The same command for another key.
fn again(words: &[Vec<u8>], number: usize) -> Cmd {
    let mut command = Cmd::new();
    for (index, word) in words.iter().enumerate() {
        if index == 3 {
            command.arg(format!("{}{number}", String::from_utf8_lossy(word)));
        } else {
            command.arg(word);
        }
    }
    command
}
