//! Who is asking for what.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::str::FromStr;

use smallvec::SmallVec;

/// The domain of whoever does not name one.
pub const DEFAULT_DOMAIN: &str = "default";

/// A field of a descriptor.
pub type Field<'a> = (&'a str, &'a [u8]);

/// Shows a value as text: bytes that are not UTF-8 are escaped.
///
/// # Examples
/// ```
/// use tollgate_policy::escaped;
///
/// assert_eq!(escaped("/caf\u{e9}".as_bytes()), "/caf\u{e9}");
/// assert_eq!(escaped(b"/caf\xe9"), r"/caf\xe9");
/// ```
pub fn escaped(value: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(value) {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(value.len() + 3);
    for chunk in value.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    Cow::Owned(text)
}

/// Who is asking for what: a domain and some fields, such as `ip`, `path` or `tenant`.
///
/// It only borrows, and up to eight fields need no memory from the heap. Values are bytes, because what comes over a wire
/// need not be text. Of several fields of one name the first counts.
///
/// # Examples
/// ```
/// use tollgate_policy::Descriptor;
///
/// let descriptor = Descriptor::new().with("ip", "10.0.0.7").with("path", "/orders");
/// assert_eq!(descriptor.field("path"), Some(&b"/orders"[..]));
/// assert_eq!(descriptor.field("tenant"), None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor<'a> {
    domain: &'a str,
    fields: SmallVec<[Field<'a>; 8]>,
}

impl<'a> Descriptor<'a> {
    /// A descriptor without fields, in the domain `default`.
    pub fn new() -> Self {
        Self::in_domain(DEFAULT_DOMAIN)
    }

    /// A descriptor without fields.
    pub fn in_domain(domain: &'a str) -> Self {
        Self { domain, fields: SmallVec::new() }
    }

    /// The same with one more field.
    #[must_use]
    pub fn with(mut self, name: &'a str, value: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        self.push(name, value.as_ref());
        self
    }

    /// Adds a field.
    pub fn push(&mut self, name: &'a str, value: &'a [u8]) {
        self.fields.push((name, value));
    }

    /// The domain.
    pub fn domain(&self) -> &'a str {
        self.domain
    }

    /// The fields, in the order in which they were added.
    pub fn fields(&self) -> &[Field<'a>] {
        &self.fields
    }

    /// The value of a field.
    pub fn field(&self, name: &str) -> Option<&'a [u8]> {
        self.fields.iter().find(|field| field.0 == name).map(|field| field.1)
    }
}

impl Default for Descriptor<'_> {
    fn default() -> Self {
        Self::new()
    }
}

/// A [`Descriptor`] that owns its fields, read from text as people type it: `ip=10.0.0.7,path=/orders`.
///
/// A comma in a value is written `\,`, a backslash `\\`.
///
/// # Examples
/// ```
/// use tollgate_policy::DescriptorBuf;
///
/// let typed: DescriptorBuf = r"ip=10.0.0.7, note=a\,b=c".parse()?;
/// assert_eq!(typed.in_domain("web").field("note"), Some(&b"a,b=c"[..]));
/// # Ok::<(), tollgate_policy::DescriptorError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescriptorBuf {
    fields: Vec<(String, String)>,
}

impl DescriptorBuf {
    /// The descriptor, in a domain.
    pub fn in_domain<'a>(&'a self, domain: &'a str) -> Descriptor<'a> {
        let fields = self.fields.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        Descriptor { domain, fields }
    }
}

impl FromStr for DescriptorBuf {
    type Err = DescriptorError;

    fn from_str(text: &str) -> Result<Self, DescriptorError> {
        let mut fields: Vec<(String, String)> = Vec::new();
        if text.trim().is_empty() {
            return Ok(Self { fields });
        }
        for part in split(text)? {
            let (name, value) =
                part.split_once('=').ok_or_else(|| DescriptorError::NoValue(part.trim().to_owned()))?;
            let name = name.trim();
            if name.is_empty() {
                return Err(DescriptorError::NoName(part));
            }
            if fields.iter().any(|field| field.0 == name) {
                return Err(DescriptorError::Twice(name.to_owned()));
            }
            fields.push((name.to_owned(), value.to_owned()));
        }
        Ok(Self { fields })
    }
}

/// The parts between commas, with their escapes resolved.
fn split(text: &str) -> Result<Vec<String>, DescriptorError> {
    let mut parts = vec![String::new()];
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        let literal = match letter {
            ',' => {
                parts.push(String::new());
                continue;
            }
            '\\' => {
                letters.next().filter(|next| matches!(next, ',' | '\\')).ok_or(DescriptorError::BadEscape)?
            }
            letter => letter,
        };
        if let Some(part) = parts.last_mut() {
            part.push(literal);
        }
    }
    Ok(parts)
}

/// Why a text is not a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DescriptorError {
    /// A part has no `=`.
    NoValue(String),
    /// A part has nothing before its `=`.
    NoName(String),
    /// A field stands there twice.
    Twice(String),
    /// A backslash before something other than a comma or a backslash.
    BadEscape,
}

impl fmt::Display for DescriptorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoValue(part) => write!(f, "expected name=value, found {part:?}"),
            Self::NoName(part) => write!(f, "expected a name before the = of {part:?}"),
            Self::Twice(name) => write!(f, "duplicate field {name:?}"),
            Self::BadEscape => f.write_str(r"invalid escape: write \, for a comma and \\ for a backslash"),
        }
    }
}

impl std::error::Error for DescriptorError {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_what_people_type() {
        let pairs = |text: &str| text.parse::<DescriptorBuf>().map(|typed| typed.fields);
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(pairs(""), Ok(vec![]));
        assert_eq!(pairs("a=1, b=x=y"), Ok(vec![pair("a", "1"), pair("b", "x=y")]));
        assert_eq!(pairs(r"a=1\,2\\,b="), Ok(vec![pair("a", r"1,2\"), pair("b", "")]));
        let words = |text: &str| pairs(text).unwrap_err().to_string();
        assert_eq!(words("a=1,b"), "expected name=value, found \"b\"");
        assert_eq!(words("=1"), "expected a name before the = of \"=1\"");
        assert_eq!(words("a=1,a=2"), "duplicate field \"a\"");
        assert_eq!(words(r"a=\n"), r"invalid escape: write \, for a comma and \\ for a backslash");
    }

    #[test]
    fn of_two_fields_of_one_name_the_first_counts() {
        let twice = Descriptor::new().with("a", "1").with("a", "2");
        assert_eq!(twice.field("a"), Some(&b"1"[..]));
    }

    proptest! {
        #[test]
        fn what_is_escaped_comes_back(values in prop::collection::vec("[a,=\\\\ ]{0,6}", 1..4)) {
            let escape = |value: &String| value.replace('\\', r"\\").replace(',', r"\,");
            let text: Vec<String> = values.iter().enumerate().map(|(i, v)| format!("f{i}={}", escape(v))).collect();
            let typed: DescriptorBuf = text.join(",").parse().unwrap();
            let read: Vec<&String> = typed.fields.iter().map(|field| &field.1).collect();
            prop_assert_eq!(read, values.iter().collect::<Vec<_>>());
        }

        #[test]
        fn any_text_is_answered(text in "\\PC{0,24}") {
            let _ = text.parse::<DescriptorBuf>();
        }
    }
}
