//! What says who is counted.

use std::fmt;

use crate::expression::Expression;

/// How much of an IPv6 address is counted unless a policy says otherwise: one home or office has a /64 at least, and so 2^64
/// addresses.
const USUAL_PREFIX: u8 = 64;

/// A part of a key: its value says whose state a limit uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyPart {
    /// A field of the descriptor.
    Field {
        /// Its name.
        name: String,
        /// How many bits of an IPv6 address are counted. IPv4 addresses are counted whole, one that is written as IPv6 as the IPv4
        /// address that it is, and a value that is no address as text. Without a prefix every value is counted as text.
        ipv6_prefix: Option<u8>,
    },
    /// An expression.
    Cel(Expression),
}

impl KeyPart {
    /// A field as policies write it: in those named `ip` and `remote_address`, 64 bits of an IPv6 address are counted.
    pub fn field(name: impl Into<String>) -> Self {
        let name = name.into();
        Self::Field { ipv6_prefix: usual_prefix(&name), name }
    }

    /// A field whose values are counted as text.
    pub fn text(name: impl Into<String>) -> Self {
        Self::Field { name: name.into(), ipv6_prefix: None }
    }

    /// The name of the field, if it is one.
    pub fn field_name(&self) -> Option<&str> {
        match self {
            Self::Field { name, .. } => Some(name),
            Self::Cel(_) => None,
        }
    }
}

/// How many bits are counted of an IPv6 address in a field of which nothing is said.
pub(crate) fn usual_prefix(field: &str) -> Option<u8> {
    matches!(field, "ip" | "remote_address").then_some(USUAL_PREFIX)
}

impl From<&str> for KeyPart {
    fn from(name: &str) -> Self {
        Self::field(name)
    }
}

/// The name of the field, or the text of the expression.
impl fmt::Display for KeyPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Field { name, .. } => name,
            Self::Cel(expression) => expression.text(),
        })
    }
}
