//! What is wrong with a policy, and where.

use std::fmt;

use serde::Serialize;

use crate::source::{Place, Source, floor};

/// One mistake: where it is, what is wrong, and what would help.
///
/// `Display` shows it with its line of the file and a mark beneath; serialised, it is its public fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Problem {
    /// The file, or empty if the limit was made by a program.
    pub path: String,
    /// The line, counted from one; zero if it is about no line in particular.
    pub line: usize,
    /// The column in characters, counted from one; zero if it is about no line in particular.
    pub column: usize,
    /// What is wrong, and what was expected.
    pub message: String,
    /// What would help, where we know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    #[serde(skip)]
    excerpt: Option<Excerpt>,
}

/// The part of a line that is shown, and what of it is marked.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Excerpt {
    shown: String,
    indent: String,
    marks: usize,
}

impl Problem {
    /// A mistake at a place.
    pub fn new(place: &Place, message: impl Into<String>) -> Self {
        let mut problem = Self::in_file("", message);
        if let Some(source) = place.source() {
            let (span, located) = (place.span(), source.locate(place.span().start));
            let at = floor(source.text(), span.start) - located.start;
            let marked = floor(source.text(), span.end).saturating_sub(located.start);
            source.path().clone_into(&mut problem.path);
            (problem.line, problem.column) = (located.line, located.column);
            problem.excerpt = Some(Excerpt::new(located.text, at, marked));
        }
        problem
    }

    /// A mistake of a file as a whole.
    pub fn in_file(path: impl Into<String>, message: impl Into<String>) -> Self {
        let (path, message) = (path.into(), message.into());
        Self { path, line: 0, column: 0, message, help: None, excerpt: None }
    }

    /// The same without the line that it is about, which may hold what must not be shown.
    #[must_use]
    pub fn without_excerpt(self) -> Self {
        Self { excerpt: None, ..self }
    }

    /// The same with a hint, if there is one.
    #[must_use]
    pub fn help(mut self, help: impl Into<Option<String>>) -> Self {
        self.help = help.into();
        self
    }
}

/// How much of a line is shown on either side of its mark.
const MARGIN: usize = 60;

impl Excerpt {
    /// Marks the bytes from `at` to `end` of a line.
    fn new(line: &str, at: usize, end: usize) -> Self {
        let at = at.min(line.len());
        let end = end.clamp(at, line.len());
        let before: Vec<char> = line[..at].chars().collect();
        let near = &before[before.len().saturating_sub(MARGIN)..];
        let ahead = line[at..].chars().take(2 * MARGIN).map(visible);
        Self {
            shown: near.iter().copied().map(visible).chain(ahead).collect::<String>().trim_end().to_owned(),
            // A tab stays one, so that the mark stands beneath what it marks.
            indent: near.iter().map(|c| if *c == '\t' { '\t' } else { ' ' }).collect(),
            marks: line[at..end].chars().take(2 * MARGIN).count().max(1),
        }
    }
}

/// A file must not be able to steer the terminal that its mistakes are shown on.
fn visible(c: char) -> char {
    if c.is_control() && c != '\t' { char::REPLACEMENT_CHARACTER } else { c }
}

/// Words that may quote the file, for a terminal, which would do what control characters say.
fn printable(words: &str) -> String {
    words.chars().map(|c| if c == '\n' { c } else { visible(c) }).collect()
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}:", self.path)?;
        }
        if self.line > 0 {
            write!(f, "{}:{}:", self.line, self.column)?;
        }
        let gap = if self.path.is_empty() && self.line == 0 { "" } else { " " };
        write!(f, "{gap}{}", printable(&self.message))?;
        let margin = " ".repeat(self.line.to_string().len());
        if let Some(Excerpt { shown, indent, marks }) = &self.excerpt {
            write!(f, "\n{margin} |\n{} | {shown}\n{margin} | {indent}{}", self.line, "^".repeat(*marks))?;
        }
        match &self.help {
            Some(help) => {
                write!(f, "\n{margin} = help: {}", printable(help).replace('\n', &format!("\n{margin}   ")))
            }
            None => Ok(()),
        }
    }
}

/// Everything that is wrong with a policy, or looks like a mistake, in the order of the file.
///
/// At most [`Problems::MOST`] are kept; the rest is counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Problems {
    problems: Vec<Problem>,
    /// How many more there are.
    more: usize,
}

impl Problems {
    /// How many problems are kept.
    pub const MOST: usize = 100;

    /// Adds a problem. What is only counted is not made, because looking for its place and a hint takes time.
    pub(crate) fn add(&mut self, problem: impl FnOnce() -> Problem) {
        if self.is_full() { self.more += 1 } else { self.problems.push(problem()) }
    }

    /// Adds all of another file.
    pub(crate) fn append(&mut self, other: Self) {
        self.more += other.more;
        other.problems.into_iter().for_each(|problem| self.add(|| problem));
    }

    /// The line of something that a message is about; of one that is only counted nobody reads it.
    pub(crate) fn line(&self, source: &Source, at: usize) -> usize {
        if self.is_full() { 0 } else { source.locate(at).line }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.problems.len() >= Self::MOST
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.problems.is_empty()
    }

    /// The same in the order of the files, as an error if there is any.
    pub(crate) fn or<T>(self, value: T) -> Result<T, Self> {
        if self.is_empty() { Ok(value) } else { Err(self.in_order()) }
    }

    /// The same in the order of the files.
    pub(crate) fn in_order(mut self) -> Self {
        let key = |problem: &Problem| (problem.path.clone(), problem.line, problem.column);
        self.problems.sort_by_key(key);
        self
    }

    /// The problems that were kept.
    pub fn iter(&self) -> std::slice::Iter<'_, Problem> {
        self.problems.iter()
    }

    /// How many there are, with those that were not kept.
    pub fn count(&self) -> usize {
        self.problems.len() + self.more
    }
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Self { problems: vec![problem], more: 0 }
    }
}

impl<'p> IntoIterator for &'p Problems {
    type Item = &'p Problem;
    type IntoIter = std::slice::Iter<'p, Problem>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.iter().enumerate() {
            write!(f, "{}{problem}", if index == 0 { "" } else { "\n\n" })?;
        }
        if self.more > 0 { write!(f, "\n\nand {} more", self.more) } else { Ok(()) }
    }
}

impl std::error::Error for Problems {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_says_does_nothing_to_a_terminal() {
        let source = Source::new("web.toml", "a\u{1b}[31m = 1\n");
        let problem = Problem::new(&Place::new(&source, 0..1), "a\u{1b}[31m is not known");
        assert_eq!(
            problem.help("did you mean\n\0a?".to_owned()).to_string(),
            "web.toml:1:1: a\u{fffd}[31m is not known\n  |\n1 | a\u{fffd}[31m = 1\n  | ^\n  = help: did you mean\n    \u{fffd}a?"
        );
    }

    #[test]
    fn shows_the_line_and_marks_the_place() {
        let source = Source::new("web.toml", "[limit.a]\n\tkey = 1 # \u{1b}[31m\n");
        let problem = Problem::new(&Place::new(&source, 17..18), "expected a field, found the number 1");
        assert_eq!(
            problem.help("write\nkey = \"1\"".to_owned()).to_string(),
            "web.toml:2:8: expected a field, found the number 1\n  |\n2 | \tkey = 1 # \u{fffd}[31m\n  | \t      ^\n  = help: write\n    key = \"1\""
        );
    }

    #[test]
    fn of_a_long_line_only_the_neighbourhood_is_shown() {
        let line = format!("{}x{}", "a".repeat(1000), "b".repeat(1000));
        let source = Source::new("p", line);
        let text = Problem::new(&Place::new(&source, 1000..1001), "no").to_string();
        let expected = format!("1 | {}x{}\n", "a".repeat(60), "b".repeat(119));
        assert!(text.contains(&expected) && text.ends_with(&format!("| {}^", " ".repeat(60))), "{text}");
    }

    #[test]
    fn what_no_file_contains_has_no_position() {
        assert_eq!(Problem::new(&Place::default(), "no").to_string(), "no");
        assert_eq!(Problem::in_file("a", "no").to_string(), "a: no");
    }

    #[test]
    fn a_thousand_mistakes_are_counted_and_a_hundred_kept() {
        let mut problems = Problems::default();
        (0..1000).for_each(|_| problems.add(|| Problem::in_file("a", "no")));
        assert_eq!((problems.iter().count(), problems.count()), (100, 1000));
        assert!(problems.to_string().ends_with("\n\nand 900 more"));
    }
}
