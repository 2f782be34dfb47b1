//! Decisions while the store is unavailable.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate::store::{Answer, Hit, MemoryStore, Mode, Rule, Store, StoreError, Usage};
use tollgate::{Decision, Limiter, Quota, Verdict};
use tollgate_policy::OnStoreFailure;

use super::case::Hits;
use super::ruling::{About, Basis, Finding, Findings, findings};

/// Decides by the `on_store_failure` of each limit, with local counters for the limits that decide locally.
#[derive(Debug)]
pub(super) struct Fallback {
    store: MemoryStore,
    /// Limits how often an outage is logged.
    telling: Limiter,
    /// Decisions since the last log line.
    untold: AtomicU64,
}

impl Fallback {
    /// Creates a fallback that keeps its counters in this store.
    pub(super) fn new(store: MemoryStore) -> Self {
        let telling = Limiter::new(Quota::per_second(1).burst(1));
        Self { store, telling, untold: AtomicU64::new(0) }
    }

    /// Returns the memory that its counters use.
    pub(super) fn usage(&self) -> Usage {
        self.store.usage().into_inner().unwrap_or_default() // a store in this process always answers
    }

    pub(super) fn decide<'a, L: AsRef<Rule>>(
        &self,
        mode: Mode,
        hits: &[Hit<'_, L>],
        nodes: u32,
        error: &StoreError,
        of: impl Fn(usize) -> About<'a> + Copy,
    ) -> Findings<'a> {
        self.tell(error, "applying on_store_failure");
        let choice = |hit: usize| of(hit).limit.on_store_failure;
        let mut all = Findings::new();
        let is_refused = (0..hits.len()).any(|hit| choice(hit) == OnStoreFailure::Deny);
        for (hit, wanted) in hits.iter().enumerate() {
            let (basis, verdict) = match choice(hit) {
                OnStoreFailure::Deny => (Basis::Closed, Verdict::Deny),
                OnStoreFailure::Allow => (Basis::Open, Verdict::Allow),
                OnStoreFailure::Local => continue,
            };
            all.push(without_state(of(hit), wanted.cost, basis, verdict));
        }
        let local: Vec<usize> = (0..hits.len()).filter(|&hit| choice(hit) == OnStoreFailure::Local).collect();
        if !local.is_empty() {
            let mode = if is_refused && mode == Mode::Take { Mode::Peek } else { mode };
            self.decide_local(mode, hits, &local, nodes, of, &mut all);
        }
        all
    }

    /// Logs at most once a second that the store is unavailable, with the number of decisions since the last line.
    pub(super) fn tell(&self, error: &StoreError, then: &str) {
        self.untold.fetch_add(1, Ordering::Relaxed);
        if self.telling.check().is_admitted() {
            let decisions = self.untold.swap(0, Ordering::Relaxed);
            tracing::warn!(%error, decisions, "store unavailable, {then}");
        }
    }

    fn decide_local<'a, L: AsRef<Rule>>(
        &self,
        mode: Mode,
        hits: &[Hit<'_, L>],
        local: &[usize],
        nodes: u32,
        of: impl Fn(usize) -> About<'a> + Copy,
        all: &mut Findings<'a>,
    ) {
        let share = |hit: usize| self.store.open(&hits[hit].limit.as_ref().share(nodes));
        let limits: Vec<_> = local.iter().map(|&hit| share(hit)).collect();
        let own: Hits<'_, _> = (local.iter().zip(&limits))
            .map(|(&hit, limit)| Hit { limit, key: hits[hit].key, cost: hits[hit].cost })
            .collect();
        let answer: Result<Answer, StoreError> = self.store.decide(mode, &own).into_inner();
        match answer {
            Ok(answer) => all.extend(findings(&answer, mode, Basis::Local, &own, |hit| of(local[hit]))),
            Err(_) => all.extend(
                local.iter().map(|&hit| without_state(of(hit), hits[hit].cost, Basis::Closed, Verdict::Deny)),
            ),
        }
    }
}

/// Returns a decision that reads no counter.
fn without_state(about: About<'_>, cost: u64, basis: Basis, verdict: Verdict) -> Finding<'_> {
    let capacity = about.limit.rule.quotas()[0].burst_size();
    let decision = match verdict {
        Verdict::Allow => Decision::new(Verdict::Allow, capacity, capacity, 0, 0),
        _ => Decision::refusal(capacity, Some(RETRY)),
    };
    about.finding(0, cost, decision, basis)
}

/// When to retry while the store is unavailable.
const RETRY: std::time::Duration = std::time::Duration::from_secs(1);
