//! Who a caller is.

use std::fmt;
use std::net::IpAddr;

use sha2::{Digest, Sha256};

use super::Scopes;

/// Identifies a caller, so that its share of something can be bounded.
///
/// A caller is the token that it sends, else the certificate that it shows, else the address that it connects from. An IPv6
/// address counts by its first 64 bits, since one machine has all addresses that begin with them.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Caller(u128);

/// A caller, and what it may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Principal {
    /// Who it is.
    pub caller: Caller,
    /// What it may do.
    pub scopes: Scopes,
}

/// The kind of a caller is in its highest byte.
const KIND: u32 = 120;

impl Caller {
    /// Nobody in particular: a part of this program, or a connection that nothing is known about.
    pub const UNKNOWN: Self = Self(0);

    /// The caller at an address.
    pub fn at(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::of(1, address.to_bits().into()),
            IpAddr::V6(address) => Self::of(2, address.to_bits() >> 64),
        }
    }

    pub(super) fn with_token(name: &str) -> Self {
        Self::of(3, digest(&[name]))
    }

    /// The caller whose certificate has these names; `None` if it has no name.
    pub(super) fn with_certificate(names: &[String]) -> Option<Self> {
        (!names.is_empty()).then(|| Self::of(4, digest(names)))
    }

    fn of(kind: u128, number: u128) -> Self {
        Self(kind << KIND | number & ((1 << KIND) - 1))
    }

    /// A number that no other caller has.
    pub(crate) fn number(self) -> u128 {
        self.0
    }
}

fn digest(names: &[impl AsRef<str>]) -> u128 {
    let mut hash = Sha256::new();
    for name in names.iter().map(AsRef::as_ref) {
        hash.update((name.len() as u64).to_le_bytes());
        hash.update(name);
    }
    hash.finalize().iter().take(16).fold(0, |number, byte| number << 8 | u128::from(*byte))
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Caller({:x})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: &str) -> Caller {
        Caller::at(address.parse().expect("an address"))
    }

    #[test]
    fn an_ipv6_address_counts_by_its_first_64_bits() {
        assert_eq!(at("2001:db8:0:1::1"), at("2001:db8:0:1:ffff::7"));
        assert_ne!(at("2001:db8:0:1::1"), at("2001:db8:0:2::1"));
        assert_ne!(at("10.0.0.7"), at("10.0.0.8"));
        assert_eq!(at("::ffff:10.0.0.7"), at("10.0.0.7"));
    }

    #[test]
    fn no_two_kinds_of_callers_are_the_same() {
        let names = |names: &[&str]| {
            Caller::with_certificate(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
        };
        assert_ne!(Some(Caller::with_token("a")), names(&["a"]));
        assert_ne!(names(&["a", "b"]), names(&["ab"]));
        assert_eq!(names(&[]), None);
        let all = [Caller::UNKNOWN, at("0.0.0.0"), at("::"), Caller::with_token("")];
        assert!((1..all.len()).all(|one| !all[..one].contains(&all[one])));
    }
}
