//! The actual cost of a hold.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, Visitor};
use smallvec::SmallVec;

use super::super::limits::HttpLimits;
use super::values::{Amount, Name, parsed};
use crate::engine::PermitId;

/// The actual cost of a hold.
#[derive(Debug)]
pub(in super::super) struct Settlement<'a> {
    pub(in super::super) id: PermitId,
    pub(in super::super) actual: ActualCost<'a>,
}

/// One cost, or some by the names of their fields.
#[derive(Debug)]
pub(in super::super) enum ActualCost<'a> {
    One(u64),
    ByField(SmallVec<[(Cow<'a, str>, u64); 2]>),
}

/// Reads a settlement.
pub(super) struct SettlementSeed<'l>(pub(super) &'l HttpLimits);

const MEMBERS: &[&str] = &["id", "actual"];

impl<'de> DeserializeSeed<'de> for SettlementSeed<'_> {
    type Value = Settlement<'de>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Settlement<'de>, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for SettlementSeed<'_> {
    type Value = Settlement<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with `id` and `actual`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Settlement<'de>, A::Error> {
        let (mut id, mut actual) = (None, None);
        while let Some(member) = object.next_key_seed(Name)? {
            match &*member {
                "id" if id.is_some() => return Err(A::Error::duplicate_field("id")),
                "id" => id = Some(parsed(&mut object, "`id`", "the id of a hold")?),
                "actual" if actual.is_some() => return Err(A::Error::duplicate_field("actual")),
                "actual" => actual = Some(object.next_value_seed(ActualSeed(self.0))?),
                other => return Err(A::Error::unknown_field(other, MEMBERS)),
            }
        }
        let id = id.ok_or_else(|| A::Error::missing_field("id"))?;
        let actual = actual.ok_or_else(|| A::Error::missing_field("actual"))?;
        Ok(Settlement { id, actual })
    }
}

/// Reads an actual cost.
struct ActualSeed<'l>(&'l HttpLimits);

impl<'de> DeserializeSeed<'de> for ActualSeed<'_> {
    type Value = ActualCost<'de>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<ActualCost<'de>, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ActualSeed<'_> {
    type Value = ActualCost<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Amount.expecting(f)?;
        f.write_str(", or an object with such a number for each cost field")
    }

    fn visit_u64<E: Error>(self, amount: u64) -> Result<ActualCost<'de>, E> {
        Amount.visit_u64(amount).map(ActualCost::One)
    }

    fn visit_i64<E: Error>(self, amount: i64) -> Result<ActualCost<'de>, E> {
        Amount.visit_i64(amount).map(ActualCost::One)
    }

    fn visit_f64<E: Error>(self, amount: f64) -> Result<ActualCost<'de>, E> {
        Amount.visit_f64(amount).map(ActualCost::One)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<ActualCost<'de>, A::Error> {
        let mut costs: SmallVec<[(Cow<'de, str>, u64); 2]> = SmallVec::new();
        while let Some(name) = object.next_key_seed(Name)? {
            if costs.len() == self.0.fields {
                let most = self.0.fields;
                return Err(A::Error::custom(format_args!("too many fields: the maximum is {most}")));
            }
            if costs.iter().any(|(known, _)| *known == name) {
                return Err(A::Error::custom(format_args!("duplicate field `{name}`")));
            }
            let cost = object.next_value_seed(Amount)?;
            costs.push((name, cost));
        }
        Ok(ActualCost::ByField(costs))
    }
}
