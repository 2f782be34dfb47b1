//! A draft as a policy file.

use std::fmt;

use tollgate_core::{Kind, Quota};
use toml_writer::{ToTomlKey as _, ToTomlValue as _, TomlKeyBuilder, TomlStringBuilder};

use super::{Draft, DraftLimit};
use crate::choice::{IfStoreFails, Mode};
use crate::condition::{Condition, Test};
use crate::descriptor::DEFAULT_DOMAIN;
use crate::entries::Entry;
use crate::expression::Expression;
use crate::network;

impl fmt::Display for Draft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let common = self.common();
        for (name, value) in &common {
            writeln!(f, "{name} = {value}")?;
        }
        self.limits.iter().enumerate().try_for_each(|(index, limit)| {
            f.write_str(if index == 0 && common.is_empty() { "" } else { "\n" })?;
            print_limit(limit, &common, f)
        })
    }
}

/// A setting and its value.
type Setting = (&'static str, String);

impl Draft {
    /// The settings that all limits share, where there are several: they may stand at the top.
    fn common(&self) -> Vec<Setting> {
        let [first, others @ ..] = &self.limits[..] else { return Vec::new() };
        let is_common = |setting: &Setting| others.iter().all(|other| file_wide(other).contains(setting));
        file_wide(first).into_iter().filter(|setting| !others.is_empty() && is_common(setting)).collect()
    }
}

/// What may stand at the top of a file, and differs from what it is when nothing is said.
fn file_wide(limit: &DraftLimit) -> Vec<Setting> {
    let quoted = |word: &str| format!("\"{word}\"");
    let all = [
        ("domain", limit.domain != DEFAULT_DOMAIN, text(&limit.domain)),
        ("algorithm", limit.kind != Kind::default(), quoted(limit.kind.name())),
        ("mode", limit.mode != Mode::default(), quoted(limit.mode.name())),
        (
            "if_store_fails",
            limit.if_store_fails != IfStoreFails::default(),
            quoted(limit.if_store_fails.name()),
        ),
        ("once", limit.once, "true".to_owned()),
        ("count_refused", limit.count_refused, "true".to_owned()),
    ];
    all.into_iter().filter(|(_, is_said, _)| *is_said).map(|(name, _, value)| (name, value)).collect()
}

fn print_limit(limit: &DraftLimit, common: &[Setting], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "[limit.{}]", key(&limit.name))?;
    for (name, value) in file_wide(limit).iter().filter(|setting| !common.contains(setting)) {
        writeln!(f, "{name} = {value}")?;
    }
    for (field, condition) in &limit.conditions {
        writeln!(f, "match.{} = {}", key(field), show_condition(condition))?;
    }
    let expressions = |all: &[Expression]| list(all.iter().map(|one| text(one.text())));
    let lists = [
        ("when", limit.when.is_empty(), expressions(&limit.when)),
        ("entries", limit.entries.is_empty(), list(limit.entries.iter().map(show_entry))),
        ("key", limit.key.is_empty(), list(limit.key.iter().map(|field| text(field)))),
        ("per", limit.per.is_empty(), expressions(&limit.per)),
    ];
    for (name, _, value) in lists.iter().filter(|(_, is_empty, _)| !is_empty) {
        writeln!(f, "{name} = {value}")?;
    }
    writeln!(f, "rate = {}", rates(&limit.rates))?;
    print_choices(limit, f)?;
    let mut done: Vec<&str> = Vec::new();
    for field in limit.overrides.iter().map(|other| other.field.as_str()) {
        if !done.contains(&field) {
            done.push(field);
            print_overrides(limit, field, f)?;
        }
    }
    Ok(())
}

fn show_entry(entry: &Entry) -> String {
    let shown = text(&entry.text);
    let flags = [("shared", entry.shared), ("in_metrics", entry.in_metrics)];
    let flags: Vec<&str> = flags.iter().filter(|(_, is_set)| *is_set).map(|(word, _)| *word).collect();
    if flags.is_empty() {
        shown
    } else {
        format!("{{ entry = {shown}, {} = true }}", flags.join(" = true, "))
    }
}

/// What differs from what it is when nothing is said.
fn print_choices(limit: &DraftLimit, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if let Some(field) = &limit.cost {
        writeln!(f, "cost = {}", text(field))?;
    }
    if limit.priority != 0 {
        writeln!(f, "priority = {}", limit.priority)?;
    }
    if !limit.replaces.is_empty() {
        writeln!(f, "replaces = {}", list(limit.replaces.iter().map(|other| text(&other.name))))?;
    }
    let flags = [(limit.quota_mode, "quota_mode"), (limit.detailed_metric, "detailed_metric")];
    for (_, word) in flags.iter().filter(|(is_set, _)| *is_set) {
        writeln!(f, "{word} = true")?;
    }
    let metadata = limit.metadata.as_ref().map(ToString::to_string);
    for (name, said) in [("label", &limit.label), ("id", &limit.id), ("metadata", &metadata)] {
        if let Some(said) = said {
            writeln!(f, "{name} = {}", text(said))?;
        }
    }
    Ok(())
}

fn print_overrides(limit: &DraftLimit, field: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "\n[limit.{}.override.{}]", key(&limit.name), key(field))?;
    let mut of_field = limit.overrides.iter().filter(|other| other.field == field);
    of_field.try_for_each(|other| writeln!(f, "{} = {}", key(&other.value), rates(&other.rates)))
}

fn show_condition(condition: &Condition) -> String {
    let Condition::AnyOf(tests) = condition else {
        return "{ absent = true }".to_owned();
    };
    let is_short = |test: &Test| match test {
        Test::Is(text) => !text.contains('*'),
        Test::Like(pattern) => pattern.as_str().contains('*'),
        Test::In(_) => false,
    };
    if tests.iter().all(is_short) && !tests.is_empty() {
        return list(tests.iter().map(short));
    }
    let kinds = [
        ("is", tests.iter().filter(|test| matches!(test, Test::Is(_))).map(short).collect::<Vec<_>>()),
        ("like", tests.iter().filter(|test| matches!(test, Test::Like(_))).map(short).collect()),
        ("network", tests.iter().filter(|test| matches!(test, Test::In(_))).map(short).collect()),
    ];
    let used = kinds.into_iter().filter(|(_, values)| !values.is_empty());
    let parts: Vec<String> = used.map(|(word, values)| format!("{word} = {}", list(values))).collect();
    format!("{{ {} }}", parts.join(", "))
}

fn short(test: &Test) -> String {
    match test {
        Test::Is(value) => text(value),
        Test::Like(pattern) => text(pattern.as_str()),
        Test::In(net) => text(&network::show(net)),
    }
}

fn rates(rates: &[Quota]) -> String {
    list(rates.iter().map(|rate| text(&rate.to_string())))
}

/// One alone needs no brackets.
fn list(values: impl IntoIterator<Item = String>) -> String {
    let values: Vec<String> = values.into_iter().collect();
    if values.len() == 1 { values.concat() } else { format!("[{}]", values.join(", ")) }
}

fn text(value: &str) -> String {
    // Never in several lines: it may stand in an inline table.
    let builder = TomlStringBuilder::new(value);
    let string = builder.as_basic_pretty().or_else(|| builder.as_literal());
    string.unwrap_or_else(|| builder.as_basic()).to_toml_value()
}

fn key(name: &str) -> String {
    TomlKeyBuilder::new(name).as_default().to_toml_key()
}
