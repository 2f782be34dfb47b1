//! Starting with the environment of another server: `--like envoy-ratelimit`.
//!
//! One table maps the variables of envoyproxy/ratelimit to settings. Their values become texts that the settings read, so a wrong value is
//! reported as any other. Our own variables and flags go before theirs.

mod go;
mod store;
mod unheeded;

use std::collections::BTreeMap;
use std::ffi::OsString;

use super::value::Choice;
use unheeded::UNHEEDED;

/// Another server whose variables are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Like {
    EnvoyRatelimit,
}

impl Choice for Like {
    const NAME: &'static str = "SERVER";
    const ALL: &'static [(&'static str, Self)] = &[("envoy-ratelimit", Self::EnvoyRatelimit)];
}

/// A setting, and the variables of envoyproxy/ratelimit that it is read from.
struct Mapped {
    setting: &'static str,
    variables: &'static [&'static str],
    /// The value if none of the variables is set; `None` leaves it to our own default.
    default: Option<&'static str>,
    read: fn(&Environment, &[&'static str]) -> Option<String>,
}

/// Every setting that differs, or can differ, when tollgate is started like envoyproxy/ratelimit.
const MAPPED: &[Mapped] = &[
    // Changes of the root link and of single files are both seen, so RUNTIME_WATCH_ROOT makes no difference.
    mapped(
        "policy",
        &["RUNTIME_ROOT", "RUNTIME_SUBDIRECTORY", "RUNTIME_APPDIRECTORY", "RUNTIME_WATCH_ROOT"],
        |environment, _| Some(environment.policy()),
    )
    .or("/srv/runtime_data/current/config"),
    mapped("merge_domains", &["MERGE_DOMAIN_CONFIG"], Environment::boolean),
    mapped("http.address", &["HOST", "PORT"], |environment, _| {
        Some(environment.address("HOST", "PORT", "8080"))
    })
    .or("0.0.0.0:8080"),
    mapped("grpc.address", &["GRPC_HOST", "GRPC_PORT"], |environment, _| {
        Some(environment.address("GRPC_HOST", "GRPC_PORT", "8081"))
    })
    .or("0.0.0.0:8081"),
    // As theirs, any client may name the service as it likes; the admin listener does not take part in that.
    mapped("http.hosts", &[], Environment::text).or("*"),
    // On loopback, since resets are served there too.
    mapped("admin.address", &["DEBUG_PORT"], |environment, _| {
        Some(format!("127.0.0.1:{}", environment.get("DEBUG_PORT")?))
    })
    .or("127.0.0.1:6070"),
    mapped("resp.address", &[], Environment::text).or("none"),
    mapped("grpc.max_connection_age", &["GRPC_MAX_CONNECTION_AGE"], Environment::span).or("24h"),
    mapped("grpc.max_connection_age_grace", &["GRPC_MAX_CONNECTION_AGE_GRACE"], Environment::span).or("1h"),
    mapped("grpc.headers", &["LIMIT_RESPONSE_HEADERS_ENABLED"], Environment::boolean),
    mapped("grpc.limit_header", &["LIMIT_LIMIT_HEADER"], Environment::text),
    mapped("grpc.remaining_header", &["LIMIT_REMAINING_HEADER"], Environment::text),
    mapped("grpc.reset_header", &["LIMIT_RESET_HEADER"], Environment::text),
    mapped("grpc.dynamic_metadata", &["RESPONSE_DYNAMIC_METADATA"], Environment::boolean),
    mapped("grpc.shadow_mode", &["SHADOW_MODE"], Environment::boolean),
    mapped("grpc.quota_mode", &["QUOTA_MODE"], Environment::boolean),
    mapped(
        "store",
        &["REDIS_URL", "REDIS_TYPE", "REDIS_SOCKET_TYPE", "REDIS_TLS", "REDIS_AUTH"],
        store::address,
    ),
    mapped("redis.prefix", &["CACHE_KEY_PREFIX"], Environment::text),
    mapped("redis.timeout", &["REDIS_TIMEOUT"], Environment::span),
    mapped("redis.tls_certificate", &["REDIS_TLS_CLIENT_CERT"], Environment::text),
    mapped("redis.tls_key", &["REDIS_TLS_CLIENT_KEY"], Environment::text),
    mapped("metrics.compat", &[], Environment::text).or("envoy"),
    mapped("metrics.near_limit_ratio", &["NEAR_LIMIT_RATIO"], Environment::text),
    mapped("log.level", &["LOG_LEVEL"], Environment::level),
    mapped("log.format", &["LOG_FORMAT"], Environment::lower_case),
];

/// Variables that only a deployment of envoyproxy/ratelimit has. `REDIS_SOCKET_TYPE` is one of them beside `REDIS_URL`.
const DISTINCTIVE: &[&str] = &[
    "RUNTIME_ROOT",
    "RUNTIME_SUBDIRECTORY",
    "RUNTIME_APPDIRECTORY",
    "RUNTIME_WATCH_ROOT",
    "RUNTIME_IGNOREDOTFILES",
    "REDIS_SOCKET_TYPE",
    "REDIS_PERSECOND",
    "USE_STATSD",
    "USE_DOG_STATSD",
    "NEAR_LIMIT_RATIO",
    "MERGE_DOMAIN_CONFIG",
    "LIMIT_RESPONSE_HEADERS_ENABLED",
    "RESPONSE_DYNAMIC_METADATA",
    "GRPC_MAX_CONNECTION_AGE",
    "LOCAL_CACHE_SIZE_IN_BYTES",
    "EXPIRATION_JITTER_MAX_SECONDS",
];

const fn mapped(
    setting: &'static str,
    variables: &'static [&'static str],
    read: fn(&Environment, &[&'static str]) -> Option<String>,
) -> Mapped {
    Mapped { setting, variables, default: None, read }
}

impl Mapped {
    const fn or(self, default: &'static str) -> Self {
        Self { default: Some(default), ..self }
    }
}

/// What the environment says of a setting.
pub(super) struct Said {
    pub(super) text: String,
    /// The variables that were read, as `HOST, PORT`; empty for a default.
    pub(super) variables: String,
}

/// The settings that follow from starting like another server, by key.
#[derive(Default)]
pub(super) struct Likeness {
    pub(super) defaults: BTreeMap<&'static str, &'static str>,
    pub(super) said: BTreeMap<&'static str, Said>,
}

impl Likeness {
    pub(super) fn of(Like::EnvoyRatelimit: Like, variables: &[(OsString, OsString)]) -> Self {
        let environment = Environment::new(variables);
        let default = |mapped: &Mapped| Some((mapped.setting, mapped.default?));
        let said = |mapped: &Mapped| Some((mapped.setting, environment.said(mapped)?));
        Self {
            defaults: MAPPED.iter().filter_map(default).collect(),
            said: MAPPED.iter().filter_map(said).collect(),
        }
    }
}

/// Warns of the variables of envoyproxy/ratelimit that have no effect.
pub(super) fn hint(like: Option<Like>, variables: &[(OsString, OsString)]) -> Option<String> {
    let environment = Environment::new(variables);
    match like {
        Some(Like::EnvoyRatelimit) => environment.unheeded(),
        None => environment.distinctive(),
    }
}

/// The variables that are set, and not empty.
struct Environment(BTreeMap<String, String>);

impl Environment {
    fn new(variables: &[(OsString, OsString)]) -> Self {
        let text = |text: &OsString| text.to_string_lossy().into_owned();
        let set = variables.iter().filter(|(_, value)| !value.is_empty());
        Self(set.map(|(name, value)| (text(name), text(value))).collect())
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    fn said(&self, mapped: &Mapped) -> Option<Said> {
        let set: Vec<&str> =
            mapped.variables.iter().copied().filter(|name| self.get(name).is_some()).collect();
        if set.is_empty() {
            return None;
        }
        Some(Said { text: (mapped.read)(self, mapped.variables)?, variables: set.join(", ") })
    }

    fn text(&self, variables: &[&'static str]) -> Option<String> {
        self.get(variables.first()?).map(str::to_owned)
    }

    fn boolean(&self, variables: &[&'static str]) -> Option<String> {
        self.text(variables).map(|text| go::boolean(&text).unwrap_or(text))
    }

    fn span(&self, variables: &[&'static str]) -> Option<String> {
        self.text(variables).map(|text| go::span(&text).unwrap_or(text))
    }

    fn lower_case(&self, variables: &[&'static str]) -> Option<String> {
        self.text(variables).map(|text| text.to_lowercase())
    }

    fn level(&self, variables: &[&'static str]) -> Option<String> {
        self.lower_case(variables).map(|level| match level.as_str() {
            "panic" | "fatal" => "error".to_owned(),
            "warning" => "warn".to_owned(),
            _ => level,
        })
    }

    fn policy(&self) -> String {
        let root = self.get("RUNTIME_ROOT").unwrap_or("/srv/runtime_data/current");
        let app = self.get("RUNTIME_APPDIRECTORY").unwrap_or("config");
        let parts = [Some(root), self.get("RUNTIME_SUBDIRECTORY"), Some(app)];
        let parts = parts.into_iter().flatten().map(|part| part.trim_end_matches('/'));
        parts.collect::<Vec<_>>().join("/")
    }

    /// The address of a listener; by default on all interfaces, as theirs.
    fn address(&self, host: &str, port: &str, default_port: &str) -> String {
        let host = self.get(host).unwrap_or("0.0.0.0");
        let port = self.get(port).unwrap_or(default_port);
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    fn unheeded(&self) -> Option<String> {
        let is_set = |name: &str, same: &str| {
            self.get(name).is_some_and(|value| {
                !value.eq_ignore_ascii_case(same) && go::boolean(value).as_deref() != Some(same)
            })
        };
        let set = UNHEEDED.iter().filter(|(name, same)| is_set(name, same)).map(|(name, _)| *name);
        let names = set.collect::<Vec<_>>().join(", ");
        (!names.is_empty())
            .then(|| format!("these variables of envoyproxy/ratelimit are set and not honoured: {names}"))
    }

    fn distinctive(&self) -> Option<String> {
        let is_set = |name: &&&str| {
            self.get(name).is_some() && (**name != "REDIS_SOCKET_TYPE" || self.get("REDIS_URL").is_some())
        };
        let names = DISTINCTIVE.iter().filter(is_set).copied().collect::<Vec<_>>().join(", ");
        (!names.is_empty()).then(|| {
            format!(
                "the environment has variables of envoyproxy/ratelimit, which are not read: {names}; \
                 to read them, give --like envoy-ratelimit"
            )
        })
    }
}

#[cfg(test)]
mod tests;
