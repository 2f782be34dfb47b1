//! How an engine is set up.

use tollgate::MonotonicClock;
use tollgate::store::MemoryStore;
use tollgate_flow::Time;

use super::DecisionLog;

/// How an [`Engine`](super::Engine) is set up, beside its store and its policy.
///
/// # Examples
/// ```
/// use tollgate::store::MemoryStore;
/// use tollgate_policy::Policy;
/// use tollgate_server::{Engine, EngineOptions, Origin};
///
/// let policy = Policy::parse("limits.toml", "[limit.per-ip]\nkey = \"ip\"\nrate = \"2/min\"\n")?;
/// let store = MemoryStore::builder().max_bytes(7 << 20).build();
/// let options = EngineOptions::new().fallback(store.sibling()).hold_bytes(1 << 20);
/// let engine = Engine::with_options(store, policy, Origin::default(), options);
/// assert_eq!((engine.held_bytes(), engine.fallback_usage().keys), (0, Some(0)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct EngineOptions {
    pub(super) time: Time,
    pub(super) fallback: MemoryStore,
    pub(super) hold_bytes: u64,
    pub(super) holds_per_caller: usize,
    pub(super) decision_log: DecisionLog,
    pub(super) near_limit_ratio: Option<f32>,
}

impl EngineOptions {
    /// Real time, and memory without bounds.
    pub fn new() -> Self {
        let (time, fallback) = (Time::of(MonotonicClock::new()), MemoryStore::new());
        let decision_log = DecisionLog::default();
        Self {
            time,
            fallback,
            hold_bytes: u64::MAX,
            holds_per_caller: 10_000,
            decision_log,
            near_limit_ratio: None,
        }
    }

    /// Uses another time. Decisions go by the store's own clock.
    pub fn time(self, time: Time) -> Self {
        Self { time, ..self }
    }

    /// Keeps the state of limits that decide locally while the store is away in this store, with its bounds.
    pub fn fallback(self, store: MemoryStore) -> Self {
        Self { fallback: store, ..self }
    }

    /// Lets the permits that are held take at most about so many bytes; one caller can have a quarter of them.
    pub fn hold_bytes(self, bytes: u64) -> Self {
        Self { hold_bytes: bytes, ..self }
    }

    /// Logs decisions. Without this none is.
    pub fn decision_log(self, decision_log: DecisionLog) -> Self {
        Self { decision_log, ..self }
    }

    /// Counts hits by the names and rules of envoyproxy/ratelimit, for [`Compat::Envoy`](crate::Compat::Envoy). Hits above this
    /// share of a limit are near it; envoyproxy/ratelimit has [0.8](crate::NEAR_LIMIT_RATIO).
    pub fn envoy_statistics(self, near_limit_ratio: f32) -> Self {
        Self { near_limit_ratio: Some(near_limit_ratio), ..self }
    }

    /// Lets one caller hold at most so many permits at once: 10 000 unless said otherwise.
    pub fn holds_per_caller(self, holds: usize) -> Self {
        Self { holds_per_caller: holds, ..self }
    }
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self::new()
    }
}
