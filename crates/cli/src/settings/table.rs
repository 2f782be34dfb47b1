//! The table of all settings.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::PREFIX;
use super::like::Like;
use super::store::Store;
use super::value::{Choice, Count, FieldName, KeyPrefix, Names, OneOf, Ratio, Size, Value, Word};

/// The values of all settings.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    pub(crate) like: Option<OneOf<Like>>,
    pub(crate) policy: Option<PathBuf>,
    pub(crate) merge_domains: bool,
    pub(crate) workers: Count<0, 1024>,
    pub(crate) max_connections: Count<1, 1_000_000>,
    pub(crate) max_connections_per_address: Option<Count<1, 1_000_000>>,
    pub(crate) first_request_timeout: Duration,
    pub(crate) drain: Duration,
    pub(crate) drain_delay: Option<Duration>,
    pub(crate) store: Store,
    pub(crate) store_password_file: Option<PathBuf>,
    pub(crate) memory: Memory,
    pub(crate) redis: Redis,
    pub(crate) snapshot: Snapshot,
    pub(crate) http: Http,
    pub(crate) grpc: Grpc,
    pub(crate) limitador: Limitador,
    pub(crate) resp: Resp,
    pub(crate) admin: Admin,
    pub(crate) tls: Tls,
    pub(crate) keys: Keys,
    pub(crate) metrics: Metrics,
    pub(crate) log: Log,
}

/// HTTP/JSON, and the limits on what clients may send.
#[derive(Debug, Default)]
pub(crate) struct Http {
    pub(crate) address: Option<SocketAddr>,
    pub(crate) hosts: Option<Names>,
    pub(crate) ready_needs_store: bool,
    pub(crate) ready_needs_policy: bool,
    pub(crate) body_bytes: Size,
    pub(crate) connection_body_bytes: Size,
    pub(crate) header_bytes: Size,
    pub(crate) headers: Count<1, 10_000>,
    pub(crate) checks: Count<1, 100_000>,
    pub(crate) fields: Count<1, 1_000>,
    pub(crate) key_bytes: Size,
    pub(crate) head_timeout: Duration,
    pub(crate) body_timeout: Duration,
    pub(crate) idle_timeout: Duration,
    pub(crate) write_timeout: Duration,
}

/// Envoy's rate limit service.
#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a setting of its own")]
pub(crate) struct Grpc {
    pub(crate) address: Option<SocketAddr>,
    pub(crate) max_connection_age: Option<Duration>,
    pub(crate) max_connection_age_grace: Option<Duration>,
    pub(crate) headers: bool,
    pub(crate) limit_header: FieldName,
    pub(crate) remaining_header: FieldName,
    pub(crate) reset_header: FieldName,
    pub(crate) dynamic_metadata: bool,
    pub(crate) shadow_mode: bool,
    pub(crate) quota_mode: bool,
    pub(crate) health: bool,
    pub(crate) reflection: bool,
}

/// limitador's API.
#[derive(Debug, Default)]
pub(crate) struct Limitador {
    pub(crate) http: Option<SocketAddr>,
    pub(crate) headers: bool,
    pub(crate) limit_names: bool,
}

/// The Redis protocol.
#[derive(Debug, Default)]
pub(crate) struct Resp {
    pub(crate) address: Option<SocketAddr>,
    pub(crate) idle_timeout: Duration,
    pub(crate) slow_timeout: Duration,
}

/// Administration and metrics.
#[derive(Debug, Default)]
pub(crate) struct Admin {
    pub(crate) address: Option<SocketAddr>,
    pub(crate) max_connections: Count<1, 1_000_000>,
}

/// The files with certificates and keys.
#[derive(Debug, Default)]
pub(crate) struct Tls {
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    pub(crate) client_authorities: Option<PathBuf>,
    pub(crate) require_client: bool,
}

/// Authentication and authorization.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    pub(crate) file: Option<PathBuf>,
}

/// Metrics.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) compat: Option<OneOf<Compat>>,
    pub(crate) near_limit_ratio: Ratio,
}

/// The store in this process.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub(crate) max_keys: Option<Count<1, 1_000_000_000_000>>,
    pub(crate) max_bytes: Option<Size>,
    pub(crate) at_cap: OneOf<AtCap>,
    pub(crate) holds_per_caller: Count<1, 1_000_000>,
    pub(crate) names: Count<0, 1_000_000>,
    pub(crate) sweep_every: Option<Duration>,
}

/// The store in Redis.
#[derive(Debug, Default)]
pub(crate) struct Redis {
    pub(crate) timeout: Duration,
    pub(crate) lease: Count<0, 1_000_000>,
    pub(crate) lease_time: Duration,
    pub(crate) prefix: Option<KeyPrefix>,
    pub(crate) keys: OneOf<KeyForm>,
    pub(crate) tls_certificate: Option<PathBuf>,
    pub(crate) tls_key: Option<PathBuf>,
    pub(crate) sentinel_user: Option<Word>,
    pub(crate) sentinel_password_file: Option<PathBuf>,
}

/// Snapshots of the counters.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) folder: Option<PathBuf>,
    pub(crate) every: Option<Duration>,
}

/// Logs.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) level: OneOf<Level>,
    pub(crate) format: OneOf<Format>,
    pub(crate) audit: bool,
    pub(crate) decisions: OneOf<Decisions>,
    pub(crate) decisions_one_in: Count<1, 1_000_000_000>,
    pub(crate) keys: OneOf<LoggedKeys>,
}

/// Every setting, in the order of the help and the docs.
pub(crate) fn all() -> Vec<Setting> {
    [service(), http(), envoy_and_redis(), access(), store(), told()].into_iter().flatten().collect()
}

fn service() -> Vec<Setting> {
    vec![
        of(
            "like",
            "none",
            "Start like this server: read its environment variables and use its default addresses. TOLLGATE_* variables and flags override them; they override the settings file",
            |to| &mut to.like,
        ),
        of("policy", "none", "Policy file or folder; none uses the built-in policy", |to| &mut to.policy),
        of("merge_domains", "false", "Allow several Envoy files of the folder to share a domain", |to| {
            &mut to.merge_domains
        }),
        of("workers", "0", "Number of worker threads; 0 starts one for each core", |to| &mut to.workers),
        of(
            "max_connections",
            "10000",
            "Maximum number of connections to each listener; more are refused",
            |to| &mut to.max_connections,
        ),
        of(
            "max_connections_per_address",
            "none",
            "Maximum number of connections to a listener, except the admin listener, from one client address or IPv6 /64 network; none allows a quarter of the listener's connections",
            |to| &mut to.max_connections_per_address,
        ),
        of(
            "first_request_timeout",
            "10s",
            "Close a new connection whose first request is not complete after this long, on every listener",
            |to| &mut to.first_request_timeout,
        ),
        of("drain", "20s", "On SIGTERM or SIGINT, wait this long for open connections to finish", |to| {
            &mut to.drain
        }),
        of(
            "drain_delay",
            "none",
            "After SIGTERM or SIGINT, answer 503 at /readyz for this long before the listeners close; none closes them at once",
            |to| &mut to.drain_delay,
        ),
        of(
            "store",
            "memory",
            "Where to keep the counters: in the memory of this process, or in Redis or Valkey, shared by several processes",
            |to| &mut to.store,
        ),
        of(
            "store_password_file",
            "none",
            "File that contains the password of Redis. A line break at its end is ignored",
            |to| &mut to.store_password_file,
        ),
    ]
}

fn http() -> Vec<Setting> {
    vec![
        of(
            "http.address",
            "127.0.0.1:8080",
            "Listen on this address for HTTP; port 0 picks a free port",
            |to| &mut to.http.address,
        ),
        of(
            "http.hosts",
            "none",
            "Host names, separated by commas, that clients without a token or certificate may use besides localhost and IP addresses; * allows all",
            |to| &mut to.http.hosts,
        ),
        of(
            "http.ready_needs_store",
            "false",
            "Answer 503 at /readyz while the store does not respond",
            |to| &mut to.http.ready_needs_store,
        ),
        of(
            "http.ready_needs_policy",
            "false",
            "Answer 503 at /readyz while the policy file has errors",
            |to| &mut to.http.ready_needs_policy,
        ),
        of("http.body_bytes", "1MiB", "Maximum size of a request body", |to| &mut to.http.body_bytes),
        of(
            "http.connection_body_bytes",
            "2MiB",
            "Maximum size of all unfinished request bodies of one HTTP/2 connection, including gRPC",
            |to| &mut to.http.connection_body_bytes,
        ),
        of("http.header_bytes", "16KiB", "Maximum size of the request line and header fields", |to| {
            &mut to.http.header_bytes
        }),
        of("http.headers", "64", "Maximum number of header fields", |to| &mut to.http.headers),
        of("http.checks", "1000", "Maximum number of checks in a request", |to| &mut to.http.checks),
        of("http.fields", "32", "Maximum number of fields in a descriptor", |to| &mut to.http.fields),
        of(
            "http.key_bytes",
            "1KiB",
            "Maximum number of characters in a key, a domain, a field name or a field value",
            |to| &mut to.http.key_bytes,
        ),
        of(
            "http.head_timeout",
            "10s",
            "Close a connection whose request headers are not complete after this long",
            |to| &mut to.http.head_timeout,
        ),
        of(
            "http.body_timeout",
            "10s",
            "Close a connection whose request body is not complete after this long, including gRPC",
            |to| &mut to.http.body_timeout,
        ),
        of(
            "http.idle_timeout",
            "75s",
            "Close a connection that receives nothing from the client for this long, including gRPC",
            |to| &mut to.http.idle_timeout,
        ),
        of(
            "http.write_timeout",
            "10s",
            "Close a connection whose client does not receive the complete response within this time, including gRPC",
            |to| &mut to.http.write_timeout,
        ),
    ]
}

fn envoy_and_redis() -> Vec<Setting> {
    vec![
        of(
            "grpc.address",
            "127.0.0.1:8081",
            "Listen on this address for Envoy's rate limit service (gRPC); port 0 picks a free port",
            |to| &mut to.grpc.address,
        ),
        of(
            "grpc.max_connection_age",
            "none",
            "Maximum age of a gRPC connection, varied by up to a tenth. The server then sends a GOAWAY, and the client reconnects, perhaps to another server",
            |to| &mut to.grpc.max_connection_age,
        ),
        of(
            "grpc.max_connection_age_grace",
            "1h",
            "After the GOAWAY of grpc.max_connection_age, close the connection when this time is over, even if calls are unfinished; none waits for all calls",
            |to| &mut to.grpc.max_connection_age_grace,
        ),
        of("grpc.headers", "false", "Add RateLimit headers to responses. Applies to gRPC and /json", |to| {
            &mut to.grpc.headers
        }),
        of(
            "grpc.limit_header",
            "RateLimit-Limit",
            "Name of the header that grpc.headers adds for the limit",
            |to| &mut to.grpc.limit_header,
        ),
        of(
            "grpc.remaining_header",
            "RateLimit-Remaining",
            "Name of the header that grpc.headers adds for the remaining requests",
            |to| &mut to.grpc.remaining_header,
        ),
        of(
            "grpc.reset_header",
            "RateLimit-Reset",
            "Name of the header that grpc.headers adds for the seconds until the limit resets",
            |to| &mut to.grpc.reset_header,
        ),
        of(
            "grpc.dynamic_metadata",
            "false",
            "Return the request and the metadata of its limits to Envoy as dynamic metadata",
            |to| &mut to.grpc.dynamic_metadata,
        ),
        of("grpc.shadow_mode", "false", "Over gRPC and at /json, count every request but deny none", |to| {
            &mut to.grpc.shadow_mode
        }),
        of(
            "grpc.quota_mode",
            "false",
            "Over gRPC and at /json, deny a request only if every limit that applies denies it",
            |to| &mut to.grpc.quota_mode,
        ),
        of("grpc.health", "true", "Serve gRPC health checks to all clients", |to| &mut to.grpc.health),
        of("grpc.reflection", "true", "Serve gRPC reflection to clients with the scope check", |to| {
            &mut to.grpc.reflection
        }),
        of(
            "limitador.http",
            "none",
            "Listen on this address for limitador's HTTP API; port 0 picks a free port",
            |to| &mut to.limitador.http,
        ),
        of(
            "limitador.headers",
            "false",
            "Add the X-RateLimit headers of draft 03 to responses over gRPC, as limitador's --rate-limit-headers does",
            |to| &mut to.limitador.headers,
        ),
        of(
            "limitador.limit_names",
            "false",
            "Add the label limit_name to limited_calls, as limitador's --limit-name-in-labels does; needs metrics.compat = limitador",
            |to| &mut to.limitador.limit_names,
        ),
        of(
            "resp.address",
            "127.0.0.1:6380",
            "Listen on this address for the Redis protocol; port 0 picks a free port",
            |to| &mut to.resp.address,
        ),
        of("resp.idle_timeout", "15min", "Close a connection without commands after this long", |to| {
            &mut to.resp.idle_timeout
        }),
        of(
            "resp.slow_timeout",
            "10s",
            "Close a connection if a command is not received completely, or its reply is not read, within this time",
            |to| &mut to.resp.slow_timeout,
        ),
    ]
}

fn access() -> Vec<Setting> {
    vec![
        of(
            "admin.address",
            "127.0.0.1:8082",
            "Listen on this address for administration and metrics; other addresses than loopback need authentication",
            |to| &mut to.admin.address,
        ),
        of(
            "admin.max_connections",
            "100",
            "Maximum number of connections to the admin listener; max_connections does not count them. One client address may open a quarter of them",
            |to| &mut to.admin.max_connections,
        ),
        of(
            "tls.certificate",
            "none",
            "PEM file with the certificate chain of the server; enables TLS on all listeners",
            |to| &mut to.tls.certificate,
        ),
        of("tls.key", "none", "PEM file with the private key of the server certificate", |to| {
            &mut to.tls.key
        }),
        of(
            "tls.client_authorities",
            "none",
            "PEM file with the CA certificates that sign client certificates",
            |to| &mut to.tls.client_authorities,
        ),
        of("tls.require_client", "false", "Reject clients without a certificate", |to| {
            &mut to.tls.require_client
        }),
        of(
            "keys.file",
            "none",
            "TOML file with the scopes of each token and certificate. Without it, every client may do everything",
            |to| &mut to.keys.file,
        ),
    ]
}

fn store() -> Vec<Setting> {
    vec![
        of("memory.max_keys", "none", "Approximate maximum number of keys of all limits together", |to| {
            &mut to.memory.max_keys
        }),
        of(
            "memory.max_bytes",
            "1GiB",
            "Approximate maximum memory for counters and holds. One eighth is for holds. With Redis, the rest is for the local counters that are used during an outage",
            |to| &mut to.memory.max_bytes,
        ),
        of(
            "memory.at_cap",
            "evict",
            "What to do when the store is full: evict removes the least used keys, refuse denies requests with new keys",
            |to| &mut to.memory.at_cap,
        ),
        of(
            "memory.holds_per_caller",
            "10000",
            "Maximum number of unsettled holds of one client (a token, certificate or address)",
            |to| &mut to.memory.holds_per_caller,
        ),
        of(
            "memory.names",
            "100",
            "Number of the busiest keys that /v1/keys/top is certain to list; 0 stores no key names",
            |to| &mut to.memory.names,
        ),
        of("memory.sweep_every", "1min", "Evict idle keys at this interval", |to| &mut to.memory.sweep_every),
        of(
            "redis.timeout",
            "25ms",
            "Maximum time to wait for Redis. After that, the on_store_failure of each limit applies",
            |to| &mut to.redis.timeout,
        ),
        of("redis.lease", "0", "Maximum tokens per key to lease from Redis; 0 disables leasing", |to| {
            &mut to.redis.lease
        }),
        of(
            "redis.lease_time",
            "4s",
            "Lifetime of a lease, from 100ms to 30s. When it ends, the tokens that a crashed process had leased count as used",
            |to| &mut to.redis.lease_time,
        ),
        of(
            "redis.prefix",
            "none",
            "Prefix of all keys in Redis. Processes with different prefixes do not share counters",
            |to| &mut to.redis.prefix,
        ),
        of(
            "redis.keys",
            "hashed",
            "How keys are stored in Redis: hashed, or clear, which stores keys of up to 64 bytes unchanged",
            |to| &mut to.redis.keys,
        ),
        of(
            "redis.tls_certificate",
            "none",
            "PEM file with the client certificate chain for Redis and its Sentinels",
            |to| &mut to.redis.tls_certificate,
        ),
        of("redis.tls_key", "none", "PEM file with the private key of redis.tls_certificate", |to| {
            &mut to.redis.tls_key
        }),
        of(
            "redis.sentinel_user",
            "none",
            "User name for the Sentinels. The user name in the store address is for the Redis servers",
            |to| &mut to.redis.sentinel_user,
        ),
        of(
            "redis.sentinel_password_file",
            "none",
            "File that contains the password of the Sentinels. A line break at its end is ignored",
            |to| &mut to.redis.sentinel_password_file,
        ),
        of(
            "snapshot.folder",
            "none",
            "Folder for snapshots: counters are saved when the server stops, and restored when it starts",
            |to| &mut to.snapshot.folder,
        ),
        of("snapshot.every", "5min", "Interval between snapshots", |to| &mut to.snapshot.every),
    ]
}

fn told() -> Vec<Setting> {
    vec![
        of("metrics.compat", "none", "Also export metrics under the names of this service", |to| {
            &mut to.metrics.compat
        }),
        of(
            "metrics.near_limit_ratio",
            "0.8",
            "Fraction of a limit above which a hit counts as near the limit, in the metrics of envoyproxy/ratelimit",
            |to| &mut to.metrics.near_limit_ratio,
        ),
        of("log.level", "info", "Minimum level of log lines; the log is written to stderr", |to| {
            &mut to.log.level
        }),
        of("log.format", "text", "Format of the log: text, or JSON lines", |to| &mut to.log.format),
        of(
            "log.audit",
            "true",
            "Log resets, reloads, key changes and failed authentications as JSON lines to stderr",
            |to| &mut to.log.audit,
        ),
        of("log.decisions", "off", "Decisions to log as JSON lines to stderr: off, denied or all", |to| {
            &mut to.log.decisions
        }),
        of("log.decisions_one_in", "1", "Log one in this many decisions, chosen at random", |to| {
            &mut to.log.decisions_one_in
        }),
        of("log.keys", "hashed", "How decisions and audit lines show keys: hashed, or clear", |to| {
            &mut to.log.keys
        }),
    ]
}

/// The description of one setting.
pub(crate) struct Setting {
    /// Its key in the settings file, such as `http.address`.
    pub(crate) key: &'static str,
    /// The placeholder for its value in the help.
    pub(crate) value: &'static str,
    /// The values that are expected, for error messages.
    pub(crate) expected: String,
    /// Its default.
    pub(crate) default: &'static str,
    /// Its description.
    pub(crate) help: &'static str,
    /// Hides passwords in a valid value.
    pub(crate) shown: fn(&str) -> String,
    /// Hides passwords in an invalid value.
    found: fn(&str) -> String,
    set: Box<Set>,
}

/// Parses a text and stores the value. Returns `false` if the text is invalid.
type Set = dyn Fn(&mut Settings, &str) -> bool;

/// Creates a setting whose value is stored at `place`.
fn of<V: Value + 'static>(
    key: &'static str,
    default: &'static str,
    help: &'static str,
    place: fn(&mut Settings) -> &mut V,
) -> Setting {
    let set = move |to: &mut Settings, text: &str| V::read(text).map(|value| *place(to) = value).is_some();
    Setting {
        key,
        value: V::NAME,
        expected: V::expected(),
        default,
        help,
        shown: V::shown,
        found: V::found,
        set: Box::new(set),
    }
}

impl Setting {
    /// Returns its flag without the leading dashes.
    pub(crate) fn flag(&self) -> String {
        self.key.replace(['.', '_'], "-")
    }

    /// Returns its environment variable.
    pub(crate) fn variable(&self) -> String {
        format!("{PREFIX}{}", self.key.replace('.', "_").to_uppercase())
    }

    /// Returns its heading in the help and the docs.
    pub(crate) fn group(&self) -> &'static str {
        match self.key.split_once('.') {
            None => "Service",
            Some(("http", _)) => "HTTP",
            Some(("grpc", _)) => "Envoy's rate limit service",
            Some(("limitador", _)) => "limitador",
            Some(("resp", _)) => "Redis protocol",
            Some(("admin", _)) => "Administration",
            Some(("tls", _)) => "TLS",
            Some(("keys", _)) => "Keys",
            Some(("memory", _)) => "Store in memory",
            Some(("redis", _)) => "Store in Redis",
            Some(("snapshot", _)) => "Snapshots",
            Some(("metrics", _)) => "Metrics",
            Some(("log", _)) => "Log",
            Some((other, _)) => other,
        }
    }

    /// Parses and stores a value.
    ///
    /// # Errors
    /// A message with the expected values if `text` is invalid.
    pub(crate) fn set(&self, to: &mut Settings, text: &str) -> Result<(), String> {
        let is_set = (self.set)(to, text);
        if is_set { Ok(()) } else { Err(format!("expected {}, found {}", self.expected, (self.found)(text))) }
    }
}

/// The treatment of new keys when the store is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum AtCap {
    #[default]
    Evict,
    Refuse,
}

impl Choice for AtCap {
    const NAME: &'static str = "ACTION";
    const ALL: &'static [(&'static str, Self)] = &[("evict", Self::Evict), ("refuse", Self::Refuse)];
}

/// The form of keys in Redis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum KeyForm {
    #[default]
    Hashed,
    Clear,
}

impl Choice for KeyForm {
    const NAME: &'static str = "FORM";
    const ALL: &'static [(&'static str, Self)] = &[("hashed", Self::Hashed), ("clear", Self::Clear)];
}

/// A service whose metric names are exported as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compat {
    Envoy,
    Limitador,
}

impl Choice for Compat {
    const NAME: &'static str = "SERVICE";
    const ALL: &'static [(&'static str, Self)] = &[("envoy", Self::Envoy), ("limitador", Self::Limitador)];
}

/// The minimum level of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Level {
    Error,
    Warn,
    #[default]
    Info,
    Debug,
    Trace,
}

impl Choice for Level {
    const NAME: &'static str = "LEVEL";
    const ALL: &'static [(&'static str, Self)] = &[
        ("error", Self::Error),
        ("warn", Self::Warn),
        ("info", Self::Info),
        ("debug", Self::Debug),
        ("trace", Self::Trace),
    ];
}

/// The format of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Format {
    #[default]
    Text,
    Json,
}

impl Choice for Format {
    const NAME: &'static str = "FORMAT";
    const ALL: &'static [(&'static str, Self)] = &[("text", Self::Text), ("json", Self::Json)];
}

/// The decisions that are logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Decisions {
    #[default]
    Off,
    Denied,
    All,
}

impl Choice for Decisions {
    const NAME: &'static str = "DECISIONS";
    const ALL: &'static [(&'static str, Self)] =
        &[("off", Self::Off), ("denied", Self::Denied), ("all", Self::All)];
}

/// The form of keys in logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LoggedKeys {
    #[default]
    Hashed,
    Clear,
}

impl Choice for LoggedKeys {
    const NAME: &'static str = "FORM";
    const ALL: &'static [(&'static str, Self)] = &[("hashed", Self::Hashed), ("clear", Self::Clear)];
}
