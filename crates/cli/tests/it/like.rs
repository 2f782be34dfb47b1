//! `tollgate serve --like envoy-ratelimit`: started with the environment of envoyproxy/ratelimit.

mod reload;

use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;

use tollgate_server::rls::proto::{Code, RateLimitResponse};
use tollgate_testkit::{Redis, free_port};

use crate::support::grpc::Call;
use crate::support::{Service, answer, ask, connect, ended, request, tollgate};

const LIKE: &str = "--like=envoy-ratelimit";

const WEB: &str = "domain: web
descriptors:
  - key: user
    rate_limit: {unit: day, requests_per_unit: 2}
";

/// A folder as `RUNTIME_ROOT` names it, with a file of limits for `RUNTIME_SUBDIRECTORY=ratelimit`.
fn runtime(limits: &str) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let config = root.path().join("ratelimit/config");
    fs::create_dir_all(&config).unwrap();
    fs::write(config.join("web.yaml"), limits).unwrap();
    root
}

fn variables_of(root: &Path) -> [(&'static str, &str); 2] {
    [("RUNTIME_ROOT", root.to_str().unwrap()), ("RUNTIME_SUBDIRECTORY", "ratelimit")]
}

fn call(address: SocketAddr, user: &str) -> RateLimitResponse {
    Call::new("web", &[("user", user)]).ask(address, None).unwrap()
}

/// A request for a page with a header field: the status and the body.
fn get_with(address: SocketAddr, path: &str, old: &str, new: &str) -> (u16, String) {
    let mut stream = connect(address).unwrap();
    stream.write_all(request("GET", path, "").replacen(old, new, 1).as_bytes()).unwrap();
    answer(&mut stream)
}

/// Item 26.6: addresses, policy, fields and modes are those that the variables name, and what is left out is named once.
#[test]
fn serve_is_started_by_the_environment_of_envoyproxy_ratelimit() {
    let root = runtime(WEB);
    let ports = [free_port(), free_port(), free_port()].map(|port| port.to_string());
    let variables = [
        ("HOST", "127.0.0.1"),
        ("PORT", &*ports[0]),
        ("GRPC_HOST", "127.0.0.1"),
        ("GRPC_PORT", &*ports[1]),
        ("DEBUG_PORT", &*ports[2]),
        ("LIMIT_RESPONSE_HEADERS_ENABLED", "true"),
        ("LIMIT_LIMIT_HEADER", "X-Limit"),
        ("LIMIT_REMAINING_HEADER", "X-Left"),
        ("LIMIT_RESET_HEADER", "X-Reset"),
        ("SHADOW_MODE", "true"),
        ("LOG_LEVEL", "INFO"),
        ("REDIS_POOL_SIZE", "5"),
    ];
    let mut command = tollgate();
    command.args(["serve", "--workers=1", LIKE]).envs(variables).envs(variables_of(root.path()));
    let service = Service::of(&mut command);
    let addresses = [service.http, service.grpc, service.admin].map(|address| address.to_string());
    assert_eq!(addresses, ports.map(|port| format!("127.0.0.1:{port}")));
    assert_eq!(service.resp.port(), 0, "theirs does not speak the protocol of Redis");
    for _ in 0..3 {
        let response = call(service.grpc, "ann");
        assert_eq!(response.overall_code(), Code::Ok, "all is in shadow: {response:?}");
        let fields: Vec<_> = response.response_headers_to_add.iter().map(|field| &*field.key).collect();
        assert_eq!(fields, ["X-Limit", "X-Left", "X-Reset"]);
    }
    service.tells("are set and not honoured: REDIS_POOL_SIZE");
    assert_eq!(service.log().matches("not honoured").count(), 1, "{}", service.log());
}

/// Item 26.6: the debug port has the pages of theirs, beside those of the admin listener.
#[test]
fn debug_port_has_rlconfig_stats_and_healthcheck() {
    let root = runtime(WEB);
    let service = Service::start_with(&[LIKE], &variables_of(root.path()));
    assert_eq!(service.get("/rlconfig"), "web.user: unit=DAY requests_per_unit=2, shadow_mode: false\n");
    assert_eq!(service.get("/healthcheck"), "OK");
    for user in ["ann", "ann", "ann", "bob"] {
        call(service.grpc, user);
    }
    let stats = service.get("/stats");
    for line in ["total_hits: 4", "within_limit: 3", "over_limit: 1", "shadow_mode: 0"] {
        assert!(
            stats.contains(&format!("ratelimit.service.rate_limit.web.user.{line}\n")),
            "{line}: {stats}"
        );
    }
    assert!(service.get("/metrics").contains("ratelimit_service_rate_limit_total_hits"), "compat is on");
    let without_flag = Service::start(&[]);
    for path in ["/rlconfig", "/stats"] {
        let statuses = [service.http, without_flag.admin].map(|address| ask(address, "GET", path, "").0);
        assert_eq!(statuses, [404, 404], "{path}");
    }
}

/// Item 26.6: the pages of the debug port ask for the admin scope once there are keys; the health check is open.
#[test]
fn debug_port_asks_for_the_admin_scope_once_there_are_keys() {
    let root = runtime(WEB);
    let keys = root.path().join("keys.toml");
    let tokens = "[token.app]\nsecret = \"asks and does no more\"\nscopes = [\"check\"]\n\
                  [token.operator]\nsecret = \"looks and resets only\"\nscopes = [\"admin\"]\n";
    fs::write(&keys, tokens).unwrap();
    let flag = format!("--keys-file={}", keys.display());
    let service = Service::start_with(&[LIKE, &flag], &variables_of(root.path()));
    let status = |path: &str, token: &str| {
        let field = format!("authorization: Bearer {token}\r\nhost:");
        get_with(service.admin, path, "host:", &field).0
    };
    for path in ["/rlconfig", "/stats"] {
        assert_eq!(ask(service.admin, "GET", path, "").0, 401, "{path}");
        let statuses = ["asks and does no more", "looks and resets only"].map(|token| status(path, token));
        assert_eq!(statuses, [403, 200], "{path}");
    }
    assert_eq!(ask(service.admin, "GET", "/healthcheck", "").0, 200);
}

/// Item 26.6: clients may name the service as they like, as theirs lets them; pages of the web cannot reach the debug port so.
#[test]
fn any_host_may_be_named_except_on_the_debug_port() {
    let root = runtime(WEB);
    let service = Service::start_with(&[LIKE], &variables_of(root.path()));
    let named = |address, path| get_with(address, path, "host: localhost", "host: ratelimit.default.svc").0;
    assert_eq!(named(service.http, "/openapi.json"), 200);
    assert_eq!(named(service.admin, "/rlconfig"), 421);
}

/// Item 26.6: the counters are in the Redis of their variables, under their prefix.
#[test]
fn redis_of_the_environment_has_the_counters() {
    let (root, redis) = (runtime(WEB), Redis::start());
    let url = format!("127.0.0.1:{}", redis.port());
    let more = [("REDIS_SOCKET_TYPE", "tcp"), ("REDIS_URL", &*url), ("CACHE_KEY_PREFIX", "shop_")];
    let service = Service::start_with(&[LIKE], &[&variables_of(root.path())[..], &more].concat());
    service.tells("connected to Redis");
    assert_eq!(call(service.grpc, "ann").overall_code(), Code::Ok);
    assert!(redis.ask(&["KEYS", "shop_*"]).contains("shop_"), "{}", redis.ask(&["KEYS", "*"]));
}

/// Item 26.6: without the flag their variables do nothing, and a distinctive one among them is pointed out.
#[test]
fn without_the_flag_a_distinctive_variable_is_a_warning_that_names_it() {
    let variables = [("RUNTIME_ROOT", "/nowhere"), ("PORT", "1"), ("LOG_LEVEL", "ERROR")];
    let service = Service::start_with(&[], &variables);
    service.tells("not read: RUNTIME_ROOT; to read them, give --like envoy-ratelimit");
    let output =
        tollgate().arg("settings").envs([("PORT", "1"), ("REDIS_URL", "redis:6379")]).output().unwrap();
    let (code, out, err) = ended(&output);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains("http.address = \"127.0.0.1:8080\"\n"), "{out}");
}

/// Item 26.6: `settings` shows which of their variables a value comes from.
#[test]
fn settings_show_the_variables_they_come_from() {
    let variables = [("GRPC_PORT", "9081"), ("RUNTIME_ROOT", "/data"), ("RUNTIME_SUBDIRECTORY", "x")];
    let output = tollgate().args(["settings", LIKE]).envs(variables).output().unwrap();
    let (code, out, err) = ended(&output);
    assert_eq!((code, err.as_str()), (0, ""));
    for (value, origin) in [
        ("grpc.address = \"0.0.0.0:9081\"", "# GRPC_PORT"),
        ("policy = \"/data/x/config\"", "# RUNTIME_ROOT, RUNTIME_SUBDIRECTORY"),
        ("admin.address = \"127.0.0.1:6070\"", "# default of envoyproxy/ratelimit"),
    ] {
        assert!(out.lines().any(|line| line.starts_with(value) && line.ends_with(origin)), "{value}: {out}");
    }
}
