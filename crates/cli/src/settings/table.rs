//! The settings, each once.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::PREFIX;
use super::like::Like;
use super::store::Store;
use super::value::{Choice, Count, FieldName, KeyPrefix, Names, OneOf, Ratio, Size, Value, Word};

/// Everything that can be set.
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
    pub(crate) resp: Resp,
    pub(crate) admin: Admin,
    pub(crate) tls: Tls,
    pub(crate) keys: Keys,
    pub(crate) metrics: Metrics,
    pub(crate) log: Log,
}

/// HTTP/JSON, and how much callers may send.
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

/// The protocol of Redis.
#[derive(Debug, Default)]
pub(crate) struct Resp {
    pub(crate) address: Option<SocketAddr>,
    pub(crate) idle_timeout: Duration,
    pub(crate) slow_timeout: Duration,
}

/// What is for those who run it.
#[derive(Debug, Default)]
pub(crate) struct Admin {
    pub(crate) address: Option<SocketAddr>,
    pub(crate) max_connections: Count<1, 1_000_000>,
}

/// Where certificates are found.
#[derive(Debug, Default)]
pub(crate) struct Tls {
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    pub(crate) client_authorities: Option<PathBuf>,
    pub(crate) require_client: bool,
}

/// Who may do what.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    pub(crate) file: Option<PathBuf>,
}

/// What is measured.
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

/// What outlives the process.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) folder: Option<PathBuf>,
    pub(crate) every: Option<Duration>,
}

/// What is told while it runs.
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
            "Also reads the environment variables of this server, and has its default addresses. Variables and flags of tollgate go before them, they go before the file",
            |to| &mut to.like,
        ),
        of("policy", "none", "The policy: a file, or a folder of them; none is the built-in one", |to| {
            &mut to.policy
        }),
        of(
            "merge_domains",
            "false",
            "Whether several files for Envoy in that folder may be of one domain",
            |to| &mut to.merge_domains,
        ),
        of("workers", "0", "Threads that serve connections; 0 is one for each core", |to| &mut to.workers),
        of("max_connections", "10000", "Connections at once on each listener; more are refused", |to| {
            &mut to.max_connections
        }),
        of(
            "max_connections_per_address",
            "none",
            "Maximum number of connections to a listener, except the admin listener, from one client address or IPv6 /64 network; none is a quarter of the listener's connections",
            |to| &mut to.max_connections_per_address,
        ),
        of(
            "first_request_timeout",
            "10s",
            "How long a new connection may take until its first request is complete, on every listener",
            |to| &mut to.first_request_timeout,
        ),
        of("drain", "20s", "How long connections may take to end when it is told to stop", |to| {
            &mut to.drain
        }),
        of(
            "drain_delay",
            "none",
            "How long requests are still served after a signal to stop, while /readyz answers 503; then the listeners close. none closes them at once",
            |to| &mut to.drain_delay,
        ),
        of(
            "store",
            "memory",
            "Where counters are kept: in this process, or in Redis or Valkey, shared by many",
            |to| &mut to.store,
        ),
        of(
            "store_password_file",
            "none",
            "A file that holds the password of Redis; what stands in it, but for a line end, is the password",
            |to| &mut to.store_password_file,
        ),
    ]
}

fn http() -> Vec<Setting> {
    vec![
        of("http.address", "127.0.0.1:8080", "Where HTTP is spoken; port 0 lets the system choose", |to| {
            &mut to.http.address
        }),
        of(
            "http.hosts",
            "none",
            "The names that clients may know this service by besides localhost and IP addresses, separated by commas; * is any. Only clients without token and certificate are asked",
            |to| &mut to.http.hosts,
        ),
        of(
            "http.ready_needs_store",
            "false",
            "Whether /readyz answers 503 while the store does not answer",
            |to| &mut to.http.ready_needs_store,
        ),
        of(
            "http.ready_needs_policy",
            "false",
            "Whether /readyz answers 503 while the policy in its file has mistakes, and the one before it decides",
            |to| &mut to.http.ready_needs_policy,
        ),
        of("http.body_bytes", "1MiB", "The largest body of a request", |to| &mut to.http.body_bytes),
        of(
            "http.connection_body_bytes",
            "2MiB",
            "How many bytes the unfinished request bodies of one HTTP/2 connection may hold together, gRPC included",
            |to| &mut to.http.connection_body_bytes,
        ),
        of("http.header_bytes", "16KiB", "The largest head of a request: its line and header fields", |to| {
            &mut to.http.header_bytes
        }),
        of("http.headers", "64", "The most header fields of a request", |to| &mut to.http.headers),
        of("http.checks", "1000", "The most checks in one body", |to| &mut to.http.checks),
        of("http.fields", "32", "The most fields of one descriptor", |to| &mut to.http.fields),
        of(
            "http.key_bytes",
            "1KiB",
            "The longest key, domain, and name and value of a field, in characters",
            |to| &mut to.http.key_bytes,
        ),
        of("http.head_timeout", "10s", "How long the head of a request may take to come", |to| {
            &mut to.http.head_timeout
        }),
        of("http.body_timeout", "10s", "How long its body may take to come, over gRPC too", |to| {
            &mut to.http.body_timeout
        }),
        of(
            "http.idle_timeout",
            "75s",
            "How long a connection may be without a byte from the client, over gRPC too",
            |to| &mut to.http.idle_timeout,
        ),
        of(
            "http.write_timeout",
            "10s",
            "How long a client may take to receive a response, over gRPC too",
            |to| &mut to.http.write_timeout,
        ),
    ]
}

fn envoy_and_redis() -> Vec<Setting> {
    vec![
        of(
            "grpc.address",
            "127.0.0.1:8081",
            "Where Envoy's rate limit service is spoken, over gRPC; port 0 lets the system choose",
            |to| &mut to.grpc.address,
        ),
        of(
            "grpc.max_connection_age",
            "none",
            "Age at which a gRPC connection is sent a GOAWAY, up to a tenth more or less for each connection. Clients then connect again, and may reach another server; none lets connections last",
            |to| &mut to.grpc.max_connection_age,
        ),
        of(
            "grpc.max_connection_age_grace",
            "1h",
            "How long calls on such a connection may go on until it is closed; none waits for all of them",
            |to| &mut to.grpc.max_connection_age_grace,
        ),
        of(
            "grpc.headers",
            "false",
            "Whether it has Envoy add RateLimit fields to responses; as all of these, at /json too",
            |to| &mut to.grpc.headers,
        ),
        of(
            "grpc.limit_header",
            "RateLimit-Limit",
            "Name of the field that grpc.headers adds for the limit",
            |to| &mut to.grpc.limit_header,
        ),
        of(
            "grpc.remaining_header",
            "RateLimit-Remaining",
            "Name of the field that grpc.headers adds for the remaining requests",
            |to| &mut to.grpc.remaining_header,
        ),
        of(
            "grpc.reset_header",
            "RateLimit-Reset",
            "Name of the field that grpc.headers adds for the seconds until the limit resets",
            |to| &mut to.grpc.reset_header,
        ),
        of(
            "grpc.dynamic_metadata",
            "false",
            "Whether it tells other filters of Envoy what was asked, and what limits say of themselves",
            |to| &mut to.grpc.dynamic_metadata,
        ),
        of(
            "grpc.shadow_mode",
            "false",
            "Whether every call over gRPC and at /json is counted and passes, as if all limits were in shadow",
            |to| &mut to.grpc.shadow_mode,
        ),
        of(
            "grpc.quota_mode",
            "false",
            "Whether a call over gRPC and at /json is refused only if every limit that applies to it refuses",
            |to| &mut to.grpc.quota_mode,
        ),
        of("grpc.health", "true", "Whether grpc.health.v1 is served, to any client", |to| {
            &mut to.grpc.health
        }),
        of("grpc.reflection", "true", "Whether grpc.reflection is served, to clients that may check", |to| {
            &mut to.grpc.reflection
        }),
        of(
            "resp.address",
            "127.0.0.1:6380",
            "Where the protocol of Redis is spoken; port 0 lets the system choose",
            |to| &mut to.resp.address,
        ),
        of("resp.idle_timeout", "15min", "How long a connection may be without a command", |to| {
            &mut to.resp.idle_timeout
        }),
        of(
            "resp.slow_timeout",
            "10s",
            "How long a command may take to come, and its answer to be taken",
            |to| &mut to.resp.slow_timeout,
        ),
    ]
}

fn access() -> Vec<Setting> {
    vec![
        of(
            "admin.address",
            "127.0.0.1:8082",
            "Where limits, keys, policy and metrics are shown, and keys reset, over HTTP; others can reach it only if they must prove who they are",
            |to| &mut to.admin.address,
        ),
        of(
            "admin.max_connections",
            "100",
            "Maximum number of connections to the admin listener; max_connections does not count them. One client address gets a quarter of them",
            |to| &mut to.admin.max_connections,
        ),
        of(
            "tls.certificate",
            "none",
            "Our certificate and those that lead from it to an authority, in a PEM file: with it, everything is spoken over TLS",
            |to| &mut to.tls.certificate,
        ),
        of("tls.key", "none", "Its private key, in a PEM file", |to| &mut to.tls.key),
        of(
            "tls.client_authorities",
            "none",
            "The authorities whose certificates callers may show, in a PEM file",
            |to| &mut to.tls.client_authorities,
        ),
        of("tls.require_client", "false", "Whether callers without a certificate are turned away", |to| {
            &mut to.tls.require_client
        }),
        of(
            "keys.file",
            "none",
            "Who may do what, by token or certificate, in a TOML file: without it, everybody may do everything",
            |to| &mut to.keys.file,
        ),
    ]
}

fn store() -> Vec<Setting> {
    vec![
        of(
            "memory.max_keys",
            "none",
            "Keys that are remembered, about: a kind of limit that comes late gets its share while the others still have theirs",
            |to| &mut to.memory.max_keys,
        ),
        of(
            "memory.max_bytes",
            "1GiB",
            "Memory that counters and held permits take at most, about: an eighth is for the permits; with Redis, the rest is for what is counted here while it is away",
            |to| &mut to.memory.max_bytes,
        ),
        of(
            "memory.at_cap",
            "evict",
            "What happens to new keys when the memory is full: evict forgets whoever has used the least, refuse refuses them",
            |to| &mut to.memory.at_cap,
        ),
        of(
            "memory.holds_per_caller",
            "10000",
            "Maximum number of permits that one caller can hold at once; a caller is a token, a certificate or an address",
            |to| &mut to.memory.holds_per_caller,
        ),
        of(
            "memory.names",
            "100",
            "How many of the busiest keys are sure to be listed by name, of up to 16 times as many that are remembered; 0 is none",
            |to| &mut to.memory.names,
        ),
        of(
            "memory.sweep_every",
            "1min",
            "How often everything idle is dropped, whether there are calls or not",
            |to| &mut to.memory.sweep_every,
        ),
        of(
            "redis.timeout",
            "25ms",
            "How long Redis may take to answer; then each limit decides by its on_store_failure",
            |to| &mut to.redis.timeout,
        ),
        of(
            "redis.lease",
            "0",
            "The most that this process borrows of one key to decide without asking; 0 asks each time",
            |to| &mut to.redis.lease,
        ),
        of(
            "redis.lease_time",
            "4s",
            "How long what is borrowed may be used, from 100ms to 30s: what a process that crashed had borrowed counts as used after that time",
            |to| &mut to.redis.lease_time,
        ),
        of(
            "redis.prefix",
            "none",
            "What the names of all keys in Redis begin with; processes with different prefixes share nothing",
            |to| &mut to.redis.prefix,
        ),
        of(
            "redis.keys",
            "hashed",
            "How callers' keys are written into Redis: as a hash, or clear, which is as they are up to 64 bytes",
            |to| &mut to.redis.keys,
        ),
        of(
            "redis.tls_certificate",
            "none",
            "The certificate that is shown to Redis and its sentinels, with those that lead from it to an authority, in a PEM file",
            |to| &mut to.redis.tls_certificate,
        ),
        of("redis.tls_key", "none", "Its private key, in a PEM file", |to| &mut to.redis.tls_key),
        of(
            "redis.sentinel_user",
            "none",
            "The user that the sentinels know; the one in the store's address is that of the servers",
            |to| &mut to.redis.sentinel_user,
        ),
        of(
            "redis.sentinel_password_file",
            "none",
            "A file that holds the password for the sentinels; what stands in it, but for a line end, is the password",
            |to| &mut to.redis.sentinel_password_file,
        ),
        of(
            "snapshot.folder",
            "none",
            "Where the counters are saved at the end, and restored from at the start",
            |to| &mut to.snapshot.folder,
        ),
        of("snapshot.every", "5min", "How often they are saved meanwhile", |to| &mut to.snapshot.every),
    ]
}

fn told() -> Vec<Setting> {
    vec![
        of("metrics.compat", "none", "Whose names of metrics are told beside ours", |to| {
            &mut to.metrics.compat
        }),
        of(
            "metrics.near_limit_ratio",
            "0.8",
            "Part of a limit from which on a hit counts as near the limit in metrics",
            |to| &mut to.metrics.near_limit_ratio,
        ),
        of("log.level", "info", "What is told on the standard error", |to| &mut to.log.level),
        of("log.format", "text", "Whether the log is for people or for programs", |to| &mut to.log.format),
        of(
            "log.audit",
            "true",
            "Whether resets, reloads, changes of keys and failed authentications are logged, as lines of JSON on the standard error",
            |to| &mut to.log.audit,
        ),
        of(
            "log.decisions",
            "off",
            "Which calls are logged, as lines of JSON on the standard error: none, those that are denied, or all",
            |to| &mut to.log.decisions,
        ),
        of("log.decisions_one_in", "1", "Logs one of so many of these calls, chosen at random", |to| {
            &mut to.log.decisions_one_in
        }),
        of(
            "log.keys",
            "hashed",
            "Whether these lines show keys as they are, or as digests that are the same until the process ends",
            |to| &mut to.log.keys,
        ),
    ]
}

/// Something that can be set.
pub(crate) struct Setting {
    /// Its name in a file: a dot stands between a table and what is in it.
    pub(crate) key: &'static str,
    /// What stands for its value in the help.
    pub(crate) value: &'static str,
    /// What is expected.
    pub(crate) expected: String,
    /// What it is if nobody says anything.
    pub(crate) default: &'static str,
    /// What it is for.
    pub(crate) help: &'static str,
    /// What may be shown of a text that was read.
    pub(crate) shown: fn(&str) -> String,
    /// What may be shown of a text that could not be read.
    found: fn(&str) -> String,
    set: Box<Set>,
}

/// Reads a text into its place, if it is right.
type Set = dyn Fn(&mut Settings, &str) -> bool;

/// The setting that is kept at a place.
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
    /// Its flag, without the dashes before it.
    pub(crate) fn flag(&self) -> String {
        self.key.replace(['.', '_'], "-")
    }

    /// Its variable.
    pub(crate) fn variable(&self) -> String {
        format!("{PREFIX}{}", self.key.replace('.', "_").to_uppercase())
    }

    /// The heading that it stands under.
    pub(crate) fn group(&self) -> &'static str {
        match self.key.split_once('.') {
            None => "Service",
            Some(("http", _)) => "HTTP",
            Some(("grpc", _)) => "Envoy's rate limit service",
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

    /// Sets it to what a text says, or tells what would be right.
    pub(crate) fn set(&self, to: &mut Settings, text: &str) -> Result<(), String> {
        let is_set = (self.set)(to, text);
        if is_set { Ok(()) } else { Err(format!("expected {}, found {}", self.expected, (self.found)(text))) }
    }
}

/// What happens to new keys when there is no room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum AtCap {
    #[default]
    Evict,
    Refuse,
}

impl Choice for AtCap {
    const NAME: &'static str = "WHAT";
    const ALL: &'static [(&'static str, Self)] = &[("evict", Self::Evict), ("refuse", Self::Refuse)];
}

/// How callers' keys are written into Redis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum KeyForm {
    #[default]
    Hashed,
    Clear,
}

impl Choice for KeyForm {
    const NAME: &'static str = "HOW";
    const ALL: &'static [(&'static str, Self)] = &[("hashed", Self::Hashed), ("clear", Self::Clear)];
}

/// Whose names of metrics are told beside ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compat {
    Envoy,
    Limitador,
}

impl Choice for Compat {
    const NAME: &'static str = "WHOSE";
    const ALL: &'static [(&'static str, Self)] = &[("envoy", Self::Envoy), ("limitador", Self::Limitador)];
}

/// What is told.
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

/// How it is told.
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

/// Which calls are logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Decisions {
    #[default]
    Off,
    Denied,
    All,
}

impl Choice for Decisions {
    const NAME: &'static str = "WHICH";
    const ALL: &'static [(&'static str, Self)] =
        &[("off", Self::Off), ("denied", Self::Denied), ("all", Self::All)];
}

/// How keys are shown in logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LoggedKeys {
    #[default]
    Hashed,
    Clear,
}

impl Choice for LoggedKeys {
    const NAME: &'static str = "HOW";
    const ALL: &'static [(&'static str, Self)] = &[("hashed", Self::Hashed), ("clear", Self::Clear)];
}
