//! The fields of a limit, and of its tables `envoy` and `limitador`: the one table that files are read by and that the JSON schema is made from.

use serde_json::Value as Json;
use tollgate_core::Kind;
use toml::de::DeValue;

use super::schema;
use super::{Reader, Reading, Value, in_order};
use crate::choice::{Mode, OnBadValue, OnStoreFailure, Unmatched};
use crate::draft::{Reference, name_problem};

/// A field of a limit.
pub(super) struct Field {
    pub(super) name: &'static str,
    /// What it is for, in the schema.
    pub(super) doc: &'static str,
    /// Whether it may also stand at the top of a file, for all limits in it.
    pub(super) file_wide: bool,
    pub(super) schema: fn() -> Json,
    pub(super) read: fn(&mut Reader, &Value<'_>, &mut Reading),
}

/// Every field, in the order of the docs.
pub(super) const FIELDS: &[Field] = &[
    Field {
        name: "domain",
        doc: "The group that the limit belongs to; only callers who name the same domain meet it. It cannot begin with @.",
        file_wide: true,
        schema: schema::domain,
        read: domain,
    },
    Field {
        name: "match",
        doc: "What the limit asks of which field. All must hold. Without any, it applies to every call.",
        file_wide: false,
        schema: schema::conditions,
        read: conditions,
    },
    Field {
        name: "when",
        doc: "Expressions in CEL that must be true as well, for example descriptors[0].path.startsWith('/api/').",
        file_wide: false,
        schema: schema::texts,
        read: when,
    },
    Field {
        name: "key",
        doc: "The fields and expressions whose values say who is counted. Without any, all are counted together. The limit does not apply where one of the fields is missing. Of an IPv6 address in a field named ip or remote_address 64 bits are counted, unless ipv6_prefix says otherwise; false counts every value as text.",
        file_wide: false,
        schema: schema::key,
        read: key,
    },
    Field {
        name: "rate",
        doc: "How much, for example 10/s, 600/min burst 50, 1 per 2.5s or unlimited. Of a list, all admit together or not at all.",
        file_wide: false,
        schema: schema::rates,
        read: rate,
    },
    Field {
        name: "overrides",
        doc: "Other rates for particular values of a field. The first field in the list that has some for a call decides.",
        file_wide: false,
        schema: schema::overrides,
        read: overrides,
    },
    Field {
        name: "algorithm",
        doc: "The arithmetic; token-bucket unless said otherwise.",
        file_wide: true,
        schema: || schema::choice(&kinds()),
        read: algorithm,
    },
    Field {
        name: "mode",
        doc: "enforce decides, shadow only counts and tells, off is as if the limit were not there, but where one with entries is off, a less specific one does not apply either.",
        file_wide: true,
        schema: || schema::choice(&modes()),
        read: mode,
    },
    Field {
        name: "cost",
        doc: "The field that says what a call costs, as a whole number. Where it is missing, the call costs what the caller says: 1, if nothing.",
        file_wide: false,
        schema: schema::text,
        read: cost,
    },
    Field {
        name: "on_store_failure",
        doc: "What to answer when a shared store cannot: local lets each process go on by itself, allow allows every call, deny denies it.",
        file_wide: true,
        schema: || schema::choice(&store_failures()),
        read: on_store_failure,
    },
    Field {
        name: "on_bad_value",
        doc: "What to do with a cost that is no whole number, or an expression that fails: default counts the value as absent, deny denies the call.",
        file_wide: true,
        schema: || schema::choice(&bad_values()),
        read: on_bad_value,
    },
    Field {
        name: "count_denied",
        doc: "Whether calls that are denied use up the limit too, each limit for itself, as Envoy's service counts.",
        file_wide: true,
        schema: schema::truth,
        read: |reader, value, reading| reader.truth(value, &mut reading.limit.count_denied),
    },
    Field {
        name: "envoy",
        doc: "The fields that only files of Envoy's rate limit service need.",
        file_wide: false,
        schema: || schema::table(ENVOY),
        read: |reader, value, reading| reader.table(value, "envoy", ENVOY, reading),
    },
    Field {
        name: "limitador",
        doc: "The fields that only files of limitador need.",
        file_wide: false,
        schema: || schema::table(LIMITADOR),
        read: |reader, value, reading| reader.table(value, "limitador", LIMITADOR, reading),
    },
];

/// The fields of the table `envoy` of a limit.
pub(super) const ENVOY: &[Field] = &[
    Field {
        name: "entries",
        doc: "What the limit asks of the descriptor's entries, one after the other: key, or key_value, with stars for any characters. They must be all that the descriptor has. Of the limits with entries only the most specific one applies.",
        file_wide: false,
        schema: schema::entries,
        read: entries,
    },
    Field {
        name: "label",
        doc: "What callers are told the limit is called; several may have one label. Without it they are told its name, unless it has entries.",
        file_wide: false,
        schema: schema::text,
        read: |reader, value, reading| reading.limit.envoy.label = reader.text(value, "a label"),
    },
    Field {
        name: "replaces",
        doc: "The names or labels of limits of the same domain that do not apply where this one does, for any descriptor of a call. A limit in shadow replaces only others in shadow, unless it has entries.",
        file_wide: false,
        schema: schema::texts,
        read: replaces,
    },
    Field {
        name: "any_of",
        doc: "Whether the limit denies a call only if all others like it deny it too.",
        file_wide: false,
        schema: schema::truth,
        read: |reader, value, reading| reader.truth(value, &mut reading.limit.envoy.any_of),
    },
    Field {
        name: "detailed_metric",
        doc: "Whether the limit's name in metrics has the values of all entries.",
        file_wide: false,
        schema: schema::truth,
        read: |reader, value, reading| reader.truth(value, &mut reading.limit.envoy.detailed_metric),
    },
    Field {
        name: "metadata",
        doc: "Whatever else belongs to the limit and comes with its answers, as JSON in a text.",
        file_wide: false,
        schema: schema::text,
        read: metadata,
    },
];

/// The fields of the table `limitador` of a limit.
pub(super) const LIMITADOR: &[Field] = &[
    Field {
        name: "name",
        doc: "What callers are told the limit is called; expressions see it as limit.name.",
        file_wide: false,
        schema: schema::text,
        read: |reader, value, reading| reading.limit.limitador.name = reader.text(value, "a name"),
    },
    Field {
        name: "id",
        doc: "What programs call the limit; expressions see it as limit.id.",
        file_wide: false,
        schema: schema::text,
        read: |reader, value, reading| reading.limit.limitador.id = reader.text(value, "an id"),
    },
    Field {
        name: "once",
        doc: "Whether a call with several descriptors is counted once, by its first, and not for each of them. Expressions then see all of them.",
        file_wide: false,
        schema: schema::truth,
        read: |reader, value, reading| reader.truth(value, &mut reading.limit.limitador.once),
    },
];

/// What stands at the top of a file for all of its domains.
pub(super) const UNMATCHED: &str = "unmatched";
/// What it is for, in the schema.
pub(super) const UNMATCHED_DOC: &str = "The decision for a call that no limit of its domain applies to, in every domain of the file; allow unless said otherwise.";

/// How a word is written that is no field of a limit, or no longer.
pub(super) fn spelling(word: &str) -> Option<String> {
    let now = match word {
        "per" => "key = { cel = \"…\" }, or in a list with fields: key = [\"ip\", { cel = \"…\" }]",
        "override" => OVERRIDES,
        "if_store_fails" => "on_store_failure",
        "count_refused" => "count_denied",
        "quota_mode" => "envoy.any_of",
        "priority" => {
            return Some("limits come in the order of the file: move this one up or down".to_owned());
        }
        _ => {
            let is_there = |fields: &[Field]| fields.iter().any(|field| field.name == word);
            let tables = [("envoy", ENVOY), ("limitador", LIMITADOR)];
            let (table, _) = tables.into_iter().find(|(_, fields)| is_there(fields))?;
            return Some(format!("write {table}.{word}"));
        }
    };
    Some(format!("write {now}"))
}

/// Overrides as they are written.
const OVERRIDES: &str = "overrides = [{ field = \"plan\", rates = { gold = \"1000/s\" } }]";

fn kinds() -> Vec<(&'static str, Kind)> {
    Kind::ALL.map(|kind| (kind.name(), kind)).to_vec()
}

fn modes() -> Vec<(&'static str, Mode)> {
    Mode::ALL.map(|mode| (mode.name(), mode)).to_vec()
}

pub(super) fn unmatched() -> Vec<(&'static str, Unmatched)> {
    Unmatched::ALL.map(|choice| (choice.name(), choice)).to_vec()
}

fn bad_values() -> Vec<(&'static str, OnBadValue)> {
    OnBadValue::ALL.map(|choice| (choice.name(), choice)).to_vec()
}

fn store_failures() -> Vec<(&'static str, OnStoreFailure)> {
    OnStoreFailure::ALL.map(|choice| (choice.name(), choice)).to_vec()
}

fn domain(reader: &mut Reader, value: &Value<'_>, reading: &mut Reading) {
    let Some(domain) = reader.text(value, "the name of a domain") else { return };
    match name_problem("domain", &domain) {
        Some(message) => reader.problem(value.span(), message, None),
        None => reading.limit.domain = domain,
    }
}

fn conditions(reader: &mut Reader, value: &Value<'_>, reading: &mut Reading) {
    let Some(table) = value.get_ref().as_table() else {
        let help = "for example match.path = \"/api/*\"".to_owned();
        return reader.expected(value, "a table of conditions", Some(help));
    };
    for (field, value) in in_order(table) {
        if field.get_ref().is_empty() {
            reader.problem(field.span(), "the name of a field cannot be empty", None);
        }
        if let Some(condition) = reader.condition(field.get_ref(), value) {
            reading.limit.conditions.push((field.get_ref().clone().into_owned(), condition));
        }
    }
}

fn when(reader: &mut Reader, value: &Value<'_>, reading: &mut Reading) {
    reading.limit.when = reader.expressions(value);
}

fn entries(reader: &mut Reader, value: &Value<'_>, reading: &mut Reading) {
    reading.limit.envoy.entries = match value.get_ref() {
        DeValue::Array(values) if values.is_empty() => {
            reader.problem(value.span(), "expected at least one entry, found an empty list", None);
            Vec::new()
        }
        DeValue::Array(values) => values.iter().filter_map(|value| reader.entry(value)).collect(),
        _ => reader.entry(value).into_iter().collect(),
    };
}

fn metadata(reader: &mut Reader, value: &Value<'_>, reading: &mut Reading) {
    let Some(text) = reader.text(value, "JSON in a text") else { return };
    match serde_json::from_str(&text) {
        Ok(json) => reading.limit.envoy.metadata = Some(json),
        Err(error) => reader.problem(value.span(), format!("this is not JSON: {error}"), None),
    }
}

fn key(reader: &mut Reader, value: &Value<'_>, reading: &mut Reading) {
    reading.limit.key = reader.key_parts(value);
}

fn rate(reader: &mut Reader, value: &Value<'_>, reading: &mut Reading) {
    reading.rate_at = Some(value.span());
    if let Some(rates) = reader.quotas(value) {
        reading.limit.rates = rates;
    }
}

fn algorithm(reader: &mut Reader, value: &Value<'_>, reading: &mut Reading) {
    if let Some(kind) = reader.choice(value, "algorithm", &kinds()) {
        reading.limit.kind = kind;
    }
}

fn mode(reader: &mut Reader, value: &Value<'_>, reading: &mut Reading) {
    if let Some(mode) = reader.choice(value, "mode", &modes()) {
        reading.limit.mode = mode;
    }
}

fn cost(reader: &mut Reader, value: &Value<'_>, reading: &mut Reading) {
    reading.limit.cost = reader.text(value, "the name of the field that says what a call costs");
}

fn overrides(reader: &mut Reader, value: &Value<'_>, reading: &mut Reading) {
    let Some(list) = value.get_ref().as_array() else {
        return reader.expected(value, "a list of overrides", Some(format!("write {OVERRIDES}")));
    };
    for one in list {
        if let Some((other, mut spans)) = reader.one_override(one) {
            reading.limit.overrides.push(other);
            reading.overrides_at.append(&mut spans);
        }
    }
}

fn replaces(reader: &mut Reader, value: &Value<'_>, reading: &mut Reading) {
    let names = reader.texts(value, "the name of a limit, or a list of names");
    let reference = |(name, span)| Reference { name, place: reader.place(span) };
    reading.limit.envoy.replaces = names.into_iter().map(reference).collect();
}

fn on_store_failure(reader: &mut Reader, value: &Value<'_>, reading: &mut Reading) {
    if let Some(choice) = reader.choice(value, "on_store_failure", &store_failures()) {
        reading.limit.on_store_failure = choice;
    }
}

fn on_bad_value(reader: &mut Reader, value: &Value<'_>, reading: &mut Reading) {
    if let Some(choice) = reader.choice(value, "on_bad_value", &bad_values()) {
        reading.limit.on_bad_value = choice;
    }
}
