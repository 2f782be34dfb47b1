//! Texts with stars in them.

use std::fmt;

use memchr::memmem::Finder;

/// A text in which every `*` stands for any characters, or none.
///
/// It matches the whole of a value, byte by byte, in time linear in its length.
///
/// # Examples
/// ```
/// use tollgate_policy::Pattern;
///
/// let pattern = Pattern::new("/users/*/orders*");
/// assert!(pattern.matches(b"/users/7/orders"));
/// assert!(pattern.matches(b"/users//orders/9"));
/// assert!(!pattern.matches(b"/users/7"));
/// ```
#[derive(Clone)]
pub struct Pattern {
    text: String,
    /// Where the first and the last star are.
    ends: Option<(usize, usize)>,
    /// Between the first and the last star, in their order; none is empty.
    middle: Vec<Finder<'static>>,
}

impl Pattern {
    /// A pattern; one without a star matches just itself.
    pub fn new(text: impl Into<String>) -> Self {
        let text = text.into();
        let parts: Vec<&str> = text.split('*').collect();
        let inner = parts.get(1..parts.len() - 1).unwrap_or_default();
        let middle = inner.iter().filter(|part| !part.is_empty());
        let middle = middle.map(|part| Finder::new(part.as_bytes()).into_owned()).collect();
        Self { ends: text.find('*').zip(text.rfind('*')), text, middle }
    }

    /// The pattern that every value matches.
    pub fn anything() -> Self {
        Self::new("*")
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether `value` fits.
    pub fn matches(&self, value: &[u8]) -> bool {
        let Some((first, last)) = self.ends else { return value == self.text.as_bytes() };
        let (prefix, suffix) = (&self.text.as_bytes()[..first], &self.text.as_bytes()[last + 1..]);
        // The earliest place for each part leaves the most room for those after it.
        let Some(rest) = value.strip_prefix(prefix).and_then(|rest| rest.strip_suffix(suffix)) else {
            return false;
        };
        let mut at = 0;
        self.middle.iter().all(|part| match part.find(&rest[at..]) {
            Some(found) => {
                at += found + part.needle().len();
                true
            }
            None => false,
        })
    }

    /// What every match starts with.
    pub(crate) fn prefix(&self) -> &str {
        self.text.split('*').next().unwrap_or_default()
    }

    /// What every match ends with.
    pub(crate) fn suffix(&self) -> &str {
        self.text.rsplit('*').next().unwrap_or_default()
    }

    /// How many letters it demands besides the prefix and the suffix.
    pub(crate) fn has_middle(&self) -> bool {
        !self.middle.is_empty()
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Pattern {}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pattern").field(&self.text).finish()
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The textbook table: does the rest of the pattern match the rest of the value?
    fn by_table(pattern: &[u8], value: &[u8]) -> bool {
        let mut fits = vec![vec![false; value.len() + 1]; pattern.len() + 1];
        fits[pattern.len()][value.len()] = true;
        for p in (0..pattern.len()).rev() {
            for v in (0..=value.len()).rev() {
                fits[p][v] = if pattern[p] == b'*' {
                    fits[p + 1][v] || (v < value.len() && fits[p][v + 1])
                } else {
                    v < value.len() && pattern[p] == value[v] && fits[p + 1][v + 1]
                };
            }
        }
        fits[0][0]
    }

    #[test]
    fn stars_may_stand_anywhere() {
        for (pattern, value, expected) in [
            ("*", "", true),
            ("**", "x", true),
            ("", "", true),
            ("", "x", false),
            ("a*", "a", true),
            ("*a", "ba", true),
            ("a*a", "a", false), // one letter cannot be the beginning and the end
            ("a*a", "aa", true),
            ("a*b*a", "aba", true),
            ("*b*b*", "ab", false),
            ("a*bc*c", "abc", false),
            ("/x/*/y", "/x/y", false),
        ] {
            assert_eq!(Pattern::new(pattern).matches(value.as_bytes()), expected, "{pattern} {value}");
        }
        assert!(Pattern::new("a*").matches(b"a\xff\x00")); // bytes that are no text
    }

    proptest! {
        #[test]
        fn agrees_with_the_table(pattern in "[ab*]{0,9}", value in "[ab]{0,12}") {
            let matches = Pattern::new(pattern.clone()).matches(value.as_bytes());
            prop_assert_eq!(matches, by_table(pattern.as_bytes(), value.as_bytes()));
        }

        #[test]
        fn any_text_is_a_pattern_that_matches_itself(text in "\\PC{0,20}") {
            prop_assert!(Pattern::new(text.clone()).matches(text.as_bytes()));
        }
    }
}
