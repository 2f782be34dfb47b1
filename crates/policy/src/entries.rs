//! Limits that ask for the entries of a descriptor, one after the other: the tree of Envoy's rate limit files.

use crate::descriptor::Field;
use crate::pattern::Pattern;

/// What a limit asks of one entry of a descriptor: `key`, whatever its value, or `key_value`, in which every `*` stands for any
/// characters.
///
/// The limits of a domain that ask for entries are a tree. The entries of a descriptor are a way through it: at each step to
/// the text that is the entry's `key_value`, else to the first with stars that matches it, else to the one that is its `key`.
/// There is no way back. Where the way ends with the last entry is the limit that applies, if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// The text, as `key`, `key_value` or with stars.
    pub text: String,
    /// Whether all that match the stars are counted together.
    pub shared: bool,
    /// Whether the name for metrics has the entry's own value.
    pub in_metrics: bool,
}

impl Entry {
    /// One whose values are counted each on its own.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), shared: false, in_metrics: false }
    }

    /// Whether it has stars.
    pub fn has_stars(&self) -> bool {
        self.text.contains('*')
    }
}

/// Which texts with stars count all that match them together, in the order of a limit's entries.
pub(crate) fn shared(entries: &[Entry]) -> Vec<Option<Pattern>> {
    let stars = |entry: &Entry| entry.shared.then(|| Pattern::new(entry.text.as_str()));
    entries.iter().map(stars).collect()
}

/// Writes an entry as `key_value`.
pub(crate) fn write_entry((key, value): &Field<'_>, text: &mut Vec<u8>) {
    text.extend_from_slice(key.as_bytes());
    text.push(b'_');
    text.extend_from_slice(value);
}
