//! A limit of a compiled policy.

mod key;

use std::collections::HashMap;

use foldhash::fast::RandomState;
use serde_json::Value as Json;
use tollgate_core::{Kind, Quota};

use crate::choice::{IfStoreFails, Mode};
use crate::condition::Condition;
use crate::descriptor::{Descriptor, escaped};
use crate::draft::DraftLimit;
use crate::entries::{self, Entry, write_entry};
use crate::matcher::{Asked, FieldId};
use crate::pattern::Pattern;

/// A limit of a compiled policy.
#[derive(Debug)]
pub struct Limit {
    draft: DraftLimit,
    /// What must hold, the fields of the key among it.
    clauses: Vec<(FieldId, Condition)>,
    key: Vec<FieldId>,
    /// Which of the entries are counted by their stars.
    shared: Vec<Option<Pattern>>,
    cost: Option<FieldId>,
    rates: Vec<Rates>,
    /// For each field, in order, which of the rates its values have.
    overrides: Vec<(FieldId, ByValue)>,
    /// The ranks of the limits that it replaces, sorted.
    replaces: Vec<u32>,
}

type ByValue = HashMap<Box<[u8]>, usize, RandomState>;

/// Quotas that admit together or not at all: those of a limit, or of one of its overrides.
///
/// Together with its limit's domain, name and algorithm this is what states are kept for. All rates of a policy are
/// numbered, so that whoever holds states can keep them in a list: see [`Policy::rates`](crate::Policy::rates).
#[derive(Debug, PartialEq, Eq)]
pub struct Rates {
    quotas: Vec<Quota>,
    number: usize,
}

impl Rates {
    /// The quotas.
    pub fn quotas(&self) -> &[Quota] {
        &self.quotas
    }

    /// Its number among all of the policy, counted from zero without a gap.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Whether nothing is limited.
    pub fn is_unlimited(&self) -> bool {
        self.quotas.iter().all(Quota::is_unlimited)
    }
}

/// What a call costs, as far as a limit's cost field says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// What the caller asks for: the limit has no cost field, or the descriptor does not have it.
    Asked,
    /// What the field says.
    Said(u64),
    /// The field is there, but not a whole number. Whoever decides should refuse the call as malformed.
    Unreadable,
}

impl Limit {
    /// Compiles a limit. `field` gives the number of a field, `number` that of its rates.
    pub(crate) fn new(draft: DraftLimit, number: usize, mut field: impl FnMut(&str) -> FieldId) -> Self {
        let mut clauses: Vec<(FieldId, Condition)> =
            draft.conditions.iter().map(|(name, condition)| (field(name), condition.clone())).collect();
        let key: Vec<FieldId> = draft.key.iter().map(|name| field(name)).collect();
        for &part in &key {
            if !clauses.iter().any(|(field, _)| *field == part) {
                clauses.push((part, Condition::present()));
            }
        }
        let cost = draft.cost.as_deref().map(&mut field);
        let mut limit = Self {
            clauses,
            key,
            shared: entries::shared(&draft.entries),
            cost,
            rates: vec![Rates { quotas: draft.rates.clone(), number }],
            overrides: Vec::new(),
            replaces: Vec::new(),
            draft,
        };
        limit.compile_overrides(field);
        limit
    }

    /// Values with the same rates share them.
    fn compile_overrides(&mut self, mut field: impl FnMut(&str) -> FieldId) {
        let mut known: HashMap<Vec<Quota>, usize> = HashMap::from([(self.draft.rates.clone(), 0)]);
        for other in &self.draft.overrides {
            let rates = *known.entry(other.rates.clone()).or_insert_with(|| {
                let number = self.rates[0].number + self.rates.len();
                self.rates.push(Rates { quotas: other.rates.clone(), number });
                self.rates.len() - 1
            });
            let id = field(&other.field);
            let at = self.overrides.iter().position(|(field, _)| *field == id).unwrap_or_else(|| {
                self.overrides.push((id, ByValue::default()));
                self.overrides.len() - 1
            });
            self.overrides[at].1.insert(other.value.as_bytes().into(), rates);
        }
    }

    pub(crate) fn set_replaces(&mut self, mut ranks: Vec<u32>) {
        ranks.sort_unstable();
        self.replaces = ranks;
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.draft.name
    }

    /// Its domain.
    pub fn domain(&self) -> &str {
        &self.draft.domain
    }

    /// Its arithmetic.
    pub fn kind(&self) -> Kind {
        self.draft.kind
    }

    /// Whether it decides.
    pub fn mode(&self) -> Mode {
        self.draft.mode
    }

    /// What it answers when the store cannot.
    pub fn if_store_fails(&self) -> IfStoreFails {
        self.draft.if_store_fails
    }

    /// The higher, the earlier.
    pub fn priority(&self) -> i32 {
        self.draft.priority
    }

    /// The fields of its key.
    pub fn key_fields(&self) -> &[String] {
        &self.draft.key
    }

    /// The field that says what a call costs.
    pub fn cost_field(&self) -> Option<&str> {
        self.draft.cost.as_deref()
    }

    /// What callers are told it is called: its label, else its name, else, if it has entries, nothing.
    pub fn label(&self) -> Option<&str> {
        let name = self.draft.entries.is_empty().then_some(self.name());
        self.draft.label.as_deref().or(name)
    }

    /// What programs call it.
    pub fn id(&self) -> Option<&str> {
        self.draft.id.as_deref()
    }

    /// Whatever else belongs to it.
    pub fn metadata(&self) -> Option<&Json> {
        self.draft.metadata.as_ref()
    }

    /// What it asks of the descriptor's entries.
    pub fn entries(&self) -> &[Entry] {
        &self.draft.entries
    }

    /// Whether calls that it refuses are counted, each limit for itself.
    pub fn counts_refused(&self) -> bool {
        self.draft.count_refused
    }

    /// Whether it refuses a call only if all others like it do.
    pub fn is_quota_mode(&self) -> bool {
        self.draft.quota_mode
    }

    /// Whether it looks at a call as a whole, by its first descriptor.
    pub fn is_once(&self) -> bool {
        self.draft.once
    }

    /// Its name for metrics: the domain and then, for a limit with entries, each of them; else its name, all joined with
    /// dots. Where that was asked for, an entry stands there with its value in the descriptor.
    pub fn metric_name(&self, descriptor: &Descriptor<'_>) -> String {
        let mut name = self.domain().to_owned();
        if self.entries().is_empty() {
            return name + "." + self.name();
        }
        let mut found = descriptor.fields().iter();
        for entry in self.entries() {
            name.push('.');
            match found.next() {
                Some(field) if entry.in_metrics || self.draft.detailed_metric => {
                    let mut text = Vec::new();
                    write_entry(field, &mut text);
                    name.push_str(&escaped(&text));
                }
                _ => name.push_str(&entry.text),
            }
        }
        name
    }

    /// Its rates: its own first, then those of its overrides, each once.
    pub fn rates(&self) -> &[Rates] {
        &self.rates
    }

    pub(crate) fn draft(&self) -> &DraftLimit {
        &self.draft
    }

    pub(crate) fn clauses(&self) -> &[(FieldId, Condition)] {
        &self.clauses
    }

    pub(crate) fn replaces(&self) -> &[u32] {
        &self.replaces
    }

    /// Which of its rates a descriptor gets, and the place of the override among the overridden fields.
    pub(crate) fn rates_for(&self, asked: &Asked<'_>) -> (usize, Option<usize>) {
        let overridden = self
            .overrides
            .iter()
            .enumerate()
            .find_map(|(at, (field, values))| Some((*values.get(asked.value(*field)?)?, Some(at))));
        overridden.unwrap_or((0, None))
    }

    /// The name of the field of an override.
    pub(crate) fn overridden_field(&self, at: usize) -> &str {
        let mut names: Vec<&str> = Vec::new();
        for name in self.draft.overrides.iter().map(|other| other.field.as_str()) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names.get(at).copied().unwrap_or_default()
    }

    /// The name of a field of the key.
    pub(crate) fn key_field(&self, id: FieldId) -> Option<&String> {
        self.key.iter().position(|field| *field == id).map(|at| &self.draft.key[at])
    }

    pub(crate) fn cost_of(&self, asked: &Asked<'_>) -> Cost {
        match self.cost.and_then(|field| asked.value(field)) {
            None => Cost::Asked,
            Some(value) => whole_number(value).map_or(Cost::Unreadable, Cost::Said),
        }
    }
}

/// Digits and nothing else: no sign, no space.
fn whole_number(value: &[u8]) -> Option<u64> {
    let is_plain = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(value).ok().filter(|_| is_plain)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_is_digits_only() {
        assert_eq!(whole_number(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(whole_number(b"0"), Some(0));
        for bad in [&b""[..], b"-1", b"+1", b" 1", b"1.5", b"1e3", b"18446744073709551616", b"\xff"] {
            assert_eq!(whole_number(bad), None, "{bad:?}");
        }
    }
}
