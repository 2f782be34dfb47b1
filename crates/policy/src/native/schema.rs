//! The JSON schema of a policy file, for editors.

use serde_json::{Map, Value as Json, json};

use super::LIMIT;
use super::fields::{FIELDS, Field};
use super::values::{ENTRY_WORDS, WORDS};

/// A rate. It refuses less than the parser does; what it accepts beyond that, the parser refuses with better words.
const RATE: &str = r"^\s*([Uu][Nn][Ll][Ii][Mm][Ii][Tt][Ee][Dd]|[0-9][0-9_]*\s*(/|\sper\s)\s*([0-9_]*\.?[0-9]*\s*)([a-zµμ]+)(\s+burst\s+[0-9][0-9_]*)?)\s*$";

/// The JSON schema of a policy file (draft 7, which editors understand best).
///
/// It knows every field and every word; what only the whole file can tell, such as a name that does not exist, only
/// [`read`](crate::read) finds.
pub fn schema() -> Json {
    let mut file = properties(FIELDS.iter().filter(|field| field.file_wide));
    let limit = json!({
        "type": "object",
        "properties": properties(FIELDS.iter()),
        "required": ["rate"],
        "additionalProperties": false,
    });
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
    let values = json!({
        "type": "object",
        "propertyNames": { "pattern": r"^[^*]*$" },
        "additionalProperties": rates(),
    });
    json!({ "type": "object", "additionalProperties": values })
}
