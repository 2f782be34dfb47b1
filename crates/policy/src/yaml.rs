//! YAML as a tree in which everything knows where it stands.
//!
//! An alias is the node that it stands for, not a copy of it, and whatever a file stands for in the end is counted, so that a
//! short file cannot become a huge tree. What is not YAML ends the reading, because nothing that follows could be understood.
//!
//! Files of Envoy, which are maps, are read as Envoy's own service reads them: the first document counts, and of equal keys in a map
//! the last one. In other files both are mistakes.

mod reader;
mod scalar;

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, ScanError, Span, StrInput, Tag};

use crate::problem::{Problem, Problems};
use crate::source::{Place, Source};

pub(crate) use reader::{Fields, Reader};
pub(crate) use scalar::Scalar;

/// So many values may a file stand for, aliases included.
const MOST_VALUES: usize = 2_000_000;

/// A value, and where it stands.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) span: Range<usize>,
    pub(crate) content: Content,
    /// How many values it stands for.
    size: usize,
}

#[derive(Debug)]
pub(crate) enum Content {
    Scalar(Scalar),
    List(Vec<Rc<Node>>),
    Map(Vec<Pair>),
}

/// An entry of a map.
pub(crate) type Pair = (Rc<Node>, Rc<Node>);

impl Node {
    /// What to point at: of a map its first key.
    pub(crate) fn mark(&self) -> Range<usize> {
        match &self.content {
            Content::Map(pairs) if !pairs.is_empty() => pairs[0].0.mark(),
            Content::Scalar(_) => self.span.clone(),
            _ => self.span.start..self.span.start + 1,
        }
    }

    pub(crate) fn scalar(&self) -> Option<&Scalar> {
        if let Content::Scalar(scalar) = &self.content { Some(scalar) } else { None }
    }

    pub(crate) fn is_null(&self) -> bool {
        self.scalar().is_some_and(Scalar::is_null)
    }

    /// What it is, in words.
    pub(crate) fn found(&self) -> String {
        match &self.content {
            Content::Scalar(scalar) => scalar.found(),
            Content::List(_) => "a list".to_owned(),
            Content::Map(_) => "a map".to_owned(),
        }
    }
}

/// Reads a text. Without a problem there is a tree. What counts for nothing is noted.
pub(crate) fn parse(source: &Arc<Source>, problems: &mut Problems, notes: &mut Problems) -> Option<Rc<Node>> {
    let (open, known, root) = (Vec::new(), HashMap::new(), None);
    let mut builder = Builder { source, problems, notes, open, known, root, total: 0, is_complete: false };
    let mut parser: Parser<'_, StrInput<'_>> = Parser::new_from_str(source.text());
    while let Some(event) = parser.next_event() {
        match event {
            Err(error) => {
                builder.not_yaml(&error);
                return None;
            }
            Ok((event, span)) => builder.take(event, &span)?,
        }
        if builder.is_complete {
            break;
        }
    }
    builder.root
}

/// A list or a map of which the end has not come yet.
struct Open {
    start: usize,
    anchor: usize,
    is_map: bool,
    /// Of a map, keys and values take turns.
    values: Vec<Rc<Node>>,
}

struct Builder<'s> {
    source: &'s Arc<Source>,
    problems: &'s mut Problems,
    notes: &'s mut Problems,
    open: Vec<Open>,
    /// What anchors stand for.
    known: HashMap<usize, Rc<Node>>,
    root: Option<Rc<Node>>,
    total: usize,
    /// Whether nothing that follows counts.
    is_complete: bool,
}

impl Builder<'_> {
    fn problem(&mut self, span: Range<usize>, message: impl Into<String>, help: Option<&str>) {
        let place = Place::new(self.source, span);
        self.problems.add(|| Problem::new(&place, message).help(help.map(str::to_owned)));
    }

    fn note(&mut self, span: Range<usize>, message: &str, help: &str) {
        let place = Place::new(self.source, span);
        self.notes.add(|| Problem::new(&place, message).help(help.to_owned()));
    }

    fn not_yaml(&mut self, error: &ScanError) {
        let at = error.marker().byte_offset().unwrap_or_default();
        let message = match error.kind() {
            ErrorKind::RecursionLimitExceeded => "lists or maps are nested too deeply".to_owned(),
            _ => format!("this is not YAML: {}", error.info()),
        };
        self.problem(at..at + 1, message, None);
    }

    /// Takes the next event; nothing, if to read on makes no sense.
    fn take(&mut self, event: Event<'_>, span: &Span) -> Option<()> {
        let start = span.start.byte_offset().unwrap_or_default();
        let span = start..span.end.byte_offset().unwrap_or(start);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let is_plain = style == ScalarStyle::Plain && !self.is_text(tag.as_deref(), &span);
                let scalar = Scalar::new(text.into_owned(), is_plain);
                self.put(Node { span, content: Content::Scalar(scalar), size: 1 }, anchor)
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.begin(false, anchor, tag.as_deref(), &span);
                Some(())
            }
            Event::MappingStart(_, anchor, tag) => {
                self.begin(true, anchor, tag.as_deref(), &span);
                Some(())
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(span.end),
            Event::Alias(anchor) => self.alias(anchor, span),
            Event::DocumentStart(..) if self.root.is_some() => self.second_document(span),
            _ => Some(()),
        }
    }

    fn second_document(&mut self, span: Range<usize>) -> Option<()> {
        const HELP: &str = "make it a file of its own";
        if !matches!(self.root.as_ref()?.content, Content::Map(_)) {
            self.problem(span, "expected one YAML document, found a second", Some(HELP));
            return None;
        }
        self.note(span, "a second document begins here; only the first one counts", HELP);
        self.is_complete = true;
        Some(())
    }

    /// Whether a tag says that a value is text whatever it looks like.
    fn is_text(&mut self, tag: Option<&Tag>, span: &Range<usize>) -> bool {
        let Some(tag) = tag else { return false };
        if !tag.is_yaml_core_schema() && tag.original() != "!" {
            self.problem(span.clone(), format!("unknown tag {}", tag.original()), None);
        }
        tag.is_yaml_core_schema_tag("str") || tag.original() == "!"
    }

    fn begin(&mut self, is_map: bool, anchor: usize, tag: Option<&Tag>, span: &Range<usize>) {
        self.is_text(tag, span);
        self.open.push(Open { start: span.start, anchor, is_map, values: Vec::new() });
    }

    fn end(&mut self, end: usize) -> Option<()> {
        let Open { start, anchor, is_map, values } = self.open.pop()?;
        let size = values.iter().fold(1_usize, |sum, value| sum.saturating_add(value.size));
        let content = if is_map { Content::Map(self.map(values)) } else { Content::List(values) };
        self.put(Node { span: start..end, content, size }, anchor)
    }

    fn alias(&mut self, anchor: usize, span: Range<usize>) -> Option<()> {
        let Some(node) = self.known.get(&anchor).cloned() else {
            self.problem(span, "alias refers to itself", None);
            return None;
        };
        let size = node.size;
        self.place(node, span, size)
    }

    fn put(&mut self, node: Node, anchor: usize) -> Option<()> {
        let span = node.span.clone();
        let node = Rc::new(node);
        if anchor > 0 {
            self.known.insert(anchor, Rc::clone(&node));
        }
        // What is in a list or a map was counted when it came.
        self.place(node, span, 1)
    }

    /// Puts a node in its place, if there is still room.
    fn place(&mut self, node: Rc<Node>, span: Range<usize>, size: usize) -> Option<()> {
        self.total = self.total.saturating_add(size);
        if self.total > MOST_VALUES {
            let message = format!("aliases expand to more than {MOST_VALUES} values");
            self.problem(span, message, Some("use fewer aliases, or split the file"));
            return None;
        }
        match self.open.last_mut() {
            Some(open) => open.values.push(node),
            None => self.root = Some(node),
        }
        Some(())
    }

    /// The entries of a map, with those that `<<` brings along; what is said in the map itself counts.
    fn map(&mut self, values: Vec<Rc<Node>>) -> Vec<Pair> {
        let mut pairs: Vec<Pair> = Vec::with_capacity(values.len() / 2);
        let (mut merged, mut seen) = (Vec::new(), HashMap::new());
        let mut values = values.into_iter();
        while let (Some(key), Some(value)) = (values.next(), values.next()) {
            let name = key.scalar().map(|scalar| scalar.text.clone());
            if key.scalar().is_some_and(Scalar::is_merge) {
                self.merge(&value, &mut merged);
            } else if let Some(&place) = name.as_ref().and_then(|name| seen.get(name)) {
                self.again((key, value), &mut pairs[place]);
            } else {
                seen.extend(name.map(|name| (name, pairs.len())));
                pairs.push((key, value));
            }
        }
        for (key, value) in merged {
            let name = key.scalar().map(|scalar| scalar.text.clone());
            if name.as_ref().is_none_or(|name| !seen.contains_key(name)) {
                seen.extend(name.map(|name| (name, pairs.len())));
                pairs.push((key, value));
            }
        }
        pairs
    }

    /// A key that the map has already.
    fn again(&mut self, pair: Pair, first: &mut Pair) {
        let line = self.problems.line(self.source, first.0.span.start);
        let name = pair.0.scalar().map(|scalar| scalar.text.as_str()).unwrap_or_default();
        let (span, message) = (pair.0.span.clone(), format!("{name:?} is already defined in line {line}"));
        let is_of_envoy = self.open.first().is_none_or(|root| root.is_map);
        if is_of_envoy {
            self.note(span, &format!("{message}; only this one counts"), "remove one of them");
            *first = pair;
        } else {
            self.problem(span, message, None);
        }
    }

    fn merge(&mut self, value: &Node, merged: &mut Vec<Pair>) {
        match &value.content {
            Content::Map(pairs) => merged.extend(pairs.iter().cloned()),
            Content::List(maps) if maps.iter().all(|map| matches!(map.content, Content::Map(_))) => {
                for map in maps {
                    self.merge(map, merged);
                }
            }
            _ => {
                let message = format!("expected a map to merge, or a list of maps, found {}", value.found());
                self.problem(value.span.clone(), message, None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tree in short: `{a: [1, 2]}`.
    fn shown(node: &Node) -> String {
        let pair = |(key, value): &Pair| format!("{}: {}", shown(key), shown(value));
        match &node.content {
            Content::Scalar(scalar) => scalar.text.clone(),
            Content::List(values) => {
                format!("[{}]", values.iter().map(|value| shown(value)).collect::<Vec<_>>().join(", "))
            }
            Content::Map(pairs) => format!("{{{}}}", pairs.iter().map(pair).collect::<Vec<_>>().join(", ")),
        }
    }

    fn tree(text: &str) -> Result<String, String> {
        let mut problems = Problems::default();
        let root = parse(&Source::new("p.yaml", text), &mut problems, &mut Problems::default());
        let told = |problem: &Problem| format!("{}:{} {}", problem.line, problem.column, problem.message);
        problems.or(()).map_err(|problems| problems.iter().map(told).collect::<Vec<_>>().join("; "))?;
        Ok(root.map(|root| shown(&root)).unwrap_or_default())
    }

    #[test]
    fn reads_lists_and_maps() {
        assert_eq!(
            tree("a: [1, {b: c}]\nd:\n- e\n- 'f g'\n").as_deref(),
            Ok("{a: [1, {b: c}], d: [e, f g]}")
        );
        assert_eq!(tree("# nothing\n").as_deref(), Ok(""));
        assert_eq!(tree("\u{feff}a: µ\r\nb: x\r\n").as_deref(), Ok("{a: µ, b: x}"));
    }

    #[test]
    fn aliases_stand_for_what_they_name_and_merge_keys_bring_it_along() {
        assert_eq!(tree("a: &x [1]\nb: *x\n").as_deref(), Ok("{a: [1], b: [1]}"));
        assert_eq!(
            tree("a: &x {u: 1, v: 2}\nb: {v: 3, <<: *x}\n").as_deref(),
            Ok("{a: {u: 1, v: 2}, b: {v: 3, u: 1}}")
        );
        assert_eq!(
            tree("a: &x {u: 1}\nb: &y {u: 2, w: 3}\nc: {<<: [*x, *y]}\n").as_deref(),
            Ok("{a: {u: 1}, b: {u: 2, w: 3}, c: {u: 1, w: 3}}")
        );
    }

    #[test]
    fn tells_where_it_is_not_yaml() {
        assert!(tree("a: [1, 2\nb: 3\n").unwrap_err().contains("this is not YAML"));
        assert_eq!(
            tree("- a: 1\n  b: 2\n  a: 3\n"),
            Err("3:3 \"a\" is already defined in line 1".to_owned())
        );
        assert_eq!(tree("- a\n---\n- b\n"), Err("2:1 expected one YAML document, found a second".to_owned()));
        assert_eq!(tree("a: !thing 1\n"), Err("1:11 unknown tag !thing".to_owned()));
        assert_eq!(tree("a: &x [*x]\n"), Err("1:8 alias refers to itself".to_owned()));
        assert_eq!(
            tree("a: {<<: 1}\n"),
            Err("1:9 expected a map to merge, or a list of maps, found the number 1".to_owned())
        );
    }

    /// Item 26.5: as Envoy's own service reads its files.
    #[test]
    fn of_envoys_files_the_first_document_and_the_last_of_equal_keys_count() {
        let (mut problems, mut notes) = (Problems::default(), Problems::default());
        let text = "a: 1\nb: {c: 2, c: 3}\na: 4\n---\nd: [5, broken";
        let root = parse(&Source::new("p.yaml", text), &mut problems, &mut notes);
        assert_eq!((shown(&root.unwrap()), problems.count()), ("{a: 4, b: {c: 3}}".to_owned(), 0));
        let noted: Vec<_> =
            notes.iter().map(|note| (note.line, note.column, note.message.as_str())).collect();
        let again = |line, column, message| (line, column, message);
        assert_eq!(
            noted,
            [
                again(2, 11, "\"c\" is already defined in line 2; only this one counts"),
                again(3, 1, "\"a\" is already defined in line 1; only this one counts"),
                again(4, 1, "a second document begins here; only the first one counts"),
            ]
        );
    }

    #[test]
    fn deep_nesting_and_a_billion_laughs_are_refused() {
        let deep = |open: &str| tree(&open.repeat(100_000)).unwrap_err();
        assert!(deep("[").ends_with("lists or maps are nested too deeply"), "{}", deep("["));
        assert!(deep("- ").ends_with("lists or maps are nested too deeply"), "{}", deep("- "));
        let mut laughs = vec!["a0: &a0 [x, x, x, x, x, x, x, x, x, x]".to_owned()];
        for level in 1..30 {
            let before = vec![format!("*a{}", level - 1); 10].join(", ");
            laughs.push(format!("a{level}: &a{level} [{before}]"));
        }
        let told = tree(&laughs.join("\n")).unwrap_err();
        assert!(told.ends_with("aliases expand to more than 2000000 values"), "{told}");
    }
}
