//! Settings in a TOML file.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use tollgate_policy::{Place, Problem, Source, did_you_mean};
use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

use super::table::all;

/// The values of a file by key, as text, with their places.
pub(super) type Values = BTreeMap<String, (String, Place)>;

/// Reads a file. Returns its values and its errors.
pub(super) fn read(path: &Path) -> (Values, Vec<Problem>) {
    let shown = path.display().to_string();
    match fs::read_to_string(path) {
        Ok(text) => {
            let (values, problems) = parse(&Source::new(shown, text));
            // A line may hold a password, wherever the mistake in it is.
            (values, problems.into_iter().map(Problem::without_excerpt).collect())
        }
        Err(error) => (Values::new(), vec![Problem::in_file(shown, format!("cannot be read: {error}"))]),
    }
}

fn parse(source: &Arc<Source>) -> (Values, Vec<Problem>) {
    let (table, errors) = DeTable::parse_recoverable(source.text());
    let mut reader = Reader { source, values: Values::new(), problems: Vec::new() };
    let mut lines = Vec::new();
    for error in errors {
        let span = error.span().unwrap_or(0..0);
        let line = source.text()[..span.start].matches('\n').count();
        // What follows a mistake in the same line is mostly nonsense.
        if !lines.contains(&line) {
            lines.push(line);
            reader.problems.push(Problem::new(&Place::new(source, span), error.message()));
        }
    }
    if reader.problems.is_empty() {
        reader.table("", table.get_ref());
    }
    reader.problems.sort_by_key(|problem| (problem.line, problem.column));
    (reader.values, reader.problems)
}

struct Reader<'s> {
    source: &'s Arc<Source>,
    values: Values,
    problems: Vec<Problem>,
}

impl Reader<'_> {
    fn table(&mut self, prefix: &str, table: &DeTable<'_>) {
        for (name, value) in table {
            let key = format!("{prefix}{}", name.get_ref());
            let is_group = all().iter().any(|setting| setting.key.starts_with(&format!("{key}.")));
            match value.get_ref() {
                DeValue::Table(inner) if is_group => self.table(&format!("{key}."), inner),
                _ if all().iter().any(|setting| setting.key == key) => self.value(key, value),
                DeValue::Table(inner) if !inner.is_empty() => self.table(&format!("{key}."), inner),
                _ => self.unknown(&key, &Place::new(self.source, name.span())),
            }
        }
    }

    fn value(&mut self, key: String, value: &Spanned<DeValue<'_>>) {
        let place = Place::new(self.source, value.span());
        let text = match value.get_ref() {
            DeValue::String(text) => text.clone().into_owned(),
            DeValue::Integer(number) => decimal(number),
            DeValue::Float(number) => number.to_string(),
            DeValue::Boolean(truth) => truth.to_string(),
            DeValue::Datetime(date) => date.to_string(),
            DeValue::Array(_) | DeValue::Table(_) => {
                return self
                    .problems
                    .push(Problem::new(&place, format!("{key}: expected one value, found a list or table")));
            }
        };
        self.values.insert(key, (text, place));
    }

    fn unknown(&mut self, key: &str, place: &Place) {
        let settings = all();
        let help = did_you_mean(key, settings.iter().map(|setting| setting.key));
        self.problems.push(Problem::new(place, format!("unknown setting {key:?}")).help(help));
    }
}

/// Returns a number in decimal form, unless it is too large.
fn decimal(number: &DeInteger<'_>) -> String {
    let read = i128::from_str_radix(number.as_str(), number.radix());
    read.map_or_else(|_| number.to_string(), |number| number.to_string())
}
