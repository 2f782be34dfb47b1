//! Requests to which no limit applies.

use std::collections::{BTreeMap, HashSet};
use std::sync::Mutex;

use super::lock;

/// Maximum number of domains in the log.
const MOST_LOGGED: usize = 100;

/// Counts the requests to which no limit applies, and logs the first one of each domain: a misspelt field or domain leaves a
/// request without limits.
#[derive(Debug, Default)]
pub(super) struct Unmatched(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// By domain of the policy.
    known: BTreeMap<Box<str>, u64>,
    /// In unknown domains. Clients choose these names, so they cannot be labels.
    unknown: u64,
    logged: HashSet<Box<str>>,
}

impl Unmatched {
    /// The label for requests in unknown domains. No domain of a policy begins with `@`.
    pub(super) const UNKNOWN: &str = "@unknown";

    pub(super) fn count(&self, domain: &str, is_known: bool, is_denied: bool) {
        let mut inner = lock(&self.0);
        if !is_known {
            inner.unknown += 1;
        } else if let Some(count) = inner.known.get_mut(domain) {
            *count += 1;
        } else {
            inner.known.insert(domain.into(), 1);
        }
        let is_logged = inner.logged.len() < MOST_LOGGED && !inner.logged.contains(domain);
        if is_logged {
            inner.logged.insert(domain.into());
        }
        drop(inner);
        let outcome = if is_denied { "denied" } else { "allowed" };
        if is_logged && is_known {
            tracing::warn!(domain, outcome, "no limit applies to a request; check the names of its fields");
        } else if is_logged {
            tracing::warn!(domain, outcome, "request names an unknown domain");
        }
    }

    /// Returns the counts by domain; requests in unknown domains are counted under [one label](Self::UNKNOWN).
    pub(super) fn counts(&self) -> Vec<(String, u64)> {
        let inner = lock(&self.0);
        let known = inner.known.iter().map(|(domain, count)| (domain.to_string(), *count));
        std::iter::once((Self::UNKNOWN.to_owned(), inner.unknown)).chain(known).collect()
    }
}
