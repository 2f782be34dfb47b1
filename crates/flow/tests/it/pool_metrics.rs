//! A pool's numbers, as metrics.
#![cfg(feature = "metrics")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use tollgate::ConcurrencyLimit;
use tollgate_flow::pool::JobContext;
use tollgate_flow::{Again, Backoff, Fault, Jitter, Pool, Retry};

/// Everything that was recorded, by name and labels.
#[derive(Clone, Default)]
struct Ledger {
    cells: Arc<Mutex<BTreeMap<String, Arc<Cell>>>>,
}

/// A number, and all that were recorded.
#[derive(Default)]
struct Cell {
    value: Mutex<f64>,
    most: Mutex<f64>,
    count: AtomicU64,
}

impl Cell {
    fn change(&self, next: impl FnOnce(f64) -> f64) {
        let mut value = self.value.lock().unwrap();
        *value = next(*value);
        let mut most = self.most.lock().unwrap();
        *most = most.max(*value);
        self.count.fetch_add(1, Ordering::SeqCst);
    }
}

impl GaugeFn for Cell {
    fn increment(&self, by: f64) {
        self.change(|value| value + by);
    }

    fn decrement(&self, by: f64) {
        self.change(|value| value - by);
    }

    fn set(&self, value: f64) {
        self.change(|_| value);
    }
}

impl CounterFn for Cell {
    fn increment(&self, by: u64) {
        self.change(|value| value + f64::from(by as u32));
    }

    fn absolute(&self, value: u64) {
        self.change(|_| f64::from(value as u32));
    }
}

impl HistogramFn for Cell {
    fn record(&self, value: f64) {
        self.change(|sum| sum + value);
    }
}

impl Ledger {
    fn cell(&self, key: &Key) -> Arc<Cell> {
        let labels: Vec<_> =
            key.labels().map(|label| format!(" {}={}", label.key(), label.value())).collect();
        Arc::clone(
            self.cells.lock().unwrap().entry(format!("{}{}", key.name(), labels.concat())).or_default(),
        )
    }

    /// The value now, the most it was, and how often it was told.
    fn of(&self, key: &str) -> (f64, f64, u64) {
        let cells = self.cells.lock().unwrap();
        let cell = cells.get(key).unwrap_or_else(|| panic!("{key} is not among {:?}", cells.keys()));
        (*cell.value.lock().unwrap(), *cell.most.lock().unwrap(), cell.count.load(Ordering::SeqCst))
    }
}

impl Recorder for Ledger {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.cell(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.cell(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.cell(key))
    }
}

/// Each takes 100 ms. The first attempts of the jobs 0 to 3 fail in four ways.
async fn work(job: Arc<u64>, context: JobContext) -> Result<(), Fault> {
    tokio::time::sleep(Duration::from_millis(100)).await;
    match (*job, context.attempt) {
        (0, 1) => Err(Fault::untraced("busy").try_again(Again::After(Duration::from_millis(1)))),
        (1, 1) => std::future::pending().await,
        (2, 1) => panic!("as planned"),
        (3, 1) => Err(Fault::untraced("not yet")),
        _ => Ok(()),
    }
}

async fn run_twice() {
    let limit = ConcurrencyLimit::new(2);
    let backoff = Backoff::new().initial(Duration::from_millis(1)).jitter(Jitter::None);
    let pool = Pool::sharing(limit.clone())
        .queued(3)
        .retry(Retry::new().backoff(backoff))
        .attempt_timeout(Duration::from_secs(1))
        .metrics("downloads")
        .rate_metric(|| 12.5);
    let mut outcomes = pool.run(0..20, work);
    let mut read = 0;
    while outcomes.next().await.is_some() {
        read += 1;
    }
    assert_eq!(read, 20);
    // Another one, which is dropped half way.
    let mut outcomes = pool.run(100..200, work);
    outcomes.next().await.unwrap();
    limit.set_limit(1);
    for _ in 0..20 {
        outcomes.next().await.unwrap();
    }
}

#[test]
fn a_pool_records_what_it_does() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let ledger = Ledger::default();
    metrics::with_local_recorder(&ledger, || runtime.block_on(run_twice()));
    drop(runtime); // and with it the tasks
    let (in_flight, most_in_flight, _) = ledger.of("tollgate_pool_in_flight pool=downloads");
    let (queued, most_queued, _) = ledger.of("tollgate_pool_queued pool=downloads");
    assert_eq!([in_flight, most_in_flight, queued, most_queued].map(|value| value as i64), [0, 2, 0, 3]);
    // Twenty, and those of the second run that were read or ready when it was dropped.
    let (values, ..) = ledger.of("tollgate_pool_outcomes_total pool=downloads result=value");
    assert!((41.0..=44.0).contains(&values), "{values} outcomes");
    assert_eq!(ledger.of("tollgate_pool_outcomes_total pool=downloads result=fault").0 as i64, 0);
    for reason in ["pushback", "timeout", "panic", "fault"] {
        let (retries, ..) = ledger.of(&format!("tollgate_pool_retries_total pool=downloads reason={reason}"));
        assert_eq!(retries as i64, 1, "{reason}");
    }
    let (waited_seconds, _, starts) = ledger.of("tollgate_pool_wait_seconds pool=downloads");
    assert!(starts >= 41 && waited_seconds > 0.0, "{starts} starts waited {waited_seconds} s");
    assert_eq!(ledger.of("tollgate_pool_concurrency_limit_current pool=downloads").0 as i64, 1);
    assert!((ledger.of("tollgate_pool_rate_limit_current pool=downloads").0 - 12.5).abs() < 1e-9);
}
