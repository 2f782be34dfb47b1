//! A draft as a policy file.

use std::fmt;

use tollgate_core::{Kind, Quota};
use toml_writer::{ToTomlKey as _, ToTomlValue as _, TomlKeyBuilder, TomlStringBuilder};

use super::{Draft, DraftLimit, EnvoyFields, LimitadorFields, Override};
use crate::choice::{Mode, OnBadValue, OnStoreFailure};
use crate::condition::{Condition, Test};
use crate::descriptor::DEFAULT_DOMAIN;
use crate::entries::Entry;
use crate::key_part::{KeyPart, usual_prefix};
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
    /// The settings that all limits share, where there are several, and what is said of all domains: they stand at the top.
    fn common(&self) -> Vec<Setting> {
        let [first, others @ ..] = &self.limits[..] else { return Vec::new() };
        let is_common = |setting: &Setting| others.iter().all(|other| file_wide(other).contains(setting));
        let shared = file_wide(first).into_iter().filter(|setting| !others.is_empty() && is_common(setting));
        let unmatched = self.unmatched(&first.domain);
        let unmatched =
            unmatched.filter(|_| self.limits.iter().all(|limit| self.unmatched(&limit.domain) == unmatched));
        shared.chain(unmatched.map(|choice| ("unmatched", quoted(choice.name())))).collect()
    }
}

fn quoted(word: &str) -> String {
    format!("\"{word}\"")
}

/// What may stand at the top of a file, and differs from what it is when nothing is said.
fn file_wide(limit: &DraftLimit) -> Vec<Setting> {
    let all = [
        ("domain", limit.domain != DEFAULT_DOMAIN, text(&limit.domain)),
        ("algorithm", limit.kind != Kind::default(), quoted(limit.kind.name())),
        ("mode", limit.mode != Mode::default(), quoted(limit.mode.name())),
        (
            "on_store_failure",
            limit.on_store_failure != OnStoreFailure::default(),
            quoted(limit.on_store_failure.name()),
        ),
        ("on_bad_value", limit.on_bad_value != OnBadValue::default(), quoted(limit.on_bad_value.name())),
        ("count_denied", limit.count_denied, "true".to_owned()),
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
    let lists = [
        ("when", limit.when.is_empty(), list(limit.when.iter().map(|one| text(one.text())))),
        ("key", limit.key.is_empty(), list(limit.key.iter().map(show_part))),
    ];
    for (name, _, value) in lists.iter().filter(|(_, is_empty, _)| !is_empty) {
        writeln!(f, "{name} = {value}")?;
    }
    writeln!(f, "rate = {}", rates(&limit.rates))?;
    print_overrides(&limit.overrides, f)?;
    if let Some(field) = &limit.cost {
        writeln!(f, "cost = {}", text(field))?;
    }
    print_envoy(&limit.envoy, f)?;
    print_limitador(&limit.limitador, f)
}

fn show_part(part: &KeyPart) -> String {
    let (name, ipv6_prefix) = match part {
        KeyPart::Cel(expression) => return format!("{{ cel = {} }}", text(expression.text())),
        KeyPart::Field { name, ipv6_prefix } => (name, *ipv6_prefix),
    };
    let shown = text(name);
    if ipv6_prefix == usual_prefix(name) {
        return shown;
    }
    let bits = ipv6_prefix.map_or_else(|| "false".to_owned(), |bits| bits.to_string());
    format!("{{ field = {shown}, ipv6_prefix = {bits} }}")
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

fn print_envoy(envoy: &EnvoyFields, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if !envoy.entries.is_empty() {
        writeln!(f, "envoy.entries = {}", list(envoy.entries.iter().map(show_entry)))?;
    }
    if let Some(label) = &envoy.label {
        writeln!(f, "envoy.label = {}", text(label))?;
    }
    if !envoy.replaces.is_empty() {
        writeln!(f, "envoy.replaces = {}", list(envoy.replaces.iter().map(|other| text(&other.name))))?;
    }
    let flags = [(envoy.any_of, "any_of"), (envoy.detailed_metric, "detailed_metric")];
    for (_, word) in flags.iter().filter(|(is_set, _)| *is_set) {
        writeln!(f, "envoy.{word} = true")?;
    }
    match &envoy.metadata {
        Some(metadata) => writeln!(f, "envoy.metadata = {}", text(&metadata.to_string())),
        None => Ok(()),
    }
}

fn print_limitador(limitador: &LimitadorFields, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (word, said) in [("name", &limitador.name), ("id", &limitador.id)] {
        if let Some(said) = said {
            writeln!(f, "limitador.{word} = {}", text(said))?;
        }
    }
    if limitador.once { writeln!(f, "limitador.once = true") } else { Ok(()) }
}

/// Several stand in a line each.
fn print_overrides(overrides: &[Override], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let shown: Vec<String> = overrides.iter().map(show_override).collect();
    match &shown[..] {
        [] => Ok(()),
        [one] => writeln!(f, "overrides = [{one}]"),
        several => writeln!(f, "overrides = [\n    {},\n]", several.join(",\n    ")),
    }
}

fn show_override(other: &Override) -> String {
    let by_value = other.rates.iter().map(|(value, quotas)| format!("{} = {}", key(value), rates(quotas)));
    let by_value: Vec<String> = by_value.collect();
    format!("{{ field = {}, rates = {{ {} }} }}", text(&other.field), by_value.join(", "))
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

/// A name as a key of TOML.
pub(crate) fn key(name: &str) -> String {
    TomlKeyBuilder::new(name).as_default().to_toml_key()
}
