//! One history over every protocol and through the library: the same decisions.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use proptest::prelude::*;
use tollgate::store::{Hit, MemoryStore, Mode, Rule, Store};
use tollgate::{Kind, ManualClock, Quota};
use tollgate_flow::Time;
use tollgate_server::resp::Resp;
use tollgate_server::rls::proto::{Code, RateLimitDescriptor};
use tollgate_server::{Engine, HttpApi, Metrics, Origin, Running, Server};

use super::rig::{EVENING, Rig, costing, descriptor, policy, request, rig};

/// One limit of each kind, by a field of its own.
const LIMITS: [(&str, Kind, &str); 4] = [
    ("bucket", Kind::TokenBucket, "5/10s burst 4"),
    ("fixed", Kind::FixedWindow, "4/10s"),
    ("paced", Kind::PacedWindow, "6/10s"),
    ("counter", Kind::SlidingCounter, "5/8s"),
];

#[derive(Clone, Copy, Debug)]
struct Asked {
    limit: usize,
    key: char,
    cost: u64,
    mode: Mode,
}

fn history() -> impl Strategy<Value = Vec<(u64, Asked)>> {
    let mode = prop_oneof![6 => Just(Mode::Take), 1 => Just(Mode::Peek), 1 => Just(Mode::Refund)];
    let asked =
        (0..LIMITS.len(), prop::char::range('a', 'b'), 1..5u64, mode).prop_map(|(limit, key, cost, mode)| {
            Asked { limit, key, cost: if mode == Mode::Peek { 1 } else { cost }, mode }
        });
    prop::collection::vec((0..2_000u64, asked), 1..60)
}

fn policy_text() -> String {
    let limit = |(name, kind, rate): &(&str, Kind, &str)| {
        format!("[limit.{name}]\nkey = \"{name}\"\nrate = \"{rate}\"\nalgorithm = \"{kind}\"\n")
    };
    format!("domain = \"d\"\n{}", LIMITS.iter().map(limit).collect::<String>())
}

/// Everybody who is asked, each with a clock and a store of their own.
struct World {
    rls: Rig<MemoryStore<ManualClock>>,
    other: Engine<MemoryStore<ManualClock>>,
    api: HttpApi,
    redis: Engine<MemoryStore<ManualClock>>,
    running: Option<Running>,
    stream: BufReader<TcpStream>,
    library: MemoryStore<ManualClock>,
}

impl World {
    fn new() -> Self {
        let (other, redis) = (engine(), engine());
        let mut server = Server::new(redis.clone()).workers(1);
        let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let address = server.listen(nowhere, Resp::new(), None).unwrap();
        let running = Some(server.start().unwrap());
        let stream = BufReader::new(TcpStream::connect(address).unwrap());
        let clock = ManualClock::starting_at(EVENING);
        let library = MemoryStore::builder().clock(clock).build();
        let api = HttpApi::new(Metrics::new());
        Self { rls: rig(&policy_text()), other, api, redis, running, stream, library }
    }

    fn advance(&self, span: Duration) {
        let clocks =
            [&self.rls.clock, self.other.store().clock(), self.redis.store().clock(), self.library.clock()];
        for clock in clocks {
            clock.advance(span);
        }
    }

    async fn by_rls(&self, asked: Asked) -> bool {
        let hits = if asked.mode == Mode::Peek { 0 } else { asked.cost };
        let plain = costing(hits, descriptor(&[(LIMITS[asked.limit].0, &asked.key.to_string())]));
        let descriptor = RateLimitDescriptor { is_negative_hits: asked.mode == Mode::Refund, ..plain };
        self.rls.ask(request("d", &[descriptor])).await.unwrap().overall_code() == Code::Ok
    }

    async fn by_http(&self, asked: Asked) -> bool {
        let (name, key, cost) = (LIMITS[asked.limit].0, asked.key, asked.cost);
        let mode = word(asked.mode).unwrap_or("take");
        let body =
            format!(r#"{{"domain":"d","descriptor":{{"{name}":"{key}"}},"cost":{cost},"mode":"{mode}"}}"#);
        let request = Request::post("/v1/check")
            .header("content-type", "application/json")
            .body(Bytes::from(body))
            .unwrap();
        let status = self.api.answer(&mut self.other.clerk(), request).await.status();
        assert!(status == 200 || status == 429, "{status}");
        status == 200
    }

    fn by_resp(&mut self, asked: Asked) -> bool {
        let (name, key, cost) = (LIMITS[asked.limit].0, asked.key, asked.cost);
        let mode = word(asked.mode).unwrap_or_default().to_uppercase();
        let line = format!("TG.CHECK DOMAIN d COST {cost} {mode} FIELDS {name} {key}\r\nPING\r\n");
        self.stream.get_mut().write_all(line.as_bytes()).unwrap();
        let lines = self.stream.by_ref_lines();
        let at = lines.iter().position(|line| line == "allowed").unwrap_or_else(|| panic!("{lines:?}"));
        lines[at + 1] == ":1"
    }

    fn by_library(&self, asked: Asked) -> bool {
        let (name, kind, rate) = LIMITS[asked.limit];
        let rule = Rule::new("d", name, rate.parse::<Quota>().unwrap()).with_kind(kind);
        let limit = self.library.open(&rule);
        let key = asked.key.to_string();
        let hits = [Hit::new(&limit, key.as_bytes()).costing(asked.cost)];
        self.library.decide(asked.mode, &hits).into_inner().unwrap().is_admitted()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.running.take().unwrap().drain(Duration::ZERO);
    }
}

fn engine() -> Engine<MemoryStore<ManualClock>> {
    let clock = ManualClock::starting_at(EVENING);
    let store = MemoryStore::builder().clock(clock.clone()).build();
    Engine::in_time(store, policy(&policy_text()), Origin::default(), Time::of(clock))
}

fn word(mode: Mode) -> Option<&'static str> {
    match mode {
        Mode::Peek => Some("peek"),
        Mode::Refund => Some("refund"),
        _ => None,
    }
}

/// Lines until the answer to `PING`.
trait Lines {
    fn by_ref_lines(&mut self) -> Vec<String>;
}

impl<R: BufRead> Lines for R {
    fn by_ref_lines(&mut self) -> Vec<String> {
        self.lines().map(Result::unwrap).take_while(|line| line != "+PONG").collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, max_shrink_iters: 100, ..ProptestConfig::default() })]

    #[test]
    fn every_way_decides_alike(history in history()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut world = World::new();
            for (step, (pause, asked)) in history.iter().enumerate() {
                world.advance(Duration::from_millis(*pause));
                let expected = world.by_library(*asked);
                let told = [world.by_rls(*asked).await, world.by_http(*asked).await, world.by_resp(*asked)];
                assert_eq!(told, [expected; 3], "RLS, HTTP and RESP at step {step}: {asked:?}");
            }
        });
    }
}
