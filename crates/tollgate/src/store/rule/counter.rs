//! Counters: fixed windows that count the hits that they deny, too.
//!
//! The state of a counter is a fixed window with a quota so large that it is never used up. A store admits every hit on it, so the
//! count has no bound, and a new window starts at zero. The limit is exceeded once the count is above the limit's own quota, which
//! [`Rule::judge`] works out from the answer of the store.
//!
//! The limit's own quota is therefore no part of the state: counters of one name and period share it, whatever their quotas.

use std::borrow::Cow;

use tollgate_core::{Decision, Kind, Quota, Verdict};

use super::Rule;
use crate::store::{Mode, Said};

/// What a counter can count at least in a window: twice the largest count that protocols can name, which has 32 bits.
const LEAST_CAPACITY: u64 = 1 << 33;
/// Windows in process hold no more.
const MOST_CAPACITY: u64 = 1 << 62;

/// What a hit on a counter comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// The decision by the limit's own quota.
    pub decision: Decision,
    /// How much of the cost exceeds the limit.
    pub over: u64,
}

impl Rule {
    /// Makes the limit a counter: a fixed window that counts every hit, also beyond its quota, and starts at zero in each window.
    ///
    /// A store admits all hits on a counter. Hit it with [`Mode::Count`], and let [`judge`](Self::judge) decide. Counters with one
    /// domain, name and periods share their counts, whatever their quotas.
    ///
    /// # Examples
    /// ```
    /// use tollgate::store::{Hit, MemoryStore, Mode, Rule, Store, StoreError};
    /// use tollgate::{ManualClock, Quota};
    ///
    /// let store = MemoryStore::builder().clock(ManualClock::new()).build();
    /// let rule = Rule::new("api", "all", Quota::per_hour(10)).counting();
    /// let count = |rule: &Rule, cost| {
    ///     let answer = store.decide(Mode::Count, &[Hit::new(&store.open(rule), b"").costing(cost)]).into_inner()?;
    ///     Ok::<_, StoreError>(rule.judge(Mode::Count, &answer.each()[0]))
    /// };
    /// let fifteen = count(&rule, 15)?;
    /// assert_eq!((fifteen.decision.is_admitted(), fifteen.over), (false, 5));
    /// let larger = Rule::new("api", "all", Quota::per_hour(20)).counting();
    /// assert_eq!(count(&larger, 1)?.decision.remaining(), 4);
    /// # Ok::<(), StoreError>(())
    /// ```
    #[must_use]
    pub fn counting(self) -> Self {
        Self { is_counter: true, ..self.with_kind(Kind::FixedWindow) }
    }

    /// Returns `true` for a [counter](Self::counting).
    #[inline]
    pub fn is_counter(&self) -> bool {
        self.is_counter
    }

    /// Returns the rule by which a store keeps the state: the rule itself, but for counters one with quotas that are never used up.
    pub fn kept(&self) -> Cow<'_, Self> {
        if !self.is_counter {
            return Cow::Borrowed(self);
        }
        let quotas = self.quotas.iter().copied().map(capacity).collect();
        Cow::Owned(Self { quotas, ..self.clone() })
    }

    /// Decides about a hit on a counter by what a store said of it. A cost of zero is always admitted, as are charges and refunds.
    pub fn judge(&self, mode: Mode, said: &Said) -> Judgement {
        let can_be_denied = matches!(mode, Mode::Take | Mode::Count | Mode::Peek) && said.cost > 0;
        let count = said.decision.limit().saturating_sub(said.decision.remaining());
        let before = if said.decision.is_admitted() { count.saturating_sub(said.cost) } else { count };
        let left_after = if mode == Mode::Peek { before } else { count };
        self.verdict(said, Counts { decisive: count, if_denied: left_after, can_be_denied })
    }

    /// Decides whether a counter is exceeded already, by what a store said of a [peek](Mode::Peek) at a cost of one.
    ///
    /// # Examples
    /// ```
    /// use tollgate::store::{Hit, MemoryStore, Mode, Rule, Store};
    /// use tollgate::Quota;
    ///
    /// let (store, rule) = (MemoryStore::new(), Rule::new("api", "all", Quota::per_day(1)).counting());
    /// let limit = store.open(&rule);
    /// for is_admitted in [true, true, false] {
    ///     let peeked = store.decide(Mode::Peek, &[Hit::new(&limit, b"")]).into_inner()?;
    ///     assert_eq!(rule.probe(&peeked.each()[0]).decision.is_admitted(), is_admitted);
    ///     let _ = store.decide(Mode::Count, &[Hit::new(&limit, b"")]).into_inner()?;
    /// }
    /// # Ok::<(), tollgate::store::StoreError>(())
    /// ```
    pub fn probe(&self, said: &Said) -> Judgement {
        let next = said.decision.limit().saturating_sub(said.decision.remaining());
        let count = if said.decision.is_admitted() { next.saturating_sub(said.cost) } else { next };
        let nothing = Said { cost: 0, ..*said };
        self.verdict(&nothing, Counts { decisive: count, if_denied: count, can_be_denied: true })
    }

    /// Returns `true` if one of a limit's quotas denied a hit.
    pub fn is_denied(&self, mode: Mode, said: &[Said]) -> bool {
        said.iter().any(|said| !self.judge(mode, said).decision.is_admitted())
    }

    fn verdict(&self, said: &Said, counts: Counts) -> Judgement {
        let (quota, decision) = (self.quotas[said.quota as usize], said.decision);
        if !self.is_counter || quota.is_unlimited() {
            return Judgement { decision, over: 0 };
        }
        let (limit, Counts { decisive, if_denied, can_be_denied }) = (quota.count(), counts);
        let reset_ns = decision.reset_after().map_or(u64::MAX, |span| span.as_nanos() as u64); // as which it was kept
        let is_denied = can_be_denied && (decisive > limit || !decision.is_admitted());
        if !is_denied {
            let left = limit.saturating_sub(decisive);
            return Judgement { decision: Decision::new(Verdict::Allow, limit, left, 0, reset_ns), over: 0 };
        }
        let wait_ns = if said.cost > limit { u64::MAX } else { reset_ns };
        let left = limit.saturating_sub(if_denied);
        let decision = Decision::new(Verdict::Deny, limit, left, wait_ns, reset_ns);
        Judgement { decision, over: said.cost.min(decisive.saturating_sub(limit)) }
    }
}

/// The counts of a window that a decision needs.
struct Counts {
    /// The count that must not exceed the limit.
    decisive: u64,
    /// The count that stands if the hit is denied.
    if_denied: u64,
    can_be_denied: bool,
}

/// The same period with a count that is never reached.
fn capacity(quota: Quota) -> Quota {
    if quota.is_unlimited() {
        return quota;
    }
    let twice = quota.count().saturating_mul(2).checked_next_power_of_two().unwrap_or(MOST_CAPACITY);
    Quota::per(twice.clamp(LEAST_CAPACITY, MOST_CAPACITY), quota.period())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacity_is_beyond_every_count_of_32_bits_and_the_same_for_all() {
        for count in [0, 1, 4_000_000_000, u64::from(u32::MAX)] {
            assert_eq!(capacity(Quota::per_minute(count)), Quota::per_minute(1 << 33), "{count}");
        }
        assert_eq!(capacity(Quota::per_minute(1 << 40)), Quota::per_minute(1 << 41));
        assert_eq!(capacity(Quota::per_minute(u64::MAX)), Quota::per_minute(1 << 62));
        assert_eq!(capacity(Quota::UNLIMITED), Quota::UNLIMITED);
    }

    #[test]
    fn kept_differs_from_the_rule_only_for_counters() {
        let rule = Rule::new("d", "n", Quota::per_hour(3)).with_kind(Kind::FixedWindow);
        assert_eq!(*rule.kept(), rule);
        let counter = rule.counting();
        assert_eq!(counter.kept().quotas(), [Quota::per_hour(1 << 33)]);
        assert_eq!(counter.share(3).quotas(), [Quota::per_hour(1)]);
        assert_eq!(counter.share(3).kept(), counter.kept());
    }
}
