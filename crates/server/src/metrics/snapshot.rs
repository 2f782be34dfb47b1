//! All metrics at one moment.

use std::fmt;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use tollgate::store::{Health, OnLease, Store, Usage};

use super::compat::Compat;
use super::durations::Durations;
use super::envoy::EnvoyMetrics;
use super::errors::ErrorReason;
use super::family::Family;
use super::limitador::Namespaces;
use super::meter::{ConnectionRefusal, Meter};
use super::process::Process;
use crate::engine::{CallOutcome, Engine, Outcome, PolicyStatus, Tallied, Tally};

const CALLS: Family = Family::new("tollgate_calls", "Decided requests by protocol and outcome");
const DECISIONS: Family = Family::new("tollgate_decisions", "Decisions by limit and outcome");
const HITS: Family = Family::new(
    "tollgate_hits",
    "Sum of the costs of these decisions, without charges, refunds and settlements",
);
const NEAR: Family =
    Family::new("tollgate_near_limit", "Allowed requests that left less than a fifth of the limit");
const BAD_VALUES: Family =
    Family::new("tollgate_bad_values", "Requests with a value that the limit could not use");
const UNMATCHED: Family =
    Family::new("tollgate_unmatched_calls", "Requests to which no limit applied, by domain");
const DURATION: Family =
    Family::new("tollgate_decision_duration_seconds", "Time from the last byte of a request to its response");
const CONNECTIONS: Family = Family::new("tollgate_connections", "Open connections");
const REFUSED: Family = Family::new("tollgate_connections_refused", "Refused connections by reason");
const ERRORS: Family =
    Family::new("tollgate_request_errors", "Failed requests by reason; denied requests are not failures");
const AUTHENTICATION: Family = Family::new(
    "tollgate_authentication_failures",
    "Failed authentications: unknown tokens, and client certificates that are missing or not trusted",
);
const RESETS: Family = Family::new("tollgate_resets", "Resets of a key, counted for each limit");
const PERMITS: Family = Family::new("tollgate_permits", "Holds that are not settled yet");
const PERMIT_BYTES: Family = Family::new("tollgate_permit_bytes", "Memory used by holds");
const FALLBACK_KEYS: Family =
    Family::new("tollgate_fallback_keys", "Keys counted locally while Redis is unavailable");
const FALLBACK_BYTES: Family = Family::new("tollgate_fallback_bytes", "Memory used by these keys");
const KEYS: Family = Family::new("tollgate_keys", "Keys in the store");
const BYTES: Family = Family::new("tollgate_store_bytes", "Memory used by keys");
const EVICTIONS: Family =
    Family::new("tollgate_evictions", "Keys evicted or refused because the store was full");
const UP: Family = Family::new("tollgate_backend_up", "1 if the store responds");
const STORE_DURATION: Family =
    Family::new("tollgate_store_duration_seconds", "Time that decisions waited for the store");
const STORE_CALLS: Family = Family::new("tollgate_store_calls", "Calls to the store by outcome");
const BREAKER: Family =
    Family::new("tollgate_store_breaker_open", "1 while the circuit breaker skips calls to the store");
const NODES: Family = Family::new("tollgate_nodes", "Processes that share the store, including this one");
const LEASED: Family = Family::new("tollgate_lease_tokens", "Tokens leased and not used");
const SHORTFALL: Family = Family::new(
    "tollgate_lease_shortfall_tokens",
    "Maximum tokens per key that leases can withhold (processes x lease)",
);
const LEASES_ENDED: Family =
    Family::new("tollgate_lease_ended_tokens", "Leased tokens that were spent, returned or lost");
const RELOADS: Family = Family::new("tollgate_config_reloads", "Policies loaded or rejected");
const RELOADED: Family =
    Family::new("tollgate_config_last_reload_successful", "1 if the last policy that was read is active");
const RELOADED_AT: Family = Family::new(
    "tollgate_config_last_reload_success_timestamp_seconds",
    "Time of the last successful load, Unix time",
);
const CONFIG: Family = Family::new("tollgate_config", "Active policy");
const BUILD: Family = Family::new("tollgate_build", "Program version");

/// All metrics at one moment.
pub(super) struct Snapshot<S: Store> {
    engine: Engine<S>,
    tallies: Vec<Tallied>,
    unmatched: Vec<(String, u64)>,
    /// None if the store did not answer.
    usage: Option<Usage>,
    status: PolicyStatus,
    process: Option<Process>,
    meters: Vec<Arc<Meter>>,
    compat: Option<Compat>,
    namespaces: Arc<Namespaces>,
}

impl<S: Store> Snapshot<S> {
    pub(super) fn new(
        engine: &Engine<S>,
        usage: Option<Usage>,
        meters: Vec<Arc<Meter>>,
        compat: Option<Compat>,
        namespaces: Arc<Namespaces>,
    ) -> Self {
        Self {
            tallies: engine.tallies(),
            unmatched: engine.unmatched(),
            usage,
            status: engine.status(),
            process: Process::read(),
            engine: engine.clone(),
            meters,
            compat,
            namespaces,
        }
    }

    fn decisions(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        DECISIONS.counters(encoder, self.by_outcome(Tally::calls))?;
        HITS.counters(encoder, self.by_outcome(Tally::hits))?;
        let near = |limit: &Tallied| (labels(limit), limit.tally.near());
        NEAR.counters(encoder, self.tallies.iter().map(near))
    }

    /// Requests that the policy may not limit as intended.
    fn mistakes(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let bad_values = |limit: &Tallied| (labels(limit), limit.tally.bad_values());
        BAD_VALUES.counters(encoder, self.tallies.iter().map(bad_values))?;
        let unmatched = |(domain, calls): &(String, u64)| ([("domain", domain.clone())], *calls);
        UNMATCHED.counters(encoder, self.unmatched.iter().map(unmatched))
    }

    fn by_outcome(
        &self,
        number: fn(&Tally, Outcome) -> u64,
    ) -> impl Iterator<Item = ([(&'static str, String); 3], u64)> {
        self.tallies.iter().flat_map(move |limit| {
            Outcome::ALL.into_iter().map(move |outcome| {
                let [domain, name] = labels(limit);
                let outcome_label = ("outcome", outcome.name().to_owned());
                ([domain, name, outcome_label], number(&limit.tally, outcome))
            })
        })
    }

    fn protocols(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let calls = |meter: &Arc<Meter>| {
            CallOutcome::ALL.map(|outcome| {
                ([("protocol", meter.protocol()), ("outcome", outcome.name())], meter.calls(outcome))
            })
        };
        CALLS.counters(encoder, self.meters.iter().flat_map(calls))?;
        let mut durations = DURATION.begin(encoder, MetricType::Histogram)?;
        for meter in &self.meters {
            encode_durations(meter.durations(), durations.encode_family(&[("protocol", meter.protocol())])?)?;
        }
        let connections =
            self.meters.iter().map(|meter| ([("protocol", meter.protocol())], meter.connections() as u64));
        CONNECTIONS.gauges(encoder, connections)?;
        let refused = |meter: &Arc<Meter>| {
            ConnectionRefusal::ALL.map(|why| {
                ([("protocol", meter.protocol()), ("reason", why.name())], meter.refused_connections(why))
            })
        };
        REFUSED.counters(encoder, self.meters.iter().flat_map(refused))?;
        let errors = |meter: &Arc<Meter>| {
            ErrorReason::ALL.map(|reason| {
                ([("protocol", meter.protocol()), ("reason", reason.name())], meter.errors(reason))
            })
        };
        ERRORS.counters(encoder, self.meters.iter().flat_map(errors))?;
        let failures =
            |meter: &Arc<Meter>| ([("protocol", meter.protocol())], meter.failed_authentications());
        AUTHENTICATION.counters(encoder, self.meters.iter().map(failures))?;
        RESETS.counter(encoder, self.engine.resets())
    }

    fn store(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let (engine, fallback) = (&self.engine, self.engine.fallback_usage());
        PERMITS.gauge(encoder, engine.held() as u64)?;
        PERMIT_BYTES.gauge(encoder, engine.held_bytes())?;
        FALLBACK_KEYS.gauge(encoder, fallback.keys.unwrap_or_default())?;
        FALLBACK_BYTES.gauge(encoder, fallback.bytes.unwrap_or_default())?;
        UP.gauge(encoder, u64::from(self.usage.is_some()))?;
        encode_durations(engine.latency(), STORE_DURATION.begin(encoder, MetricType::Histogram)?)?;
        if let Some(Health { is_up, answered, failed, late, untried, .. }) = engine.store().health() {
            let calls = [("answered", answered), ("failed", failed), ("late", late), ("untried", untried)];
            STORE_CALLS.counters(encoder, calls.map(|(outcome, count)| ([("outcome", outcome)], count)))?;
            BREAKER.gauge(encoder, u64::from(!is_up))?;
        }
        NODES.gauge(encoder, engine.store().nodes().into())?;
        let Some(usage) = self.usage else { return Ok(()) };
        if let Some(keys) = usage.keys {
            KEYS.gauge(encoder, keys)?;
        }
        if let Some(bytes) = usage.bytes {
            BYTES.gauge(encoder, bytes)?;
        }
        let evictions = [("forgotten", usage.evicted), ("refused", usage.refused)];
        EVICTIONS.counters(encoder, evictions.map(|(reason, count)| ([("reason", reason)], count)))?;
        let Some(OnLease { out, shortfall, spent, returned, lost, .. }) = usage.leases else { return Ok(()) };
        LEASED.gauge(encoder, out)?;
        SHORTFALL.gauge(encoder, shortfall)?;
        let ended = [("spent", spent), ("returned", returned), ("lost", lost)];
        LEASES_ENDED.counters(encoder, ended.map(|(outcome, tokens)| ([("outcome", outcome)], tokens)))
    }

    fn policy(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let PolicyStatus { origin, since, loads, failures, problem, .. } = &self.status;
        let reloads = [("success", *loads), ("error", *failures)];
        RELOADS.counters(encoder, reloads.map(|(result, count)| ([("result", result)], count)))?;
        RELOADED.gauge(encoder, u64::from(problem.is_none()))?;
        RELOADED_AT.gauge(encoder, since.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))?;
        let labels = [("origin", origin.name.as_str()), ("hash", origin.hash.as_str())];
        CONFIG.begin(encoder, MetricType::Info)?.encode_info(&labels)
    }

    fn program(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
        let labels = [("version", env!("CARGO_PKG_VERSION")), ("os", os), ("arch", arch)];
        BUILD.begin(encoder, MetricType::Info)?.encode_info(&labels)?;
        self.process.map_or(Ok(()), |process| process.encode(encoder))
    }
}

impl<S: Store> fmt::Debug for Snapshot<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("engine", &self.engine).finish_non_exhaustive()
    }
}

impl<S: Store> Collector for Snapshot<S> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.decisions(&mut encoder)?;
        self.mistakes(&mut encoder)?;
        self.protocols(&mut encoder)?;
        self.store(&mut encoder)?;
        self.policy(&mut encoder)?;
        self.program(&mut encoder)?;
        let Some(compat) = self.compat else { return Ok(()) };
        let is_partitioned = self.engine.store().health().is_some_and(|health| !health.is_up);
        let grpc = self.meters.iter().find(|meter| meter.protocol() == "grpc");
        let envoy = EnvoyMetrics {
            statistics: self.engine.statistics(),
            status: &self.status,
            grpc: grpc.map(AsRef::as_ref),
        };
        compat.encode(&envoy, &self.namespaces, is_partitioned, &mut encoder)
    }
}

pub(super) fn encode_durations(durations: &Durations, mut encoder: MetricEncoder<'_>) -> fmt::Result {
    let buckets = durations.buckets();
    let count = buckets.iter().map(|bucket| bucket.1).sum();
    encoder.encode_histogram::<NoLabelSet>(durations.seconds(), count, &buckets, None)
}

/// The labels of a limit. A limit that a caller supplies has no name in the policy.
fn labels(limit: &Tallied) -> [(&'static str, String); 2] {
    [("domain", limit.domain.to_string()), ("limit", limit.name.to_string())]
}
