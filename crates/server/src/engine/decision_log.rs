//! The decision log.
//!
//! Each entry is an event with the target `tollgate::decision`, which the `tollgate` command writes as one line of JSON.

use std::time::Duration;

use sha2::{Digest, Sha256};
use tollgate::Decision;
use tollgate_policy::escaped;

use super::loaded::Told;
use super::ruling::Ruling;
use super::tally::CallOutcome;

/// How many bytes of a key are shown: callers choose it, and entries wait in memory until they are written.
const LONGEST_KEY: usize = 256;
/// The target of all entries.
const TARGET: &str = "tollgate::decision";

/// Which calls are logged, and how their keys are shown.
///
/// # Examples
/// ```
/// use tollgate_server::{DecisionLog, EngineOptions, LoggedCalls};
///
/// let log = DecisionLog::new(LoggedCalls::Denied).one_in(10);
/// let options = EngineOptions::new().decision_log(log);
/// ```
#[derive(Clone, Debug)]
pub struct DecisionLog {
    calls: LoggedCalls,
    one_in: u64,
    /// Makes keys unreadable; `None` if they are shown. It is random, since the digest of an address alone could be reversed.
    salt: Option<[u8; 16]>,
}

/// Which calls are logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoggedCalls {
    /// None.
    #[default]
    Off,
    /// Those that are denied.
    Denied,
    /// All of them.
    All,
}

impl DecisionLog {
    /// Logs each of these calls, with the digests of their keys. A key has the same digest until the process ends.
    pub fn new(calls: LoggedCalls) -> Self {
        Self { calls, one_in: 1, salt: Some(random_salt()) }
    }

    /// Logs one of so many of them, chosen at random.
    #[must_use]
    pub fn one_in(self, calls: u64) -> Self {
        Self { one_in: calls.max(1), ..self }
    }

    /// Shows keys as they are, in this log and in the audit log.
    #[must_use]
    pub fn with_clear_keys(self) -> Self {
        Self { salt: None, ..self }
    }

    /// How a key is shown.
    pub(crate) fn key(&self, key: &[u8]) -> String {
        let Some(salt) = &self.salt else {
            let shown = escaped(&key[..key.len().min(LONGEST_KEY)]);
            return if key.len() > LONGEST_KEY {
                format!("{shown}... ({} bytes)", key.len())
            } else {
                shown.into()
            };
        };
        let digest = Sha256::new().chain_update(salt).chain_update(key).finalize();
        let number = digest.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte));
        format!("{number:016x}")
    }

    /// Whether a call is logged.
    #[inline]
    fn wants(&self, is_allowed: bool) -> bool {
        match self.calls {
            LoggedCalls::Off => false,
            LoggedCalls::Denied if is_allowed => false,
            _ => self.one_in == 1 || fastrand::u64(..self.one_in) == 0,
        }
    }

    /// Logs a call about several limits or none; `domain` is that of the policy, and `key_of` finds the key of the limit that decided.
    #[inline]
    pub(super) fn ruling<'k>(
        &self,
        protocol: &str,
        domain: Option<&str>,
        ruling: &Ruling<'_>,
        key_of: impl FnOnce() -> Option<&'k [u8]>,
    ) {
        if self.wants(ruling.is_allowed()) {
            let decided = ruling.decided_by();
            let entry = Entry {
                protocol,
                domain: decided.map(|finding| finding.limit.rule.domain()).or(domain),
                limit: decided.map(|finding| finding.limit),
                key: key_of(),
                cost: decided.map(|finding| finding.cost),
                outcome: CallOutcome::of(ruling.is_allowed(), ruling.is_degraded()),
                decision: decided.map(|finding| &finding.decision),
            };
            self.write(&entry);
        }
    }

    /// Logs a call that was denied before any limit was asked.
    pub(super) fn denied(&self, protocol: &str, domain: Option<&str>) {
        if self.wants(false) {
            let outcome = CallOutcome::Denied;
            let (limit, key, cost, decision) = (None, None, None, None);
            self.write(&Entry { protocol, domain, limit, key, cost, outcome, decision });
        }
    }

    /// Logs a call about one limit.
    #[inline]
    pub(super) fn alone(&self, protocol: &str, limit: &Told, key: &[u8], cost: u64, decision: &Decision) {
        if self.wants(decision.is_admitted()) {
            let outcome = CallOutcome::of(decision.is_admitted(), false);
            let (domain, cost, decision) = (Some(limit.rule.domain()), Some(cost), Some(decision));
            let (limit, key) = (Some(limit), Some(key));
            self.write(&Entry { protocol, domain, limit, key, cost, outcome, decision });
        }
    }

    #[cold]
    fn write(&self, entry: &Entry<'_>) {
        let Entry { protocol, domain, limit, key, cost, outcome, decision } = *entry;
        let limit = limit.map(|limit| limit.rule.name());
        let key = key.map(|key| self.key(key));
        let remaining = decision.map(Decision::remaining);
        let retry_after_ms = decision.and_then(Decision::retry_after).map(millis_up);
        tracing::info!(
            target: TARGET, outcome = outcome.name(), protocol, domain, limit, key, cost, remaining, retry_after_ms,
            "request decided"
        );
    }
}

impl Default for DecisionLog {
    /// Logs nothing.
    fn default() -> Self {
        Self::new(LoggedCalls::Off)
    }
}

/// What is written of a call. Without a limit, none applied.
struct Entry<'a> {
    protocol: &'a str,
    domain: Option<&'a str>,
    limit: Option<&'a Told>,
    key: Option<&'a [u8]>,
    cost: Option<u64>,
    outcome: CallOutcome,
    decision: Option<&'a Decision>,
}

fn random_salt() -> [u8; 16] {
    let mut salt = [0; 16];
    getrandom::fill(&mut salt).expect("the system has random numbers");
    salt
}

fn millis_up(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
