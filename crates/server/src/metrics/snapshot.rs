//! Everything that is told, at one moment.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use tollgate::store::{OnLease, Store, Usage};

use super::compat::Compat;
use super::family::Family;
use super::meter::Meter;
use crate::engine::{Engine, Outcome, PolicyStatus, Tallied, Tally};

const DECISIONS: Family = Family::new("tollgate_decisions", "Calls, as each limit saw them end");
const HITS: Family = Family::new(
    "tollgate_hits",
    "What the calls cost together when they were decided; what is charged, given back or settled later is not in it",
);
const NEAR: Family = Family::new("tollgate_near_limit", "Calls that were allowed and left less than a fifth");
const BAD_VALUES: Family =
    Family::new("tollgate_bad_values", "Calls with a value that the limit could not use");
const UNMATCHED: Family =
    Family::new("tollgate_unmatched_calls", "Calls that no limit applied to, by domain");
const DURATION: Family =
    Family::new("tollgate_decision_duration_seconds", "From a call's last byte to its answer");
const CONNECTIONS: Family = Family::new("tollgate_connections", "Open connections");
const PERMITS: Family = Family::new("tollgate_permits", "What is held and not settled yet");
const PERMIT_BYTES: Family = Family::new("tollgate_permit_bytes", "Memory that those take");
const FALLBACK_KEYS: Family =
    Family::new("tollgate_fallback_keys", "States that this process keeps for limits it decides alone");
const FALLBACK_BYTES: Family = Family::new("tollgate_fallback_bytes", "Memory that those take");
const KEYS: Family = Family::new("tollgate_keys", "States that the store remembers");
const BYTES: Family = Family::new("tollgate_store_bytes", "Memory that those take");
const EVICTIONS: Family =
    Family::new("tollgate_evictions", "Keys that a full store forgot although they counted, or did not take");
const UP: Family = Family::new("tollgate_backend_up", "Whether the store answers");
const NODES: Family =
    Family::new("tollgate_nodes", "Processes that shared the store when it was last seen, this one included");
const LEASED: Family =
    Family::new("tollgate_lease_tokens", "Tokens that this process has borrowed, to be spent or given back");
const SHORTFALL: Family = Family::new(
    "tollgate_lease_shortfall_tokens",
    "By how much less than a limit may be admitted of one key, because processes have borrowed it: nodes x lease",
);
const LEASES_ENDED: Family = Family::new(
    "tollgate_lease_ended_tokens",
    "Borrowed tokens that were spent, returned, or lost and so count as spent",
);
const RELOADS: Family = Family::new("tollgate_config_reloads", "Policies that were loaded, or could not be");
const CONFIG: Family = Family::new("tollgate_config", "The policy that decides");

/// Everything that is told, at one moment.
#[derive(Debug)]
pub(super) struct Snapshot {
    tallies: Vec<Tallied>,
    unmatched: Vec<(String, u64)>,
    /// None if the store did not answer.
    usage: Option<Usage>,
    status: PolicyStatus,
    permits: u64,
    permit_bytes: u64,
    /// What is kept for limits that are decided without the store.
    fallback: Usage,
    nodes: u32,
    meters: Vec<Arc<Meter>>,
    compat: Option<Compat>,
}

impl Snapshot {
    pub(super) fn new<S: Store>(
        engine: &Engine<S>,
        usage: Option<Usage>,
        meters: Vec<Arc<Meter>>,
        compat: Option<Compat>,
    ) -> Self {
        Self {
            tallies: engine.tallies(),
            unmatched: engine.unmatched(),
            usage,
            status: engine.status(),
            permits: engine.held() as u64,
            permit_bytes: engine.held_bytes(),
            fallback: engine.fallback_usage(),
            nodes: engine.store().nodes(),
            meters,
            compat,
        }
    }

    fn decisions(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        DECISIONS.counters(encoder, self.by_outcome(Tally::calls))?;
        HITS.counters(encoder, self.by_outcome(Tally::hits))?;
        let near = |limit: &Tallied| (labels(limit), limit.tally.near());
        NEAR.counters(encoder, self.tallies.iter().map(near))
    }

    /// Calls that were not limited as the policy may have meant it.
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
                let [domain, rule] = labels(limit);
                let outcome_label = ("outcome", outcome.name().to_owned());
                ([domain, rule, outcome_label], number(&limit.tally, outcome))
            })
        })
    }

    fn protocols(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut durations = DURATION.begin(encoder, MetricType::Histogram)?;
        for meter in &self.meters {
            let (buckets, labels) = (meter.buckets(), [("protocol", meter.protocol())]);
            let count = buckets.iter().map(|bucket| bucket.1).sum();
            let mut one = durations.encode_family(&labels)?;
            one.encode_histogram::<NoLabelSet>(meter.seconds(), count, &buckets, None)?;
        }
        let connections =
            self.meters.iter().map(|meter| ([("protocol", meter.protocol())], meter.connections() as u64));
        CONNECTIONS.gauges(encoder, connections)
    }

    fn store(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        PERMITS.gauge(encoder, self.permits)?;
        PERMIT_BYTES.gauge(encoder, self.permit_bytes)?;
        FALLBACK_KEYS.gauge(encoder, self.fallback.keys.unwrap_or_default())?;
        FALLBACK_BYTES.gauge(encoder, self.fallback.bytes.unwrap_or_default())?;
        UP.gauge(encoder, u64::from(self.usage.is_some()))?;
        NODES.gauge(encoder, self.nodes.into())?;
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
        let PolicyStatus { origin, loads, failures, .. } = &self.status;
        let reloads = [("success", *loads), ("error", *failures)];
        RELOADS.counters(encoder, reloads.map(|(result, count)| ([("result", result)], count)))?;
        let labels = [("origin", origin.name.as_str()), ("hash", origin.hash.as_str())];
        CONFIG.begin(encoder, MetricType::Info)?.encode_info(&labels)
    }
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.decisions(&mut encoder)?;
        self.mistakes(&mut encoder)?;
        self.protocols(&mut encoder)?;
        self.store(&mut encoder)?;
        self.policy(&mut encoder)?;
        self.compat.map_or(Ok(()), |compat| compat.encode(&self.tallies, &self.status, &mut encoder))
    }
}

/// A limit's own labels. A limit that a caller brought along has no rule of the policy.
fn labels(limit: &Tallied) -> [(&'static str, String); 2] {
    [("domain", limit.domain.to_string()), ("rule", limit.name.to_string())]
}
