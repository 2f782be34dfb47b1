//! What other filters of Envoy are told of a call.

use std::collections::BTreeMap;

use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value};
use serde_json::Value as Json;
use tollgate_policy::escaped;

use super::call::Wish;
use super::proto::{RateLimitDescriptor, RateLimitRequest, Unit};
use super::reply::chosen;
use crate::engine::{Finding, Ruling};

/// The domain, the descriptors as they were asked, and what the limits say of themselves.
pub(super) fn of(request: &RateLimitRequest, wishes: &[Wish<'_>], ruling: &Ruling<'_>) -> Struct {
    let descriptors = request.descriptors.iter().zip(wishes).map(|(asked, wish)| descriptor(asked, wish));
    let mut fields = BTreeMap::from([
        ("domain".to_owned(), text(&request.domain)),
        ("descriptors".to_owned(), list(descriptors.collect())),
    ]);
    if request.hits_addend > 0 {
        fields.insert("hitsAddend".to_owned(), number(request.hits_addend.into()));
    }
    let own = of_limits((0..wishes.len()).filter_map(|place| chosen(ruling, place)));
    if !own.is_empty() {
        fields.insert("metadata".to_owned(), object(own));
    }
    if ruling.is_degraded() {
        fields.insert("degraded".to_owned(), Value { kind: Some(Kind::BoolValue(true)) });
    }
    Struct { fields }
}

/// What the limits say of themselves that the call has passed; where several say the same thing, the first.
fn of_limits<'f>(findings: impl Iterator<Item = &'f Finding<'f>>) -> BTreeMap<String, Value> {
    let passed = findings.filter(|finding| finding.is_shadow || !finding.is_refusal());
    let said = passed.filter_map(|finding| finding.limit.metadata.as_ref()?.as_object());
    let mut all = BTreeMap::new();
    for (name, value) in said.flatten() {
        all.entry(name.clone()).or_insert_with(|| json(value));
    }
    all
}

fn json(value: &Json) -> Value {
    match value {
        Json::Null => Value { kind: Some(Kind::NullValue(0)) },
        Json::Bool(truth) => Value { kind: Some(Kind::BoolValue(*truth)) },
        Json::Number(all) => number(all.as_f64().unwrap_or_default()),
        Json::String(all) => text(all),
        Json::Array(all) => list(all.iter().map(json).collect()),
        Json::Object(all) => object(all.iter().map(|(name, value)| (name.clone(), json(value))).collect()),
    }
}

fn descriptor(asked: &RateLimitDescriptor, wish: &Wish<'_>) -> Value {
    let entry = |(key, value): &(&str, &[u8])| text(&format!("{key}={}", escaped(value)));
    let mut fields = BTreeMap::from([("entries".to_owned(), list(wish.fields.iter().map(entry).collect()))]);
    if let Some(limit) = asked.limit {
        let unit = Unit::try_from(limit.unit).unwrap_or(Unit::Unknown);
        let limit = BTreeMap::from([
            ("requestsPerUnit".to_owned(), number(limit.requests_per_unit.into())),
            ("unit".to_owned(), text(unit.name())),
        ]);
        fields.insert("limit".to_owned(), object(limit));
    }
    if let Some(hits) = asked.hits_addend {
        #[allow(clippy::cast_precision_loss, reason = "there are no other numbers there")]
        fields.insert("hitsAddend".to_owned(), number(hits as f64));
    }
    object(fields)
}

fn text(text: &str) -> Value {
    Value { kind: Some(Kind::StringValue(text.to_owned())) }
}

fn number(number: f64) -> Value {
    Value { kind: Some(Kind::NumberValue(number)) }
}

fn list(values: Vec<Value>) -> Value {
    Value { kind: Some(Kind::ListValue(ListValue { values })) }
}

fn object(fields: BTreeMap<String, Value>) -> Value {
    Value { kind: Some(Kind::StructValue(Struct { fields })) }
}
