//! The metrics of envoyproxy/ratelimit, with the labels of its own Prometheus endpoint.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;

use super::errors::ErrorReason;
use super::family::Family;
use super::meter::Meter;
use super::snapshot::encode_durations;
use crate::engine::{Counter, Counts, PolicyStatus, Statistics};

const TOTAL_HITS: Family = Family::new("ratelimit_service_rate_limit_total_hits", "All hits");
const WITHIN_LIMIT: Family =
    Family::new("ratelimit_service_rate_limit_within_limit", "Hits of calls within the limit");
const NEAR_LIMIT: Family =
    Family::new("ratelimit_service_rate_limit_near_limit", "Hits above the near limit ratio");
const OVER_LIMIT: Family = Family::new("ratelimit_service_rate_limit_over_limit", "Hits beyond the limit");
const OVER_LIMIT_WITH_LOCAL_CACHE: Family = Family::new(
    "ratelimit_service_rate_limit_over_limit_with_local_cache",
    "Hits answered from a cache of exhausted limits; always zero, as there is no such cache",
);
const SHADOW_MODE: Family =
    Family::new("ratelimit_service_rate_limit_shadow_mode", "Hits beyond a limit in shadow mode");
const DOMAIN_NOT_FOUND: Family = Family::new(
    "ratelimit_service_rate_limit_domain_not_found",
    "Descriptors in a domain that the policy does not have",
);
const GLOBAL_SHADOW_MODE: Family = Family::new(
    "ratelimit_service_global_shadow_mode",
    "Calls that were allowed only because shadow mode is on for all limits",
);
const LOADED: Family = Family::new("ratelimit_service_config_load_success", "Policies loaded");
const NOT_LOADED: Family = Family::new("ratelimit_service_config_load_error", "Policies not loaded");
const REQUESTS: Family = Family::new("ratelimit_service_total_requests", "Requests over gRPC");
const RESPONSE_TIME: Family =
    Family::new("ratelimit_service_response_time_seconds", "Time to respond over gRPC");
const ERRORS: Family = Family::new("ratelimit_service_should_rate_limit_error", "Requests that failed");

/// The only method of the service.
const METHOD: (&str, &str) = ("grpc_method", "ShouldRateLimit");
/// The labels of the parts of a name. Further parts have no label: series that differ only in those are added up.
const LABELS: [&str; 3] = ["domain", "key1", "key2"];

/// What the metrics of envoyproxy/ratelimit are made of.
pub(super) struct EnvoyMetrics<'a> {
    pub(super) statistics: Option<&'a Statistics>,
    pub(super) status: &'a PolicyStatus,
    /// The meter of gRPC, if that is served.
    pub(super) grpc: Option<&'a Meter>,
}

impl EnvoyMetrics<'_> {
    /// None of these names ends in `_total`, so counters are written as gauges.
    pub(super) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        if let Some(statistics) = self.statistics {
            encode_limits(&statistics.limits(), encoder)?;
            let not_found = statistics.domains_not_found();
            DOMAIN_NOT_FOUND.gauges(
                encoder,
                not_found.into_iter().map(|(domain, count)| ([("domain", domain)], count)),
            )?;
            GLOBAL_SHADOW_MODE.gauge(encoder, statistics.global_shadow_mode())?;
        }
        LOADED.gauge(encoder, self.status.loads)?;
        NOT_LOADED.gauge(encoder, self.status.failures)?;
        self.grpc.map_or(Ok(()), |grpc| encode_service(grpc, encoder))
    }
}

fn encode_limits(limits: &BTreeMap<String, Counts>, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let mut series: BTreeMap<Vec<(&'static str, &str)>, Counts> = BTreeMap::new();
    for (name, counts) in limits {
        let sums = series.entry(LABELS.into_iter().zip(name.split('.')).collect()).or_default();
        for (sum, count) in sums.iter_mut().zip(counts) {
            *sum = sum.saturating_add(*count);
        }
    }
    for counter in Counter::ALL {
        let counts = series.iter().map(|(labels, counts)| (labels.clone(), counts[counter as usize]));
        family(counter).gauges(encoder, counts)?;
    }
    Ok(())
}

fn encode_service(grpc: &Meter, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    REQUESTS.gauges(encoder, [([METHOD], grpc.durations().count())])?;
    let mut histogram = RESPONSE_TIME.begin(encoder, MetricType::Histogram)?;
    encode_durations(grpc.durations(), histogram.encode_family(&[METHOD])?)?;
    let error = |kind, reason| ([("err_type", kind)], grpc.errors(reason));
    ERRORS.gauges(
        encoder,
        [error("redis_error", ErrorReason::Unavailable), error("service_error", ErrorReason::BadRequest)],
    )
}

fn family(counter: Counter) -> &'static Family {
    match counter {
        Counter::TotalHits => &TOTAL_HITS,
        Counter::WithinLimit => &WITHIN_LIMIT,
        Counter::NearLimit => &NEAR_LIMIT,
        Counter::OverLimit => &OVER_LIMIT,
        Counter::OverLimitWithLocalCache => &OVER_LIMIT_WITH_LOCAL_CACHE,
        Counter::ShadowMode => &SHADOW_MODE,
    }
}
