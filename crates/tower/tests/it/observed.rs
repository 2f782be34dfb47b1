//! What whoever watches is told: counts and log lines, and never a key.
#![cfg(feature = "metrics")]

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use http::{Request, Response};
use metrics::{
    Counter, CounterFn, Gauge, Histogram, HistogramFn, Key as MetricKey, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use tollgate_tower::{Key, Limit, NoKey, Quota, RateLimitLayer};
use tower_layer::Layer;
use tower_service::Service;

const SECRET: &str = "s3cr3t-t0ken";

#[derive(Clone)]
struct Hello;

impl Service<Request<()>> for Hello {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Ready<Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        ready(Ok(Response::new(String::new())))
    }
}

/// Adds up counters by name and labels.
#[derive(Clone, Default)]
struct Counts(Arc<Mutex<BTreeMap<String, u64>>>);

struct One(Counts, String);

impl CounterFn for One {
    fn increment(&self, value: u64) {
        *self.0.0.lock().unwrap().entry(self.1.clone()).or_default() += value;
    }

    fn absolute(&self, _: u64) {}
}

/// How many were recorded; how long each took is not for a test to say.
impl HistogramFn for One {
    fn record(&self, value: f64) {
        assert!((0.0..60.0).contains(&value), "{value}");
        self.increment(1);
    }
}

fn name_of(key: &MetricKey) -> String {
    let labels: Vec<String> =
        key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
    format!("{} {}", key.name(), labels.join(" "))
}

impl Recorder for Counts {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &MetricKey, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Arc::new(One(self.clone(), name_of(key))))
    }

    fn register_gauge(&self, _: &MetricKey, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, key: &MetricKey, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Arc::new(One(self.clone(), name_of(key))))
    }
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Four calls with a secret, of which two pass.
fn four_calls() {
    let layer = RateLimitLayer::builder()
        .domain("shop")
        .limit(Limit::new("per-token", Quota::per_day(2)).per(Key::bearer_token(), NoKey::Refuse))
        .limit(Limit::new("next", Quota::per_day(1)).per(Key::client(), NoKey::Pass).shadow())
        .limit(Limit::new("all", Quota::per_day(1)).shadow())
        .build()
        .unwrap();
    let mut service = layer.layer(Hello);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for _ in 0..4 {
        let request = Request::get("/").header("authorization", format!("Bearer {SECRET}")).body(()).unwrap();
        let Ok(_) = runtime.block_on(service.call(request));
    }
}

/// One test for both: where another thread has no subscriber, it may be the one that decides that nobody listens.
#[test]
fn everything_is_told_but_keys() {
    refusals_are_logged_without_keys();
    decisions_are_counted_by_domain_rule_and_outcome();
}

fn decisions_are_counted_by_domain_rule_and_outcome() {
    let counts = Counts::default();
    metrics::with_local_recorder(&counts, four_calls);
    let counts: Vec<(String, u64)> = counts.0.lock().unwrap().clone().into_iter().collect();
    let count = |rule: &str, outcome: &str, n| {
        (format!("tollgate_decisions_total domain=shop limit={rule} outcome={outcome}"), n)
    };
    let near = |rule: &str| (format!("tollgate_near_limit_total domain=shop limit={rule}"), 1);
    let expected = [
        ("tollgate_decision_duration_seconds domain=shop protocol=http".to_owned(), 4),
        count("all", "allowed", 1),
        count("all", "shadow_denied", 1),
        count("per-token", "allowed", 2),
        count("per-token", "denied", 2),
        near("all"),
        near("per-token"),
    ];
    assert_eq!(counts, expected); // and nothing else, so no key
}

fn refusals_are_logged_without_keys() {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::DEBUG)
        .with_ansi(false)
        .without_time()
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::with_default(subscriber, four_calls);
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let refused = r#"DEBUG tollgate_tower::observe: limit denied a request domain="shop" limit="per-token""#;
    let shadow =
        r#"INFO tollgate_tower::observe: shadow limit would have denied a request domain="shop" limit="all""#;
    assert_eq!((text.matches(refused).count(), text.matches(shadow).count()), (2, 1), "{text}");
    assert_eq!(text.lines().count(), 3, "{text}");
    assert!(!text.contains(SECRET), "{text}");
}
