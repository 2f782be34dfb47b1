//! What a limit asks of a field.

use std::fmt;

use ipnet::IpNet;

use crate::network;
use crate::pattern::Pattern;

/// What a limit asks of one field of a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The field is not there.
    Absent,
    /// The field is there and passes at least one of these. Without any, nothing passes.
    AnyOf(Vec<Test>),
}

/// What a limit asks of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// It is this text; a star in it is a star.
    Is(String),
    /// It matches the pattern.
    Like(Pattern),
    /// It is an address in the network.
    In(IpNet),
}

impl Condition {
    /// The field is there, whatever its value.
    pub fn present() -> Self {
        Self::AnyOf(vec![Test::Like(Pattern::anything())])
    }

    /// A value as policies write it: `*` stands for any characters.
    pub fn value(text: impl Into<String>) -> Self {
        Self::AnyOf(vec![Test::value(text)])
    }

    /// Whether it holds for a field with that value, or without one.
    pub fn holds(&self, value: Option<&[u8]>) -> bool {
        match (self, value) {
            (Self::Absent, value) => value.is_none(),
            (Self::AnyOf(_), None) => false,
            (Self::AnyOf(tests), Some(value)) => tests.iter().any(|test| test.passes(value)),
        }
    }
}

impl Test {
    /// A value as policies write it: `*` stands for any characters.
    pub fn value(text: impl Into<String>) -> Self {
        let text = text.into();
        if text.contains('*') { Self::Like(Pattern::new(text)) } else { Self::Is(text) }
    }

    /// Whether a value passes.
    pub fn passes(&self, value: &[u8]) -> bool {
        match self {
            Self::Is(text) => text.as_bytes() == value,
            Self::Like(pattern) => pattern.matches(value),
            Self::In(net) => network::contains(net, value),
        }
    }
}

/// `absent`, `is "GET" or like "P*"`, `in 10.0.0.0/8`.
impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("absent"),
            Self::AnyOf(tests) if *tests == [Test::Like(Pattern::anything())] => f.write_str("present"),
            Self::AnyOf(tests) => tests
                .iter()
                .enumerate()
                .try_for_each(|(index, test)| write!(f, "{}{test}", if index == 0 { "" } else { " or " })),
        }
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Is(text) => write!(f, "is {text:?}"),
            Self::Like(pattern) => write!(f, "like {:?}", pattern.as_str()),
            Self::In(net) => write!(f, "in {}", network::show(net)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_holds_for_what_it_says() {
        assert!(Condition::Absent.holds(None) && !Condition::Absent.holds(Some(b"")));
        assert!(Condition::present().holds(Some(b"")) && !Condition::present().holds(None));
        assert!(Condition::value("a").holds(Some(b"a")) && !Condition::value("a").holds(Some(b"ab")));
        assert!(Condition::value("a*").holds(Some(b"ab")) && !Condition::value("a*").holds(Some(b"ba")));
        let one_of = Condition::AnyOf(vec![Test::Is("*".into()), Test::In("10.0.0.0/8".parse().unwrap())]);
        assert!(one_of.holds(Some(b"*")) && one_of.holds(Some(b"10.1.1.1")) && !one_of.holds(Some(b"x")));
        assert!(!Condition::AnyOf(Vec::new()).holds(Some(b"")));
        assert_eq!(one_of.to_string(), "is \"*\" or in 10.0.0.0/8");
        assert_eq!(Condition::present().to_string(), "present");
    }
}
