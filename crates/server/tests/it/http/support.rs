//! A server, and a client that can also send what no client should.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;
use tollgate::ManualClock;
use tollgate::store::{MemoryStore, Store};
use tollgate_flow::Time;
use tollgate_policy::Policy;
use tollgate_server::{
    ConnectionLimits, Engine, EngineOptions, HttpApi, HttpLimits, HttpProtocol, Metrics, Origin, Running,
    Server,
};

/// Longer than anything takes, so that a test which waits for it fails.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) type Manual = MemoryStore<ManualClock>;

/// A server at work.
pub(crate) struct Site<S: Store = Manual> {
    pub(crate) address: SocketAddr,
    pub(crate) engine: Engine<S>,
    pub(crate) clock: ManualClock,
    running: Option<Running>,
}

impl Site {
    /// With a policy and the defaults.
    pub(crate) fn new(policy: &str) -> Self {
        Self::with(policy, |api| api)
    }

    /// With a policy and limits of its own.
    pub(crate) fn limited(policy: &str, change: impl FnOnce(&mut HttpLimits)) -> Self {
        let mut limits = HttpLimits::default();
        change(&mut limits);
        Self::with(policy, |api| api.limits(limits))
    }

    pub(crate) fn with(policy: &str, change: impl FnOnce(HttpApi) -> HttpApi) -> Self {
        Self::admitting(ConnectionLimits::default(), policy, change)
    }

    pub(crate) fn with_engine_options(
        policy: &str,
        options: EngineOptions,
        change: impl FnOnce(HttpApi) -> HttpApi,
    ) -> Self {
        let clock = ManualClock::new();
        let store = MemoryStore::builder().clock(clock.clone()).build();
        Self::start(ConnectionLimits::default(), store, clock, policy, options, |server| server, change)
    }

    /// With so many connections.
    pub(crate) fn admitting(
        connections: ConnectionLimits,
        policy: &str,
        change: impl FnOnce(HttpApi) -> HttpApi,
    ) -> Self {
        let clock = ManualClock::new();
        let store = MemoryStore::builder().clock(clock.clone()).names(100).build();
        Self::start(connections, store, clock, policy, EngineOptions::new(), |server| server, change)
    }
}

impl<S: Store> Site<S> {
    pub(crate) fn on(
        store: S,
        clock: ManualClock,
        policy: &str,
        shape: impl FnOnce(Server<S>) -> Server<S>,
        change: impl FnOnce(HttpApi) -> HttpApi,
    ) -> Self {
        Self::start(ConnectionLimits::default(), store, clock, policy, EngineOptions::new(), shape, change)
    }

    fn start(
        connections: ConnectionLimits,
        store: S,
        clock: ManualClock,
        policy: &str,
        options: EngineOptions,
        shape: impl FnOnce(Server<S>) -> Server<S>,
        change: impl FnOnce(HttpApi) -> HttpApi,
    ) -> Self {
        let policy = Policy::parse("limits.toml", policy).unwrap();
        let origin = Origin { name: "limits.toml".to_owned(), hash: "c0ffee".to_owned() };
        let engine = Engine::with_options(store, policy, origin, options.time(Time::of(clock.clone())));
        let mut server = shape(Server::new(engine.clone()).workers(2));
        let protocol = HttpProtocol::new(change(HttpApi::new(Metrics::new())));
        let address = server.listen_with(connections, ([127, 0, 0, 1], 0).into(), protocol, None).unwrap();
        let running = Some(server.start().unwrap());
        Self { address, engine, clock, running }
    }

    pub(crate) fn client(&self) -> Client {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Client { reader: BufReader::new(stream) }
    }

    /// One request on a connection of its own.
    pub(crate) fn get(&self, path: &str) -> Answer {
        self.client().get(path)
    }

    /// One request on a connection of its own.
    pub(crate) fn post(&self, path: &str, body: &str) -> Answer {
        self.client().post(path, body)
    }

    pub(crate) fn check(&self, body: &str) -> Answer {
        self.post("/v1/check", body)
    }

    pub(crate) fn connections(&self) -> usize {
        self.running.as_ref().unwrap().connections()
    }

    /// Tells everybody to end, and waits for them in another thread.
    pub(crate) fn drain(&mut self) -> std::thread::JoinHandle<usize> {
        let running = self.running.take().unwrap();
        std::thread::spawn(move || running.drain(PATIENCE).unwrap())
    }
}

impl<S: Store> Drop for Site<S> {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.drain(Duration::from_millis(1)).unwrap();
        }
    }
}

/// A connection.
pub(crate) struct Client {
    reader: BufReader<TcpStream>,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    fields: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Client {
    pub(crate) fn get(&mut self, path: &str) -> Answer {
        self.ask(&format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n"))
    }

    pub(crate) fn post(&mut self, path: &str, body: &str) -> Answer {
        let length = body.len();
        self.ask(&format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"))
    }

    pub(crate) fn check(&mut self, body: &str) -> Answer {
        self.post("/v1/check", body)
    }

    pub(crate) fn ask(&mut self, request: &str) -> Answer {
        self.send(request.as_bytes());
        self.answer()
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.reader.get_mut().write_all(bytes).unwrap();
    }

    /// Sends as long as it is taken. Whether all of it was.
    pub(crate) fn try_send(&mut self, bytes: &[u8]) -> bool {
        self.reader.get_mut().write_all(bytes).is_ok()
    }

    /// Asks, and says whether it went well.
    pub(crate) fn try_get(mut self, path: &str) -> bool {
        let mut said = Vec::new();
        self.try_send(
            format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").as_bytes(),
        );
        let _ = self.reader.read_to_end(&mut said);
        said.starts_with(b"HTTP/1.1 200 ")
    }

    /// Says that nothing more will be sent.
    pub(crate) fn end(&mut self) {
        self.reader.get_mut().shutdown(Shutdown::Write).unwrap();
    }

    pub(crate) fn answer(&mut self) -> Answer {
        let head = self.line();
        let status =
            head.split(' ').nth(1).unwrap_or_else(|| panic!("no status in {head:?}")).parse().unwrap();
        let mut fields = Vec::new();
        loop {
            let line = self.line();
            let Some((name, value)) = line.split_once(": ") else { break };
            fields.push((name.to_owned(), value.to_owned()));
        }
        let mut answer = Answer { status, fields, body: String::new() };
        let length = answer.field("content-length").map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; length];
        self.reader.read_exact(&mut body).unwrap();
        answer.body = String::from_utf8(body).unwrap();
        answer
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Waits until the server has ended the connection. What it still said.
    pub(crate) fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        match self.reader.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
        }
        String::from_utf8(rest).unwrap()
    }
}

impl Answer {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|field| field.0 == name).map(|field| field.1.as_str())
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.body))
    }

    /// What a problem says, which must be one, of that status.
    #[track_caller]
    pub(crate) fn problem(&self, status: u16) -> String {
        assert_eq!(
            (self.status, self.field("content-type")),
            (status, Some("application/problem+json")),
            "{self:?}"
        );
        let json = self.json();
        assert_eq!(json["status"], status);
        assert_eq!(json.get("allowed"), None);
        json["detail"].as_str().unwrap().to_owned()
    }
}

/// Waits until something is so, and fails if it never is.
#[track_caller]
pub(crate) fn eventually(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..30_000 {
        if is_so() {
            return;
        }
        std::thread::park_timeout(Duration::from_millis(1));
    }
    panic!("it never came that {what}");
}
