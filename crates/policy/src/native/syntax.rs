//! What is not TOML.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue, Error};

use crate::problem::Problems;

/// Something that is not TOML.
pub(super) struct Mistake {
    pub(super) at: Range<usize>,
    /// What cannot be understood because of it.
    pub(super) broken: Range<usize>,
    pub(super) message: String,
}

/// Reads TOML as far as it is TOML, and tells where it is not: once for each line.
pub(super) fn parse(text: &str) -> (Spanned<DeTable<'_>>, Vec<Mistake>) {
    // Every mistake costs some memory, and in a large file that is not TOML at all every byte may be one.
    const READ_ON: usize = 256 * 1024;
    let error = match DeTable::parse(text) {
        Ok(table) => return (table, Vec::new()),
        Err(error) => error,
    };
    if text.len() > READ_ON {
        return (Spanned::new(0..0, DeTable::new()), vec![mistake(text, &error, &DeTable::new())]);
    }
    let (table, errors) = DeTable::parse_recoverable(text);
    let mistakes = mistakes(text, table.get_ref(), errors);
    (table, mistakes)
}

fn mistakes(text: &str, table: &DeTable<'_>, mut errors: Vec<Error>) -> Vec<Mistake> {
    let open = unclosed(table, &errors);
    errors.retain(|error| error.span().is_none_or(|at| !open.iter().any(|list| touches(list, &at))));
    errors.sort_by_key(|error| error.span().map_or(0, |at| at.start));
    let line_ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
    errors
        .dedup_by_key(|error| line_ends.partition_point(|end| *end < error.span().map_or(0, |at| at.start)));
    errors.truncate(Problems::MOST);
    let not_closed = |list: Range<usize>| Mistake {
        at: list.start..list.start + 1,
        broken: list,
        message: "this list is not closed; expected ]".to_owned(),
    };
    let mistakes = errors.iter().map(|error| mistake(text, error, table));
    mistakes.chain(open.into_iter().map(not_closed)).collect()
}

fn touches(left: &Range<usize>, right: &Range<usize>) -> bool {
    left.start <= right.end && right.start <= left.end
}

/// Lists without an end. All that follows is taken to be in them, and nothing that is said about it makes sense.
fn unclosed(table: &DeTable<'_>, errors: &[Error]) -> Vec<Range<usize>> {
    let is_end = |error: &&Error| error.message().starts_with("unclosed array");
    let ends: Vec<Range<usize>> = errors.iter().filter(is_end).filter_map(Error::span).collect();
    let mut open = Vec::new();
    each_value(table, &mut |value| {
        let span = value.span();
        if value.get_ref().is_array() && ends.iter().any(|end| end.start == span.end) {
            open.push(span);
        }
    });
    open
}

/// Calls for every value of the tables; lists are values, what is in them is not looked at.
fn each_value(table: &DeTable<'_>, call: &mut impl FnMut(&Spanned<DeValue<'_>>)) {
    for value in table.values() {
        match value.get_ref() {
            DeValue::Table(inner) => each_value(inner, call),
            _ => call(value),
        }
    }
}

/// The parser's words, or better ones.
fn mistake(text: &str, error: &Error, table: &DeTable<'_>) -> Mistake {
    let at = error.span().unwrap_or(0..0);
    let found = text.get(at.clone()).unwrap_or_default();
    let message = match error.message() {
        "duplicate key" => duplicate(text, &at, table),
        words if words.contains("recurs") => "tables or lists are nested too deeply".to_owned(),
        words if !words.starts_with("string values must be quoted") => words.to_owned(),
        _ if found.is_empty() => "expected a value".to_owned(),
        _ => format!("write it in quotes: {found:?}"),
    };
    Mistake { broken: at.clone(), at, message }
}

fn duplicate(text: &str, span: &Range<usize>, table: &DeTable<'_>) -> String {
    let name = text.get(span.clone()).unwrap_or_default();
    let mut places = Vec::new();
    each_key(table, &mut |key| {
        if text.get(key.clone()) == Some(name) && key.start < span.start {
            places.push(key.start);
        }
    });
    let line_of = |at: usize| text[..at].matches('\n').count();
    let first = if let [first] = places[..] {
        Some(line_of(first))
    } else {
        // Of a table with two headers only the second is left, but they look alike.
        let line = line_of(span.start);
        let header = text.lines().nth(line).map(str::trim);
        text.lines().take(line).position(|earlier| Some(earlier.trim()) == header)
    };
    match first {
        Some(line) => format!("{name} is already defined in line {}", line + 1),
        None => format!("{name} is already defined"),
    }
}

fn each_key(table: &DeTable<'_>, call: &mut impl FnMut(Range<usize>)) {
    for (key, value) in table {
        call(key.span());
        if let DeValue::Table(inner) = value.get_ref() {
            each_key(inner, call);
        }
    }
}
