//! Checks of entries and expressions.

use std::collections::HashMap;

use super::MOST_FIELDS;
use crate::draft::{Draft, DraftLimit};
use crate::problem::{Problem, Problems};

/// Checks that no two limits have the same entries.
pub(super) fn check_places(draft: &Draft, problems: &mut Problems) {
    let mut places: HashMap<(&str, Vec<&str>), &DraftLimit> = HashMap::new();
    for limit in draft.limits.iter().filter(|limit| !limit.envoy.entries.is_empty()) {
        let texts = limit.envoy.entries.iter().map(|entry| entry.text.as_str()).collect();
        if let Some(first) = places.insert((limit.domain.as_str(), texts), limit) {
            problems.add(|| {
                let message = format!(
                    "the limit {:?} has the same entries as {:?} at {}",
                    limit.name, first.name, first.place
                );
                Problem::new(&limit.place, message)
            });
        }
    }
}

/// Adds the errors of expressions with their places.
pub(super) fn check_expressions(limit: &DraftLimit, problems: &mut Problems) {
    for expression in limit.when.iter().chain(limit.key_expressions()) {
        if let Some(message) = expression.problem() {
            problems.add(|| Problem::new(expression.place(), message));
        }
    }
}

/// Returns the errors of the entries of a limit by itself.
pub(super) fn contents(limit: &DraftLimit) -> Vec<String> {
    let mut messages = Vec::new();
    let entries = &limit.envoy.entries;
    if entries.len().max(limit.when.len()) > MOST_FIELDS {
        messages.push(format!("at most {MOST_FIELDS} entries or expressions per limit"));
    }
    let others = [
        ("match", limit.conditions.is_empty()),
        ("when", limit.when.is_empty()),
        ("key", limit.key.is_empty()),
        ("limitador.once", !limit.limitador.once),
    ];
    for (word, _) in others.iter().filter(|(_, is_unused)| !entries.is_empty() && !is_unused) {
        messages.push(format!("{word} cannot be combined with envoy.entries"));
    }
    if limit.envoy.label.is_some() && limit.limitador.name.is_some() {
        messages.push("set either envoy.label or limitador.name".to_owned());
    }
    for entry in entries {
        if entry.text.is_empty() {
            messages.push("an entry cannot be empty".to_owned());
        } else if entry.shared && !entry.has_stars() {
            messages.push(format!("shared needs an entry with a *, found {:?}", entry.text));
        }
    }
    messages
}
