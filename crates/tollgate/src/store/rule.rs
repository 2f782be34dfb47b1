//! Which limit.

mod counter;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use tollgate_core::{Algorithm, AnyAlgorithm, Kind, Quota, SlidingLog, SubWindows};

use super::StoreError;
pub use counter::Judgement;

/// Everything that says which limit it is: a domain and a name in it, the quotas, the algorithm.
///
/// Equal rules are the same limit: a policy that is loaded again goes on with the state of every rule that stayed the same.
/// Change anything, and it is another limit that starts afresh.
///
/// # Examples
/// ```
/// use tollgate::store::Rule;
/// use tollgate::{Kind, Quota};
///
/// let rule = Rule::new("api", "per user", Quota::per_second(10)).with_quota(Quota::per_hour(1_000));
/// assert_eq!(rule.quotas(), [Quota::per_second(10), Quota::per_hour(1_000)]);
/// assert_eq!((rule.to_string(), rule.kind()), ("api/per user".to_owned(), Kind::TokenBucket));
/// assert_ne!(rule.clone().with_kind(Kind::FixedWindow), rule);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rule {
    domain: Arc<str>,
    name: Arc<str>,
    quotas: Vec<Quota>,
    kind: Kind,
    /// Of sub-windows; zero for all others.
    parts: u32,
    is_floating: bool,
    is_brought: bool,
    is_counter: bool,
    supplier: Supplier,
}

/// Who supplied a limit, if that is known. It does not matter for which limit it is, so all suppliers are equal.
#[derive(Clone, Copy, Debug, Default)]
struct Supplier(Option<u128>);

impl PartialEq for Supplier {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Supplier {}

impl Hash for Supplier {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl Rule {
    /// A token bucket of that name in that domain.
    pub fn new(domain: impl Into<Arc<str>>, name: impl Into<Arc<str>>, quota: Quota) -> Self {
        let (domain, name, kind) = (domain.into(), name.into(), Kind::TokenBucket);
        let (quotas, supplier) = (vec![quota], Supplier::default());
        let (is_floating, is_brought, is_counter) = (false, false, false);
        Self { domain, name, quotas, kind, parts: 0, is_floating, is_brought, is_counter, supplier }
    }

    /// A token bucket whose quota every caller brings along: it says how this hit is decided, and not which limit it is.
    ///
    /// What is kept for a key is the time at which it will be as fresh as new, as GCRA keeps it, and that is what all quotas have
    /// in common: whoever used up ten seconds of one has ten seconds less of another. So quotas are
    /// [one every so many nanoseconds](Quota::every); others count as such a one, rounded up. It is a token bucket, whatever
    /// [`with_kind`](Self::with_kind) says. Such a limit is hit alone, and cannot be held to be settled later; and a store that many
    /// processes share may keep a state for every quota instead.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use tollgate::store::{Hit, MemoryStore, Mode, Rule, Store};
    /// use tollgate::{ManualClock, Quota};
    ///
    /// let store = MemoryStore::builder().clock(ManualClock::new()).build();
    /// let open = |quota| store.open(&Rule::floating("callers", "own", quota));
    /// let slow = open(Quota::every(Duration::from_secs(5)).burst(2));
    /// let fast = open(Quota::every(Duration::from_secs(1)).burst(12));
    /// let slowly = store.decide(Mode::Take, &[Hit::new(&slow, b"alice").costing(2)]).into_inner()?;
    /// assert_eq!(slowly.decision().reset_after(), Some(Duration::from_secs(10)));
    /// let quickly = store.decide(Mode::Take, &[Hit::new(&fast, b"alice")]).into_inner()?;
    /// assert_eq!(quickly.decision().reset_after(), Some(Duration::from_secs(11)));
    /// # Ok::<(), tollgate::store::StoreError>(())
    /// ```
    pub fn floating(domain: impl Into<Arc<str>>, name: impl Into<Arc<str>>, quota: Quota) -> Self {
        Self { is_floating: true, ..Self::new(domain, name, quota) }
    }

    /// The same with a further quota: a hit takes of all of them, or of none.
    #[must_use]
    pub fn with_quota(mut self, quota: Quota) -> Self {
        self.quotas.push(quota);
        self
    }

    /// The same with another algorithm; sub-windows get ten parts.
    #[must_use]
    pub fn with_kind(self, kind: Kind) -> Self {
        let parts = AnyAlgorithm::new(kind, Quota::UNLIMITED).parts();
        Self { kind, parts, ..self }
    }

    /// The same with [`SubWindows`] of so many parts, from 1 to 1000; others are taken as the nearest of these.
    #[must_use]
    pub fn with_sub_windows(self, parts: u32) -> Self {
        let parts = SubWindows::new(Quota::UNLIMITED).parts(parts).part_count();
        Self { kind: Kind::SubWindows, parts, ..self }
    }

    /// The same, supplied by a caller, which may choose any quota. A store that [remembers](super::MemoryStoreBuilder::max_quotas)
    /// only so many counts those apart, and forgets them when nobody uses them.
    ///
    /// # Examples
    /// ```
    /// use tollgate::Quota;
    /// use tollgate::store::{Hit, MemoryStore, Mode, Rule, Store};
    ///
    /// let store = MemoryStore::builder().max_quotas(2).build();
    /// let brought = [1, 2].map(|count| store.open(&Rule::new("api", "own", Quota::per_hour(count)).brought()));
    /// let written = store.open(&Rule::new("api", "all", Quota::per_hour(3)));
    /// let allows = |limit| store.decide(Mode::Take, &[Hit::new(limit, b"ann")]).into_inner().is_ok();
    /// assert_eq!([allows(&brought[0]), allows(&brought[1]), allows(&written)], [true, false, true]);
    /// ```
    #[must_use]
    pub fn brought(self) -> Self {
        Self { is_brought: true, ..self }
    }

    /// The same, supplied by this caller: a store with a bound on quotas lets one caller use a part of them only. Two rules that
    /// differ in nothing else are the same limit.
    ///
    /// # Examples
    /// ```
    /// use tollgate::Quota;
    /// use tollgate::store::{Hit, MemoryStore, Mode, Rule, Store};
    ///
    /// let store = MemoryStore::builder().max_quotas(32).build(); // 16 that callers supply, of which each has an eighth
    /// let supplied = |caller, count| store.open(&Rule::new("api", "own", Quota::per_hour(count)).brought_by(caller));
    /// let limits = [(1, 10), (1, 20), (1, 30), (2, 30)].map(|(caller, count)| supplied(caller, count));
    /// let is_open = |limit| store.decide(Mode::Take, &[Hit::new(limit, b"ann")]).into_inner().is_ok();
    /// assert_eq!(limits.each_ref().map(is_open), [true, true, false, true]);
    /// ```
    #[must_use]
    pub fn brought_by(self, caller: u128) -> Self {
        Self { supplier: Supplier(Some(caller)), ..self.brought() }
    }

    pub(super) fn supplier(&self) -> Option<u128> {
        self.supplier.0
    }

    /// Whether a caller [brought it along](Self::brought).
    pub fn is_brought(&self) -> bool {
        self.is_brought
    }

    /// What it belongs to.
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// What it is called there.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its quotas; one at least.
    pub fn quotas(&self) -> &[Quota] {
        &self.quotas
    }

    /// Its algorithm.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// How many parts its sub-windows have; zero for other algorithms.
    pub fn parts(&self) -> u32 {
        self.parts
    }

    /// One of `parts` equal shares of this limit, for processes that cannot ask each other: all of them together admit what the
    /// limit does, or less, as only whole hits are shared out. Only where there are fewer hits than processes do they admit more,
    /// since each admits one at least.
    ///
    /// # Examples
    /// ```
    /// use tollgate::store::Rule;
    /// use tollgate::{Kind, Quota};
    ///
    /// let rule = Rule::new("api", "all", "10/s burst 20".parse()?);
    /// assert_eq!(rule.share(3).quotas(), ["10/3s burst 6".parse()?]);
    /// assert_eq!(rule.with_kind(Kind::FixedWindow).share(3).quotas(), [Quota::per_second(3)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn share(&self, parts: u32) -> Self {
        let quotas = self.quotas.iter().map(|quota| share(self.kind, *quota, parts.max(1))).collect();
        Self { quotas, ..self.clone() }
    }

    /// Checks that a store can keep it.
    ///
    /// # Errors
    /// If it is a [sliding window log](Kind::SlidingLog) with a count above [`SlidingLog::MAX_ENTRIES`]. A store that is asked about
    /// such a limit fails with this error.
    ///
    /// # Examples
    /// ```
    /// use tollgate::store::Rule;
    /// use tollgate::{Kind, Quota};
    ///
    /// let rule = Rule::new("api", "per user", Quota::per_hour(20_000));
    /// assert!(rule.check().is_ok());
    /// let error = rule.with_kind(Kind::SlidingLog).check().unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "api/per user: sliding-window-log keeps at most 10000 calls in a period, not 20000; use sub-windows"
    /// );
    /// ```
    pub fn check(&self) -> Result<(), StoreError> {
        const MOST: u64 = SlidingLog::MAX_ENTRIES;
        let is_too_deep = |quota: &&Quota| quota.count() > MOST && !quota.is_unlimited();
        let too_deep = self.quotas.iter().find(is_too_deep).filter(|_| self.kind == Kind::SlidingLog);
        too_deep.map_or(Ok(()), |quota| {
            Err(StoreError::permanent(format!(
                "{self}: {} keeps at most {MOST} calls in a period, not {}; use {}",
                self.kind,
                quota.count(),
                Kind::SubWindows
            )))
        })
    }

    /// Whether its quota is [the caller's](Self::floating), and no part of which limit it is.
    pub fn is_floating(&self) -> bool {
        self.is_floating
    }

    pub(super) fn shared_names(&self) -> (Arc<str>, Arc<str>) {
        (Arc::clone(&self.domain), Arc::clone(&self.name))
    }

    /// What is hashed to tell its quotas from all others, the same in every build and on every machine of one width.
    pub(super) fn identity(&self, quota: usize) -> impl std::hash::Hash {
        let numbers = |quota: &Quota| (quota.count(), quota.period().as_nanos(), quota.burst_size());
        let quotas: Vec<_> = self.quotas.iter().filter(|_| !self.is_floating).map(numbers).collect();
        let (domain, name) = self.shared_names();
        (domain, name, self.kind.name(), self.parts, quotas, quota as u64, self.is_brought)
    }

    /// How long a caller that says nothing about waiting may be delayed by a quota.
    pub(super) fn patience(&self, quota: Quota) -> std::time::Duration {
        AnyAlgorithm::new(self.kind, quota).patience()
    }
}

fn share(kind: Kind, quota: Quota, parts: u32) -> Quota {
    let at_least_one = |number: u64| if number == 0 { 0 } else { (number / u64::from(parts)).max(1) };
    if quota.is_unlimited() || parts == 1 {
        return quota;
    }
    match kind {
        // What refills steadily refills more slowly, exactly.
        Kind::TokenBucket | Kind::LeakyBucket | Kind::LeakyQueue => {
            Quota::per(quota.count(), quota.period().saturating_mul(parts))
                .burst(at_least_one(quota.burst_size()))
        }
        _ => Quota::per(at_least_one(quota.count()), quota.period()),
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.domain, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sub_windows_have_parts() {
        let rule = Rule::new("d", "n", Quota::per_second(1));
        assert_eq!((rule.kind(), rule.parts()), (Kind::TokenBucket, 0));
        for kind in Kind::ALL {
            let parts = rule.clone().with_sub_windows(60).with_kind(kind).parts();
            assert_eq!(parts, if kind == Kind::SubWindows { 10 } else { 0 }, "{kind}");
        }
        for (asked, parts) in [(0, 1), (60, 60), (1_000, 1_000), (u32::MAX, 1_000)] {
            assert_eq!(rule.clone().with_sub_windows(asked).parts(), parts);
        }
        assert_eq!(rule.clone().with_sub_windows(10), rule.with_kind(Kind::SubWindows));
    }

    /// In nanoseconds.
    const DAY: u128 = 86_400_000_000_000;

    #[test]
    fn shares_add_up_to_no_more_than_the_limit() {
        for kind in Kind::ALL {
            for (count, parts) in [(10, 1), (10, 3), (7, 7), (1_000_000, 64)] {
                let rule = Rule::new("d", "n", Quota::per_minute(count)).with_kind(kind);
                let share = rule.share(parts).quotas()[0];
                let per_day = |quota: Quota| u128::from(quota.count()) * DAY / quota.period().as_nanos();
                assert!(
                    per_day(share) * u128::from(parts) <= per_day(rule.quotas()[0]),
                    "{kind} {count}/{parts}"
                );
                assert!(
                    share.burst_size() * u64::from(parts) <= count && share.burst_size() > 0,
                    "{kind} {count}/{parts}"
                );
            }
            let of = |quota| Rule::new("d", "n", quota).with_kind(kind).share(9).quotas()[0];
            assert_eq!(of(Quota::UNLIMITED), Quota::UNLIMITED);
            assert_eq!(of(Quota::per_second(0)).burst_size(), 0, "what nobody gets has no shares");
            assert_eq!(of(Quota::per_minute(2)).burst_size(), 1, "one at least");
        }
    }
}
