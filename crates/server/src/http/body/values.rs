//! Single values of a body.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Unexpected, Visitor};
use smallvec::SmallVec;
use tollgate::store::Mode;

use super::super::limits::HttpLimits;
use crate::engine::parse_hold;

/// The fields of a descriptor, in their order.
pub(super) type Fields<'a> = SmallVec<[(Cow<'a, str>, Cow<'a, str>); 4]>;

/// Reads the name of a field: borrowed, unless it has escapes.
pub(super) struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Cow<'de, str>, D::Error> {
        json.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Name {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

/// Reads a string that has a longest length.
pub(super) struct Text {
    pub(super) what: &'static str,
    pub(super) longest: usize,
}

impl<'de> DeserializeSeed<'de> for Text {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Cow<'de, str>, D::Error> {
        let text = Named { what: self.what, expects: "a string" }.deserialize(json)?;
        is_short(self.what, &text, self.longest)?;
        Ok(text)
    }
}

fn is_short<E: Error>(what: &str, text: &str, longest: usize) -> Result<(), E> {
    if text.len() <= longest {
        return Ok(()); // a character has at least a byte
    }
    let length = text.chars().count();
    if length <= longest {
        return Ok(());
    }
    Err(E::custom(format_args!("{what} has {length} characters; the maximum is {longest}")))
}

/// Reads a string and parses it. Errors say `what` it is.
pub(super) fn parsed<'de, T: FromStr<Err: fmt::Display>, A: MapAccess<'de>>(
    object: &mut A,
    what: &'static str,
    expects: &'static str,
) -> Result<T, A::Error> {
    let text = object.next_value_seed(Named { what, expects })?;
    text.parse().map_err(|error| A::Error::custom(format_args!("{what}: {error}")))
}

/// Reads a string: borrowed, unless it has escapes. The error for a value of another type says `what` it is.
struct Named {
    what: &'static str,
    expects: &'static str,
}

impl Named {
    fn wrong<T, E: Error>(&self, found: impl fmt::Display) -> Result<T, E> {
        let Self { what, expects } = self;
        Err(E::custom(format_args!("{what} must be {expects}, not {found}")))
    }
}

impl<'de> DeserializeSeed<'de> for Named {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Cow<'de, str>, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Named {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expects)
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Owned(text.to_owned()))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Cow<'de, str>, E> {
        self.wrong(format_args!("the number {number}"))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Cow<'de, str>, E> {
        self.wrong(format_args!("the number {number}"))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Cow<'de, str>, E> {
        self.wrong(format_args!("the number {number}"))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Cow<'de, str>, E> {
        self.wrong(value)
    }

    fn visit_unit<E: Error>(self) -> Result<Cow<'de, str>, E> {
        self.wrong("null")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<Cow<'de, str>, A::Error> {
        self.wrong("a list")
    }

    fn visit_map<A: MapAccess<'de>>(self, _: A) -> Result<Cow<'de, str>, A::Error> {
        self.wrong("an object")
    }
}

/// Reads an amount.
pub(super) struct Amount;

impl<'de> DeserializeSeed<'de> for Amount {
    type Value = u64;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<u64, D::Error> {
        json.deserialize_u64(self)
    }
}

impl Visitor<'_> for Amount {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from 0 to {}", u64::MAX)
    }

    fn visit_u64<E: Error>(self, amount: u64) -> Result<u64, E> {
        Ok(amount)
    }

    fn visit_i64<E: Error>(self, amount: i64) -> Result<u64, E> {
        u64::try_from(amount).map_err(|_| E::invalid_value(Unexpected::Signed(amount), &self))
    }

    fn visit_f64<E: Error>(self, amount: f64) -> Result<u64, E> {
        let whole = whole(amount).and_then(|amount| u64::try_from(amount).ok());
        whole.ok_or_else(|| E::invalid_value(Unexpected::Float(amount), &self))
    }
}

/// The whole number that a number with a point or an exponent is: to JSON, `1.0` is the same as `1`. None if it is none, or so
/// large that it may have been another one before it was read.
fn whole(number: f64) -> Option<i64> {
    const MOST: f64 = 9_007_199_254_740_991.0; // 2^53 - 1
    (number.fract() == 0.0 && number.abs() <= MOST).then_some(number as i64)
}

/// Reads a descriptor: an object of strings, whole numbers and booleans, the latter two taken by their text.
pub(super) struct Descriptor<'l>(pub(super) &'l HttpLimits);

impl<'de> DeserializeSeed<'de> for Descriptor<'_> {
    type Value = Fields<'de>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Fields<'de>, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Descriptor<'_> {
    type Value = Fields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a descriptor, such as {\"ip\": \"10.0.0.7\"}")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Fields<'de>, A::Error> {
        let HttpLimits { fields: most, key_length, .. } = *self.0;
        let mut fields = Fields::new();
        while let Some(name) = object.next_key_seed(Text { what: "a field name", longest: key_length })? {
            if fields.len() == most {
                return Err(A::Error::custom(format_args!("too many fields: the maximum is {most}")));
            }
            if fields.iter().any(|field| field.0 == name) {
                return Err(A::Error::custom(format_args!("duplicate field `{name}`")));
            }
            let value = object.next_value_seed(Scalar)?;
            is_short("a field value", &value, key_length)?;
            fields.push((name, value));
        }
        Ok(fields)
    }
}

/// Reads the value of a field.
struct Scalar;

impl<'de> DeserializeSeed<'de> for Scalar {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Cow<'de, str>, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Scalar {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, a whole number, true or false")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Owned(text.to_owned()))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Owned(number.to_string()))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Owned(number.to_string()))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Cow<'de, str>, E> {
        let whole = whole(number).ok_or_else(|| E::invalid_value(Unexpected::Float(number), &self))?;
        Ok(Cow::Owned(whole.to_string()))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Borrowed(if value { "true" } else { "false" }))
    }
}

/// The names of the modes.
const MODES: &[&str] = &["take", "peek", "count", "charge", "refund"];

/// Reads a mode.
pub(super) fn mode<'de, A: MapAccess<'de>>(object: &mut A) -> Result<Mode, A::Error> {
    let name = object.next_value_seed(Named { what: "`mode`", expects: "a name such as \"take\"" })?;
    match &*name {
        "take" => Ok(Mode::Take),
        "peek" => Ok(Mode::Peek),
        "count" => Ok(Mode::Count),
        "charge" => Ok(Mode::Charge),
        "refund" => Ok(Mode::Refund),
        other => {
            let modes = MODES.join(", ");
            Err(A::Error::custom(format_args!("unknown `mode` {other:?}; expected one of {modes}")))
        }
    }
}

/// Reads the duration of a hold.
pub(super) fn hold<'de, A: MapAccess<'de>>(object: &mut A) -> Result<Duration, A::Error> {
    let text = object.next_value_seed(Named { what: "`hold`", expects: "a duration such as \"30s\"" })?;
    parse_hold(&text).ok_or_else(|| {
        A::Error::custom(format_args!(
            "`hold` must be a duration such as \"30s\" or \"1.5min\", at most \"24h\", not {text:?}"
        ))
    })
}
