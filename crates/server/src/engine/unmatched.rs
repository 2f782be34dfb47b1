//! Calls that no limit applies to.

use std::collections::{BTreeMap, HashSet};
use std::sync::Mutex;

use super::lock;

/// How many domains the log names.
const MOST_LOGGED: usize = 100;

/// Counts the calls that no limit applies to, and logs the first of each domain: a misspelt field or domain is a call without
/// limits.
#[derive(Debug, Default)]
pub(super) struct Unmatched(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// By domain of the policy.
    known: BTreeMap<Box<str>, u64>,
    /// In domains that the policy does not have. Callers choose their names, so they are no labels.
    unknown: u64,
    logged: HashSet<Box<str>>,
}

impl Unmatched {
    /// The name under which calls in domains that the policy does not have are counted. No domain of a policy begins with `@`.
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
            tracing::warn!(
                domain,
                outcome,
                "no limit of this domain applies to a call: is a field misspelt?"
            );
        } else if is_logged {
            tracing::warn!(domain, outcome, "a call names a domain that the policy does not have");
        }
    }

    /// How many there were, by domain; all in domains that the policy does not have under [one name](Self::UNKNOWN).
    pub(super) fn counts(&self) -> Vec<(String, u64)> {
        let inner = lock(&self.0);
        let known = inner.known.iter().map(|(domain, count)| (domain.to_string(), *count));
        std::iter::once((Self::UNKNOWN.to_owned(), inner.unknown)).chain(known).collect()
    }
}
