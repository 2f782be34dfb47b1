//! One policy, one store, and the one path on which every protocol decides.
//!
//! An [`Engine`] holds a policy whose limits are open in a store. Whoever serves a connection has a [`Clerk`], who decides about
//! what the caller [asks](Ask): a [`Ruling`] says whether it is allowed, and what every limit [found](Finding).

mod ask;
mod case;
mod clerk;
mod decision_log;
mod fallback;
mod health;
mod loaded;
mod notes;
mod options;
mod permits;
mod reset;
mod ruling;
mod settle;
mod statistics;
mod status;
mod tally;
mod unmatched;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use foldhash::fast::RandomState;
use tollgate::store::{Store, Usage};
use tollgate::{Quota, Tick};
use tollgate_flow::Time;
use tollgate_policy::Policy;

pub use ask::{Ask, AskError, HoldBound, Subject};
pub use clerk::{Clerk, Family, Own};
pub use decision_log::{DecisionLog, LoggedCalls};
pub use loaded::{Loaded, Opened, Told};
pub use options::EngineOptions;
pub use permits::{PermitId, PermitIdError};
pub use reset::Reset;
pub(crate) use ruling::is_counted;
pub use ruling::{Basis, Finding, Ruling};
pub use settle::{Actual, SettleError};
pub use statistics::NEAR_LIMIT_RATIO;
pub(crate) use statistics::{Counter, Counts, Statistics};
pub use status::{LoadProblem, Origin, PolicyStatus};
pub use tally::{CallCounts, CallOutcome, Outcome, Tallied, Tally};

use crate::metrics::Durations;
use fallback::Fallback;
use health::StoreHealth;
use permits::Permits;
use unmatched::Unmatched;

/// A policy whose limits are open in a store. Clones share one state.
///
/// # Examples
/// ```
/// use tollgate::store::{MemoryStore, Mode};
/// use tollgate_policy::{Descriptor, Policy};
/// use tollgate_server::{Ask, Engine, Origin};
///
/// let policy = Policy::parse("limits.toml", "[limit.per-ip]\nkey = \"ip\"\nrate = \"2/min\"\n")?;
/// let engine = Engine::new(MemoryStore::new(), policy, Origin::default());
/// let mut clerk = engine.clerk();
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # runtime.block_on(async {
/// let caller = Descriptor::new().with("ip", "10.0.0.7");
/// let asks = [Ask::policy(&caller)];
/// for expected in [true, true, false] {
///     assert_eq!(clerk.decide(Mode::Take, &asks).await?.is_allowed(), expected);
/// }
/// # Ok::<_, tollgate_server::AskError>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Engine<S: Store> {
    shared: Arc<Shared<S>>,
}

/// What all clones share.
struct Shared<S: Store> {
    store: S,
    current: Arc<ArcSwap<Loaded<S>>>,
    fallback: Fallback,
    permits: Permits<S>,
    unmatched: Unmatched,
    /// By domain and name: what was counted stays when the policy is loaded again.
    tallies: Mutex<Tallies>,
    status: Mutex<PolicyStatus>,
    time: Time,
    /// How long the store takes to decide, where its answer must be waited for.
    latency: Durations,
    health: StoreHealth,
    resets: AtomicU64,
    decision_log: DecisionLog,
    /// `None` unless it is asked for.
    statistics: Option<Statistics>,
}

type Tallies = HashMap<(Arc<str>, Arc<str>), Arc<Tally>, RandomState>;

impl<S: Store> Engine<S> {
    /// An engine in real time.
    pub fn new(store: S, policy: Policy, origin: Origin) -> Self {
        Self::with_options(store, policy, origin, EngineOptions::new())
    }

    /// An engine in another time. Decisions go by the store's own clock.
    pub fn in_time(store: S, policy: Policy, origin: Origin, time: Time) -> Self {
        Self::with_options(store, policy, origin, EngineOptions::new().time(time))
    }

    /// An engine that takes no more memory beside its store than its options allow.
    pub fn with_options(store: S, policy: Policy, origin: Origin, options: EngineOptions) -> Self {
        let EngineOptions { time, fallback, hold_bytes, holds_per_caller, decision_log, near_limit_ratio } =
            options;
        let (mut tallies, statistics) = (Tallies::default(), near_limit_ratio.map(Statistics::new));
        let loaded = Loaded::new(policy, &store, &mut tallies, statistics.as_ref());
        let shared = Shared {
            current: Arc::new(ArcSwap::from_pointee(loaded)),
            fallback: Fallback::new(fallback),
            permits: Permits::new(time.clone(), hold_bytes, holds_per_caller),
            unmatched: Unmatched::default(),
            tallies: Mutex::new(tallies),
            status: Mutex::new(PolicyStatus::new(origin, time.utc())),
            time,
            store,
            latency: Durations::default(),
            health: StoreHealth::default(),
            resets: AtomicU64::new(0),
            decision_log,
            statistics,
        };
        Self { shared: Arc::new(shared) }
    }

    /// Decides by another policy from now on. Limits that stayed the same go on with what they have counted.
    pub fn load(&self, policy: Policy, origin: Origin) {
        let Shared { store, tallies, statistics, .. } = &*self.shared;
        let loaded = Loaded::new(policy, store, &mut lock(tallies), statistics.as_ref());
        self.shared.current.store(Arc::new(loaded));
        lock(&self.shared.status).loaded(origin, self.shared.time.utc());
    }

    /// Records that a policy could not be loaded, and why. The previous policy stays active.
    pub fn load_failed(&self, problem: impl Into<String>) {
        lock(&self.shared.status).failed(problem.into(), self.shared.time.utc());
    }

    /// Returns the state of the active policy, and the error of the last reload.
    pub fn status(&self) -> PolicyStatus {
        lock(&self.shared.status).clone()
    }

    /// The policy that decides now.
    pub fn loaded(&self) -> Arc<Loaded<S>> {
        self.shared.current.load_full()
    }

    /// The store.
    pub fn store(&self) -> &S {
        &self.shared.store
    }

    /// The time that it goes by. Decisions go by the store's own clock.
    pub fn time(&self) -> &Time {
        &self.shared.time
    }

    /// Somebody who decides, for one connection.
    pub fn clerk(&self) -> Clerk<S> {
        Clerk::new(self)
    }

    /// Settles something [held](Clerk::hold) at its actual cost. Returns whether it was still held: after its time it stays as
    /// it was taken.
    ///
    /// # Errors
    /// If `actual` names a cost that the call does not have, or the store is unavailable. It is safe to try again.
    ///
    /// # Cancel safety
    /// If the future is dropped, it may or may not be settled, and is not held any more.
    pub async fn settle(&self, id: PermitId, actual: Actual<'_>) -> Result<bool, SettleError> {
        let Shared { store, permits, current, .. } = &*self.shared;
        let is_cost_field = |name: &str| {
            let limits = current.load();
            limits.policy().limits().iter().any(|limit| limit.cost_field() == Some(name))
        };
        let Some((mut entry, costs)) = permits.remove(id, |held| held.actual(actual, is_cost_field))? else {
            return Ok(false);
        };
        let Some(permit) = &mut entry.held.permit else { return Ok(true) };
        match store.settle(permit, &costs).await {
            Ok(()) => Ok(true),
            Err(error) => {
                if error.is_without_effect() {
                    permits.put_back(id, entry);
                }
                Err(SettleError::Store(error))
            }
        }
    }

    fn tally(&self, domain: &str, name: &str) -> Arc<Tally> {
        Arc::clone(lock(&self.shared.tallies).entry((domain.into(), name.into())).or_default())
    }

    /// Returns the number of open holds.
    pub fn held(&self) -> usize {
        self.shared.permits.len()
    }

    /// Returns the approximate memory of the open holds, in bytes.
    pub fn held_bytes(&self) -> u64 {
        self.shared.permits.bytes()
    }

    /// Returns the number of resets, counted for each limit and key.
    pub fn resets(&self) -> u64 {
        self.shared.resets.load(Ordering::Relaxed)
    }

    /// Notes that the store has answered what it was asked at a moment.
    fn note_latency(&self, started: Tick) {
        self.shared.latency.observe(1, self.shared.time.now().since(started));
    }

    pub(crate) fn latency(&self) -> &Durations {
        &self.shared.latency
    }

    /// The statistics by the names of envoyproxy/ratelimit, if they are kept.
    pub(crate) fn statistics(&self) -> Option<&Statistics> {
        self.shared.statistics.as_ref()
    }

    pub(crate) fn decision_log(&self) -> &DecisionLog {
        &self.shared.decision_log
    }

    /// Returns whether the store answers. The answer is at most a second old: probes share it.
    pub(crate) async fn store_answers(&self) -> bool {
        self.shared.health.answers(&self.shared.store, &self.shared.time).await
    }

    /// Returns the memory of the local counters that are used while the store is unavailable.
    pub fn fallback_usage(&self) -> Usage {
        self.shared.fallback.usage()
    }

    /// Returns the number of requests to which no limit applied, by domain. Requests in unknown domains are counted together, as
    /// `@unknown`.
    pub fn unmatched(&self) -> Vec<(String, u64)> {
        self.shared.unmatched.counts()
    }

    /// What was counted for every limit there ever was, by domain and name.
    pub fn tallies(&self) -> Vec<Tallied> {
        let tallied = |((domain, name), tally): (&(Arc<str>, Arc<str>), &Arc<Tally>)| Tallied {
            domain: Arc::clone(domain),
            name: Arc::clone(name),
            tally: Arc::clone(tally),
        };
        let mut all: Vec<Tallied> = lock(&self.shared.tallies).iter().map(tallied).collect();
        all.sort_by(|a, b| (&a.domain, &a.name).cmp(&(&b.domain, &b.name)));
        all
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The longest duration of a hold.
pub const LONGEST_HOLD: Duration = Duration::from_secs(24 * 60 * 60);

/// Parses the duration of a hold, such as `30s` or `1.5min`; `None` if it is malformed or longer than [`LONGEST_HOLD`].
pub(crate) fn parse_hold(text: &str) -> Option<Duration> {
    // The period of a quota has the same notation.
    let quota = format!("1 per {text}").parse::<Quota>().ok().filter(|_| !text.contains("burst"))?;
    Some(quota.period()).filter(|span| *span <= LONGEST_HOLD)
}

impl<S: Store> Clone for Engine<S> {
    /// Another handle on the same state.
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<S: Store> fmt::Debug for Engine<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits = self.loaded().policy().limits().len();
        f.debug_struct("Engine").field("limits", &limits).field("held", &self.held()).finish_non_exhaustive()
    }
}
