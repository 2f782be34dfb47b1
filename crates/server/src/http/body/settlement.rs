//! What something held really cost.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, Visitor};

use super::values::{Amount, Name, parsed};
use crate::engine::PermitId;

/// What something held really cost.
#[derive(Debug)]
pub(in super::super) struct Settlement {
    pub(in super::super) id: PermitId,
    pub(in super::super) actual: u64,
}

pub(super) struct SettlementSeed;

const MEMBERS: &[&str] = &["id", "actual"];

impl<'de> DeserializeSeed<'de> for SettlementSeed {
    type Value = Settlement;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Settlement, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for SettlementSeed {
    type Value = Settlement;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with the id of what is held and what it actually cost")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Settlement, A::Error> {
        let (mut id, mut actual) = (None, None);
        while let Some(member) = object.next_key_seed(Name)? {
            match &*member {
                "id" if id.is_some() => return Err(A::Error::duplicate_field("id")),
                "id" => id = Some(parsed(&mut object)?),
                "actual" if actual.is_some() => return Err(A::Error::duplicate_field("actual")),
                "actual" => actual = Some(object.next_value_seed(Amount)?),
                other => return Err(A::Error::unknown_field(other, MEMBERS)),
            }
        }
        let id = id.ok_or_else(|| A::Error::missing_field("id"))?;
        let actual = actual.ok_or_else(|| A::Error::missing_field("actual"))?;
        Ok(Settlement { id, actual })
    }
}
