//! One check, and whose state it is about.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, Visitor};
use tollgate::store::Mode;
use tollgate::{Kind, Quota};
use tollgate_policy::DEFAULT_DOMAIN;

use super::super::limits::HttpLimits;
use super::values::{Amount, Descriptor, Fields, Name, Text, hold, mode, parsed};

/// One check.
#[derive(Debug)]
pub(in super::super) struct Call<'a> {
    pub(in super::super) target: Target<'a>,
    pub(in super::super) cost: Option<u64>,
    pub(in super::super) mode: Mode,
    pub(in super::super) hold: Option<Duration>,
}

/// Whose state is meant.
#[derive(Debug)]
pub(in super::super) enum Target<'a> {
    /// That of the policy's limits that apply.
    Policy { domain: Cow<'a, str>, fields: Fields<'a> },
    /// A limit that the caller supplies.
    Limit { limit: OwnLimit<'a>, key: Cow<'a, str> },
}

/// A limit that the caller supplies.
#[derive(Debug)]
pub(in super::super) struct OwnLimit<'a> {
    pub(in super::super) name: Cow<'a, str>,
    pub(in super::super) kind: Kind,
    pub(in super::super) quota: Quota,
}

/// The members of a check.
pub(super) const CHECK: &[&str] = &["domain", "descriptor", "limit", "key", "cost", "mode", "hold"];

/// The members that say whose state is meant.
pub(super) const TARGET: &[&str] = &["domain", "descriptor", "limit", "key"];

/// A check that is being read.
pub(super) struct Draft<'a, 'l> {
    limits: &'l HttpLimits,
    members: &'static [&'static str],
    domain: Option<Cow<'a, str>>,
    fields: Option<Fields<'a>>,
    limit: Option<OwnLimit<'a>>,
    key: Option<Cow<'a, str>>,
    cost: Option<u64>,
    mode: Option<Mode>,
    hold: Option<Duration>,
}

impl<'a, 'l> Draft<'a, 'l> {
    pub(super) fn new(limits: &'l HttpLimits, members: &'static [&'static str]) -> Self {
        Self {
            limits,
            members,
            domain: None,
            fields: None,
            limit: None,
            key: None,
            cost: None,
            mode: None,
            hold: None,
        }
    }

    pub(super) fn read_all<A: MapAccess<'a>>(mut self, mut object: A) -> Result<Self, A::Error> {
        while let Some(name) = object.next_key_seed(Name)? {
            self.read(&name, &mut object)?;
        }
        Ok(self)
    }

    /// Reads one member.
    pub(super) fn read<A: MapAccess<'a>>(&mut self, name: &str, object: &mut A) -> Result<(), A::Error> {
        let Some(&member) = self.members.iter().find(|known| **known == name) else {
            return Err(A::Error::unknown_field(name, self.members));
        };
        let longest = self.limits.key_length;
        match member {
            "domain" => {
                set(member, &mut self.domain, || object.next_value_seed(Text { what: "`domain`", longest }))
            }
            "descriptor" => set(member, &mut self.fields, || object.next_value_seed(Descriptor(self.limits))),
            "limit" => set(member, &mut self.limit, || object.next_value_seed(OwnLimitSeed)),
            "key" => set(member, &mut self.key, || object.next_value_seed(Text { what: "`key`", longest })),
            "cost" => set(member, &mut self.cost, || object.next_value_seed(Amount)),
            "mode" => set(member, &mut self.mode, || mode(object)),
            _ => set(member, &mut self.hold, || hold(object)),
        }
    }

    pub(super) fn call<E: Error>(mut self) -> Result<Call<'a>, E> {
        let mode = self.mode.unwrap_or(Mode::Take);
        let (cost, hold) = (self.cost, self.hold.take());
        if hold.is_some() && mode != Mode::Take {
            return Err(E::custom("`hold` needs the mode `take`"));
        }
        Ok(Call { target: self.target()?, cost, mode, hold })
    }

    pub(super) fn target<E: Error>(self) -> Result<Target<'a>, E> {
        match (self.domain, self.fields, self.limit, self.key) {
            (domain, Some(fields), None, None) => {
                Ok(Target::Policy { domain: domain.unwrap_or(Cow::Borrowed(DEFAULT_DOMAIN)), fields })
            }
            (None, None, Some(limit), Some(key)) => Ok(Target::Limit { limit, key }),
            (_, Some(_), _, _) => Err(E::custom("`descriptor` cannot be combined with `limit` or `key`")),
            (Some(_), _, Some(_), _) => Err(E::custom("`domain` needs a `descriptor`")),
            (_, None, Some(_), None) => Err(E::missing_field("key")),
            (_, None, None, Some(_)) => Err(E::missing_field("limit")),
            (_, None, None, None) => Err(E::custom("expected `descriptor`, or `limit` and `key`")),
        }
    }
}

/// Sets what was not set before.
fn set<T, E: Error>(
    name: &'static str,
    slot: &mut Option<T>,
    value: impl FnOnce() -> Result<T, E>,
) -> Result<(), E> {
    if slot.is_some() {
        return Err(E::duplicate_field(name));
    }
    *slot = Some(value()?);
    Ok(())
}

/// Reads a limit that the caller supplies.
struct OwnLimitSeed;

const OWN_LIMIT: &[&str] = &["rate", "name", "algorithm"];

impl<'de> DeserializeSeed<'de> for OwnLimitSeed {
    type Value = OwnLimit<'de>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<OwnLimit<'de>, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for OwnLimitSeed {
    type Value = OwnLimit<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a limit, such as {\"rate\": \"10/s burst 20\"}")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<OwnLimit<'de>, A::Error> {
        let (mut quota, mut name, mut kind) = (None, None, None);
        while let Some(member) = object.next_key_seed(Name)? {
            match &*member {
                "rate" => set("rate", &mut quota, || {
                    parsed(&mut object, "`rate`", "a rate such as \"10/s burst 20\"")
                })?,
                "name" => set("name", &mut name, || limit_name(&mut object))?,
                "algorithm" => set("algorithm", &mut kind, || {
                    parsed(&mut object, "`algorithm`", "a name such as \"token-bucket\"")
                })?,
                other => return Err(A::Error::unknown_field(other, OWN_LIMIT)),
            }
        }
        let quota = quota.ok_or_else(|| A::Error::missing_field("rate"))?;
        Ok(OwnLimit { name: name.unwrap_or(Cow::Borrowed("limit")), kind: kind.unwrap_or_default(), quota })
    }
}

/// Reads the name of a limit, which must fit into a header field.
fn limit_name<'de, A: MapAccess<'de>>(object: &mut A) -> Result<Cow<'de, str>, A::Error> {
    let name = object.next_value_seed(Text { what: "`name`", longest: 128 })?;
    if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(name);
    }
    Err(A::Error::custom(format_args!(
        "`name` must consist of letters, digits and signs such as - _ . : /, not {name:?}"
    )))
}
