//! Limits as somebody wrote them: what every file format is read into, and what a policy is compiled from.

mod check;
mod print;

use std::collections::{HashMap, HashSet};

use serde_json::Value as Json;
use tollgate_core::{Kind, Quota};

use crate::choice::{IfStoreFails, Mode};
use crate::condition::Condition;
use crate::descriptor::DEFAULT_DOMAIN;
use crate::entries::Entry;
use crate::expression::Expression;
use crate::source::Place;

pub(crate) use check::{MOST_FIELDS, check, name_problem, rates_problem};

/// Limits in the order of their file, not yet checked against each other.
///
/// `Display` prints them as a policy file that reads back as the same draft, as long as no two have one name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Draft {
    /// The limits.
    pub limits: Vec<DraftLimit>,
}

impl Draft {
    /// Adds the limits of another file.
    pub fn append(&mut self, mut other: Self) {
        self.limits.append(&mut other.limits);
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
                limit.label = limit.label.take().or_else(|| limit.entries.is_empty().then_some(old));
            }
        }
        let called = |limit: &DraftLimit| Some((limit.domain.clone(), limit.label.clone()?));
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
            limit.replaces = std::mem::take(&mut limit.replaces).into_iter().flat_map(rename).collect();
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
/// let draft = Draft { limits: vec![limit] };
/// assert_eq!(draft.to_string(), "[limit.per-ip]\nmatch.path = \"/api/*\"\nkey = \"ip\"\nrate = \"10/s\"\n");
/// assert_eq!(Policy::compile(draft)?.limits().len(), 1);
/// # Ok::<(), tollgate_policy::Problems>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(clippy::struct_excessive_bools, reason = "each is a word of its own in a file")]
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
    /// What it asks of the descriptor's entries, one after the other; then it asks nothing else.
    pub entries: Vec<Entry>,
    /// Whether it looks at a call as a whole, and not at each of its descriptors.
    pub once: bool,
    /// The fields whose values say whose state it is. Without any, all share one.
    pub key: Vec<String>,
    /// Expressions whose values say so too.
    pub per: Vec<Expression>,
    /// Its numbers. They admit together or not at all.
    pub rates: Vec<Quota>,
    /// The arithmetic.
    pub kind: Kind,
    /// Whether it decides.
    pub mode: Mode,
    /// The field that says what a call costs.
    pub cost: Option<String>,
    /// Other numbers for particular values.
    pub overrides: Vec<Override>,
    /// The higher, the earlier.
    pub priority: i32,
    /// The limits of the domain, by their names or labels, that do not apply where this one does.
    pub replaces: Vec<Reference>,
    /// What it answers when the store cannot.
    pub if_store_fails: IfStoreFails,
    /// Whether calls that it refuses are counted.
    pub count_refused: bool,
    /// Whether it refuses only together with all others like it.
    pub quota_mode: bool,
    /// Whether its name for metrics has the values of all entries.
    pub detailed_metric: bool,
    /// What callers are told it is called.
    pub label: Option<String>,
    /// What programs call it.
    pub id: Option<String>,
    /// Whatever else belongs to it; it comes with the answers.
    pub metadata: Option<Json>,
}

/// Other numbers for a particular value of a field. The field that is overridden first goes before the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    /// The field.
    pub field: String,
    /// Its value; a star in it is a star.
    pub value: String,
    /// The numbers instead.
    pub rates: Vec<Quota>,
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
            entries: Vec::new(),
            once: false,
            key: Vec::new(),
            per: Vec::new(),
            rates: vec![rate],
            kind: Kind::default(),
            mode: Mode::default(),
            cost: None,
            overrides: Vec::new(),
            priority: 0,
            replaces: Vec::new(),
            if_store_fails: IfStoreFails::default(),
            count_refused: false,
            quota_mode: false,
            detailed_metric: false,
            label: None,
            id: None,
            metadata: None,
        }
    }

    /// Whether it goes by that name or label.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.name == name || self.label.as_deref() == Some(name)
    }
}
