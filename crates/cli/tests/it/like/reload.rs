//! Limits that are changed while a real Envoy asks: by a link that is swapped, and by a `ConfigMap`.

use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::Path;

use tollgate_testkit::{Envoy, free_port};

use super::{LIKE, variables_of};
use crate::support::{Service, connect, until};

/// A service that is started by the environment of envoyproxy/ratelimit, and an Envoy that asks it before it lets a request through.
struct World {
    service: Service,
    front: SocketAddr,
    _envoy: Envoy,
}

impl World {
    fn start(root: &Path) -> Self {
        let service = Service::start_with(&[LIKE], &variables_of(root));
        let front = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let envoy = Envoy::start(&configuration(front, service.grpc, service.http));
        Self { service, front, _envoy: envoy }
    }

    /// The statuses of requests by one user, one after the other.
    fn statuses<const N: usize>(&self, user: &str) -> [u16; N] {
        [(); N].map(|()| {
            let mut stream = connect(self.front).unwrap();
            write!(stream, "GET / HTTP/1.1\r\nhost: web\r\nx-user: {user}\r\nconnection: close\r\n\r\n")
                .unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            text[9..12].parse().unwrap()
        })
    }

    fn wait_for_loads(&self, loads: u64) {
        let metric = format!("tollgate_config_reloads_total{{result=\"success\"}} {loads}\n");
        until(&format!("{loads} policies were loaded"), || self.service.get("/metrics").contains(&metric));
    }
}

fn limits(requests: u32) -> String {
    format!(
        "domain: web\ndescriptors:\n  - key: user\n    rate_limit: {{unit: year, requests_per_unit: {requests}}}\n"
    )
}

/// Replaces a link at once, as deployments do.
fn relink(target: &str, link: &Path) {
    let next = link.with_file_name(".next");
    symlink(target, &next).unwrap();
    fs::rename(next, link).unwrap();
}

/// Item 26.6: with `RUNTIME_ROOT` as a link to one of several folders, other limits decide once it leads to another one.
#[test]
fn envoy_sees_other_limits_after_the_runtime_link_is_swapped() {
    let folder = tempfile::tempdir().unwrap();
    for (version, requests) in [("v1", 1), ("v2", 3)] {
        let config = folder.path().join(version).join("ratelimit/config");
        fs::create_dir_all(&config).unwrap();
        fs::write(config.join("web.yaml"), limits(requests)).unwrap();
    }
    let current = folder.path().join("current");
    symlink("v1", &current).unwrap();
    let world = World::start(&current);
    assert_eq!(world.statuses("ann"), [200, 429]);
    for (version, loads, statuses) in [("v2", 2, [200, 200, 200, 429]), ("v1", 3, [200, 429, 429, 429])] {
        relink(version, &current);
        world.wait_for_loads(loads);
        assert_eq!(world.statuses(version), statuses, "{version}");
    }
}

/// Item 26.6: a `ConfigMap` is a folder of links through `..data`, which Kubernetes swaps.
#[test]
fn envoy_sees_other_limits_after_a_configmap_is_updated() {
    let root = tempfile::tempdir().unwrap();
    let config = root.path().join("ratelimit/config");
    for (version, requests) in [("..2026_11_19_1", 1), ("..2026_11_19_2", 3)] {
        fs::create_dir_all(config.join(version)).unwrap();
        fs::write(config.join(version).join("web.yaml"), limits(requests)).unwrap();
    }
    symlink("..2026_11_19_1", config.join("..data")).unwrap();
    symlink("..data/web.yaml", config.join("web.yaml")).unwrap();
    let world = World::start(root.path());
    assert_eq!(world.statuses("ann"), [200, 429]);
    relink("..2026_11_19_2", &config.join("..data"));
    world.wait_for_loads(2);
    assert_eq!(world.statuses("bob"), [200, 200, 200, 429]);
    fs::remove_dir_all(config.join("..2026_11_19_1")).unwrap();
    assert_eq!(world.statuses("eve"), [200, 200, 200, 429]);
}

/// An Envoy that asks for each user, and lets requests through to the health check of the service.
fn configuration(front: SocketAddr, service: SocketAddr, upstream: SocketAddr) -> String {
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
                route:
                  cluster: upstream
                  prefix_rewrite: /healthcheck
                  rate_limits:
                  - actions:
                    - request_headers: {{ header_name: x-user, descriptor_key: user }}
          http_filters:
          - name: envoy.filters.http.ratelimit
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
              domain: web
              timeout: 5s
              failure_mode_deny: true
              rate_limit_service:
                transport_api_version: V3
                grpc_service: {{ envoy_grpc: {{ cluster_name: ratelimit }} }}
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
  - name: ratelimit
    type: STATIC
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {{ http2_protocol_options: {{}} }}
    load_assignment:
      cluster_name: ratelimit
      endpoints:
      - lb_endpoints:
        - endpoint: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: {service} }} }} }}
"#,
        front = front.port(),
        service = service.port(),
        upstream = upstream.port(),
    )
}
