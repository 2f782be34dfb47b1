//! What is measured, as Prometheus reads it.
//!
//! | metric | labels | what |
//! | --- | --- | --- |
//! | `tollgate_calls_total` | `protocol`, `outcome` | calls, each once, whatever the number of limits it met |
//! | `tollgate_decisions_total` | `domain`, `limit`, `outcome` | calls, as each limit saw them end |
//! | `tollgate_hits_total` | `domain`, `limit`, `outcome` | what they cost together |
//! | `tollgate_near_limit_total` | `domain`, `limit` | calls that were allowed and left less than a fifth |
//! | `tollgate_bad_values_total` | `domain`, `limit` | calls with a value that the limit could not use |
//! | `tollgate_unmatched_calls_total` | `domain` | calls that no limit applied to; `@unknown` for all domains that the policy does not have |
//! | `tollgate_decision_duration_seconds` | `protocol` | from a call's last byte to its answer |
//! | `tollgate_connections` | `protocol` | open connections |
//! | `tollgate_connections_refused_total` | `protocol`, `reason` | connections that were refused: `reason` is the setting that bounds them |
//! | `tollgate_request_errors_total` | `protocol`, `reason` | requests that were not served; a call that is denied was |
//! | `tollgate_authentication_failures_total` | `protocol` | unknown tokens, and certificates that are missing or not trusted |
//! | `tollgate_resets_total` | | limits that were reset for a key |
//! | `tollgate_permits`, `tollgate_permit_bytes` | | what is held and not settled yet, and the memory that takes |
//! | `tollgate_fallback_keys`, `tollgate_fallback_bytes` | | what the process keeps for limits that it decides alone while the store is away |
//! | `tollgate_keys`, `tollgate_store_bytes` | | what the store holds, if it knows |
//! | `tollgate_evictions_total` | `reason` | keys that a full store forgot (`forgotten`) or did not take (`refused`) |
//! | `tollgate_backend_up` | | whether the store answers |
//! | `tollgate_store_duration_seconds` | | from asking a store to its decision, where that must be waited for |
//! | `tollgate_store_calls_total` | `outcome` | calls of a guarded store: `answered`, `failed`, `late`, or `untried` while the breaker is open |
//! | `tollgate_store_breaker_open` | | whether the breaker withholds calls from a store that has failed |
//! | `tollgate_nodes` | | processes that shared the store when it was last seen |
//! | `tollgate_lease_tokens` | | tokens that this process has borrowed |
//! | `tollgate_lease_shortfall_tokens` | | by how much less than a limit may be admitted of one key: nodes × lease |
//! | `tollgate_lease_ended_tokens_total` | outcome | borrowed tokens that were spent, returned or lost |
//! | `tollgate_config_reloads_total` | `result` | policies that were loaded, and that could not be |
//! | `tollgate_config_last_reload_successful` | | whether the policy that was read last is the one that decides |
//! | `tollgate_config_last_reload_success_timestamp_seconds` | | when a policy was loaded last |
//! | `tollgate_config_info` | `origin`, `hash` | the policy that decides |
//! | `tollgate_build_info` | `version`, `os`, `arch` | the program |
//! | `process_*` | | memory, processor time, open files and start of the process, on Linux |
//!
//! No label ever holds a key: there are as many of those as there are callers.

mod compat;
mod durations;
mod envoy;
mod errors;
mod family;
mod limitador;
mod meter;
mod process;
mod snapshot;
mod text;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tollgate::store::Store;

pub use compat::Compat;
pub(crate) use durations::Durations;
pub(crate) use errors::{ErrorCounts, ErrorReason};
pub(crate) use limitador::{Counted, Namespaces};
pub(crate) use meter::ConnectionRefusal;
pub use meter::{Connected, Meter};
pub use text::TextFormat;

use crate::engine::Engine;
use snapshot::Snapshot;

/// What is measured beside what an [`Engine`] counts by itself. Clones share one state.
///
/// # Examples
/// ```
/// use tollgate::store::MemoryStore;
/// use tollgate_policy::Policy;
/// use tollgate_server::{Engine, Metrics, Origin};
///
/// let metrics = Metrics::new();
/// let meter = metrics.meter("http"); // kept by whoever serves that protocol
/// let started = meter.now();
/// meter.observe(1, meter.now().since(started));
///
/// let policy = Policy::parse("limits.toml", "[limit.per-ip]\nkey = \"ip\"\nrate = \"2/min\"\n")?;
/// let engine = Engine::new(MemoryStore::new(), policy, Origin::default());
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # runtime.block_on(async {
/// let text = metrics.text(&engine).await;
/// assert!(text.contains("tollgate_decision_duration_seconds_count{protocol=\"http\"} 1\n"));
/// # });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
pub struct Metrics {
    meters: Arc<Mutex<Vec<Arc<Meter>>>>,
    compat: Option<Compat>,
    namespaces: Arc<Namespaces>,
}

impl Metrics {
    /// Nothing measured yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Also tells them under the names of another service, for the boards that know those.
    #[must_use]
    pub fn compat(self, compat: Compat) -> Self {
        if matches!(compat, Compat::Limitador { .. }) {
            self.namespaces.start();
        }
        Self { compat: Some(compat), ..self }
    }

    /// What measures a protocol: always the same for one name.
    pub fn meter(&self, protocol: &'static str) -> Arc<Meter> {
        let mut meters = self.meters.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = meters.iter().find(|meter| meter.protocol() == protocol) {
            return Arc::clone(known);
        }
        let meter = Arc::new(Meter::new(protocol, Arc::clone(&self.namespaces)));
        meters.push(Arc::clone(&meter));
        meter
    }

    /// Everything measured and counted, as `OpenMetrics`.
    pub async fn text<S: Store>(&self, engine: &Engine<S>) -> String {
        self.text_in(TextFormat::OpenMetrics, engine).await
    }

    /// Everything measured and counted, in a format.
    pub async fn text_in<S: Store>(&self, format: TextFormat, engine: &Engine<S>) -> String {
        let usage = engine.store().usage().await.ok();
        let meters = self.meters.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let snapshot = Snapshot::new(engine, usage, meters, self.compat, Arc::clone(&self.namespaces));
        let mut registry = Registry::default();
        registry.register_collector(Box::new(snapshot));
        let mut text = String::new();
        encode(&mut text, &registry).expect("a string takes all that is written");
        format.of_open_metrics(text)
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").field("compat", &self.compat).finish_non_exhaustive()
    }
}
