//! Calls under limitador's names.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use prometheus_client::encoding::DescriptorEncoder;

use super::family::Family;

const AUTHORIZED_CALLS: Family = Family::new("authorized_calls", "Authorized calls");
const AUTHORIZED_HITS: Family = Family::new("authorized_hits", "Authorized hits");
const LIMITED_CALLS: Family = Family::new("limited_calls", "Limited calls");
const UP: Family = Family::new("limitador_up", "Limitador is running");
const PARTITIONED: Family =
    Family::new("datastore_partitioned", "Limitador is partitioned from backing datastore");

/// The label of a namespace.
const NAMESPACE: &str = "limitador_namespace";

/// The most namespaces outside the policy that are counted by name. Callers choose such names, so the others share one.
const MOST_UNKNOWN: usize = 100;

/// The name that the other namespaces share. No domain of a policy begins with `@`.
const UNKNOWN: &str = "@unknown";

/// Counts calls by namespace, each once, whatever the number of limits it meets. It counts nothing until it is
/// [started](Self::start).
#[derive(Debug, Default)]
pub(crate) struct Namespaces {
    is_started: AtomicBool,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    by_name: BTreeMap<Box<str>, Counts>,
    /// How many of these the policy did not have.
    unknown: usize,
}

#[derive(Debug, Default)]
struct Counts {
    authorized_calls: u64,
    authorized_hits: u64,
    /// By the name of the limit; of those that have none, under the empty name.
    limited_calls: BTreeMap<Box<str>, u64>,
}

/// How a call ended, as limitador counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted<'a> {
    /// It was allowed, and took so many hits.
    Authorized {
        /// Whether it is a call; a report of hits is none.
        is_call: bool,
        /// How many hits were taken.
        hits: u64,
    },
    /// It was denied by the limit of this name; the name is empty if the limit has none.
    Limited(&'a str),
}

impl<'a> Counted<'a> {
    /// A call of so many hits that was allowed, or denied by a limit.
    pub(crate) fn call(is_allowed: bool, hits: u64, limit: &'a str) -> Self {
        if is_allowed { Self::Authorized { is_call: true, hits } } else { Self::Limited(limit) }
    }
}

impl Namespaces {
    /// Counts from now on.
    pub(super) fn start(&self) {
        self.is_started.store(true, Ordering::Relaxed);
    }

    /// Counts a call. `is_known` says whether the policy has the namespace, and is called for a new one only.
    #[inline]
    pub(crate) fn count(&self, namespace: &str, counted: Counted<'_>, is_known: impl FnOnce() -> bool) {
        if self.is_started.load(Ordering::Relaxed) {
            self.lock().counts(namespace, is_known).add(counted);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what was counted; limited calls by the name of the limit too, if `has_limit_names`.
    pub(super) fn encode(
        &self,
        has_limit_names: bool,
        is_partitioned: bool,
        encoder: &mut DescriptorEncoder<'_>,
    ) -> fmt::Result {
        let inner = self.lock();
        let label = |name: &str| (NAMESPACE, name.to_owned());
        let each = |number: fn(&Counts) -> u64| {
            inner.by_name.iter().map(move |(name, counts)| ([label(name)], number(counts)))
        };
        AUTHORIZED_CALLS.gauges(encoder, each(|counts| counts.authorized_calls))?;
        AUTHORIZED_HITS.gauges(encoder, each(|counts| counts.authorized_hits))?;
        if has_limit_names {
            let by_limit = inner.by_name.iter().flat_map(|(name, counts)| {
                let calls = counts.limited_calls.iter();
                calls.map(move |(limit, calls)| ([label(name), ("limit_name", limit.to_string())], *calls))
            });
            LIMITED_CALLS.gauges(encoder, by_limit)?;
        } else {
            LIMITED_CALLS.gauges(encoder, each(|counts| counts.limited_calls.values().sum()))?;
        }
        UP.gauge(encoder, 1)?;
        PARTITIONED.gauge(encoder, u64::from(is_partitioned))
    }
}

impl Inner {
    fn counts(&mut self, namespace: &str, is_known: impl FnOnce() -> bool) -> &mut Counts {
        let mut name = namespace;
        if !self.by_name.contains_key(name) && !is_known() {
            if self.unknown < MOST_UNKNOWN { self.unknown += 1 } else { name = UNKNOWN }
        }
        self.by_name.entry(name.into()).or_default()
    }
}

impl Counts {
    fn add(&mut self, counted: Counted<'_>) {
        match counted {
            Counted::Authorized { is_call, hits } => {
                self.authorized_calls += u64::from(is_call);
                self.authorized_hits = self.authorized_hits.saturating_add(hits);
            }
            Counted::Limited(limit) => *self.limited_calls.entry(limit.into()).or_default() += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Item 26.9: callers choose the names of unknown namespaces, so only the first of them are labels.
    #[test]
    fn count_names_the_first_unknown_namespaces_and_all_of_the_policy() {
        let namespaces = Namespaces::default();
        namespaces.start();
        let call = Counted::call(true, 1, "");
        for number in 0..=MOST_UNKNOWN {
            namespaces.count(&format!("n{number}"), call, || false);
        }
        namespaces.count("n0", call, || panic!("it has a count already"));
        namespaces.count("web", call, || true);
        let inner = namespaces.lock();
        let calls = |name: &str| inner.by_name.get(name).map(|counts| counts.authorized_calls);
        assert_eq!(
            [calls("n0"), calls("n99"), calls("web"), calls(UNKNOWN)].map(Option::unwrap),
            [2, 1, 1, 1]
        );
        assert_eq!(calls("n100"), None);
    }

    #[test]
    fn count_does_nothing_before_start() {
        let namespaces = Namespaces::default();
        namespaces.count("web", Counted::Limited(""), || true);
        assert!(namespaces.lock().by_name.is_empty());
    }
}
