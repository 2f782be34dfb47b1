//! The JSON schema of a policy file, for editors.

use serde_json::{Map, Value as Json, json};

use super::LIMIT;
use super::fields::{FIELDS, Field, UNMATCHED, UNMATCHED_DOC, unmatched};
use super::values::{ENTRY_WORDS, KEY_WORDS, OVERRIDE_WORDS, WORDS};

/// A rate. It refuses less than the parser does; what it accepts beyond that, the parser refuses with better words.
const RATE: &str = r"^\s*([Uu][Nn][Ll][Ii][Mm][Ii][Tt][Ee][Dd]|[0-9][0-9_]*\s*(/|\sper\s)\s*([0-9_]*\.?[0-9]*\s*)([a-zµμ]+)(\s+burst\s+[0-9][0-9_]*)?)\s*$";

/// The JSON schema of a policy file (draft 7, which editors understand best).
///
/// It knows every field and every word; what only the whole file can tell, such as a name that does not exist, only
/// [`read`](crate::read) finds.
pub fn schema() -> Json {
    let mut file = properties(FIELDS.iter().filter(|field| field.file_wide));
    let mut word = choice(&unmatched());
    word["description"] = UNMATCHED_DOC.into();
    file.insert(UNMATCHED.to_owned(), word);
    let mut limit = table(FIELDS);
    limit["required"] = json!(["rate"]);
    file.insert(
        LIMIT.to_owned(),
        json!({
            "description": "The limits by their names.",
            "type": "object",
            "minProperties": 1,
            "propertyNames": name(),
            "additionalProperties": limit,
        }),
    );
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "tollgate policy",
        "type": "object",
        "properties": file,
        "required": [LIMIT],
        "additionalProperties": false,
    })
}

fn properties<'f>(fields: impl Iterator<Item = &'f Field>) -> Map<String, Json> {
    let describe = |field: &Field| {
        let mut schema = (field.schema)();
        schema["description"] = field.doc.into();
        (field.name.to_owned(), schema)
    };
    fields.map(describe).collect()
}

/// A table with these fields.
pub(super) fn table(fields: &[Field]) -> Json {
    json!({ "type": "object", "properties": properties(fields.iter()), "additionalProperties": false })
}

/// Fields and expressions.
pub(super) fn key() -> Json {
    let [field, ipv6_prefix, cel] = KEY_WORDS;
    let name = json!({ "type": "string", "minLength": 1 });
    let bits = json!({ "anyOf": [{ "type": "integer", "minimum": 1, "maximum": 128 }, { "const": false }] });
    let long = json!({
        "type": "object",
        "properties": { field: name, ipv6_prefix: bits },
        "required": [field],
        "additionalProperties": false,
    });
    let computed = json!({
        "type": "object",
        "properties": { cel: text() },
        "required": [cel],
        "additionalProperties": false,
    });
    one_or_more(&json!({ "anyOf": [name, long, computed] }))
}

pub(super) fn name() -> Json {
    json!({ "type": "string", "pattern": r"^[!#-\[\]-~]{1,128}$" })
}

/// Domains that begin with `@` are those of limits that callers supply.
pub(super) fn domain() -> Json {
    json!({ "type": "string", "pattern": r"^[!#-?A-\[\]-~][!#-\[\]-~]{0,127}$" })
}

pub(super) fn text() -> Json {
    json!({ "type": "string" })
}

pub(super) fn truth() -> Json {
    json!({ "type": "boolean" })
}

pub(super) fn entries() -> Json {
    let [entry, shared, in_metrics] = ENTRY_WORDS;
    let long = json!({
        "type": "object",
        "properties": { entry: { "type": "string", "minLength": 1 }, shared: truth(), in_metrics: truth() },
        "required": [entry],
        "additionalProperties": false,
    });
    one_or_more(&json!({ "anyOf": [{ "type": "string", "minLength": 1 }, long] }))
}

pub(super) fn texts() -> Json {
    one_or_more(&text())
}

pub(super) fn rates() -> Json {
    one_or_more(&json!({ "type": "string", "pattern": RATE }))
}

fn one_or_more(one: &Json) -> Json {
    json!({ "anyOf": [one, { "type": "array", "items": one, "minItems": 1 }] })
}

pub(super) fn choice<T>(all: &[(&'static str, T)]) -> Json {
    json!({ "enum": all.iter().map(|(word, _)| *word).collect::<Vec<_>>() })
}

pub(super) fn conditions() -> Json {
    let [is, like, network, absent] = WORDS;
    let values = json!({
        "type": "object",
        "properties": { is: texts(), like: texts(), network: texts() },
        "minProperties": 1,
        "additionalProperties": false,
    });
    let presence = json!({
        "type": "object",
        "properties": { absent: { "type": "boolean" } },
        "required": [absent],
        "additionalProperties": false,
    });
    let condition =
        json!({ "anyOf": [text(), { "type": "array", "items": text(), "minItems": 1 }, values, presence] });
    json!({ "type": "object", "propertyNames": { "minLength": 1 }, "additionalProperties": condition })
}

pub(super) fn overrides() -> Json {
    let [field, values] = OVERRIDE_WORDS;
    let by_value = json!({
        "type": "object",
        "propertyNames": { "pattern": r"^[^*]*$" },
        "additionalProperties": rates(),
        "minProperties": 1,
    });
    let one = json!({
        "type": "object",
        "properties": { field: text(), values: by_value },
        "required": [field, values],
        "additionalProperties": false,
    });
    json!({ "type": "array", "items": one })
}
