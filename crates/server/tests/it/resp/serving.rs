//! A server for a test.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tollgate::ManualClock;
use tollgate::store::MemoryStore;
use tollgate_flow::Time;
use tollgate_policy::Policy;
use tollgate_server::resp::Resp;
use tollgate_server::{Engine, HttpApi, HttpProtocol, Keys, Metrics, Origin, Running, Server};

use super::caller::Caller;

/// A server whose time stands still unless a test moves it.
pub(crate) struct Serving {
    pub(crate) clock: ManualClock,
    pub(crate) address: SocketAddr,
    /// Where the same is asked over HTTP.
    pub(crate) http: SocketAddr,
    pub(crate) engine: Engine<MemoryStore<ManualClock>>,
    pub(crate) metrics: Metrics,
    running: Option<Running>,
}

impl Serving {
    /// Goes by this policy.
    pub(crate) fn by(policy: &str) -> Self {
        Self::with(policy, |server| server)
    }

    /// The same, where callers may do only what these say.
    pub(crate) fn with_keys(policy: &str, keys: Keys) -> Self {
        Self::with(policy, |server| server.keys(keys))
    }

    fn with(
        policy: &str,
        set: impl FnOnce(Server<MemoryStore<ManualClock>>) -> Server<MemoryStore<ManualClock>>,
    ) -> Self {
        let clock = ManualClock::new();
        let store = MemoryStore::builder().clock(clock.clone()).build();
        let policy = Policy::parse("limits.toml", policy).expect("a policy");
        let engine = Engine::in_time(store, policy, Origin::default(), Time::of(clock.clone()));
        let metrics = Metrics::new();
        let mut server = set(Server::new(engine.clone()).workers(2));
        let address = server
            .listen((Ipv4Addr::LOCALHOST, 0).into(), Resp::new().metrics(&metrics), None)
            .expect("a port");
        let api = HttpProtocol::new(HttpApi::new(metrics.clone()));
        let http = server.listen((Ipv4Addr::LOCALHOST, 0).into(), api, None).expect("a port");
        let running = Some(server.start().expect("threads"));
        Self { clock, address, http, engine, metrics, running }
    }

    /// Somebody who speaks the second version of the protocol.
    pub(crate) fn caller(&self) -> Caller {
        Caller::new(self.address)
    }

    pub(crate) fn port(&self) -> String {
        self.address.port().to_string()
    }
}

impl Drop for Serving {
    /// Nobody may hang on.
    fn drop(&mut self) {
        let drained = self.running.take().expect("until now").drain(Duration::from_secs(10));
        if !std::thread::panicking() {
            assert_eq!(drained.expect("no thread panicked"), 0, "a connection had to be cut off");
        }
    }
}

/// A policy with one limit that nobody hits by accident.
pub(crate) const NONE: &str = "[limit.none]\nrate = \"1/h\"\nmatch.nobody = \"here\"\n";
