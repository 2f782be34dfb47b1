//! What a setting can be.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Something that can be written as text: the same in a flag, a variable and a file.
pub(crate) trait Value: Sized {
    /// What stands for it in the help.
    const NAME: &'static str;

    /// What is expected.
    fn expected() -> String;

    /// None if it is something else.
    fn read(text: &str) -> Option<Self>;

    /// What may be shown of a text that was read, which a password may not.
    fn shown(text: &str) -> String {
        text.to_owned()
    }

    /// What may be shown of a text that could not be read.
    fn found(text: &str) -> String {
        format!("{text:?}")
    }
}

/// A number within bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count<const LEAST: u64, const MOST: u64>(pub(crate) u64);

impl<const LEAST: u64, const MOST: u64> Value for Count<LEAST, MOST> {
    const NAME: &'static str = "N";

    fn expected() -> String {
        format!("a whole number from {LEAST} to {MOST}")
    }

    fn read(text: &str) -> Option<Self> {
        number(text).filter(|number| (LEAST..=MOST).contains(number)).map(Self)
    }
}

impl<const LEAST: u64, const MOST: u64> Count<LEAST, MOST> {
    pub(crate) fn get(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

/// Digits, with underscores between them if that is easier to read.
fn number(text: &str) -> Option<u64> {
    let is_plain =
        text.starts_with(|c: char| c.is_ascii_digit()) && text.ends_with(|c: char| c.is_ascii_digit());
    text.replace('_', "").parse().ok().filter(|_| is_plain)
}

/// A number and its unit, which is one of some.
fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text.len());
    let (digits, unit) = (text[..at].trim_end(), text[at..].trim());
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number(digits)?.checked_mul(*factor)
}

/// So many bytes; at least one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Size(u64);

impl Size {
    pub(crate) fn bytes(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl Value for Size {
    const NAME: &'static str = "SIZE";

    fn expected() -> String {
        "a size such as 4096, 64KiB, 1MiB or 2GiB".to_owned()
    }

    fn read(text: &str) -> Option<Self> {
        const UNITS: [(&str, u64); 5] =
            [("", 1), ("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];
        with_unit(text, &UNITS).filter(|bytes| *bytes > 0).map(Self)
    }
}

impl Value for Duration {
    const NAME: &'static str = "TIME";

    fn expected() -> String {
        "a time such as 500ms, 30s, 5min or 1h, up to 365 days".to_owned()
    }

    fn read(text: &str) -> Option<Self> {
        const UNITS: [(&str, u64); 5] =
            [("ms", 1), ("s", 1_000), ("min", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
        const LONGEST: u64 = 365 * 86_400_000;
        with_unit(text, &UNITS).filter(|millis| (1..=LONGEST).contains(millis)).map(Self::from_millis)
    }
}

impl Value for SocketAddr {
    const NAME: &'static str = "ADDRESS";

    fn expected() -> String {
        "an address with a port such as 127.0.0.1:8080, 0.0.0.0:8080 or [::1]:8080".to_owned()
    }

    fn read(text: &str) -> Option<Self> {
        let local = || {
            Some(Self::new(IpAddr::V4(Ipv4Addr::LOCALHOST), text.strip_prefix("localhost:")?.parse().ok()?))
        };
        text.parse().ok().or_else(local)
    }
}

impl Value for PathBuf {
    const NAME: &'static str = "PATH";

    fn expected() -> String {
        "a path".to_owned()
    }

    fn read(text: &str) -> Option<Self> {
        (!text.is_empty()).then(|| Self::from(text))
    }
}

/// Host names, separated by commas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Names(pub(crate) Vec<String>);

impl Value for Names {
    const NAME: &'static str = "NAMES";

    fn expected() -> String {
        "host names without ports, such as tollgate.internal or a.example,b.example, or *".to_owned()
    }

    fn read(text: &str) -> Option<Self> {
        let is_name = |name: &str| {
            !name.is_empty()
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte))
        };
        let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
        names.iter().all(|name| name == "*" || is_name(name)).then_some(Self(names))
    }
}

/// A word, such as the name of a user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Word(pub(crate) String);

impl Value for Word {
    const NAME: &'static str = "NAME";

    fn expected() -> String {
        "a name without spaces".to_owned()
    }

    fn read(text: &str) -> Option<Self> {
        let is_word = !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c.is_control());
        is_word.then(|| Self(text.to_owned()))
    }
}

/// What keys in Redis begin with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyPrefix(pub(crate) String);

impl Value for KeyPrefix {
    const NAME: &'static str = "PREFIX";

    fn expected() -> String {
        "a text without spaces and braces, such as shop:".to_owned()
    }

    fn read(text: &str) -> Option<Self> {
        Word::read(text).filter(|word| !word.0.contains(['{', '}'])).map(|word| Self(word.0))
    }
}

/// The name of a field of HTTP.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldName(pub(crate) String);

impl Value for FieldName {
    const NAME: &'static str = "NAME";

    fn expected() -> String {
        "the name of a header field such as X-RateLimit-Limit".to_owned()
    }

    fn read(text: &str) -> Option<Self> {
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        (!text.is_empty() && text.bytes().all(is_token)).then(|| Self(text.to_owned()))
    }
}

/// A part of a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Ratio(pub(crate) f32);

impl Value for Ratio {
    const NAME: &'static str = "RATIO";

    fn expected() -> String {
        "a number from 0 to 1 such as 0.8".to_owned()
    }

    fn read(text: &str) -> Option<Self> {
        text.parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio)).map(Self)
    }
}

impl Value for bool {
    const NAME: &'static str = "BOOL";

    fn expected() -> String {
        "true or false".to_owned()
    }

    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl<V: Value> Value for Option<V> {
    const NAME: &'static str = V::NAME;

    fn expected() -> String {
        format!("{}; or none", V::expected())
    }

    fn read(text: &str) -> Option<Self> {
        if text == NONE { Some(None) } else { V::read(text).map(Some) }
    }
}

const NONE: &str = "none";

/// One of a few words.
pub(crate) trait Choice: Copy + 'static {
    /// What stands for it in the help.
    const NAME: &'static str;
    /// All of them.
    const ALL: &'static [(&'static str, Self)];
}

/// A choice that was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OneOf<T>(pub(crate) T);

impl<T: Choice> Value for OneOf<T> {
    const NAME: &'static str = T::NAME;

    fn expected() -> String {
        let words: Vec<&str> = T::ALL.iter().map(|(word, _)| *word).collect();
        match &words[..] {
            [all @ .., last] if !all.is_empty() => format!("{} or {last}", all.join(", ")),
            _ => words.concat(),
        }
    }

    fn read(text: &str) -> Option<Self> {
        T::ALL.iter().find(|(word, _)| *word == text).map(|(_, choice)| Self(*choice))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_digits_within_bounds() {
        type Small = Count<1, 10_000>;
        assert_eq!(Small::read("1"), Some(Count(1)));
        assert_eq!(Small::read("10_000"), Some(Count(10_000)));
        for bad in [
            "",
            "0",
            "10001",
            "-1",
            "+1",
            " 1",
            "1.5",
            "1e3",
            "_1",
            "1_",
            "18446744073709551616",
            "0x10",
            "١",
        ] {
            assert_eq!(Small::read(bad), None, "{bad:?}");
        }
        assert_eq!(Small::expected(), "a whole number from 1 to 10000");
        assert_eq!(Count::<0, { u64::MAX }>::read("18446744073709551615"), Some(Count(u64::MAX)));
    }

    #[test]
    fn sizes_have_binary_units() {
        for (text, bytes) in
            [("1", 1), ("10B", 10), ("64KiB", 65_536), ("1 MiB", 1_048_576), ("2GiB", 2_147_483_648)]
        {
            assert_eq!(Size::read(text), Some(Size(bytes)), "{text}");
        }
        for bad in ["", "0", "KiB", "1kb", "1.5MiB", "-1", "1 KiB more", "17179869184GiB"] {
            assert_eq!(Size::read(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn names_have_no_ports() {
        let names = |names: &[&str]| Some(Names(names.iter().map(ToString::to_string).collect()));
        assert_eq!(Names::read("a.example, my_service"), names(&["a.example", "my_service"]));
        assert_eq!(Names::read("*"), names(&["*"]));
        for bad in ["", "a,", "a:80", "*.example", "http://a", "a b"] {
            assert_eq!(Names::read(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn prefixes_have_no_braces_and_words_no_spaces() {
        assert_eq!(KeyPrefix::read("shop:"), Some(KeyPrefix("shop:".to_owned())));
        assert_eq!(Word::read("ann{1}"), Some(Word("ann{1}".to_owned())));
        for bad in ["", " ", "a b", "a\n"] {
            assert_eq!((KeyPrefix::read(bad), Word::read(bad)), (None, None), "{bad:?}");
        }
        assert_eq!((KeyPrefix::read("a{b"), KeyPrefix::read("}")), (None, None));
    }

    #[test]
    fn field_names_are_tokens_and_ratios_are_parts() {
        assert_eq!(FieldName::read("X-RateLimit-Limit"), Some(FieldName("X-RateLimit-Limit".to_owned())));
        for bad in ["", "x limit", "x:limit", "limit\r\n", "größe"] {
            assert_eq!(FieldName::read(bad), None, "{bad:?}");
        }
        assert_eq!((Ratio::read("0.5"), Ratio::read("1")), (Some(Ratio(0.5)), Some(Ratio(1.0))));
        for bad in ["", "-0.1", "1.1", "80%", "NaN"] {
            assert_eq!(Ratio::read(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn times_have_units() {
        for (text, millis) in
            [("1ms", 1), ("30s", 30_000), ("5min", 300_000), ("2 h", 7_200_000), ("365d", 31_536_000_000)]
        {
            assert_eq!(Duration::read(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for bad in ["", "0s", "30", "s", "1.5s", "-1s", "366d", "5m", "18446744073709551615h"] {
            assert_eq!(Duration::read(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn addresses_have_ports() {
        let read = |text| SocketAddr::read(text).map(|address| address.to_string());
        assert_eq!(read("127.0.0.1:0").as_deref(), Some("127.0.0.1:0"));
        assert_eq!(read("[::1]:8080").as_deref(), Some("[::1]:8080"));
        assert_eq!(read("localhost:8080").as_deref(), Some("127.0.0.1:8080"));
        for bad in ["", "8080", ":8080", "127.0.0.1", "127.0.0.1:65536", "example.org:80", "::1:8080 "] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
        assert_eq!(Option::<SocketAddr>::read("none"), Some(None));
        assert_eq!(Option::<SocketAddr>::read("off"), None);
    }
}
