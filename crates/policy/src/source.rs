//! Where something was written.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// A text and the path it came from.
#[derive(Debug, PartialEq, Eq)]
pub struct Source {
    path: String,
    text: String,
}

impl Source {
    /// A text that came from `path`, which is only shown, never opened.
    pub fn new(path: impl Into<String>, text: impl Into<String>) -> Arc<Self> {
        Arc::new(Self { path: path.into(), text: text.into() })
    }

    /// The path it came from.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The line at a byte and its number, both counted from where a person counts: one. And the column, in characters.
    pub(crate) fn locate(&self, at: usize) -> Located<'_> {
        let at = floor(&self.text, at);
        let before = &self.text[..at];
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let end = self.text[at..].find('\n').map_or(self.text.len(), |newline| at + newline);
        Located {
            line: before.matches('\n').count() + 1,
            column: self.text[start..at].chars().count() + 1,
            text: self.text[start..end].trim_end_matches('\r'),
            start,
        }
    }
}

/// The nearest character boundary at or before `at`.
pub(crate) fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}

pub(crate) struct Located<'s> {
    pub(crate) line: usize,
    pub(crate) column: usize,
    /// The whole line, without its end.
    pub(crate) text: &'s str,
    /// Where the line starts in the text.
    pub(crate) start: usize,
}

/// A stretch of a [`Source`], or nowhere, for what a program made up.
///
/// All places are equal: where something was written says nothing about what it means.
#[derive(Clone, Default)]
pub struct Place {
    source: Option<Arc<Source>>,
    span: Range<usize>,
}

impl Place {
    /// The bytes `span` of `source`.
    pub fn new(source: &Arc<Source>, span: Range<usize>) -> Self {
        Self { source: Some(Arc::clone(source)), span }
    }

    pub(crate) fn source(&self) -> Option<&Arc<Source>> {
        self.source.as_ref()
    }

    pub(crate) fn span(&self) -> Range<usize> {
        self.span.clone()
    }
}

impl PartialEq for Place {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Place {}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// `policy.toml:3:8`.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(source) = &self.source else {
            return f.write_str("nowhere");
        };
        let located = source.locate(self.span.start);
        write!(f, "{}:{}:{}", source.path, located.line, located.column)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_lines_from_one_and_columns_in_characters() {
        let source = Source::new("p", "ab\nµx = 1\r\nlast");
        let place = |at| {
            let located = source.locate(at);
            (located.line, located.column, located.text)
        };
        assert_eq!(place(0), (1, 1, "ab"));
        assert_eq!(place(2), (1, 3, "ab"));
        assert_eq!(place(5), (2, 2, "µx = 1"));
        assert_eq!(place(4), (2, 1, "µx = 1")); // inside of a character
        assert_eq!(place(999), (3, 5, "last"));
        assert_eq!(Place::new(&source, 5..6).to_string(), "p:2:2");
        assert_eq!(Place::default().to_string(), "nowhere");
    }
}
