//! The audit log: who changed or tried what, when, and from where.
//!
//! Each entry is an event with the target `tollgate::audit`, which the `tollgate` command writes as one line of JSON. No entry
//! holds a token or a password.

use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate::{Limiter, Quota};

use crate::access::{Access, Caller};
use crate::engine::{DecisionLog, Reset};

/// The target of all entries.
const TARGET: &str = "tollgate::audit";

/// Adds an entry for each limit that was reset for a key. A caller without a connection is a part of this process.
pub(crate) fn reset(by: Option<&Access>, caller: Caller, log: &DecisionLog, resets: &[Reset]) {
    let who = by.map_or_else(|| "this process".to_owned(), |access| access.name_of(caller));
    let (from, protocol) = (by.map(|access| access.address().to_string()), by.map(Access::protocol));
    for Reset { rule, key, was_known } in resets {
        let (domain, limit, key) = (rule.domain(), rule.name(), log.key(key));
        tracing::info!(target: TARGET, action = "reset", who, from, protocol, domain, limit, key, known = was_known, "key reset");
    }
}

/// The result of a reload.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reload {
    Loaded,
    Refused,
    Unchanged,
}

impl Reload {
    const fn name(self) -> &'static str {
        match self {
            Self::Loaded => "loaded",
            Self::Refused => "refused",
            Self::Unchanged => "unchanged",
        }
    }
}

/// Adds an entry for a reload, which SIGHUP or a change of the files caused.
pub(crate) fn reload(
    what: &str,
    path: impl fmt::Display,
    was_asked: bool,
    result: Reload,
    changes: Option<&str>,
) {
    let (result, by) = (result.name(), if was_asked { "SIGHUP" } else { "file system" });
    tracing::info!(target: TARGET, action = "reload", who = by, from = %path, what, result, changes, "files reloaded");
}

/// Authentications that failed: all are counted, and at most one each second is logged, after the first ten.
pub(crate) struct FailedAuthentications {
    count: AtomicU64,
    unlogged: AtomicU64,
    logging: Limiter,
}

impl Default for FailedAuthentications {
    fn default() -> Self {
        let logging = Limiter::new(Quota::per_second(1).burst(10));
        Self { count: AtomicU64::new(0), unlogged: AtomicU64::new(0), logging }
    }
}

impl FailedAuthentications {
    pub(crate) fn note(&self, protocol: &str, proof: &str, from: IpAddr) {
        self.count.fetch_add(1, Ordering::Relaxed);
        if !self.logging.check().is_admitted() {
            self.unlogged.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let unlogged = self.unlogged.swap(0, Ordering::Relaxed);
        tracing::warn!(target: TARGET, action = "authentication", result = "failed", who = "unknown", %from, protocol, proof, unlogged, "authentication failed");
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}
