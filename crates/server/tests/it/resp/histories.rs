//! The same history through the library, over HTTP, and over the protocol of Redis.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};
use tollgate::store::{Hit, MemoryLimit, MemoryStore, Mode, Rule, Store};
use tollgate::{Decision, KeyedLimiter, ManualClock};
use tollgate_policy::{Cost, Descriptor, Policy, Scratch};

use super::caller::{Reply, command};
use super::serving::{NONE, Serving};

const POLICY: &str = r#"
[limit.per-ip]
key = "ip"
rate = "5/s burst 10"

[limit.per-user]
key = "user"
rate = ["20/min", "100/h"]
algorithm = "sliding-window-counter"

[limit.writes]
key = "ip"
match.method = ["POST", "PUT"]
rate = "7/min"
algorithm = "fixed-window"

[limit.spaced]
key = ["user", "plan"]
match.plan = "free*"
rate = "3/s"
algorithm = "leaky-bucket"

[limit.tokens]
key = "user"
match.tokens = "*"
cost = "tokens"
rate = "1000/min"
algorithm = "sub-windows"

[limit.maybe]
key = "ip"
rate = "1/s"
mode = "shadow"

[limit.all]
rate = "200/s burst 400"
"#;

/// The store itself, asked by whoever knows which limits apply.
struct Library {
    clock: ManualClock,
    store: MemoryStore<ManualClock>,
    policy: Policy,
    limits: Vec<MemoryLimit<ManualClock>>,
    scratch: Scratch,
}

/// What was decided: whether, by which limit, and its numbers.
type Decided = (bool, Option<String>, u64, i64, i64);

impl Library {
    fn new() -> Self {
        let clock = ManualClock::new();
        let store = MemoryStore::builder().clock(clock.clone()).build();
        let policy = Policy::parse("limits.toml", POLICY).expect("a policy");
        let open = |(limit, rates): (&tollgate_policy::Limit, &tollgate_policy::Rates)| {
            let (first, more) = rates.quotas().split_first().expect("a rate");
            let rule = Rule::new(limit.domain(), limit.name(), *first).with_kind(limit.kind());
            store.open(&more.iter().fold(rule, |rule, quota| rule.with_quota(*quota)))
        };
        let limits = policy.rates().map(open).collect();
        Self { clock, store, policy, limits, scratch: Scratch::new() }
    }

    fn ask(&mut self, mode: Mode, cost: u64, descriptor: &Descriptor<'_>) -> Decided {
        let (mut enforced, mut shadow) = (Vec::new(), Vec::new());
        for found in self.policy.matching(descriptor, &mut self.scratch).iter() {
            let cost = match found.cost() {
                Cost::Asked => cost,
                Cost::Said(cost) => cost,
            };
            let hit = (found.rates().number(), found.key().to_vec(), cost);
            if found.is_shadow() { shadow.push(hit) } else { enforced.push(hit) }
        }
        let hit = |(number, key, cost): &'_ (usize, Vec<u8>, u64)| (*number, key.clone(), *cost);
        let enforced: Vec<_> = enforced.iter().map(hit).collect();
        let hits: Vec<_> = enforced
            .iter()
            .map(|(number, key, cost)| Hit { limit: &self.limits[*number], key, cost: *cost })
            .collect();
        let answer = self.store.decide(mode, &hits).into_inner().expect("it is in this process");
        let is_allowed = answer.each().iter().all(|said| said.decision.is_admitted());
        if is_allowed || mode == Mode::Count {
            for (number, key, cost) in &shadow {
                let hit = Hit { limit: &self.limits[*number], key, cost: *cost };
                let _ = self.store.decide(mode, &[hit]).into_inner();
            }
        }
        let each =
            answer.each().iter().map(|said| (&self.limits[enforced[said.hit as usize].0], said.decision));
        let decider = if is_allowed {
            each.min_by_key(|(_, decision)| decision.remaining())
        } else {
            each.filter(|(_, decision)| !decision.is_admitted())
                .max_by_key(|(_, decision)| decision.retry_after().unwrap_or(Duration::MAX))
        };
        let Some((limit, decision)) = decider else { return (true, None, 0, 0, 0) };
        let name = AsRef::<Rule>::as_ref(limit).name().to_owned();
        (is_allowed, Some(name), decision.remaining(), retry_ms(&decision), millis(decision.reset_after()))
    }
}

fn retry_ms(decision: &Decision) -> i64 {
    if decision.is_admitted() { 0 } else { millis(decision.retry_after()) }
}

fn millis(span: Option<Duration>) -> i64 {
    span.map_or(-1, |span| i64::try_from(span.as_nanos().div_ceil(1_000_000)).expect("short"))
}

/// Who asks for what.
struct Asked {
    mode: Mode,
    cost: u64,
    fields: Vec<(&'static str, String)>,
}

impl Asked {
    fn some(rng: &mut Rng) -> Self {
        let mode = match rng.u8(..20) {
            0 => Mode::Peek,
            1 => Mode::Count,
            2 => Mode::Charge,
            3 => Mode::Refund,
            _ => Mode::Take,
        };
        let cost = if rng.u8(..4) == 0 { rng.u64(..6) } else { 1 };
        let mut fields = vec![("ip", format!("10.0.0.{}", rng.u8(..40)))];
        if rng.bool() {
            fields.push(("user", format!("user {}", rng.u8(..30))));
            fields.push(("plan", ["free", "free trial", "paid"][rng.usize(..3)].to_owned()));
        }
        if rng.u8(..3) == 0 {
            fields.push(("method", ["GET", "POST", "PUT"][rng.usize(..3)].to_owned()));
        }
        if rng.u8(..5) == 0 {
            fields.push(("tokens", rng.u64(..120).to_string()));
        }
        Self { mode, cost, fields }
    }

    fn descriptor(&self) -> Descriptor<'_> {
        self.fields.iter().fold(Descriptor::new(), |descriptor, (name, value)| descriptor.with(name, value))
    }

    fn json(&self) -> Value {
        let fields: serde_json::Map<String, Value> =
            self.fields.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        let mode = format!("{:?}", self.mode).to_lowercase();
        json!({ "descriptor": fields, "cost": self.cost, "mode": mode })
    }

    fn command(&self) -> Vec<u8> {
        let cost = self.cost.to_string();
        let mut words = vec![&b"TG.CHECK"[..]];
        match self.mode {
            Mode::Peek => words.push(b"PEEK"),
            Mode::Count => words.push(b"COUNT"),
            Mode::Charge => words.push(b"CHARGE"),
            Mode::Refund => words.push(b"REFUND"),
            _ => {}
        }
        if self.cost != 1 {
            words.extend([&b"COST"[..], cost.as_bytes()]);
        }
        for (name, value) in &self.fields {
            words.extend([name.as_bytes(), value.as_bytes()]);
        }
        command(&words)
    }
}

fn decided(reply: &Reply) -> Decided {
    let number = |name: &str| match reply.field(name) {
        Reply::Integer(number) => *number,
        other => panic!("{name}: {other:?} in {reply:?}"),
    };
    match reply.field("limit") {
        Reply::Null => (number("allowed") == 1, None, 0, 0, 0),
        Reply::Bulk(name) => (
            number("allowed") == 1,
            Some(String::from_utf8_lossy(name).into_owned()),
            number("remaining").unsigned_abs(),
            number("retry_after_ms"),
            number("reset_after_ms"),
        ),
        other => panic!("{other:?}"),
    }
}

/// A connection that speaks HTTP.
struct Web {
    stream: BufReader<TcpStream>,
}

impl Web {
    fn new(address: SocketAddr) -> Self {
        Self { stream: BufReader::new(TcpStream::connect(address).expect("it listens")) }
    }

    /// One list, or one request for each and all of them at once.
    fn ask(&mut self, asked: &[Asked], is_list: bool) -> Vec<Decided> {
        let bodies: Vec<Value> = asked.iter().map(Asked::json).collect();
        let bodies = if is_list { vec![Value::Array(bodies)] } else { bodies };
        let sent: String = bodies.iter().map(post).collect();
        let mut writer = self.stream.get_ref().try_clone().expect("a socket");
        std::thread::scope(|scope| {
            scope.spawn(move || writer.write_all(sent.as_bytes()).expect("it listens"));
            let answers: Vec<Value> = bodies.iter().map(|_| self.hear()).collect();
            match &answers[..] {
                [Value::Array(all)] if is_list => all.iter().map(decided_over_http).collect(),
                all => all.iter().map(decided_over_http).collect(),
            }
        })
    }

    /// One answer.
    fn hear(&mut self) -> Value {
        let (mut length, mut line) = (0, String::new());
        loop {
            line.clear();
            self.stream.read_line(&mut line).expect("a line");
            if line == "\r\n" {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.trim().parse().expect("a length");
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).expect("all of it");
        serde_json::from_slice(&body).expect("JSON")
    }
}

fn post(body: &Value) -> String {
    let body = body.to_string();
    format!(
        "POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn decided_over_http(answer: &Value) -> Decided {
    let is_allowed = answer["allowed"].as_bool().unwrap_or_else(|| panic!("{answer}"));
    let Some(name) = answer["decided_by"].as_str() else { return (is_allowed, None, 0, 0, 0) };
    // Told to the nanosecond, which is little enough that it survives being read as a fraction.
    let millis = |member: &str| {
        answer[member].as_f64().map_or(-1, |seconds| ((seconds * 1e9).round() / 1e6).ceil() as i64)
    };
    let remaining = answer["remaining"].as_u64().expect("a number");
    (is_allowed, Some(name.to_owned()), remaining, millis("retry_after"), millis("reset_after"))
}

#[test]
fn the_library_and_both_protocols_decide_the_same() {
    const BATCHES: usize = 250;
    const BATCH: usize = 500;
    let (resp, http) = (Serving::by(POLICY), Serving::by(POLICY));
    let (mut library, mut rng) = (Library::new(), Rng::with_seed(6));
    let (mut caller, mut web, mut counts) = (resp.caller(), Web::new(http.http), [0; 2]);
    for batch in 0..BATCHES {
        let asked: Vec<Asked> = (0..BATCH).map(|_| Asked::some(&mut rng)).collect();
        let sent: Vec<u8> = asked.iter().flat_map(Asked::command).collect();
        let writer = caller.writer();
        let over_http = web.ask(&asked, batch % 2 == 0);
        std::thread::scope(|scope| {
            scope.spawn(move || writer.send_all(&sent));
            for (place, asked) in asked.iter().enumerate() {
                let expected = library.ask(asked.mode, asked.cost, &asked.descriptor());
                let call = || format!("call {place} of batch {batch}: {}", asked.json());
                assert_eq!(decided(&caller.hear()), expected, "over RESP, {}", call());
                assert_eq!(over_http[place], expected, "over HTTP, {}", call());
                counts[usize::from(expected.0)] += 1;
            }
        });
        let longest = 1 << rng.u32(20..36); // from a millisecond to a minute
        let span = Duration::from_nanos(rng.u64(..longest));
        for clock in [&resp.clock, &http.clock, &library.clock] {
            clock.advance(span);
        }
    }
    assert_eq!(counts.iter().sum::<usize>(), BATCHES * BATCH);
    assert!(counts.iter().all(|count| *count > 10_000), "refused and allowed: {counts:?}");
}

#[test]
fn a_limit_that_comes_with_the_call_decides_as_in_the_library() {
    const BATCHES: usize = 200;
    const BATCH: usize = 100;
    let (serving, mut rng) = (Serving::by(NONE), Rng::with_seed(17));
    let clock = ManualClock::new();
    let quotas = ["7/min burst 3", "3/s", "1 per 2.5s burst 4"];
    let limiters = quotas.map(|quota| {
        let quota = quota.parse().expect("a quota");
        KeyedLimiter::<String, _>::builder(quota).clock(clock.clone()).build()
    });
    let (mut caller, mut counts) = (serving.caller(), [0; 2]);
    for _ in 0..BATCHES {
        let asked: Vec<(usize, String, u64)> = (0..BATCH)
            .map(|_| (rng.usize(..quotas.len()), format!("key {}", rng.u8(..20)), rng.u64(..3)))
            .collect();
        let words = |(quota, key, cost): &(usize, String, u64)| {
            let cost = cost.to_string();
            command(&[&b"TG.ALLOW"[..], key.as_bytes(), quotas[*quota].as_bytes(), cost.as_bytes()])
        };
        assert!(caller.send(&asked.iter().flat_map(words).collect::<Vec<u8>>()));
        for (quota, key, cost) in asked {
            let expected = limiters[quota].check_n(&key, cost).is_admitted();
            assert_eq!(caller.hear(), Reply::Integer(i64::from(expected)), "{} {key} {cost}", quotas[quota]);
            counts[usize::from(expected)] += 1;
        }
        let span = Duration::from_nanos(rng.u64(..5_000_000_000));
        for clock in [&serving.clock, &clock] {
            clock.advance(span);
        }
    }
    assert!(counts.iter().all(|count| *count > 1_000), "refused and allowed: {counts:?}");
}
