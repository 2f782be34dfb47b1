use std::collections::BTreeSet;

use super::super::table::all;
use super::super::{Given, Resolved, resolve};
use super::*;

const LIKE: (&str, &str) = ("TOLLGATE_LIKE", "envoy-ratelimit");

fn given(variables: &[(&str, &str)]) -> Given {
    Given {
        variables: variables.iter().map(|(name, text)| (name.into(), text.into())).collect(),
        ..Given::default()
    }
}

fn like(variables: &[(&str, &str)]) -> Resolved {
    resolve(&given(&[&[LIKE], variables].concat())).unwrap()
}

/// The value of a setting, and where it comes from.
fn source(resolved: &Resolved, key: &str) -> (String, String) {
    let at = all().iter().position(|setting| setting.key == key).unwrap();
    let (text, origin) = &resolved.sources[at];
    (text.clone(), origin.to_string())
}

fn value(variables: &[(&str, &str)], key: &str) -> String {
    source(&like(variables), key).0
}

/// Item 26.6: each variable of the list becomes a setting of ours.
#[test]
fn variables_become_settings() {
    for (variables, key, expected) in [
        (
            &[("RUNTIME_ROOT", "/data"), ("RUNTIME_SUBDIRECTORY", "ratelimit")][..],
            "policy",
            "/data/ratelimit/config",
        ),
        (&[("RUNTIME_ROOT", "/data/"), ("RUNTIME_APPDIRECTORY", "limits")], "policy", "/data/limits"),
        (&[("RUNTIME_SUBDIRECTORY", "a/b")], "policy", "/srv/runtime_data/current/a/b/config"),
        (&[("GRPC_PORT", "9081")], "grpc.address", "0.0.0.0:9081"),
        (&[("GRPC_HOST", "127.0.0.1")], "grpc.address", "127.0.0.1:8081"),
        (&[("PORT", "9080")], "http.address", "0.0.0.0:9080"),
        (&[("HOST", "::1"), ("PORT", "9080")], "http.address", "[::1]:9080"),
        (&[("HOST", "localhost")], "http.address", "localhost:8080"),
        (&[("DEBUG_PORT", "9070")], "admin.address", "127.0.0.1:9070"),
        (&[("LIMIT_RESPONSE_HEADERS_ENABLED", "true")], "grpc.headers", "true"),
        (&[("LIMIT_LIMIT_HEADER", "X-Limit")], "grpc.limit_header", "X-Limit"),
        (&[("LIMIT_REMAINING_HEADER", "X-Left")], "grpc.remaining_header", "X-Left"),
        (&[("LIMIT_RESET_HEADER", "X-Reset")], "grpc.reset_header", "X-Reset"),
        (&[("RESPONSE_DYNAMIC_METADATA", "1")], "grpc.dynamic_metadata", "true"),
        (&[("SHADOW_MODE", "T")], "grpc.shadow_mode", "true"),
        (&[("QUOTA_MODE", "TRUE")], "grpc.quota_mode", "true"),
        (&[("MERGE_DOMAIN_CONFIG", "true")], "merge_domains", "true"),
        (&[("NEAR_LIMIT_RATIO", "0.5")], "metrics.near_limit_ratio", "0.5"),
        (&[("CACHE_KEY_PREFIX", "shop_")], "redis.prefix", "shop_"),
        (&[("REDIS_TIMEOUT", "1.5s")], "redis.timeout", "1500ms"),
        (&[("GRPC_MAX_CONNECTION_AGE", "1h30m")], "grpc.max_connection_age", "5400000ms"),
        (&[("GRPC_MAX_CONNECTION_AGE", "0")], "grpc.max_connection_age", "none"),
        (&[("GRPC_MAX_CONNECTION_AGE_GRACE", "10s")], "grpc.max_connection_age_grace", "10000ms"),
        (&[("LOG_LEVEL", "WARNING")], "log.level", "warn"),
        (&[("LOG_LEVEL", "fatal")], "log.level", "error"),
        (&[("LOG_LEVEL", "Debug")], "log.level", "debug"),
        (&[("LOG_FORMAT", "JSON")], "log.format", "json"),
    ] {
        assert_eq!(value(variables, key), expected, "{variables:?}");
    }
}

/// Item 26.6: the address of Redis is in several of their variables.
#[test]
fn redis_variables_become_an_address() {
    for (variables, expected) in [
        (&[("REDIS_SOCKET_TYPE", "tcp"), ("REDIS_URL", "redis:6379")][..], "redis://redis:6379"),
        (&[("REDIS_SOCKET_TYPE", "unix"), ("REDIS_URL", "/run/redis.sock")], "redis+unix:///run/redis.sock"),
        (
            &[("REDIS_URL", "/run/r.sock"), ("REDIS_AUTH", "u:p@")],
            "redis+unix:///run/r.sock?user=u&pass=p%40",
        ),
        (&[("REDIS_URL", "/run/r.sock"), ("REDIS_AUTH", "p")], "redis+unix:///run/r.sock?pass=p"),
        (&[("REDIS_URL", "redis:6379"), ("REDIS_TLS", "true")], "rediss://redis:6379"),
        (&[("REDIS_URL", "redis:6379"), ("REDIS_AUTH", "u:p@")], "redis://u:p%40@redis:6379"),
        (&[("REDIS_URL", "redis:6379"), ("REDIS_AUTH", "p@")], "redis://:p%40@redis:6379"),
        (&[("REDIS_URL", "a:1,b:2"), ("REDIS_TYPE", "CLUSTER")], "redis+cluster://a:1,b:2"),
        (&[("REDIS_URL", "main,a:1,b:2"), ("REDIS_TYPE", "sentinel")], "redis+sentinel://a:1,b:2/main"),
        (&[("REDIS_URL", "redis://redis:6379/2")], "redis://redis:6379/2"),
    ] {
        assert_eq!(value(variables, "store"), expected, "{variables:?}");
    }
    assert_eq!(value(&[("REDIS_TYPE", "CLUSTER")], "store"), "memory");
}

/// Item 26.6: without variables, everything is where theirs is by default; the debug port stays on loopback.
#[test]
fn defaults_are_those_of_the_other_server() {
    let resolved = like(&[]);
    for (key, expected) in [
        ("policy", "/srv/runtime_data/current/config"),
        ("http.address", "0.0.0.0:8080"),
        ("grpc.address", "0.0.0.0:8081"),
        ("admin.address", "127.0.0.1:6070"),
        ("resp.address", "none"),
        ("grpc.max_connection_age", "24h"),
        ("grpc.max_connection_age_grace", "1h"),
        ("metrics.compat", "envoy"),
    ] {
        let origin = "default of envoyproxy/ratelimit".to_owned();
        assert_eq!(source(&resolved, key), (expected.to_owned(), origin), "{key}");
    }
    assert_eq!(source(&resolved, "store"), ("memory".to_owned(), "default".to_owned()));
}

/// Item 26.6: what is said in our own words goes before what is said in theirs.
#[test]
fn our_variables_and_flags_go_before_theirs() {
    let variables = [LIKE, ("PORT", "1"), ("GRPC_PORT", "2"), ("TOLLGATE_GRPC_ADDRESS", "127.0.0.1:3")];
    let mut all = given(&variables);
    all.flags.insert("policy", "mine.toml".to_owned());
    let resolved = resolve(&all).unwrap();
    assert_eq!(source(&resolved, "http.address"), ("0.0.0.0:1".to_owned(), "PORT".to_owned()));
    let ours = ("127.0.0.1:3".to_owned(), "TOLLGATE_GRPC_ADDRESS".to_owned());
    assert_eq!(source(&resolved, "grpc.address"), ours);
    assert_eq!(source(&resolved, "policy"), ("mine.toml".to_owned(), "--policy".to_owned()));
}

/// Item 26.6: a wrong value is a mistake that names their variable.
#[test]
fn a_wrong_value_names_its_variable() {
    let wrong = [
        LIKE,
        ("PORT", "http"),
        ("SHADOW_MODE", "yes"),
        ("NEAR_LIMIT_RATIO", "80"),
        ("GRPC_MAX_CONNECTION_AGE", "a day"),
        ("LIMIT_LIMIT_HEADER", "x limit"),
    ];
    let Err(crate::failure::Failure::Usage(mistakes)) = resolve(&given(&wrong)) else {
        panic!("it is wrong")
    };
    for expected in [
        "PORT: expected an address with a port",
        "SHADOW_MODE: expected true or false, found \"yes\"",
        "NEAR_LIMIT_RATIO: expected a number from 0 to 1 such as 0.8, found \"80\"",
        "GRPC_MAX_CONNECTION_AGE: expected a time",
        "LIMIT_LIMIT_HEADER: expected the name of a header field",
    ] {
        assert!(mistakes.contains(expected), "{expected} is not in {mistakes}");
    }
}

/// Item 26.6: variables without a counterpart are named in one warning, unless they ask for what is the case anyway.
#[test]
fn variables_that_are_not_honoured_are_named_in_one_warning() {
    let hints = like(&[
        ("REDIS_POOL_SIZE", "20"),
        ("LOCAL_CACHE_SIZE_IN_BYTES", "1000"),
        ("CONFIG_TYPE", "GRPC_XDS_SOTW"),
        ("BACKEND_TYPE", "redis"),
        ("RUNTIME_IGNOREDOTFILES", "1"),
        ("TRACING_ENABLED", "false"),
        ("MEMCACHE_SRV", ""),
        ("PORT", "1"),
        ("HOME", "/root"),
    ])
    .hints;
    assert_eq!(
        hints,
        ["these variables of envoyproxy/ratelimit are set and not honoured: CONFIG_TYPE, \
          LOCAL_CACHE_SIZE_IN_BYTES, REDIS_POOL_SIZE"]
    );
    assert!(like(&[]).hints.is_empty());
}

/// Item 26.6: without the flag, only variables that nothing else has are pointed out.
#[test]
fn without_the_flag_a_distinctive_variable_is_pointed_out() {
    let hints = |variables: &[(&str, &str)]| resolve(&given(variables)).unwrap().hints;
    for name in ["RUNTIME_ROOT", "USE_STATSD", "NEAR_LIMIT_RATIO"] {
        let expected = format!(
            "the environment has variables of envoyproxy/ratelimit, which are not read: {name}; \
             to read them, give --like envoy-ratelimit"
        );
        assert_eq!(hints(&[(name, "x"), ("PORT", "1"), ("LOG_LEVEL", "x")]), [expected]);
    }
    let redis = [("REDIS_URL", "redis:6379"), ("REDIS_SOCKET_TYPE", "tcp")];
    assert!(hints(&redis)[0].contains("REDIS_SOCKET_TYPE; "), "{:?}", hints(&redis));
    for alone in redis {
        assert!(hints(&[alone]).is_empty(), "{alone:?}");
    }
    assert!(
        hints(&[("PORT", "1"), ("HOST", "x"), ("LOG_LEVEL", "WARN"), ("SHADOW_MODE", "true")]).is_empty()
    );
}

#[test]
fn every_row_is_a_setting_and_no_variable_has_two_rows() {
    let settings: BTreeSet<&str> = all().iter().map(|setting| setting.key).collect();
    assert!(MAPPED.iter().all(|mapped| settings.contains(mapped.setting)));
    let mapped = MAPPED.iter().flat_map(|mapped| mapped.variables).copied();
    let names: Vec<&str> = mapped.chain(UNHEEDED.iter().map(|(name, _)| *name)).collect();
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    assert!(DISTINCTIVE.iter().all(|name| names.contains(name)));
}
