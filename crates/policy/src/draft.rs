//! Limits as somebody wrote them: what every file format is read into, and what a policy is compiled from.

mod check;
mod print;

use std::collections::{HashMap, HashSet};

use serde_json::Value as Json;
use tollgate_core::{Kind, Quota};

use crate::choice::{Mode, OnBadValue, OnStoreFailure, Unmatched};
use crate::condition::Condition;
use crate::descriptor::DEFAULT_DOMAIN;
use crate::entries::Entry;
use crate::expression::Expression;
use crate::key_part::KeyPart;
use crate::problem::Problems;
use crate::source::Place;

pub(crate) use check::{MOST_FIELDS, check, name_problem, rates_problem};
pub(crate) use print::key as toml_key;

/// Limits in the order of their file, not yet checked against each other.
///
/// `Display` prints them as a policy file that reads back as the same draft, as long as no two have one name and all domains
/// have the same `unmatched`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Draft {
    /// The limits.
    pub limits: Vec<DraftLimit>,
    /// The settings of domains, one entry for each file and domain. A domain without an entry has the defaults.
    pub domains: Vec<DraftDomain>,
    /// What looked like a mistake where it was read.
    pub(crate) noted: Noted,
}

/// Warnings about how something was written. All are equal: they say nothing about what it means.
#[derive(Clone, Debug, Default)]
pub(crate) struct Noted(pub(crate) Problems);

impl PartialEq for Noted {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Noted {}

/// The settings of a domain in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DraftDomain {
    /// The domain.
    pub name: String,
    /// The decision for a call that no limit of the domain applies to.
    pub unmatched: Unmatched,
    /// Where that was written.
    pub place: Place,
}

impl Draft {
    /// Creates a draft of these limits, whose domains have the defaults.
    pub fn new(limits: Vec<DraftLimit>) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Adds another file.
    pub fn append(&mut self, mut other: Self) {
        self.limits.append(&mut other.limits);
        self.domains.append(&mut other.domains);
        self.noted.0.append(other.noted.0);
    }

    /// What is said of a domain.
    pub(crate) fn unmatched(&self, domain: &str) -> Option<Unmatched> {
        self.domains.iter().find(|said| said.name == domain).map(|said| said.unmatched)
    }

    /// The same with names that differ even if the domains do.
    pub(crate) fn with_unique_names(mut self) -> Self {
        let mut taken: HashSet<String> = HashSet::new();
        let mut renamed: HashMap<(String, String), String> = HashMap::new();
        for limit in &mut self.limits {
            let old = limit.name.clone();
            if taken.contains(&limit.name) {
                limit.name = format!("{}:{old}", limit.domain);
            }
            while !taken.insert(limit.name.clone()) {
                limit.name.push('~');
            }
            if limit.name != old {
                renamed.insert((limit.domain.clone(), old.clone()), limit.name.clone());
                let told = limit.envoy.label.is_some() || limit.limitador.name.is_some();
                limit.envoy.label = limit
                    .envoy
                    .label
                    .take()
                    .or_else(|| (!told && limit.envoy.entries.is_empty()).then_some(old));
            }
        }
        let called = |limit: &DraftLimit| Some((limit.domain.clone(), limit.envoy.label.clone()?));
        let labels: HashSet<(String, String)> = self.limits.iter().filter_map(called).collect();
        for limit in &mut self.limits {
            let rename = |other: Reference| {
                let old = (limit.domain.clone(), other.name.clone());
                let new = renamed
                    .get(&old)
                    .map(|name| Reference { name: name.clone(), place: other.place.clone() });
                let keep = new.is_none() || labels.contains(&old);
                new.into_iter().chain(keep.then_some(other))
            };
            limit.envoy.replaces =
                std::mem::take(&mut limit.envoy.replaces).into_iter().flat_map(rename).collect();
        }
        self
    }
}

/// A limit as somebody wrote it.
///
/// # Examples
/// ```
/// use tollgate_core::Quota;
/// use tollgate_policy::{Condition, Draft, DraftLimit, Policy};
///
/// let mut limit = DraftLimit::new("per-ip", Quota::per_second(10));
/// limit.conditions.push(("path".into(), Condition::value("/api/*")));
/// limit.key.push("ip".into());
/// let draft = Draft::new(vec![limit]);
/// assert_eq!(draft.to_string(), "[limit.per-ip]\nmatch.path = \"/api/*\"\nkey = \"ip\"\nrate = \"10/s\"\n");
/// assert_eq!(Policy::compile(draft)?.limits().len(), 1);
/// # Ok::<(), tollgate_policy::Problems>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DraftLimit {
    /// Its group: only descriptors of the same domain meet it.
    pub domain: String,
    /// Its name; no other of the domain has it.
    pub name: String,
    /// Where the name was written.
    pub place: Place,
    /// What it asks of which field. All must hold.
    pub conditions: Vec<(String, Condition)>,
    /// Expressions that must be true as well.
    pub when: Vec<Expression>,
    /// The fields and expressions whose values say whose state it is. Without any, all share one.
    pub key: Vec<KeyPart>,
    /// Its numbers. They admit together or not at all.
    pub rates: Vec<Quota>,
    /// Other numbers for particular values. The first field in this list that has some for a call decides.
    pub overrides: Vec<Override>,
    /// The arithmetic.
    pub kind: Kind,
    /// Whether it decides.
    pub mode: Mode,
    /// The field that says what a call costs.
    pub cost: Option<String>,
    /// How it decides while the store is unavailable.
    pub on_store_failure: OnStoreFailure,
    /// How it treats a bad value.
    pub on_bad_value: OnBadValue,
    /// Whether calls that it denies are counted.
    pub count_denied: bool,
    /// The fields that only files of Envoy's rate limit service need.
    pub envoy: EnvoyFields,
    /// The fields that only files of limitador need.
    pub limitador: LimitadorFields,
}

/// The fields of a limit that only files of Envoy's rate limit service need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EnvoyFields {
    /// What the limit asks of the descriptor's entries, one after the other; then it asks nothing else.
    pub entries: Vec<Entry>,
    /// What callers are told the limit is called.
    pub label: Option<String>,
    /// The limits of the domain, by their names or labels, that do not apply where this one does.
    pub replaces: Vec<Reference>,
    /// Whether the limit denies a call only together with all others like it.
    pub any_of: bool,
    /// Whether the limit's name for metrics has the values of all entries.
    pub detailed_metric: bool,
    /// Whatever else belongs to the limit; it comes with the answers.
    pub metadata: Option<Json>,
}

/// The fields of a limit that only files of limitador need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitadorFields {
    /// What callers are told the limit is called; expressions see it as `limit.name`.
    pub name: Option<String>,
    /// What programs call the limit; expressions see it as `limit.id`.
    pub id: Option<String>,
    /// Whether the limit looks at a call as a whole, and not at each of its descriptors.
    pub once: bool,
}

/// Other numbers for particular values of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    /// The field.
    pub field: String,
    /// Its values, and the numbers for each.
    pub rates: Vec<(String, Vec<Quota>)>,
}

/// A limit's name, and where it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The name.
    pub name: String,
    /// Where it was written.
    pub place: Place,
}

impl DraftLimit {
    /// A limit on everything in the domain `default`, with one state for all.
    pub fn new(name: impl Into<String>, rate: Quota) -> Self {
        Self {
            domain: DEFAULT_DOMAIN.to_owned(),
            name: name.into(),
            place: Place::default(),
            conditions: Vec::new(),
            when: Vec::new(),
            key: Vec::new(),
            rates: vec![rate],
            overrides: Vec::new(),
            kind: Kind::default(),
            mode: Mode::default(),
            cost: None,
            on_store_failure: OnStoreFailure::default(),
            on_bad_value: OnBadValue::default(),
            count_denied: false,
            envoy: EnvoyFields::default(),
            limitador: LimitadorFields::default(),
        }
    }

    /// The fields of its key.
    pub(crate) fn key_fields(&self) -> impl Iterator<Item = &str> {
        self.key.iter().filter_map(KeyPart::field_name)
    }

    /// The expressions of its key.
    pub(crate) fn key_expressions(&self) -> impl Iterator<Item = &Expression> {
        self.key.iter().filter_map(|part| match part {
            KeyPart::Field { .. } => None,
            KeyPart::Cel(expression) => Some(expression),
        })
    }

    /// Whether it goes by that name or label.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.name == name || self.envoy.label.as_deref() == Some(name)
    }
}
