//! The names of statistics, as envoyproxy/ratelimit names them: its rules and the labels of its Prometheus endpoint.

use tollgate::ManualClock;
use tollgate::store::MemoryStore;
use tollgate_flow::Time;
use tollgate_policy::Policy;
use tollgate_server::rls::proto::{RateLimitDescriptor, RateLimitOverride, Unit};
use tollgate_server::rls::{RlsOptions, should_rate_limit};
use tollgate_server::{Compat, Engine, EngineOptions, Metrics, NEAR_LIMIT_RATIO, Origin};

use super::rig::{EVENING, descriptor, request};

/// The entries of a descriptor.
type Entries = &'static [(&'static str, &'static str)];

/// A file, and for each descriptor the labels of the only limit that is counted: `domain`, `key1` and `key2`, as far as there
/// are any; none if nothing is counted.
type Group = (&'static str, &'static [(Entries, &'static [&'static str])]);

const KEYS_AND_VALUES: Group = (
    r"
domain: test-domain
descriptors:
  - key: key1
    value: value1
    descriptors:
      - key: subkey1
        rate_limit: {unit: second, requests_per_unit: 5}
      - key: subkey1
        value: subvalue1
        rate_limit: {unit: second, requests_per_unit: 10}
  - key: key2
    rate_limit: {unit: minute, requests_per_unit: 20}
  - key: key2
    value: value2
    rate_limit: {unit: minute, requests_per_unit: 30}
  - key: key2
    value: value3
  - key: key3
    rate_limit: {unit: hour, requests_per_unit: 1}
  - key: key4
    rate_limit: {unit: day, requests_per_unit: 1, name: key4_rate_limit}
  - key: key5
    value: value5
    rate_limit: {unit: day, requests_per_unit: 15}
    descriptors:
      - key: subkey5
        value: subvalue5
        rate_limit: {unit: day, requests_per_unit: 25}
  - key: key6
    rate_limit: {unlimited: true}
  - key: key8
    shadow_mode: true
    rate_limit: {unit: minute, requests_per_unit: 3}
",
    &[
        (&[("key1", "something")], &[]),
        (&[("key1", "value1")], &[]),
        (&[("key1", "value1"), ("subkey1", "something")], &["test-domain", "key1_value1", "subkey1"]),
        (
            &[("key1", "value1"), ("subkey1", "subvalue1")],
            &["test-domain", "key1_value1", "subkey1_subvalue1"],
        ),
        (&[("key2", "something")], &["test-domain", "key2"]),
        (&[("key2", "value2")], &["test-domain", "key2_value2"]),
        (&[("key2", "value3")], &[]),
        (&[("key2", "value2"), ("subkey", "subvalue")], &[]),
        (&[("key3", "foo")], &["test-domain", "key3"]),
        (&[("key4", "foo")], &["test-domain", "key4"]),
        (&[("key5", "value5")], &["test-domain", "key5_value5"]),
        (
            &[("key5", "value5"), ("subkey5", "subvalue5")],
            &["test-domain", "key5_value5", "subkey5_subvalue5"],
        ),
        (&[("key5", "value5"), ("subkey5", "other")], &[]),
        (&[("key6", "foo")], &[]),
        (&[("key8", "foo")], &["test-domain", "key8"]),
    ],
);

const DETAILED_METRIC: Group = (
    r"
domain: test-domain
descriptors:
  - key: unspec
    detailed_metric: true
    rate_limit: {unit: minute, requests_per_unit: 2}
  - key: source
    descriptors:
      - key: destination
        detailed_metric: true
        rate_limit: {unit: minute, requests_per_unit: 2}
  - key: parent
    detailed_metric: true
    descriptors:
      - key: child
        rate_limit: {unit: minute, requests_per_unit: 2}
  - key: plan
    value: gold
    descriptors:
      - key: user
        detailed_metric: true
        rate_limit: {unit: minute, requests_per_unit: 2}
",
    &[
        (&[("unspec", "unspecified_value")], &["test-domain", "unspec_unspecified_value"]),
        (&[("unspec", "another_value")], &["test-domain", "unspec_another_value"]),
        (&[("unspec", "")], &["test-domain", "unspec_"]),
        (&[("source", "a"), ("destination", "b")], &["test-domain", "source_a", "destination_b"]),
        (&[("parent", "a"), ("child", "b")], &["test-domain", "parent", "child"]),
        (&[("plan", "gold"), ("user", "ann")], &["test-domain", "plan_gold", "user_ann"]),
    ],
);

const VALUE_TO_METRIC: Group = (
    r"
domain: test-domain
descriptors:
  - key: tenant
    value_to_metric: true
    rate_limit: {unit: minute, requests_per_unit: 9}
  - key: route
    value_to_metric: true
    descriptors:
      - key: http_method
        value_to_metric: true
        descriptors:
          - key: subject_id
            rate_limit: {unit: minute, requests_per_unit: 60}
  - key: path
    value_to_metric: true
    descriptors:
      - key: method
        rate_limit: {unit: minute, requests_per_unit: 9}
  - key: plain
    descriptors:
      - key: method
        value_to_metric: true
        rate_limit: {unit: minute, requests_per_unit: 9}
  - key: api
    value: v1
    value_to_metric: true
    descriptors:
      - key: tier
        rate_limit: {unit: minute, requests_per_unit: 9}
  - key: both
    value_to_metric: true
    descriptors:
      - key: leaf
        detailed_metric: true
        rate_limit: {unit: minute, requests_per_unit: 9}
",
    &[
        (&[("tenant", "acme")], &["test-domain", "tenant_acme"]),
        (
            &[("route", "draw"), ("http_method", "GET"), ("subject_id", "7")],
            &["test-domain", "route_draw", "http_method_GET"],
        ),
        (&[("path", "/a"), ("method", "GET")], &["test-domain", "path_/a", "method"]),
        (&[("path", ""), ("method", "GET")], &["test-domain", "path", "method"]),
        (&[("plain", "x"), ("method", "GET")], &["test-domain", "plain", "method_GET"]),
        (&[("api", "v1"), ("tier", "gold")], &["test-domain", "api_v1", "tier"]),
        (&[("both", "x"), ("leaf", "y")], &["test-domain", "both_x", "leaf_y"]),
    ],
);

const WILDCARDS: Group = (
    r"
domain: test-domain
descriptors:
  - key: wild
    value: foo*
    rate_limit: {unit: minute, requests_per_unit: 9}
  - key: midpath
    value: /api*v1
    rate_limit: {unit: minute, requests_per_unit: 9}
  - key: multiroute
    value: svc*ep*rpc
    rate_limit: {unit: minute, requests_per_unit: 9}
  - key: nestedwild
    value: val*
    descriptors:
      - key: subkey
        rate_limit: {unit: minute, requests_per_unit: 9}
  - key: valued
    value: api*
    value_to_metric: true
    rate_limit: {unit: minute, requests_per_unit: 9}
  - key: detailed
    value: api*
    detailed_metric: true
    rate_limit: {unit: minute, requests_per_unit: 9}
",
    &[
        (&[("wild", "foo1")], &["test-domain", "wild_foo*"]),
        (&[("wild", "foo2")], &["test-domain", "wild_foo*"]),
        (&[("wild", "bar")], &[]),
        (&[("midpath", "/api/users/v1")], &["test-domain", "midpath_/api*v1"]),
        (&[("multiroute", "svc-a-ep-b-rpc")], &["test-domain", "multiroute_svc*ep*rpc"]),
        (&[("nestedwild", "val1"), ("subkey", "x")], &["test-domain", "nestedwild_val*", "subkey"]),
        (&[("valued", "api1")], &["test-domain", "valued_api1"]),
        (&[("detailed", "api1")], &["test-domain", "detailed_api1"]),
    ],
);

const SHARE_THRESHOLD: Group = (
    r"
domain: test-domain
descriptors:
  - key: files
    value: files/*
    share_threshold: true
    rate_limit: {unit: minute, requests_per_unit: 100}
  - key: files
    value: top/*
    share_threshold: true
    descriptors:
      - key: files
        value: nested/*
        share_threshold: true
        rate_limit: {unit: minute, requests_per_unit: 300}
  - key: nested
    value: parent
    descriptors:
      - key: files
        value: nested/*
        share_threshold: true
        rate_limit: {unit: minute, requests_per_unit: 200}
  - key: route
    value: api/*
    share_threshold: true
    value_to_metric: true
    descriptors:
      - key: method
        rate_limit: {unit: minute, requests_per_unit: 60}
  - key: service
    value: svc/*
    share_threshold: true
    descriptors:
      - key: endpoint
        detailed_metric: true
        rate_limit: {unit: minute, requests_per_unit: 80}
  - key: path
    value: path/*
    share_threshold: true
    descriptors:
      - key: file
        value: file/*
        value_to_metric: true
        rate_limit: {unit: minute, requests_per_unit: 120}
  - key: file
    value: test1
    rate_limit: {unit: minute, requests_per_unit: 50}
  - key: file
    value: test*
    share_threshold: true
    rate_limit: {unit: minute, requests_per_unit: 100}
  - key: tenant
    value: t*prod
    share_threshold: true
    descriptors:
      - key: resource
        value: res*v2
        share_threshold: true
        rate_limit: {unit: minute, requests_per_unit: 60}
",
    &[
        (&[("files", "files/a.pdf")], &["test-domain", "files_files/*"]),
        (&[("files", "files/b/c.csv")], &["test-domain", "files_files/*"]),
        (&[("files", "top/1"), ("files", "nested/2")], &["test-domain", "files_top/*", "files_nested/*"]),
        (&[("nested", "parent"), ("files", "nested/2")], &["test-domain", "nested_parent", "files_nested/*"]),
        (&[("route", "api/v1"), ("method", "GET")], &["test-domain", "route_api/*", "method"]),
        (&[("service", "svc/1"), ("endpoint", "get")], &["test-domain", "service_svc/*", "endpoint_get"]),
        (&[("service", "svc/1"), ("endpoint", "")], &["test-domain", "service_svc/*", "endpoint"]),
        (&[("path", "path/1"), ("file", "file/2")], &["test-domain", "path_path/*", "file_file/2"]),
        (&[("file", "test1")], &["test-domain", "file_test1"]),
        (&[("file", "test2")], &["test-domain", "file_test*"]),
        (
            &[("tenant", "t1prod"), ("resource", "res9v2")],
            &["test-domain", "tenant_t*prod", "resource_res*v2"],
        ),
    ],
);

const CHARACTERS: Group = (
    r#"
domain: test-domain
descriptors:
  - key: remote_address
    detailed_metric: true
    rate_limit: {unit: minute, requests_per_unit: 9}
  - key: masked_remote_address
    value_to_metric: true
    rate_limit: {unit: minute, requests_per_unit: 9}
  - key: remote_address
    value: 50.0.0.6
    rate_limit: {unit: minute, requests_per_unit: 9}
  - key: path
    value: "/foo:*"
    rate_limit: {unit: minute, requests_per_unit: 9}
  - key: odd
    detailed_metric: true
    rate_limit: {unit: minute, requests_per_unit: 9}
  - key: grpc_path
    value_to_metric: true
    rate_limit: {unit: minute, requests_per_unit: 9}
"#,
    &[
        (&[("remote_address", "50.0.0.5")], &["test-domain", "remote_address_50_0_0_5"]),
        (&[("remote_address", "50.0.0.6")], &["test-domain", "remote_address_50_0_0_6"]),
        (&[("remote_address", "2001:db8::1")], &["test-domain", "remote_address_2001_db8__1"]),
        (&[("masked_remote_address", "10.0.0.0/8")], &["test-domain", "masked_remote_address_10_0_0_0/8"]),
        (&[("path", "/foo:7")], &["test-domain", "path_/foo_*"]),
        (&[("odd", "a:b|c")], &["test-domain", "odd_a_b_c"]),
        (&[("grpc_path", "/greet.Greeter/Hello")], &["test-domain", "grpc_path_/greet", "Greeter/Hello"]),
        (&[("grpc_path", "/a.b.C/D")], &["test-domain", "grpc_path_/a", "b"]),
    ],
);

const DOTS_IN_THE_DOMAIN: Group = (
    "domain: example.org\ndescriptors:\n  - key: user\n    rate_limit: {unit: minute, requests_per_unit: 9}\n",
    &[(&[("user", "ann")], &["example", "org", "user"])],
);

/// Descriptors that supply their own limit.
const OVERRIDES: Group = (
    KEYS_AND_VALUES.0,
    &[
        (
            &[("key1", "value1"), ("subkey1", "something")],
            &["test-domain", "key1_value1", "subkey1_something"],
        ),
        (&[("key2", "value3")], &["test-domain", "key2_value3"]),
        (&[("key6", "foo")], &["test-domain", "key6_foo"]),
        (&[("key8", "foo")], &["test-domain", "key8_foo"]),
        (&[("nothing", "")], &["test-domain", "nothing"]),
        (&[("remote_address", "50.0.0.5")], &["test-domain", "remote_address_50_0_0_5"]),
    ],
);

/// Returns the metrics after one call with these descriptors.
async fn metrics_after(file: &str, descriptors: &[RateLimitDescriptor]) -> String {
    let policy = Policy::parse("limits.yaml", file).unwrap();
    let domain = policy.limits()[0].domain().to_owned();
    let clock = ManualClock::starting_at(EVENING);
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let options = EngineOptions::new().time(Time::of(clock)).envoy_statistics(NEAR_LIMIT_RATIO);
    let engine = Engine::with_options(store, policy, Origin::default(), options);
    let call = request(&domain, descriptors);
    should_rate_limit(&mut engine.clerk(), RlsOptions::default(), &call).await.unwrap();
    Metrics::new().compat(Compat::Envoy).text(&engine).await
}

/// Returns the labels of all series with hits.
fn counted(metrics: &str) -> Vec<String> {
    let labels = |line: &str| {
        let series = line.strip_prefix("ratelimit_service_rate_limit_total_hits{")?;
        series.strip_suffix("} 1").map(str::to_owned)
    };
    metrics.lines().filter_map(labels).collect()
}

fn labels(parts: &[&str]) -> Vec<String> {
    let label = |(name, part)| format!("{name}=\"{part}\"");
    let labels: Vec<String> = ["domain", "key1", "key2"].into_iter().zip(parts).map(label).collect();
    if labels.is_empty() { Vec::new() } else { vec![labels.join(",")] }
}

/// Item 26.2: a call is counted under the name and the labels that envoyproxy/ratelimit gives the limit.
#[tokio::test]
async fn names_of_statistics_are_those_of_upstream() {
    let groups = [
        KEYS_AND_VALUES,
        DETAILED_METRIC,
        VALUE_TO_METRIC,
        WILDCARDS,
        SHARE_THRESHOLD,
        CHARACTERS,
        DOTS_IN_THE_DOMAIN,
    ];
    for (file, rows) in groups {
        for (entries, expected) in rows {
            let metrics = metrics_after(file, &[descriptor(entries)]).await;
            assert_eq!(counted(&metrics), labels(expected), "{entries:?} of {file}");
        }
    }
    let rows: usize = groups.iter().map(|(_, rows)| rows.len()).sum();
    assert!(rows >= 40, "{rows} rows");
}

/// Item 26.2: a limit that a descriptor supplies is counted under all keys and values of the descriptor.
#[tokio::test]
async fn names_of_overrides_are_those_of_upstream() {
    let limit = RateLimitOverride { requests_per_unit: 42, unit: Unit::Hour.into() };
    let (file, rows) = OVERRIDES;
    for (entries, expected) in rows {
        let own = RateLimitDescriptor { limit: Some(limit), ..descriptor(entries) };
        let metrics = metrics_after(file, &[own]).await;
        assert_eq!(counted(&metrics), labels(expected), "{entries:?}");
    }
}

/// Item 26.2: a limit that another one replaces is not counted.
#[tokio::test]
async fn replaced_limits_are_not_counted() {
    let file = "domain: web\ndescriptors:\n\
                - {key: a, rate_limit: {unit: hour, requests_per_unit: 9, name: everyone}}\n\
                - {key: b, rate_limit: {unit: hour, requests_per_unit: 9, replaces: [{name: everyone}]}}\n\
                - {key: c, rate_limit: {unlimited: true, replaces: [{name: everyone}]}}\n";
    let (a, b, c) = (descriptor(&[("a", "x")]), descriptor(&[("b", "x")]), descriptor(&[("c", "x")]));
    let metrics = metrics_after(file, &[a.clone(), b]).await;
    assert_eq!(counted(&metrics), labels(&["web", "b"]));
    assert_eq!(counted(&metrics_after(file, &[a.clone(), c]).await), labels(&[]));
    assert_eq!(counted(&metrics_after(file, &[a]).await), labels(&["web", "a"]));
}

/// Item 26.2: names that differ only below the second key are added up, as in the mapping of upstream's Prometheus endpoint.
#[tokio::test]
async fn series_below_the_second_key_are_added_up() {
    let (file, _) = VALUE_TO_METRIC;
    let call = |subject| descriptor(&[("route", "r"), ("http_method", "GET"), ("subject_id", subject)]);
    let own = RateLimitOverride { requests_per_unit: 9, unit: Unit::Hour.into() };
    let own = RateLimitDescriptor { limit: Some(own), ..call("ann") };
    let metrics = metrics_after(file, &[call("bob"), own]).await;
    let series = "ratelimit_service_rate_limit_total_hits{domain=\"test-domain\",key1=\"route_r\",key2=\"http_method_GET\"} 2\n";
    assert!(metrics.contains(series), "{metrics}");
}
