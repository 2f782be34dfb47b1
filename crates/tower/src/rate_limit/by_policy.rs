//! Limits that a policy says.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use http::header::HOST;
use smallvec::SmallVec;
use tollgate::store::Rule;
use tollgate_policy::{Cost as Said, Descriptor, Match, OnStoreFailure, Policy, Rates, Scratch, Unmatched};

use super::builder::Unavailable;
use super::denial::Reason;
use super::error::LimitError;
use super::rules::Entry;
use crate::client_address::Clients;
use crate::cost::Cost;
use crate::head::Head;
use crate::key::{Key, KeyValue};

/// What there is to know of requests where a policy says the limits.
pub(super) struct Vocabulary {
    /// What each field of a descriptor is.
    fields: BTreeMap<String, Key>,
    /// What limits of these names cost.
    costs: BTreeMap<String, Cost>,
}

/// A policy, and what is needed to ask it.
pub(super) struct Book {
    policy: Policy,
    domain: Arc<str>,
    /// The fields that it looks at.
    fields: Vec<(String, Key)>,
    /// Where its limits begin among the entries.
    first: usize,
}

/// A limit that applies, as the policy says.
pub(super) struct Found<'a> {
    pub(super) entry: usize,
    pub(super) key: &'a [u8],
    pub(super) cost: u64,
    pub(super) is_shadow: bool,
}

impl Default for Vocabulary {
    fn default() -> Self {
        let host = |head: &Head<'_>| {
            let named = head.uri.host().or_else(|| head.headers.get(HOST)?.to_str().ok());
            named.map(str::to_ascii_lowercase)
        };
        let known = [
            ("host", Key::of(host)),
            ("ip", Key::client()),
            ("method", Key::method()),
            ("path", Key::path()),
            #[cfg(feature = "axum")]
            ("route", Key::matched_route()),
        ];
        let fields = known.into_iter().map(|(name, key)| (name.to_owned(), key)).collect();
        Self { fields, costs: BTreeMap::new() }
    }
}

impl Vocabulary {
    pub(super) fn add_field(&mut self, name: String, key: Key) {
        self.fields.insert(name, key);
    }

    pub(super) fn add_cost(&mut self, limit: String, cost: Cost) {
        self.costs.insert(limit, cost);
    }

    /// Makes a policy ready to be asked. Its limits will be entries from `first` on.
    pub(super) fn book(&self, policy: Policy, domain: &Arc<str>, first: usize) -> Result<Book, LimitError> {
        let looked_at = match policy.fields(domain) {
            Some(names) => names.into_iter().map(str::to_owned).collect(),
            None if policy.limits().is_empty() => Vec::new(),
            None => {
                let there = policy.domains().map(str::to_owned).collect();
                return Err(LimitError::NoSuchDomain { domain: domain.to_string(), there });
            }
        };
        let field = |name: String| match self.fields.get(&name) {
            Some(key) => Ok((name, key.clone())),
            None => Err(LimitError::NoSuchField { name, known: self.fields.keys().cloned().collect() }),
        };
        let fields = looked_at.into_iter().map(field).collect::<Result<_, _>>()?;
        Ok(Book { policy, domain: Arc::clone(domain), fields, first })
    }

    /// What is to be known of a limit.
    pub(super) fn entry(&self, limit: &tollgate_policy::Limit, rates: &Rates) -> Result<Entry, LimitError> {
        let told = |quota: &tollgate::Quota| {
            let name = crate::limit::told_as(limit.name(), *quota, rates.quotas().len());
            tollgate_http::Limit::new(&name, limit.kind(), *quota)
        };
        Ok(Entry {
            name: limit.name().into(),
            told: rates.quotas().iter().map(told).collect::<Result<_, _>>()?,
            cost: self.costs.get(limit.name()).cloned().unwrap_or_default(),
            is_shadow: limit.mode() == tollgate_policy::Mode::Shadow,
            unavailable: limit.on_store_failure().into(),
        })
    }
}

impl Book {
    /// Every limit that may apply, in the order of the entries.
    pub(super) fn rates(&self) -> impl Iterator<Item = (&tollgate_policy::Limit, &Rates)> {
        self.policy.rates()
    }

    /// What a store knows them by.
    pub(super) fn rules(&self) -> impl Iterator<Item = Rule> {
        self.rates().map(|(limit, rates)| {
            let (first, others) = rates.quotas().split_first().expect("the policy was checked: there is one");
            let rule = Rule::new(limit.domain(), limit.name(), *first).with_kind(limit.kind());
            others.iter().fold(rule, |rule, quota| rule.with_quota(*quota))
        })
    }

    /// Tells which limits apply to a request, or why it is denied, and by which entry if by one. `cost` says what a call costs
    /// where the policy does not.
    pub(super) fn read(
        &self,
        head: &Head<'_>,
        clients: &Clients,
        cost: impl Fn(usize) -> u64,
        mut each: impl FnMut(Result<Found<'_>, (Reason, Option<usize>)>),
    ) {
        thread_local! {
            /// Reused, so that matching allocates nothing. Nobody holds it while it is out.
            static SCRATCH: RefCell<Scratch> = RefCell::default();
        }
        let fields = self.fields.iter();
        let values: SmallVec<[(&str, KeyValue<'_>); 4]> =
            fields.filter_map(|(name, key)| Some((name.as_str(), key.field(head, clients)?))).collect();
        let mut descriptor = Descriptor::in_domain(&self.domain);
        values.iter().for_each(|(name, value)| descriptor.push(name, value));
        let mut scratch = SCRATCH.take();
        let matches = self.policy.matching(&descriptor, &mut scratch);
        for found in matches.iter().filter(|found| !found.rates().is_unlimited()) {
            each(Ok(self.found(&found, &cost)));
        }
        for bad in matches.bad_values().filter(tollgate_policy::BadValue::denies) {
            each(Err((Reason::BadValue, Some(self.first + bad.limit().rates()[0].number()))));
        }
        // A limit in shadow that cannot use a value applies all the same, or it would deny the request.
        let applies = !matches.is_empty() || matches.bad_values().any(|bad| bad.is_shadow());
        if !applies && self.policy.unmatched(&self.domain) == Some(Unmatched::Deny) {
            each(Err((Reason::Unmatched, None)));
        }
        SCRATCH.set(scratch);
    }

    fn found<'a>(&self, found: &Match<'a>, cost: impl Fn(usize) -> u64) -> Found<'a> {
        let entry = self.first + found.rates().number();
        let cost = match found.cost() {
            Said::Asked => cost(entry),
            Said::Said(cost) => cost,
        };
        Found { entry, key: found.key(), cost, is_shadow: found.is_shadow() }
    }
}

impl From<OnStoreFailure> for Unavailable {
    fn from(choice: OnStoreFailure) -> Self {
        match choice {
            OnStoreFailure::Local => Self::Local,
            OnStoreFailure::Allow => Self::Open,
            OnStoreFailure::Deny => Self::Closed,
        }
    }
}
