//! The fields of a limit: the one table that files are read by and that the JSON schema is made from.

use serde_json::{Value as Json, json};
use tollgate_core::Kind;
use toml::de::DeValue;

use super::schema;
use super::{Reader, Reading, Value, in_order};
use crate::choice::{IfStoreFails, Mode};
use crate::draft::{Override, Reference, name_problem};

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
        name: "entries",
        doc: "What the limit asks of the descriptor's entries, one after the other, as in Envoy's files: key, or key_value, with stars for any characters. They must be all that the descriptor has. Of the limits with entries only the most specific one applies.",
        file_wide: false,
        schema: schema::entries,
        read: entries,
    },
    Field {
        name: "once",
        doc: "Whether a call with several descriptors is counted once, by its first, and not for each of them. Expressions then see all of them.",
        file_wide: true,
        schema: schema::truth,
        read: |reader, value, reading| reader.truth(value, &mut reading.limit.once),
    },
    Field {
        name: "key",
        doc: "The field, or the fields, whose values say who is counted. Without any, all are counted together. The limit does not apply where one of the fields is missing.",
        file_wide: false,
        schema: schema::texts,
        read: key,
    },
    Field {
        name: "per",
        doc: "Expressions in CEL whose values say who is counted, beside the fields of the key. The limit does not apply where one needs a field that is missing.",
        file_wide: false,
        schema: schema::texts,
        read: per,
    },
    Field {
        name: "rate",
        doc: "How much, for example 10/s, 600/min burst 50, 1 per 2.5s or unlimited. Of a list, all admit together or not at all.",
        file_wide: false,
        schema: schema::rates,
        read: rate,
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
        name: "override",
        doc: "Other rates for particular values of a field. If several fields have one, the field that comes first in the file goes before the others.",
        file_wide: false,
        schema: schema::overrides,
        read: overrides,
    },
    Field {
        name: "priority",
        doc: "The higher, the earlier among the limits that apply; 0 unless said otherwise.",
        file_wide: false,
        schema: || json!({ "type": "integer", "minimum": i32::MIN, "maximum": i32::MAX }),
        read: priority,
    },
    Field {
        name: "replaces",
        doc: "The names or labels of limits of the same domain that do not apply where this one does, for any descriptor of a call. A limit in shadow replaces only others in shadow, unless it has entries.",
        file_wide: false,
        schema: schema::texts,
        read: replaces,
    },
    Field {
        name: "if_store_fails",
        doc: "What to answer when a shared store cannot: local lets each process go on by itself, allow lets everything pass, deny nothing.",
        file_wide: true,
        schema: || schema::choice(&store_failures()),
        read: if_store_fails,
    },
    Field {
        name: "count_refused",
        doc: "Whether calls that are refused use up the limit too, each limit for itself, as Envoy's service counts.",
        file_wide: true,
        schema: schema::truth,
        read: |reader, value, reading| reader.truth(value, &mut reading.limit.count_refused),
    },
    Field {
        name: "quota_mode",
        doc: "Whether the limit refuses a call only if all others like it refuse it too.",
        file_wide: false,
        schema: schema::truth,
        read: |reader, value, reading| reader.truth(value, &mut reading.limit.quota_mode),
    },
    Field {
        name: "detailed_metric",
        doc: "Whether the limit's name in metrics has the values of all entries.",
        file_wide: false,
        schema: schema::truth,
        read: |reader, value, reading| reader.truth(value, &mut reading.limit.detailed_metric),
    },
    Field {
        name: "label",
        doc: "What callers are told the limit is called; several may have one label. Without it they are told its name, unless it has entries.",
        file_wide: false,
        schema: schema::text,
        read: |reader, value, reading| reading.limit.label = reader.text(value, "a label"),
    },
    Field {
        name: "id",
        doc: "What programs call the limit; expressions see it as limit.id.",
        file_wide: false,
        schema: schema::text,
        read: |reader, value, reading| reading.limit.id = reader.text(value, "an id"),
    },
    Field {
        name: "metadata",
        doc: "Whatever else belongs to the limit and comes with its answers, as JSON in a text.",
        file_wide: false,
        schema: schema::text,
        read: metadata,
    },
];

fn kinds() -> Vec<(&'static str, Kind)> {
    Kind::ALL.map(|kind| (kind.name(), kind)).to_vec()
}

fn modes() -> Vec<(&'static str, Mode)> {
    Mode::ALL.map(|mode| (mode.name(), mode)).to_vec()
}

fn store_failures() -> Vec<(&'static str, IfStoreFails)> {
    IfStoreFails::ALL.map(|choice| (choice.name(), choice)).to_vec()
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
        if let Some(condition) = reader.condition(value) {
            reading.limit.conditions.push((field.get_ref().clone().into_owned(), condition));
        }
    }
}

fn when(reader: &mut Reader, value: &Value<'_>, reading: &mut Reading) {
    reading.limit.when = reader.expressions(value);
}

fn per(reader: &mut Reader, value: &Value<'_>, reading: &mut Reading) {
    reading.limit.per = reader.expressions(value);
}

fn entries(reader: &mut Reader, value: &Value<'_>, reading: &mut Reading) {
    reading.limit.entries = match value.get_ref() {
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
        Ok(json) => reading.limit.metadata = Some(json),
        Err(error) => reader.problem(value.span(), format!("this is not JSON: {error}"), None),
    }
}

fn key(reader: &mut Reader, value: &Value<'_>, reading: &mut Reading) {
    reading.limit.key = reader.field_names(value, "the name of a field, or a list of names");
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
    let example = || Some("for example override.plan.gold = \"1000/s\"".to_owned());
    let Some(fields) = value.get_ref().as_table() else {
        return reader.expected(value, "a table of fields", example());
    };
    for (field, value) in in_order(fields) {
        let Some(values) = value.get_ref().as_table() else {
            reader.expected(value, "a table of values and their rates", example());
            continue;
        };
        for (name, rates) in in_order(values) {
            if name.get_ref().contains('*') {
                let help =
                    "for many values at once write a limit of its own, with match and replaces".to_owned();
                reader.problem(name.span(), "an override has no wildcards", Some(help));
            }
            let (field, value) = (field.get_ref().clone().into_owned(), name.get_ref().clone().into_owned());
            let span = rates.span();
            let rates = reader.quotas(rates).unwrap_or_else(|| vec![tollgate_core::Quota::UNLIMITED]);
            reading.limit.overrides.push(Override { field, value, rates });
            reading.overrides_at.push(span);
        }
    }
}

fn priority(reader: &mut Reader, value: &Value<'_>, reading: &mut Reading) {
    if let Some(priority) = reader.whole_number(value) {
        reading.limit.priority = priority;
    }
}

fn replaces(reader: &mut Reader, value: &Value<'_>, reading: &mut Reading) {
    let names = reader.texts(value, "the name of a limit, or a list of names");
    let reference = |(name, span)| Reference { name, place: reader.place(span) };
    reading.limit.replaces = names.into_iter().map(reference).collect();
}

fn if_store_fails(reader: &mut Reader, value: &Value<'_>, reading: &mut Reading) {
    if let Some(choice) = reader.choice(value, "if_store_fails", &store_failures()) {
        reading.limit.if_store_fails = choice;
    }
}
