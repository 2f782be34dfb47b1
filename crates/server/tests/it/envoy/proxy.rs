//! A server of ours, an Envoy that asks it, something behind Envoy, and callers.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use tollgate::ManualClock;
use tollgate::store::MemoryStore;
use tollgate_flow::Time;
use tollgate_policy::Policy;
use tollgate_server::{
    Engine, EngineOptions, Metrics, NEAR_LIMIT_RATIO, Origin, RlsOptions, RlsProtocol, Running, Server,
};
use tollgate_testkit::{Envoy, free_port};

/// 2026-11-15 18:39:20 UTC, for ever: no window ends while a test runs.
pub(crate) const EVENING: Duration = Duration::from_secs(1_794_767_960);

pub(crate) struct World {
    pub(crate) engine: Engine<MemoryStore<ManualClock>>,
    service: SocketAddr,
    running: Option<Running>,
    front: u16,
    _envoy: Envoy,
}

/// How Envoy is set up.
pub(crate) struct Setup {
    /// The file of limits.
    pub(crate) limits: &'static str,
    /// For each descriptor, its actions, as Envoy's filter has them.
    pub(crate) rate_limits: String,
    pub(crate) denies_on_failure: bool,
    pub(crate) options: RlsOptions,
}

impl World {
    pub(crate) fn start(setup: &Setup) -> Self {
        let clock = ManualClock::starting_at(EVENING);
        let store = MemoryStore::builder().clock(clock.clone()).build();
        let policy =
            Policy::parse("limits.yaml", setup.limits).unwrap_or_else(|problems| panic!("{problems}"));
        let options = EngineOptions::new().time(Time::of(clock)).envoy_statistics(NEAR_LIMIT_RATIO);
        let engine = Engine::with_options(store, policy, Origin::default(), options);
        let (service, running) = serve(&engine, 0, setup.options);
        let front = free_port();
        let envoy = Envoy::start(&configuration(front, service.port(), upstream(), setup));
        Self { engine, service, running: Some(running), front, _envoy: envoy }
    }

    /// What a caller gets who sends these fields.
    pub(crate) fn get(&self, fields: &[(&str, &str)]) -> Answer {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.front)).expect("envoy listens");
        let mut request = String::from("GET / HTTP/1.1\r\nhost: web\r\nconnection: close\r\n");
        for (name, value) in fields {
            request.extend([name, ": ", value, "\r\n"]);
        }
        // Every character a byte, as headers are.
        let request: Vec<u8> = (request + "\r\n").chars().map(|byte| byte as u8).collect();
        stream.write_all(&request).unwrap();
        let mut text = Vec::new();
        stream.read_to_end(&mut text).unwrap();
        Answer::read(&String::from_utf8_lossy(&text))
    }

    /// The statuses that a caller gets, one after the other.
    pub(crate) fn statuses(&self, fields: &[(&str, &str)], times: usize) -> Vec<u16> {
        (0..times).map(|_| self.get(fields).status).collect()
    }

    /// Ends the service at once.
    pub(crate) fn kill(&mut self) {
        self.running.take().unwrap().drain(Duration::ZERO).unwrap();
    }

    /// Starts it again where it was.
    pub(crate) fn revive(&mut self) {
        self.running = Some(serve(&self.engine, self.service.port(), RlsOptions::default()).1);
    }

    /// Asks until the answer has this status: Envoy takes a while to notice that somebody is there again.
    pub(crate) fn wait_for(&self, fields: &[(&str, &str)], status: u16) {
        for _ in 0..600 {
            if self.get(fields).status == status {
                return;
            }
            thread::park_timeout(Duration::from_millis(50));
        }
        panic!("there was no answer {status} in half a minute");
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            let _ = running.drain(Duration::ZERO);
        }
    }
}

fn serve(engine: &Engine<MemoryStore<ManualClock>>, port: u16, options: RlsOptions) -> (SocketAddr, Running) {
    let mut server = Server::new(engine.clone()).workers(1);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let address = server.listen(address, RlsProtocol::new(&Metrics::new()).options(options), None).unwrap();
    (address, server.start().unwrap())
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) fields: HashMap<String, String>,
}

impl Answer {
    fn read(text: &str) -> Self {
        let mut lines = text.lines();
        let first = lines.next().unwrap_or_default();
        let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
        let field =
            |line: &str| line.split_once(':').map(|(name, value)| (name.to_owned(), value.trim().to_owned()));
        let fields = lines.take_while(|line| !line.is_empty()).filter_map(field).collect();
        Self { status: status.unwrap_or_else(|| panic!("no answer but {text:?}")), fields }
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }
}

/// Something behind Envoy: answers every request with `200`, and with the field `x-used` as it was asked to. Its port.
fn upstream() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || answer_all(stream));
        }
    });
    port
}

fn answer_all(mut stream: TcpStream) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok).peekable();
    while lines.peek().is_some() {
        let head: Vec<String> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
        let used = head.iter().find_map(|line| line.strip_prefix("x-use: ")).unwrap_or("0").to_owned();
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx-used: {used}\r\n\r\nok");
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

fn configuration(front: u16, service: u16, upstream: u16, setup: &Setup) -> String {
    let Setup { rate_limits, denies_on_failure, .. } = setup;
    let rate_limits: String = rate_limits.lines().flat_map(|line| ["              ", line, "\n"]).collect();
    format!(
        r#"
static_resources:
  listeners:
  - address: {{ socket_address: {{ address: 127.0.0.1, port_value: {front} }} }}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: front
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
              - match: {{ prefix: "/" }}
                route: {{ cluster: upstream }}
          http_filters:
          - name: envoy.filters.http.set_metadata
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.set_metadata.v3.Config
              metadata:
              - {{ metadata_namespace: test, value: {{ limit: {{ requests_per_unit: 3, unit: HOUR }} }} }}
          - name: envoy.filters.http.ratelimit
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
              domain: web
              timeout: 5s
              failure_mode_deny: {denies_on_failure}
              enable_x_ratelimit_headers: DRAFT_VERSION_03
              rate_limit_service:
                transport_api_version: V3
                grpc_service: {{ envoy_grpc: {{ cluster_name: limits }} }}
              rate_limits:
{rate_limits}
          - name: envoy.filters.http.router
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
  clusters:
  - name: upstream
    type: STATIC
    load_assignment:
      cluster_name: upstream
      endpoints:
      - lb_endpoints:
        - endpoint: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: {upstream} }} }} }}
  - name: limits
    type: STATIC
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {{ http2_protocol_options: {{}} }}
    load_assignment:
      cluster_name: limits
      endpoints:
      - lb_endpoints:
        - endpoint: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: {service} }} }} }}
"#
    )
}

/// A descriptor with the value of the header `x-NAME` as its `key`, and with an override of 3 per hour.
pub(crate) fn overriding(name: &str, key: &str) -> String {
    let action = format!("request_headers: {{ header_name: x-{name}, descriptor_key: {key} }}");
    let limit = "dynamic_metadata: { metadata_key: { key: test, path: [{ key: limit }] } }";
    format!("- actions:\n  - {action}\n  limit:\n    {limit}\n")
}

/// A descriptor of some headers, if all of them are there.
pub(crate) fn headers(names: &[&str]) -> String {
    let action =
        |name: &&str| format!("  - request_headers: {{ header_name: x-{name}, descriptor_key: {name} }}\n");
    format!("- actions:\n{}", names.iter().map(action).collect::<String>())
}
