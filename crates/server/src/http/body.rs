//! What callers send: JSON, read once, borrowing from the body.

mod call;
mod settlement;
mod values;

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::limits::HttpLimits;
use super::refusal::{Place, Refusal};
use call::Draft;
pub(super) use call::{Call, OwnLimit, Target};
use settlement::SettlementSeed;
pub(super) use settlement::{ActualCost, Settlement};

/// What is checked: one, or several one after the other.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one at a time, and most are of the large kind")]
pub(super) enum Calls<'a> {
    One(Call<'a>),
    Many(Vec<Call<'a>>),
}

impl<'a> Calls<'a> {
    /// All of them.
    pub(super) fn iter(&self) -> std::slice::Iter<'_, Call<'a>> {
        match self {
            Self::One(call) => std::slice::from_ref(call).iter(),
            Self::Many(calls) => calls.iter(),
        }
    }
}

/// Reads what is to be checked.
pub(super) fn read_calls<'a>(body: &'a [u8], limits: &HttpLimits) -> Result<Calls<'a>, Refusal> {
    read(body, CallsSeed(limits))
}

/// Reads whose state is meant.
pub(super) fn read_target<'a>(body: &'a [u8], limits: &HttpLimits) -> Result<Target<'a>, Refusal> {
    read(body, TargetSeed(limits))
}

/// Reads what something held cost in the end.
pub(super) fn read_settlement<'a>(body: &'a [u8], limits: &HttpLimits) -> Result<Settlement<'a>, Refusal> {
    read(body, SettlementSeed(limits))
}

fn read<'a, T>(body: &'a [u8], seed: impl DeserializeSeed<'a, Value = T>) -> Result<T, Refusal> {
    if body.is_empty() {
        return Err(Refusal::bad("the body is empty; expected JSON"));
    }
    let mut json = serde_json::Deserializer::from_slice(body);
    let value = seed.deserialize(&mut json).and_then(|value| json.end().map(|()| value));
    value.map_err(|error| refusal(&error))
}

fn refusal(error: &serde_json::Error) -> Refusal {
    let (line, column) = (error.line(), error.column());
    let text = error.to_string();
    let detail = text.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&text).to_owned();
    Refusal::bad(detail).at(Place::Text { line, column })
}

/// Reads one check, several in a list, or several in an object that names them.
struct CallsSeed<'l>(&'l HttpLimits);

impl<'de> DeserializeSeed<'de> for CallsSeed<'_> {
    type Value = Calls<'de>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Calls<'de>, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for CallsSeed<'_> {
    type Value = Calls<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a check, or a list of checks")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Calls<'de>, A::Error> {
        ListSeed(self.0).visit_seq(list).map(Calls::Many)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Calls<'de>, A::Error> {
        let mut name = object.next_key_seed(values::Name)?;
        if name.as_deref() == Some("checks") {
            let calls = object.next_value_seed(ListSeed(self.0))?;
            return match object.next_key_seed(values::Name)? {
                Some(name) if name == "checks" => Err(A::Error::duplicate_field("checks")),
                Some(name) => {
                    Err(A::Error::custom(format_args!("`{name}` cannot be combined with `checks`")))
                }
                None => Ok(Calls::Many(calls)),
            };
        }
        let mut draft = Draft::new(self.0, call::CHECK);
        while let Some(known) = name {
            draft.read(&known, &mut object)?;
            name = object.next_key_seed(values::Name)?;
        }
        draft.call().map(Calls::One)
    }
}

/// Reads a list of checks.
struct ListSeed<'l>(&'l HttpLimits);

impl<'de> DeserializeSeed<'de> for ListSeed<'_> {
    type Value = Vec<Call<'de>>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for ListSeed<'_> {
    type Value = Vec<Call<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of checks")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut calls = Vec::new();
        while let Some(call) = list.next_element_seed(CallSeed(self.0))? {
            if calls.len() == self.0.checks {
                return Err(A::Error::custom(format_args!(
                    "too many checks: the maximum is {}",
                    self.0.checks
                )));
            }
            calls.push(call);
        }
        Ok(calls)
    }
}

/// Reads one check of a list.
struct CallSeed<'l>(&'l HttpLimits);

impl<'de> DeserializeSeed<'de> for CallSeed<'_> {
    type Value = Call<'de>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Call<'de>, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for CallSeed<'_> {
    type Value = Call<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a check")
    }

    fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<Call<'de>, A::Error> {
        Draft::new(self.0, call::CHECK).read_all(object)?.call()
    }
}

/// Reads whose state is meant.
struct TargetSeed<'l>(&'l HttpLimits);

impl<'de> DeserializeSeed<'de> for TargetSeed<'_> {
    type Value = Target<'de>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Target<'de>, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for TargetSeed<'_> {
    type Value = Target<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with a descriptor, or with a limit and a key")
    }

    fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<Target<'de>, A::Error> {
        Draft::new(self.0, call::TARGET).read_all(object)?.target()
    }
}
