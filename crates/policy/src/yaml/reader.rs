//! Values of each shape, and what to say when they have another.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use serde_json::Value as Json;

use super::{Content, Node};
use crate::problem::{Problem, Problems};
use crate::source::{Place, Source};
use crate::suggest::did_you_mean;

/// Reads values out of a tree, and goes on after a mistake.
pub(crate) struct Reader<'s> {
    pub(crate) source: &'s Arc<Source>,
    pub(crate) problems: &'s mut Problems,
}

/// The entries of a map that are known and not null.
pub(crate) struct Fields<'n> {
    pub(crate) mark: Range<usize>,
    fields: Vec<(&'n str, &'n Node)>,
}

impl<'n> Fields<'n> {
    pub(crate) fn get(&self, name: &str) -> Option<&'n Node> {
        self.fields.iter().find(|field| field.0 == name).map(|field| field.1)
    }
}

impl Reader<'_> {
    pub(crate) fn place(&self, span: Range<usize>) -> Place {
        Place::new(self.source, span)
    }

    pub(crate) fn problem(
        &mut self,
        span: Range<usize>,
        message: impl Into<String>,
        help: impl Into<Option<String>>,
    ) {
        let place = self.place(span);
        self.problems.add(|| Problem::new(&place, message).help(help));
    }

    pub(crate) fn expected(&mut self, node: &Node, expected: &str, help: Option<String>) {
        self.problem(node.mark(), format!("expected {expected}, found {}", node.found()), help);
    }

    /// The entries of a map of `what`; `elsewhere` tells where a word belongs that is not known here.
    pub(crate) fn fields<'n>(
        &mut self,
        node: &'n Node,
        what: &str,
        known: &[&'static str],
        elsewhere: impl Fn(&str) -> Option<String>,
    ) -> Option<Fields<'n>> {
        let Content::Map(pairs) = &node.content else {
            self.expected(node, &format!("{what}, which is a map"), None);
            return None;
        };
        let mut fields = Vec::with_capacity(pairs.len());
        for (key, value) in pairs {
            match key.scalar().map(|scalar| scalar.text.as_str()) {
                None => self.expected(key, "a word", None),
                Some(name) if !known.contains(&name) => {
                    let help = elsewhere(name).or_else(|| did_you_mean(name, known.iter().copied()));
                    self.problem(key.mark(), format!("unknown key {name:?} of {what}"), help);
                }
                Some(name) if !value.is_null() => fields.push((name, &**value)),
                Some(_) => {}
            }
        }
        Some(Fields { mark: node.mark(), fields })
    }

    pub(crate) fn list<'n>(&mut self, node: &'n Node, expected: &str) -> &'n [Rc<Node>] {
        if let Content::List(values) = &node.content {
            return values;
        }
        self.expected(node, expected, None);
        &[]
    }

    /// A text; numbers and truths are what is written.
    pub(crate) fn text(&mut self, node: &Node, expected: &str) -> Option<String> {
        match node.scalar() {
            Some(scalar) if scalar.fraction().is_some() => {
                let help =
                    format!("a number with a fraction is not text; write it in quotes: {:?}", scalar.text);
                self.expected(node, expected, Some(help));
                None
            }
            Some(scalar) if !scalar.is_null() => Some(scalar.text.clone()),
            _ => {
                self.expected(node, expected, None);
                None
            }
        }
    }

    pub(crate) fn truth(&mut self, node: Option<&Node>) -> bool {
        let Some(node) = node else { return false };
        let truth = node.scalar().and_then(super::Scalar::truth);
        if truth.is_none() {
            self.expected(node, "true or false", None);
        }
        truth.unwrap_or(false)
    }

    pub(crate) fn whole_number(&mut self, node: &Node, least: u64, most: u64) -> Option<u64> {
        let number = node.scalar().and_then(super::Scalar::whole_number);
        let fits = number.and_then(|number| u64::try_from(number).ok());
        let fits = fits.filter(|number| (least..=most).contains(number));
        if fits.is_none() {
            let quoted =
                node.scalar().is_some_and(|scalar| scalar.text.parse::<u64>().is_ok()) && number.is_none();
            let help = quoted.then(|| "write it without quotes".to_owned());
            self.expected(node, &format!("a whole number from {least} to {most}"), help);
        }
        fits
    }

    /// Anything, as JSON.
    pub(crate) fn json(&mut self, node: &Node) -> Json {
        match &node.content {
            Content::List(values) => values.iter().map(|value| self.json(value)).collect(),
            Content::Map(pairs) => {
                let mut object = serde_json::Map::new();
                for (key, value) in pairs {
                    match key.scalar() {
                        Some(name) => drop(object.insert(name.text.clone(), self.json(value))),
                        None => self.expected(key, "a word", None),
                    }
                }
                object.into()
            }
            Content::Scalar(scalar) => {
                if let Some(truth) = scalar.truth() {
                    truth.into()
                } else if let Some(number) = scalar.whole_number() {
                    i64::try_from(number)
                        .map_or_else(|_| number.to_string().parse::<f64>().ok().into(), Json::from)
                } else if let Some(number) = scalar.fraction() {
                    if !number.is_finite() {
                        self.expected(node, "a number that JSON can write", None);
                    }
                    number.into()
                } else if scalar.is_null() {
                    Json::Null
                } else {
                    scalar.text.clone().into()
                }
            }
        }
    }
}
