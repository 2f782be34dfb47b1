//! What statistics count, by the rules of envoyproxy/ratelimit.

use tollgate::ManualClock;
use tollgate::store::{MemoryStore, Store};
use tollgate_flow::Time;
use tollgate_policy::Policy;
use tollgate_server::rls::proto::{RateLimitDescriptor, RateLimitOverride, RateLimitRequest, Unit};
use tollgate_server::rls::{RlsOptions, should_rate_limit};
use tollgate_server::{Compat, Engine, EngineOptions, Keyring, Metrics, NEAR_LIMIT_RATIO, Origin};

use super::rig::{EVENING, Rig, costing, descriptor, request};
use super::store_down::Down;

const FILE: &str = r"
domain: web
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 10}
  - key: tried
    shadow_mode: true
    rate_limit: {unit: hour, requests_per_unit: 2}
  - key: ip
    detailed_metric: true
    rate_limit: {unit: hour, requests_per_unit: 10}
";

fn in_shadow_mode() -> RlsOptions {
    RlsOptions { shadow_mode: true, ..RlsOptions::default() }
}

fn engine_over<S: Store>(store: S, clock: ManualClock, file: &str, near_limit_ratio: f32) -> Engine<S> {
    let policy = Policy::parse("limits.yaml", file).unwrap();
    let options = EngineOptions::new().time(Time::of(clock)).envoy_statistics(near_limit_ratio);
    Engine::with_options(store, policy, Origin::default(), options)
}

fn store() -> (MemoryStore<ManualClock>, ManualClock) {
    let clock = ManualClock::starting_at(EVENING);
    (MemoryStore::builder().clock(clock.clone()).build(), clock)
}

/// An engine that counts, and the metrics of it.
struct Counting {
    engine: Engine<MemoryStore<ManualClock>>,
    metrics: Metrics,
}

impl Counting {
    fn new() -> Self {
        Self::with(NEAR_LIMIT_RATIO)
    }

    fn with(near_limit_ratio: f32) -> Self {
        let (store, clock) = store();
        let engine = engine_over(store, clock, FILE, near_limit_ratio);
        Self { engine, metrics: Metrics::new().compat(Compat::Envoy) }
    }

    async fn ask(&self, options: RlsOptions, request: &RateLimitRequest) {
        should_rate_limit(&mut self.engine.clerk(), options, request).await.unwrap();
    }

    /// `total_hits`, `within_limit`, `near_limit`, `over_limit`, `shadow_mode` of a limit.
    async fn counts(&self, key: &str) -> [u64; 5] {
        let text = self.metrics.text(&self.engine).await;
        ["total_hits", "within_limit", "near_limit", "over_limit", "shadow_mode"].map(|counter| {
            let name = format!("ratelimit_service_rate_limit_{counter}");
            value(&text, &format!("{name}{{domain=\"web\",key1=\"{key}\"}}")).unwrap_or_default()
        })
    }
}

/// The value of a series.
fn value(text: &str, series: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with(series) && line[series.len()..].starts_with(' '))?;
    line[series.len() + 1..].parse().ok()
}

fn hits(key: &str, hits: u64) -> RateLimitRequest {
    request("web", &[costing(hits, descriptor(&[(key, "ann")]))])
}

/// Item 26.3: a call is near the limit as far as its hits are above the ratio.
#[tokio::test]
async fn near_limit_counts_the_hits_above_the_ratio() {
    let counting = Counting::new();
    counting.ask(RlsOptions::default(), &hits("user", 7)).await;
    assert_eq!(counting.counts("user").await, [7, 7, 0, 0, 0]);
    counting.ask(RlsOptions::default(), &hits("user", 2)).await;
    assert_eq!(counting.counts("user").await, [9, 9, 1, 0, 0]);
    counting.ask(RlsOptions::default(), &hits("user", 1)).await;
    assert_eq!(counting.counts("user").await, [10, 10, 2, 0, 0]);
    counting.ask(RlsOptions::default(), &hits("user", 3)).await;
    assert_eq!(counting.counts("user").await, [13, 10, 2, 3, 0]);
}

/// Item 26.3: a call of 15 hits on ten an hour counts five over and two near.
#[tokio::test]
async fn a_call_that_crosses_the_limit_counts_on_both_sides_of_it() {
    let counting = Counting::new();
    counting.ask(RlsOptions::default(), &hits("user", 15)).await;
    assert_eq!(counting.counts("user").await, [15, 0, 2, 5, 0]);
    counting.ask(RlsOptions::default(), &hits("user", 3)).await;
    assert_eq!(counting.counts("user").await, [18, 0, 2, 8, 0], "then all hits are over");
    counting.ask(RlsOptions::default(), &hits("tried", 12)).await;
    assert_eq!(counting.counts("tried").await, [12, 0, 1, 10, 10]);
}

/// Item 26.3: the near limit ratio is that of the options.
#[tokio::test]
async fn near_limit_ratio_is_an_option() {
    let counting = Counting::with(0.5);
    counting.ask(RlsOptions::default(), &hits("user", 7)).await;
    assert_eq!(counting.counts("user").await, [7, 7, 2, 0, 0]);
}

/// Item 26.3: a limit in shadow mode counts its hits as over the limit, too.
#[tokio::test]
async fn shadow_rules_also_count_over_limit() {
    let counting = Counting::new();
    for _ in 0..5 {
        counting.ask(RlsOptions::default(), &hits("tried", 1)).await;
    }
    assert_eq!(counting.counts("tried").await, [5, 2, 1, 3, 3]);
}

/// Item 26.3: with shadow mode for all limits, calls that it lets pass are counted once, and rules count as ever.
#[tokio::test]
async fn global_shadow_mode_counts_the_calls_that_it_lets_pass() {
    let counting = Counting::new();
    for _ in 0..13 {
        counting.ask(in_shadow_mode(), &hits("user", 1)).await;
    }
    counting.ask(in_shadow_mode(), &hits("tried", 3)).await;
    let text = counting.metrics.text(&counting.engine).await;
    assert_eq!(value(&text, "ratelimit_service_global_shadow_mode"), Some(3));
    assert_eq!(counting.counts("user").await, [13, 10, 2, 3, 0]);
}

/// Item 26.3: `domain_not_found` counts descriptors, and is bounded in the number of domains.
#[tokio::test]
async fn domain_not_found_counts_descriptors_by_domain() {
    let counting = Counting::new();
    let two = [descriptor(&[("user", "ann")]), descriptor(&[("ip", "1")])];
    counting.ask(RlsOptions::default(), &request("no:where", &two)).await;
    counting.ask(RlsOptions::default(), &request("web", &[descriptor(&[("other", "ann")])])).await;
    counting.ask(RlsOptions::default(), &request(&"x".repeat(600), &two)).await;
    let text = counting.metrics.text(&counting.engine).await;
    let not_found = |domain: &str| {
        value(&text, &format!("ratelimit_service_rate_limit_domain_not_found{{domain=\"{domain}\"}}"))
    };
    assert_eq!([not_found("no_where"), not_found("web"), not_found("@unknown")], [Some(2), None, Some(2)]);
}

/// Item 26.2: a name that is too long is counted under the name without values, also for a limit that a descriptor supplies.
#[tokio::test]
async fn long_names_are_counted_without_values() {
    let counting = Counting::new();
    let long = "x".repeat(600);
    let entries = [("ip", &*long)];
    let own = RateLimitOverride { requests_per_unit: 9, unit: Unit::Hour.into() };
    let own = RateLimitDescriptor { limit: Some(own), ..descriptor(&entries) };
    counting.ask(RlsOptions::default(), &request("web", &[descriptor(&entries), own])).await;
    assert_eq!([counting.counts("ip").await[0], counting.counts("@other").await[0]], [1, 1]);
}

/// Item 26.2: counters stay when the policy is loaded again.
#[tokio::test]
async fn statistics_survive_a_reload() {
    let counting = Counting::new();
    counting.ask(RlsOptions::default(), &hits("user", 4)).await;
    let changed = FILE.replace("requests_per_unit: 10", "requests_per_unit: 20");
    counting.engine.load(Policy::parse("limits.yaml", changed).unwrap(), Origin::default());
    counting.ask(RlsOptions::default(), &hits("user", 3)).await;
    assert_eq!(counting.counts("user").await, [7, 7, 0, 0, 0]);
}

/// Item 26.2: without the option nothing is counted, and no series of a limit exists.
#[tokio::test]
async fn statistics_are_off_unless_asked_for() {
    let (store, clock) = store();
    let policy = Policy::parse("limits.yaml", FILE).unwrap();
    let engine = Engine::in_time(store, policy, Origin::default(), Time::of(clock));
    should_rate_limit(&mut engine.clerk(), RlsOptions::default(), &hits("user", 1)).await.unwrap();
    let text = Metrics::new().compat(Compat::Envoy).text(&engine).await;
    assert!(!text.contains("ratelimit_service_rate_limit_"), "{text}");
    assert!(text.contains("\nratelimit_service_config_load_success 1\n"), "{text}");
}

/// Item 26.3: requests over gRPC, their duration, and those that fail, by kind.
#[tokio::test]
async fn requests_and_errors_of_the_service_are_counted() {
    let (store, clock) = store();
    let file = "[limit.user]\nkey = \"user\"\nrate = \"9/h\"\non_store_failure = \"deny\"\n";
    let policy = Policy::parse("limits.toml", file).unwrap();
    let engine = Engine::in_time(Down(store), policy, Origin::default(), Time::of(clock.clone()));
    let metrics = Metrics::new().compat(Compat::Envoy);
    let rig = Rig::serve(engine, clock, RlsOptions::default(), Keyring::open(), &metrics);
    let user = [descriptor(&[("user", "ann")])];
    for (request, is_ok) in [
        (request("default", &user), false),
        (request("", &user), false),
        (request("default", &[]), false),
        (request("default", &[descriptor(&[("other", "ann")])]), true),
    ] {
        assert_eq!(rig.ask(request).await.is_ok(), is_ok);
    }
    let text = metrics.text(&rig.engine).await;
    let method = "{grpc_method=\"ShouldRateLimit\"}";
    assert_eq!(value(&text, &format!("ratelimit_service_total_requests{method}")), Some(4));
    assert_eq!(value(&text, &format!("ratelimit_service_response_time_seconds_count{method}")), Some(4));
    let errors = |kind: &str| {
        value(&text, &format!("ratelimit_service_should_rate_limit_error{{err_type=\"{kind}\"}}"))
    };
    assert_eq!([errors("redis_error"), errors("service_error")], [Some(1), Some(2)]);
}
