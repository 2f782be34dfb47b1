//! An Envoy that asks the services, and those who call it.

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tollgate_benches::on_core;
use tollgate_testkit::{Envoy, free_port};

use crate::child::Child;
use crate::load::{AT_ONCE, Caller, Connect, FIELDS, value};
use crate::servers::Kind;
use crate::{LOAD_CORE, MEASURED_CORE};

/// One Envoy with a door for each service, and what is behind it.
pub(crate) struct Front {
    doors: [u16; 2],
    _envoy: Envoy,
    _upstream: Child,
}

impl Front {
    /// Envoy, which asks a service on one of these ports at each of its doors.
    pub(crate) fn start(services: [u16; 2]) -> Self {
        let upstream = Child::start(Kind::Upstream, LOAD_CORE, None);
        let doors = services.map(|_| free_port());
        let configuration = configuration(doors, services, upstream.port());
        let envoy = on_core(MEASURED_CORE, || Envoy::start(&configuration));
        Self { doors, _envoy: envoy, _upstream: upstream }
    }

    /// The ports to call, in the order of the services.
    pub(crate) fn doors(&self) -> [u16; 2] {
        self.doors
    }
}

/// Who calls through Envoy, over a connection of its own.
pub(crate) struct Visitor {
    connection: SendRequest<Empty<Bytes>>,
    descriptors: usize,
}

pub(crate) fn connect(door: u16, descriptors: usize) -> impl Connect<Visitor> {
    let visitor = move |runtime: &Runtime| {
        let connection = runtime.block_on(async {
            let stream = TcpStream::connect(("127.0.0.1", door)).await.expect("envoy listens");
            stream.set_nodelay(true).expect("a connection");
            handshake(TokioIo::new(stream)).await.expect("a connection")
        });
        runtime.spawn(connection.1);
        Visitor { connection: connection.0, descriptors }
    };
    move |runtime| (0..AT_ONCE).map(|_| visitor(runtime)).collect()
}

impl Caller for Visitor {
    async fn call(&mut self, key: usize) {
        let mut request = Request::get("/").header("host", "web");
        for (field, header) in FIELDS.iter().zip(HEADERS).take(self.descriptors) {
            request = request.header(header, value(field, key));
        }
        let request = request.body(Empty::new()).expect("a request");
        self.connection.ready().await.expect("the connection stays");
        let response = self.connection.send_request(request).await.expect("an answer");
        // Were the service not asked, or did it not answer, it would be another one: see `failure_mode_deny`.
        assert_eq!(response.status(), StatusCode::OK);
        response.into_body().collect().await.expect("all of it");
    }
}

/// Each becomes a descriptor, if it is there.
const HEADERS: [&str; 3] = ["x-user", "x-path", "x-tenant"];

fn configuration(doors: [u16; 2], services: [u16; 2], upstream: u16) -> String {
    let listeners: String =
        doors.iter().zip(services).map(|(door, service)| listener(*door, service)).collect();
    let service = |port: u16| cluster(&format!("service-{port}"), port, HTTP2);
    let clusters = services.map(service).concat() + &cluster("upstream", upstream, "");
    format!("static_resources:\n  listeners:{listeners}\n  clusters:{clusters}\n")
}

const HTTP2: &str = r#"
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: { http2_protocol_options: {} }"#;

fn listener(door: u16, service: u16) -> String {
    let action = |(field, header): (&&str, &str)| {
        format!(
            "\n              - actions: [{{ request_headers: {{ header_name: {header}, descriptor_key: {field} }} }}]"
        )
    };
    let rate_limits: String = FIELDS.iter().zip(HEADERS).map(action).collect();
    format!(
        r#"
  - address: {{ socket_address: {{ address: 127.0.0.1, port_value: {door} }} }}
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
          - name: envoy.filters.http.ratelimit
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
              domain: web
              timeout: 5s
              failure_mode_deny: true
              rate_limit_service:
                transport_api_version: V3
                grpc_service: {{ envoy_grpc: {{ cluster_name: service-{service} }} }}
              rate_limits:{rate_limits}
          - name: envoy.filters.http.router
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"#
    )
}

fn cluster(name: &str, port: u16, options: &str) -> String {
    format!(
        r"
  - name: {name}
    type: STATIC{options}
    load_assignment:
      cluster_name: {name}
      endpoints:
      - lb_endpoints:
        - endpoint: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }} }}"
    )
}
