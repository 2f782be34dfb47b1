//! Limits as somebody wrote them: what every file format is read into, and what a policy is compiled from.

mod check;
mod print;

use tollgate_core::{Kind, Quota};

use crate::choice::{IfStoreFails, Mode};
use crate::condition::Condition;
use crate::descriptor::DEFAULT_DOMAIN;
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
pub struct DraftLimit {
    /// Its group: only descriptors of the same domain meet it.
    pub domain: String,
    /// Its name; no other of the domain has it.
    pub name: String,
    /// Where the name was written.
    pub place: Place,
    /// What it asks of which field. All must hold.
    pub conditions: Vec<(String, Condition)>,
    /// The fields whose values say whose state it is. Without any, all share one.
    pub key: Vec<String>,
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
    /// The limits of the domain that do not apply where this one does.
    pub replaces: Vec<Reference>,
    /// What it answers when the store cannot.
    pub if_store_fails: IfStoreFails,
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
            key: Vec::new(),
            rates: vec![rate],
            kind: Kind::default(),
            mode: Mode::default(),
            cost: None,
            overrides: Vec::new(),
            priority: 0,
            replaces: Vec::new(),
            if_store_fails: IfStoreFails::default(),
        }
    }
}
