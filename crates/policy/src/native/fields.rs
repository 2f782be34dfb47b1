//! The fields of a limit, and of its tables `envoy` and `limitador`. The reader of files and the JSON schema use this table.

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
    /// Its description in the schema.
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
        doc: "The group of the limit. It applies only to requests that name the same domain. The name cannot begin with @. Default: default.",
        file_wide: true,
        schema: schema::domain,
        read: domain,
    },
    Field {
        name: "match",
        doc: "Conditions on fields. All of them must hold. Without any, the limit applies to every request.",
        file_wide: false,
        schema: schema::conditions,
        read: conditions,
    },
    Field {
        name: "when",
        doc: "Conditions in CEL that must hold as well, for example descriptors[0].path.startsWith('/api/').",
        file_wide: false,
        schema: schema::texts,
        read: when,
    },
    Field {
        name: "key",
        doc: "The fields and expressions that say who is counted: each combination of values has its own counter. Without a key, one counter serves all requests. The limit does not apply if one of the fields is missing. IPv6 addresses in a field named ip or remote_address are grouped by their first 64 bits, in other fields they are counted as text; ipv6_prefix sets another number of bits, or false for text.",
        file_wide: false,
        schema: schema::key,
        read: key,
    },
    Field {
        name: "rate",
        doc: "How much is allowed, for example 10/s, 600/min burst 50, 1 per 2.5s or unlimited. If it is a list, each rate must allow the request.",
        file_wide: false,
        schema: schema::rates,
        read: rate,
    },
    Field {
        name: "overrides",
        doc: "Other rates for particular values of a field. The first override that has a rate for the value in the request decides.",
        file_wide: false,
        schema: schema::overrides,
        read: overrides,
    },
    Field {
        name: "algorithm",
        doc: "How requests are counted. Default: token-bucket.",
        file_wide: true,
        schema: || schema::choice(&kinds()),
        read: algorithm,
    },
    Field {
        name: "mode",
        doc: "enforce: the limit denies requests. shadow: it counts and reports, but denies nothing. off: it is ignored; but if it has entries, a less specific limit with entries does not apply in its place. Default: enforce.",
        file_wide: true,
        schema: || schema::choice(&modes()),
        read: mode,
    },
    Field {
        name: "cost",
        doc: "The field that holds the cost of a request, a whole number. Without the field, the cost in the request counts, or 1.",
        file_wide: false,
        schema: schema::text,
        read: cost,
    },
    Field {
        name: "on_store_failure",
        doc: "The decision while Redis is unavailable. local: each server counts on its own. allow: the limit allows every request. deny: it denies every request. Default: local.",
        file_wide: true,
        schema: || schema::choice(&store_failures()),
        read: on_store_failure,
    },
    Field {
        name: "on_bad_value",
        doc: "What to do with a cost that is not a whole number, or an expression that fails. default: the value counts as missing. deny: the request is denied. Default: default.",
        file_wide: true,
        schema: || schema::choice(&bad_values()),
        read: on_bad_value,
    },
    Field {
        name: "count_denied",
        doc: "true: denied requests count as well, each limit for itself, as in envoyproxy/ratelimit. Default: false.",
        file_wide: true,
        schema: schema::truth,
        read: |reader, value, reading| reader.truth(value, &mut reading.limit.count_denied),
    },
    Field {
        name: "envoy",
        doc: "Fields that files of envoyproxy/ratelimit need.",
        file_wide: false,
        schema: || schema::table(ENVOY),
        read: |reader, value, reading| reader.table(value, "envoy", ENVOY, reading),
    },
    Field {
        name: "limitador",
        doc: "Fields that files of limitador need.",
        file_wide: false,
        schema: || schema::table(LIMITADOR),
        read: |reader, value, reading| reader.table(value, "limitador", LIMITADOR, reading),
    },
];

/// The fields of the table `envoy` of a limit.
pub(super) const ENVOY: &[Field] = &[
    Field {
        name: "entries",
        doc: "The entries that the descriptor must have, exactly these, in this order: key, or key_value, with * for any characters. Of the limits with entries, only the most specific one applies.",
        file_wide: false,
        schema: schema::entries,
        read: entries,
    },
    Field {
        name: "label",
        doc: "The name of the limit in gRPC responses. Several limits may have the same label. Default: the name of the limit, or none if it has entries.",
        file_wide: false,
        schema: schema::text,
        read: |reader, value, reading| reading.limit.envoy.label = reader.text(value, "a label"),
    },
    Field {
        name: "replaces",
        doc: "Names or labels of limits of the same domain that do not apply where this one applies, for any descriptor of the request. A limit in shadow mode replaces only others in shadow mode, unless it has entries.",
        file_wide: false,
        schema: schema::texts,
        read: replaces,
    },
    Field {
        name: "any_of",
        doc: "true: of all such limits that apply, it is enough that one allows the request. Default: false.",
        file_wide: false,
        schema: schema::truth,
        read: |reader, value, reading| reader.truth(value, &mut reading.limit.envoy.any_of),
    },
    Field {
        name: "detailed_metric",
        doc: "Kept from Envoy files. The metrics of tollgate use the name of the limit. Default: false.",
        file_wide: false,
        schema: schema::truth,
        read: |reader, value, reading| reader.truth(value, &mut reading.limit.envoy.detailed_metric),
    },
    Field {
        name: "metadata",
        doc: "A JSON object, written as a text. Envoy receives it as dynamic metadata if grpc.dynamic_metadata is set.",
        file_wide: false,
        schema: schema::text,
        read: metadata,
    },
];

/// The fields of the table `limitador` of a limit.
pub(super) const LIMITADOR: &[Field] = &[
    Field {
        name: "name",
        doc: "The name of the limit in gRPC responses. Expressions read it as limit.name. Default: the name of the limit.",
        file_wide: false,
        schema: schema::text,
        read: |reader, value, reading| reading.limit.limitador.name = reader.text(value, "a name"),
    },
    Field {
        name: "id",
        doc: "An identifier that expressions read as limit.id.",
        file_wide: false,
        schema: schema::text,
        read: |reader, value, reading| reading.limit.limitador.id = reader.text(value, "an id"),
    },
    Field {
        name: "once",
        doc: "true: a request with several descriptors counts once, by its first descriptor. Expressions then see all descriptors. Default: false.",
        file_wide: false,
        schema: schema::truth,
        read: |reader, value, reading| reader.truth(value, &mut reading.limit.limitador.once),
    },
];

/// What stands at the top of a file for all of its domains.
pub(super) const UNMATCHED: &str = "unmatched";
/// Its description in the schema.
pub(super) const UNMATCHED_DOC: &str =
    "The decision if no limit applies to a request, in every domain of the file. Default: allow.";

/// How a word is written that is no field of a limit, or no longer.
pub(super) fn spelling(word: &str) -> Option<String> {
    let now = match word {
        "per" => "key = { cel = \"…\" }, or in a list with fields: key = [\"ip\", { cel = \"…\" }]",
        "override" => OVERRIDES,
        "if_store_fails" => "on_store_failure",
        "count_refused" => "count_denied",
        "quota_mode" => "envoy.any_of",
        "priority" => {
            return Some("limits are in the order of the file: move this one up or down".to_owned());
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
        Err(error) => reader.problem(value.span(), format!("invalid JSON: {error}"), None),
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
    reading.limit.cost = reader.text(value, "the name of the field with the cost");
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
