//! A limit of a compiled policy.

mod key;

use std::collections::HashMap;

use foldhash::fast::RandomState;
use serde_json::Value as Json;
use tollgate_core::{Kind, Quota};

use crate::choice::{Mode, OnBadValue, OnStoreFailure};
use crate::condition::Condition;
use crate::draft::{DraftLimit, Override};
use crate::entries::{self, Entry};
use crate::expression::Expression;
use crate::key_part::KeyPart;
use crate::matcher::{Asked, FieldId};
use crate::metric_name::MetricName;
use crate::pattern::Pattern;

/// A limit of a compiled policy.
#[derive(Debug)]
pub struct Limit {
    draft: DraftLimit,
    /// What must hold, the fields of the key among it.
    clauses: Vec<(FieldId, Condition)>,
    key: Vec<Part>,
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

/// A part of a key.
#[derive(Clone, Copy, Debug)]
enum Part {
    /// A field, and how many bits of an IPv6 address are counted.
    Field(FieldId, Option<u8>),
    /// What an expression comes to.
    Computed,
}

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
}

impl Limit {
    /// Compiles a limit. `field` gives the number of a field, `number` that of its rates.
    pub(crate) fn new(draft: DraftLimit, number: usize, mut field: impl FnMut(&str) -> FieldId) -> Self {
        let mut clauses: Vec<(FieldId, Condition)> =
            draft.conditions.iter().map(|(name, condition)| (field(name), condition.clone())).collect();
        let mut part = |part: &KeyPart| match part {
            KeyPart::Field { name, ipv6_prefix } => Part::Field(field(name), *ipv6_prefix),
            KeyPart::Cel(_) => Part::Computed,
        };
        let key: Vec<Part> = draft.key.iter().map(&mut part).collect();
        for part in &key {
            let Part::Field(needed, _) = *part else { continue };
            if !clauses.iter().any(|(field, _)| *field == needed) {
                clauses.push((needed, Condition::present()));
            }
        }
        let cost = draft.cost.as_deref().map(&mut field);
        let mut limit = Self {
            clauses,
            key,
            shared: entries::shared(&draft.envoy.entries),
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
            let mut by_value = ByValue::default();
            for (value, quotas) in &other.rates {
                let rates = *known.entry(quotas.clone()).or_insert_with(|| {
                    let number = self.rates[0].number + self.rates.len();
                    self.rates.push(Rates { quotas: quotas.clone(), number });
                    self.rates.len() - 1
                });
                by_value.insert(value.as_bytes().into(), rates);
            }
            self.overrides.push((field(&other.field), by_value));
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
    pub fn on_store_failure(&self) -> OnStoreFailure {
        self.draft.on_store_failure
    }

    /// How it treats a bad value.
    pub fn on_bad_value(&self) -> OnBadValue {
        self.draft.on_bad_value
    }

    /// The fields and expressions of its key.
    pub fn key(&self) -> &[KeyPart] {
        &self.draft.key
    }

    /// The field that says what a call costs.
    pub fn cost_field(&self) -> Option<&str> {
        self.draft.cost.as_deref()
    }

    /// What callers are told it is called: what Envoy's or limitador's file says, else its name, but nothing if it has entries or counts a call [once](Self::is_once).
    pub fn label(&self) -> Option<&str> {
        let has_own = self.entries().is_empty() && !self.is_once();
        let name = has_own.then_some(self.name());
        self.draft.envoy.label.as_deref().or(self.draft.limitador.name.as_deref()).or(name)
    }

    /// What programs call it.
    pub fn id(&self) -> Option<&str> {
        self.draft.limitador.id.as_deref()
    }

    /// Whatever else belongs to it.
    pub fn metadata(&self) -> Option<&Json> {
        self.draft.envoy.metadata.as_ref()
    }

    /// What it asks of the descriptor's entries.
    pub fn entries(&self) -> &[Entry] {
        &self.draft.envoy.entries
    }

    /// Whether calls that it denies are counted, each limit for itself.
    pub fn counts_denied(&self) -> bool {
        self.draft.count_denied
    }

    /// Returns `true` if it counts hits beyond its rate, as limits of envoyproxy/ratelimit do: a fixed window with entries that
    /// counts denied hits.
    pub fn is_counter(&self) -> bool {
        self.counts_denied() && self.kind() == Kind::FixedWindow && !self.entries().is_empty()
    }

    /// Whether it denies a call only if all others like it do.
    pub fn is_any_of(&self) -> bool {
        self.draft.envoy.any_of
    }

    /// Whether it looks at a call as a whole, by its first descriptor.
    pub fn is_once(&self) -> bool {
        self.draft.limitador.once
    }

    /// Its name in metrics.
    pub fn metric_name(&self) -> MetricName {
        MetricName::new(&self.draft)
    }

    /// What it asks of fields, each by its name.
    pub fn conditions(&self) -> &[(String, Condition)] {
        &self.draft.conditions
    }

    /// The expressions that must come to true.
    pub fn when(&self) -> &[Expression] {
        &self.draft.when
    }

    /// The rates that values of fields have in place of its own, in the order in which they are looked up.
    pub fn overrides(&self) -> &[Override] {
        &self.draft.overrides
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
        self.draft.overrides.get(at).map(|other| other.field.as_str()).unwrap_or_default()
    }

    /// The name of a field of the key.
    pub(crate) fn key_field(&self, id: FieldId) -> Option<&str> {
        let at = self.key.iter().position(|part| matches!(part, Part::Field(field, _) if *field == id))?;
        self.draft.key[at].field_name()
    }

    /// What a call costs; the error says why its cost field is bad.
    pub(crate) fn cost_of(&self, asked: &Asked<'_>) -> Result<Cost, String> {
        let Some(value) = self.cost.and_then(|field| asked.value(field)) else { return Ok(Cost::Asked) };
        whole_number(value).map(Cost::Said).ok_or_else(|| {
            let field = self.cost_field().unwrap_or_default();
            format!("the cost in the field {field:?} is not a whole number from 0 to {}", u64::MAX)
        })
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
