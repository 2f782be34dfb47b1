//! Statistics by the names and rules of envoyproxy/ratelimit.
//!
//! Each limit has counters under a name. Names that contain no values of callers are known when a policy is loaded. The others
//! are found by each call, in a table with a bound: beyond it, calls are counted under the name without values.

mod hits;
mod name;
mod table;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate::store::Store;
use tollgate_policy::{Limit, MetricName, Mode, Rates};

use super::ask::{Ask, Subject};
use super::ruling::{Basis, Finding, Ruling, is_counted, is_refused};
use super::tally::add;
use hits::Hits;
use name::sanitized;
use table::Table;

/// The share of a limit above which hits are near it, unless it is set.
pub const NEAR_LIMIT_RATIO: f32 = 0.8;
/// The last part of the name of limits that descriptors supply, beyond the bound on names.
const OTHER: &str = "@other";
/// The name of domains that the policy does not have, beyond the bound on names. No domain of a policy begins with `@`.
const UNKNOWN: &str = "@unknown";

/// One of the counters of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counter {
    /// All hits.
    TotalHits,
    /// Hits of calls within the limit.
    WithinLimit,
    /// Hits above the near limit ratio and within the limit.
    NearLimit,
    /// Hits beyond the limit.
    OverLimit,
    /// Hits beyond the limit that were answered from a cache of exhausted limits. There is no such cache, so it is always zero.
    OverLimitWithLocalCache,
    /// Hits beyond a limit in shadow mode.
    ShadowMode,
}

impl Counter {
    /// All counters.
    pub(crate) const ALL: [Self; 6] = [
        Self::TotalHits,
        Self::WithinLimit,
        Self::NearLimit,
        Self::OverLimit,
        Self::OverLimitWithLocalCache,
        Self::ShadowMode,
    ];

    /// The last part of its name in statsd.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::TotalHits => "total_hits",
            Self::WithinLimit => "within_limit",
            Self::NearLimit => "near_limit",
            Self::OverLimit => "over_limit",
            Self::OverLimitWithLocalCache => "over_limit_with_local_cache",
            Self::ShadowMode => "shadow_mode",
        }
    }
}

/// The counters of a limit, in the order of [`Counter::ALL`].
pub(crate) type Counts = [u64; Counter::ALL.len()];

/// The counters under one name.
#[derive(Debug, Default)]
struct Counters([AtomicU64; Counter::ALL.len()]);

impl Counters {
    fn add(&self, counter: Counter, hits: u64) {
        add(&self.0[counter as usize], hits);
    }

    fn counts(&self) -> Counts {
        std::array::from_fn(|counter| self.0[counter].load(Ordering::Relaxed))
    }
}

/// How a limit of the policy is counted.
#[derive(Debug)]
pub(super) struct Counted {
    name: MetricName,
    /// The counters, if the name is the same for all descriptors.
    counters: Option<Arc<Counters>>,
}

/// Statistics by the names and rules of envoyproxy/ratelimit.
#[derive(Debug)]
pub(crate) struct Statistics {
    near_limit_ratio: f32,
    limits: Table<Counters>,
    domains_not_found: Table<AtomicU64>,
    global_shadow_mode: AtomicU64,
}

impl Statistics {
    pub(super) fn new(near_limit_ratio: f32) -> Self {
        Self {
            near_limit_ratio,
            limits: Table::default(),
            domains_not_found: Table::default(),
            global_shadow_mode: AtomicU64::new(0),
        }
    }

    /// How some rates of a limit are counted; `None` if they limit nothing, as envoyproxy/ratelimit does not count such limits.
    pub(super) fn counted(&self, limit: &Limit, rates: &Rates) -> Option<Counted> {
        if rates.is_unlimited() || limit.mode() == Mode::Off {
            return None;
        }
        let name = limit.metric_name();
        let counters = (!name.has_values()).then(|| self.limits.of_policy(sanitized(name.base())));
        Some(Counted { name, counters })
    }

    /// Counts a call once it is decided.
    pub(super) fn count<S: Store>(&self, asks: &[Ask<'_, S>], ruling: &Ruling<'_>, has_free_quota: bool) {
        let findings = ruling.findings();
        for of_limit in findings.chunk_by(|a, b| a.ask == b.ask && std::ptr::eq(a.limit, b.limit)) {
            let finding = decisive(of_limit);
            if is_counted(finding.mode) && finding.outcome(ruling.is_allowed()).is_some() {
                self.count_limit(&asks[finding.ask], finding);
            }
        }
        if asks.iter().any(|ask| ask.in_shadow_mode)
            && is_refused_without_shadow_mode(findings, has_free_quota)
        {
            add(&self.global_shadow_mode, 1);
        }
    }

    /// Counts descriptors in a domain that the policy does not have.
    pub(super) fn count_domain_not_found(&self, domain: &str, descriptors: usize) {
        let counter = self.domains_not_found.of_caller(sanitized(domain), || UNKNOWN.to_owned());
        add(&counter, descriptors as u64);
    }

    fn count_limit<S: Store>(&self, ask: &Ask<'_, S>, finding: &Finding<'_>) {
        let (hits, is_shadow) = (self.hits(finding), finding.limit.is_shadow);
        match (&finding.limit.counted, &ask.subject) {
            (Some(Counted { counters: Some(counters), .. }), _) => record(counters, hits, is_shadow),
            (Some(Counted { name, .. }), Subject::Policy(_, fields)) => {
                let counters = self.of_caller(&name.of(fields), name.base());
                record(&counters, hits, is_shadow);
            }
            (None, Subject::Limit(..)) => {
                let Some((domain, fields)) = ask.in_place_of else { return };
                let name = MetricName::of_override(domain, fields);
                let counters = self.of_caller(&name, &format!("{domain}.{OTHER}"));
                record(&counters, hits, false);
            }
            _ => {}
        }
    }

    /// How the hits of a call divide.
    fn hits(&self, finding: &Finding<'_>) -> Hits {
        let (limit, hits) = (finding.decision.limit(), finding.cost);
        match finding.basis {
            Basis::Open => Hits::all_within(hits),
            Basis::Closed => Hits::all_over(hits),
            Basis::Store | Basis::Local => {
                // Only a counter takes a part of a call that it denies.
                let over = match finding.over {
                    0 if finding.is_refusal() => hits,
                    over => over,
                };
                let used = limit.saturating_sub(finding.decision.remaining());
                Hits::of(limit, self.near_limit_ratio, used.saturating_add(over).saturating_sub(hits), hits)
            }
        }
    }

    /// The counters under a name that contains values of callers; beyond the bound on names, those under `beyond`.
    fn of_caller(&self, name: &str, beyond: &str) -> Arc<Counters> {
        self.limits.of_caller(sanitized(name), || sanitized(beyond))
    }

    /// The counters of each name, sorted by name.
    pub(crate) fn limits(&self) -> BTreeMap<String, Counts> {
        self.limits.each(Counters::counts)
    }

    /// How many descriptors named each domain that the policy does not have, sorted by domain.
    pub(crate) fn domains_not_found(&self) -> BTreeMap<String, u64> {
        self.domains_not_found.each(|count| count.load(Ordering::Relaxed))
    }

    /// How many calls were allowed only because shadow mode is on for all limits.
    pub(crate) fn global_shadow_mode(&self) -> u64 {
        self.global_shadow_mode.load(Ordering::Relaxed)
    }
}

fn record(counters: &Counters, hits: Hits, is_shadow: bool) {
    counters.add(Counter::TotalHits, hits.total());
    counters.add(Counter::WithinLimit, hits.within);
    counters.add(Counter::NearLimit, hits.near);
    counters.add(Counter::OverLimit, hits.over);
    if is_shadow {
        counters.add(Counter::ShadowMode, hits.over);
    }
}

/// The finding that speaks for a limit with several quotas: one that refuses, else the one with the least left.
fn decisive<'f, 'a>(of_limit: &'f [Finding<'a>]) -> &'f Finding<'a> {
    let refusal = of_limit.iter().find(|finding| finding.is_refusal());
    let least = of_limit.iter().min_by_key(|finding| finding.decision.remaining());
    refusal.or(least).unwrap_or(&of_limit[0])
}

/// Whether the call would be refused if only the limits that the policy has in shadow mode were in it.
fn is_refused_without_shadow_mode(findings: &[Finding<'_>], has_free_quota: bool) -> bool {
    let enforced: Vec<Finding<'_>> =
        findings.iter().map(|finding| Finding { is_shadow: finding.limit.is_shadow, ..*finding }).collect();
    is_refused(enforced.iter(), has_free_quota)
}
