//! Policy files of our own: TOML.
//!
//! The reader goes on after a mistake, so that all are reported at once. It knows no field by itself: `fields` has the one
//! table that it follows, and that the JSON schema is made from.

mod fields;
mod schema;
mod syntax;
mod values;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use tollgate_core::Quota;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::choice::Unmatched;
use crate::draft::{Draft, DraftDomain, DraftLimit, Noted, check, rates_problem};
use crate::problem::{Problem, Problems};
use crate::source::{Place, Source};
use crate::suggest::did_you_mean;
use fields::{FIELDS, Field, UNMATCHED};
use values::found;

pub use schema::schema;

type Value<'i> = Spanned<DeValue<'i>>;

/// The table of limits in a file.
const LIMIT: &str = "limit";

/// A file that somebody could start from.
const FIRST: &str = "[limit.per-ip]\nkey = \"ip\"\nrate = \"10/s burst 20\"";

/// Reads a policy file.
///
/// # Errors
/// Everything that is wrong with it.
pub(crate) fn read(source: &Arc<Source>) -> Result<Draft, Problems> {
    let (table, errors) = syntax::parse(source.text());
    let mut reader = Reader {
        source: Arc::clone(source),
        broken: Vec::new(),
        problems: Problems::default(),
        warnings: Problems::default(),
    };
    for mistake in errors {
        let place = reader.place(mistake.at);
        reader.problems.add(|| Problem::new(&place, mistake.message));
        reader.broken.push(mistake.broken);
    }
    let mut draft = Draft::default();
    if !reader.problems.is_full() {
        reader.file(table.get_ref(), &mut draft);
        check(&draft, &mut reader.problems);
    }
    draft.noted = Noted(reader.warnings);
    reader.problems.or(draft)
}

struct Reader {
    source: Arc<Source>,
    /// Where the file is not TOML. Nothing else is said about what lies there.
    broken: Vec<Range<usize>>,
    problems: Problems,
    /// What looks like a mistake, though it can be read.
    warnings: Problems,
}

/// A limit of which some fields have been read.
struct Reading {
    limit: DraftLimit,
    rate_at: Option<Range<usize>>,
    /// Where the rates of the overrides are.
    overrides_at: Vec<Range<usize>>,
}

impl Reader {
    fn place(&self, span: Range<usize>) -> Place {
        Place::new(&self.source, span)
    }

    fn problem(&mut self, span: Range<usize>, message: impl Into<String>, help: Option<String>) {
        if !self.broken.iter().any(|broken| broken.start <= span.end && span.start <= broken.end) {
            let place = self.place(span);
            self.problems.add(|| Problem::new(&place, message).help(help));
        }
    }

    fn warn(&mut self, span: Range<usize>, message: String, help: String) {
        let place = self.place(span);
        self.warnings.add(|| Problem::new(&place, message).help(help));
    }

    /// Something is not there. In a file that is not TOML we cannot be sure of that.
    fn missing(&mut self, span: Range<usize>, message: &str, help: String) {
        if self.broken.is_empty() {
            self.problem(span, message, Some(help));
        }
    }

    fn file(&mut self, table: &DeTable<'_>, draft: &mut Draft) {
        let blank = DraftLimit::new("", Quota::UNLIMITED);
        let mut defaults = Reading { limit: blank, rate_at: None, overrides_at: Vec::new() };
        let mut unmatched: Option<(Unmatched, Place)> = None;
        for (name, value) in in_order(table) {
            match FIELDS.iter().find(|field| field.name == name.get_ref()) {
                Some(field) if field.file_wide => (field.read)(self, value, &mut defaults),
                _ if name.get_ref() == LIMIT => {}
                _ if name.get_ref() == UNMATCHED => {
                    let chosen = self.choice(value, UNMATCHED, &fields::unmatched());
                    unmatched = chosen.map(|choice| (choice, self.place(name.span())));
                }
                only_in_limits => self.unknown_in_file(name, only_in_limits),
            }
        }
        let limits = table.get(LIMIT).map(Spanned::get_ref);
        match limits {
            Some(DeValue::Table(limits)) if !limits.is_empty() => {
                let read = |(name, value)| self.limit(name, value, &defaults.limit);
                draft.limits = in_order(limits).into_iter().map(read).collect();
                if let Some((unmatched, place)) = unmatched {
                    let names: BTreeSet<&String> = draft.limits.iter().map(|limit| &limit.domain).collect();
                    let said =
                        |name: &String| DraftDomain { name: name.clone(), unmatched, place: place.clone() };
                    draft.domains = names.into_iter().map(said).collect();
                }
            }
            Some(other) if !matches!(other, DeValue::Table(_)) => {
                let message = format!("expected a table for each limit, found {}", found(other));
                let span = table.get_key_value(LIMIT).map_or(0..0, |(name, _)| name.span());
                self.problem(span, message, Some(format!("give each limit a name:\n{FIRST}")));
            }
            _ => self.missing(0..0, "the file has no limit", format!("a first one could be:\n{FIRST}")),
        }
    }

    fn limit(
        &mut self,
        name: &Spanned<toml::de::DeString<'_>>,
        value: &Value<'_>,
        defaults: &DraftLimit,
    ) -> DraftLimit {
        let mut reading = Reading { limit: defaults.clone(), rate_at: None, overrides_at: Vec::new() };
        name.get_ref().as_ref().clone_into(&mut reading.limit.name);
        reading.limit.place = self.place(name.span());
        let Some(table) = value.get_ref().as_table() else {
            let message = format!("expected a limit, which is a table, found {}", found(value.get_ref()));
            self.problem(value.span(), message, Some(format!("a limit looks like this:\n{FIRST}")));
            return reading.limit;
        };
        for (name, value) in in_order(table) {
            match FIELDS.iter().find(|field| field.name == name.get_ref()) {
                Some(field) => (field.read)(self, value, &mut reading),
                None => self.unknown_in_limit(&reading.limit.name, name, value),
            }
        }
        self.finish(reading)
    }

    /// A table of further fields of a limit.
    fn table(&mut self, value: &Value<'_>, table: &str, fields: &[Field], reading: &mut Reading) {
        let Some(values) = value.get_ref().as_table() else {
            return self.expected(value, &format!("a table such as [limit.per-ip.{table}]"), None);
        };
        for (name, value) in in_order(values) {
            let word = name.get_ref().as_ref();
            if let Some(field) = fields.iter().find(|field| field.name == word) {
                (field.read)(self, value, reading);
                continue;
            }
            let outside = FIELDS.iter().any(|field| field.name == word);
            let help = outside.then(|| format!("write it in the limit itself, not below {table}"));
            let help = help.or_else(|| did_you_mean(word, fields.iter().map(|field| field.name)));
            self.problem(name.span(), format!("unknown field {word:?} of {table}"), help);
        }
    }

    /// What can be judged only when the whole limit is known.
    fn finish(&mut self, reading: Reading) -> DraftLimit {
        let Reading { mut limit, rate_at, overrides_at } = reading;
        if let Some(span) = rate_at {
            self.rates(&mut limit.rates, limit.kind, span);
        } else {
            let help = "add for example rate = \"10/s\"".to_owned();
            self.missing(limit.place.span(), "this limit has no rate", help);
        }
        let others = limit.overrides.iter_mut().flat_map(|other| &mut other.rates);
        for ((_, rates), span) in others.zip(overrides_at) {
            self.rates(rates, limit.kind, span);
        }
        limit
    }

    /// Rates with a mistake, which is reported once, are replaced by some without.
    fn rates(&mut self, rates: &mut Vec<Quota>, kind: tollgate_core::Kind, span: Range<usize>) {
        if let Some(message) = rates_problem(rates, kind) {
            self.problem(span, message, None);
            *rates = vec![Quota::UNLIMITED];
        }
    }

    fn unknown_in_file(&mut self, name: &Spanned<toml::de::DeString<'_>>, only_in_limits: Option<&Field>) {
        let help = if only_in_limits.is_some() {
            Some(format!("it belongs to a limit, below a line such as [limit.per-ip]:\n{FIRST}"))
        } else {
            let known = FIELDS.iter().filter(|field| field.file_wide).map(|field| field.name);
            let near = || did_you_mean(name.get_ref(), known.chain([LIMIT, UNMATCHED]));
            fields::spelling(name.get_ref()).or_else(near)
        };
        self.problem(name.span(), format!("unknown setting {:?}", name.get_ref()), help);
    }

    fn unknown_in_limit(&mut self, limit: &str, name: &Spanned<toml::de::DeString<'_>>, value: &Value<'_>) {
        let word = name.get_ref().as_ref();
        let quoted = || format!("a name with a dot in it needs quotes: [limit.\"{limit}.{word}\"]");
        let help = fields::spelling(word)
            .or_else(|| did_you_mean(word, FIELDS.iter().map(|field| field.name)))
            .or_else(|| value.get_ref().is_table().then(quoted));
        self.problem(name.span(), format!("unknown field {word:?} of a limit"), help);
    }
}

/// The entries as the file has them: the parser sorts them by name.
fn in_order<'t, 'i>(table: &'t DeTable<'i>) -> Vec<(&'t Spanned<toml::de::DeString<'i>>, &'t Value<'i>)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(name, _)| name.span().start);
    entries
}
