//! Metrics.

use tollgate_server::{Compat, EngineOptions, HttpApi, Metrics, NEAR_LIMIT_RATIO, TextFormat};

use super::support::Site;

const POLICY: &str = "[limit.per-ip]\nkey = \"ip\"\nrate = \"2/min\"\n\
                      [limit.strict]\nrate = \"1/min\"\nmode = \"shadow\"\n";
const SECRET: &str = r#"{"descriptor":{"ip":"secret-key"},"cost":1}"#;

/// The value of a series.
#[track_caller]
fn value(text: &str, series: &str) -> u64 {
    text_of(text, series).parse().unwrap()
}

#[track_caller]
fn text_of<'t>(text: &'t str, series: &str) -> &'t str {
    let line = text.lines().find(|line| line.starts_with(series) && line[series.len()..].starts_with(' '));
    line.unwrap_or_else(|| panic!("no {series} in\n{text}")).rsplit(' ').next().unwrap()
}

#[test]
fn what_happened_is_counted() {
    let site = Site::new(POLICY);
    let mut client = site.client();
    for status in [200, 200, 429] {
        assert_eq!(client.check(SECRET).status, status);
    }
    assert_eq!(
        client.check(r#"{"limit":{"rate":"5/s","name":"mine"},"key":"secret-key","cost":4}"#).status,
        200
    );
    let answer = client.get("/metrics");
    assert_eq!(answer.field("content-type"), Some(TextFormat::OpenMetrics.content_type()));
    let text = answer.body;
    let decisions = |rule: &str, outcome: &str| {
        value(
            &text,
            &format!(r#"tollgate_decisions_total{{domain="default",limit="{rule}",outcome="{outcome}"}}"#),
        )
    };
    assert_eq!((decisions("per-ip", "allowed"), decisions("per-ip", "denied")), (2, 1));
    assert_eq!((decisions("strict", "allowed"), decisions("strict", "shadow_denied")), (1, 1));
    assert_eq!(value(&text, r#"tollgate_hits_total{domain="@http",limit="",outcome="allowed"}"#), 4);
    assert_eq!(value(&text, r#"tollgate_near_limit_total{domain="default",limit="per-ip"}"#), 1);
    assert_eq!(value(&text, r#"tollgate_decision_duration_seconds_count{protocol="http"}"#), 4);
    assert_eq!(value(&text, r#"tollgate_decision_duration_seconds_bucket{le="+Inf",protocol="http"}"#), 4);
    let seconds: f64 =
        text_of(&text, r#"tollgate_decision_duration_seconds_sum{protocol="http"}"#).parse().unwrap();
    assert!(seconds > 0.0);
    assert_eq!(value(&text, r#"tollgate_connections{protocol="http"}"#), 1);
    assert_eq!(value(&text, "tollgate_permits"), 0);
    assert_eq!(value(&text, "tollgate_keys"), 3);
    assert!(value(&text, "tollgate_store_bytes") > 0);
    assert_eq!(value(&text, r#"tollgate_evictions_total{reason="forgotten"}"#), 0);
    assert_eq!(value(&text, "tollgate_backend_up"), 1);
    assert_eq!(value(&text, r#"tollgate_config_reloads_total{result="success"}"#), 1);
    assert_eq!(value(&text, r#"tollgate_config_info{origin="limits.toml",hash="c0ffee"}"#), 1);
    assert!(text.ends_with("# EOF\n"));
    assert!(!text.contains("secret-key"), "no label holds a key");
    assert!(!text.contains("mine"), "nor what callers choose");
}

#[test]
fn what_is_held_is_told() {
    let site = Site::new(POLICY);
    assert_eq!(site.check(r#"{"descriptor":{"ip":"1"},"hold":"1min"}"#).status, 200);
    assert_eq!(value(&site.get("/metrics").body, "tollgate_permits"), 1);
}

#[test]
fn others_names_are_told_on_request() {
    let names = |compat| {
        let site = Site::with_engine_options(
            POLICY,
            EngineOptions::new().envoy_statistics(NEAR_LIMIT_RATIO),
            |_| HttpApi::new(Metrics::new().compat(compat)),
        );
        for _ in 0..3 {
            site.check(r#"{"descriptor":{"ip":"1"},"mode":"count"}"#);
        }
        site.engine.load_failed("odd");
        site.get("/metrics").body
    };
    let envoy = names(Compat::Envoy);
    let hits = |name: &str, rule: &str| {
        value(&envoy, &format!(r#"ratelimit_service_rate_limit_{name}{{domain="default",key1="{rule}"}}"#))
    };
    let of = |rule: &str| {
        ["total_hits", "within_limit", "over_limit", "near_limit", "shadow_mode"].map(|name| hits(name, rule))
    };
    assert_eq!(of("per-ip"), [3, 2, 1, 1, 0]);
    assert_eq!(value(&envoy, "ratelimit_service_config_load_success"), 1);
    assert_eq!(value(&envoy, "ratelimit_service_config_load_error"), 1);
    let limitador = names(Compat::Limitador { has_limit_names: false });
    let calls = |name: &str| value(&limitador, &format!(r#"{name}{{limitador_namespace="default"}}"#));
    assert_eq!(["authorized_calls", "authorized_hits", "limited_calls"].map(calls), [2, 2, 1]);
    assert_eq!(value(&limitador, "limitador_up"), 1);
}
