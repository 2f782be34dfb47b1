//! A draft as a policy file.

use std::fmt;

use tollgate_core::{Kind, Quota};
use toml_writer::{ToTomlKey as _, ToTomlValue as _, TomlKeyBuilder, TomlStringBuilder};

use super::{Draft, DraftLimit};
use crate::choice::{IfStoreFails, Mode};
use crate::condition::{Condition, Test};
use crate::descriptor::DEFAULT_DOMAIN;
use crate::network;

impl fmt::Display for Draft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.limits.iter().enumerate().try_for_each(|(index, limit)| {
            f.write_str(if index == 0 { "" } else { "\n" })?;
            print_limit(limit, f)
        })
    }
}

fn print_limit(limit: &DraftLimit, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "[limit.{}]", key(&limit.name))?;
    if limit.domain != DEFAULT_DOMAIN {
        writeln!(f, "domain = {}", text(&limit.domain))?;
    }
    for (field, condition) in &limit.conditions {
        writeln!(f, "match.{} = {}", key(field), show_condition(condition))?;
    }
    if !limit.key.is_empty() {
        writeln!(f, "key = {}", list(limit.key.iter().map(|field| text(field))))?;
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

/// What differs from what it is when nothing is said.
fn print_choices(limit: &DraftLimit, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if limit.kind != Kind::default() {
        writeln!(f, "algorithm = \"{}\"", limit.kind)?;
    }
    if limit.mode != Mode::default() {
        writeln!(f, "mode = \"{}\"", limit.mode)?;
    }
    if let Some(field) = &limit.cost {
        writeln!(f, "cost = {}", text(field))?;
    }
    if limit.priority != 0 {
        writeln!(f, "priority = {}", limit.priority)?;
    }
    if !limit.replaces.is_empty() {
        writeln!(f, "replaces = {}", list(limit.replaces.iter().map(|other| text(&other.name))))?;
    }
    if limit.if_store_fails != IfStoreFails::default() {
        writeln!(f, "if_store_fails = \"{}\"", limit.if_store_fails)?;
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
