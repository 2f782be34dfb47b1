//! Values of each shape, and what to say when they have another.

use std::ops::Range;

use tollgate_core::Quota;
use toml::de::{DeTable, DeValue};

use super::{Reader, Value, in_order};
use crate::condition::{Condition, Test};
use crate::draft::{MOST_FIELDS, Override, toml_key};
use crate::entries::Entry;
use crate::expression::Expression;
use crate::key_part::{KeyPart, usual_prefix};
use crate::network;
use crate::pattern::Pattern;
use crate::suggest::did_you_mean;

/// A text and where it stands.
pub(super) type Text = (String, Range<usize>);

impl Reader {
    pub(super) fn expected(&mut self, value: &Value<'_>, expected: &str, help: Option<String>) {
        let message = format!("expected {expected}, found {}", found(value.get_ref()));
        self.problem(value.span(), message, help);
    }

    pub(super) fn text(&mut self, value: &Value<'_>, expected: &str) -> Option<String> {
        if let DeValue::String(text) = value.get_ref() {
            return Some(text.clone().into_owned());
        }
        self.expected(value, expected, in_quotes(value.get_ref()));
        None
    }

    /// One text, or a list of at least one.
    pub(super) fn texts(&mut self, value: &Value<'_>, expected: &str) -> Vec<Text> {
        let DeValue::Array(values) = value.get_ref() else {
            return self.text(value, expected).map(|text| (text, value.span())).into_iter().collect();
        };
        if values.is_empty() {
            self.problem(value.span(), format!("expected {expected}, found an empty list"), None);
        }
        values.iter().filter_map(|value| Some((self.text(value, expected)?, value.span()))).collect()
    }

    pub(super) fn truth(&mut self, value: &Value<'_>, into: &mut bool) {
        match value.get_ref() {
            DeValue::Boolean(truth) => *into = *truth,
            _ => self.expected(value, "true or false", None),
        }
    }

    pub(super) fn expressions(&mut self, value: &Value<'_>) -> Vec<Expression> {
        let texts = self.texts(value, "an expression in CEL, or a list of them");
        texts.into_iter().map(|(text, span)| Expression::new(text, self.place(span))).collect()
    }

    /// An entry as a text, or as a table.
    pub(super) fn entry(&mut self, value: &Value<'_>) -> Option<Entry> {
        const EXPECTED: &str = "an entry such as \"path_/login\" or { entry = \"path_/*\", shared = true }";
        let Some(table) = value.get_ref().as_table() else {
            return self.text(value, EXPECTED).map(Entry::new);
        };
        let Some(text) = table.get("entry") else {
            self.problem(value.span(), format!("expected {EXPECTED}"), None);
            return None;
        };
        let mut entry = Entry::new(self.text(text, "an entry such as \"path_/*\"")?);
        self.only_words(table, "an entry", &ENTRY_WORDS);
        for (word, flag) in [("shared", &mut entry.shared), ("in_metrics", &mut entry.in_metrics)] {
            if let Some(value) = table.get(word) {
                self.truth(value, flag);
            }
        }
        Some(entry)
    }

    /// Fields and expressions; no field stands there twice.
    pub(super) fn key_parts(&mut self, value: &Value<'_>) -> Vec<KeyPart> {
        let alone = std::slice::from_ref(value);
        let values = value.get_ref().as_array().map_or(alone, |values| &values[..]);
        if values.is_empty() {
            self.problem(value.span(), format!("expected {KEY_EXPECTED}, found an empty list"), None);
        }
        let mut parts: Vec<KeyPart> = Vec::new();
        // One more than a limit may have is enough to see that there are too many.
        for value in values.iter().take(MOST_FIELDS + 1) {
            let Some(part) = self.key_part(value) else { continue };
            let name = part.field_name();
            if name == Some("") {
                self.problem(value.span(), "the name of a field cannot be empty", None);
            } else if name.is_some() && parts.iter().any(|other| other.field_name() == name) {
                let name = name.unwrap_or_default();
                self.problem(value.span(), format!("duplicate field {name:?}"), None);
            } else {
                parts.push(part);
            }
        }
        parts
    }

    fn key_part(&mut self, value: &Value<'_>) -> Option<KeyPart> {
        let Some(table) = value.get_ref().as_table() else {
            return self.text(value, KEY_EXPECTED).map(KeyPart::field);
        };
        self.only_words(table, "a key", &KEY_WORDS);
        match (table.get("field"), table.get("cel")) {
            (Some(field), None) => {
                let name = self.text(field, "the name of a field")?;
                let ipv6_prefix = match table.get("ipv6_prefix") {
                    Some(bits) => self.ipv6_prefix(bits),
                    None => usual_prefix(&name),
                };
                Some(KeyPart::Field { name, ipv6_prefix })
            }
            (None, Some(cel)) => {
                if let Some((word, _)) = table.get_key_value("ipv6_prefix") {
                    self.problem(word.span(), "ipv6_prefix is for a field, not for an expression", None);
                }
                let text = self.text(cel, "an expression in CEL")?;
                Some(KeyPart::Cel(Expression::new(text, self.place(cel.span()))))
            }
            _ => {
                self.problem(value.span(), format!("expected {KEY_EXPECTED}"), None);
                None
            }
        }
    }

    /// How much of an IPv6 address is counted; false counts all values as text.
    fn ipv6_prefix(&mut self, value: &Value<'_>) -> Option<u8> {
        let bits = match value.get_ref() {
            DeValue::Boolean(false) => return None,
            DeValue::Integer(number) => u8::from_str_radix(number.as_str(), number.radix()).ok(),
            _ => None,
        };
        let bits = bits.filter(|bits| (1..=128).contains(bits));
        if bits.is_none() {
            self.expected(value, "a whole number of bits from 1 to 128, or false", None);
        }
        bits
    }

    /// The rates that values of a field have, and where each is.
    pub(super) fn one_override(&mut self, value: &Value<'_>) -> Option<(Override, Vec<Range<usize>>)> {
        const EXPECTED: &str = "an override such as { field = \"plan\", rates = { gold = \"1000/s\" } }";
        let Some(table) = value.get_ref().as_table() else {
            self.expected(value, EXPECTED, None);
            return None;
        };
        self.only_words(table, "an override", &OVERRIDE_WORDS);
        let (Some(field), Some(rates)) = (table.get("field"), table.get("rates")) else {
            self.problem(value.span(), format!("expected {EXPECTED}"), None);
            return None;
        };
        let field = self.text(field, "the name of a field")?;
        let Some(values) = rates.get_ref().as_table() else {
            self.expected(rates, "a table of values and their rates", None);
            return None;
        };
        if values.is_empty() {
            self.problem(
                rates.span(),
                "expected at least one value and its rates, found an empty table",
                None,
            );
        }
        let (mut all, mut spans) = (Vec::new(), Vec::new());
        for (value, rates) in in_order(values) {
            if value.get_ref().contains('*') {
                let help = "for many values at once, write a separate limit with match and envoy.replaces"
                    .to_owned();
                self.problem(value.span(), "an override has no wildcards", Some(help));
            }
            spans.push(rates.span());
            let rates = self.quotas(rates).unwrap_or_else(|| vec![Quota::UNLIMITED]);
            all.push((value.get_ref().clone().into_owned(), rates));
        }
        Some((Override { field, rates: all }, spans))
    }

    /// Reports every word of a table that is none of these.
    fn only_words(&mut self, table: &DeTable<'_>, what: &str, words: &'static [&'static str]) {
        for (name, _) in in_order(table).iter().filter(|(name, _)| !words.contains(&name.get_ref().as_ref()))
        {
            let message =
                format!("unknown word {:?} for {what}; expected one of {}", name.get_ref(), words.join(", "));
            self.problem(name.span(), message, did_you_mean(name.get_ref(), words.iter().copied()));
        }
    }

    /// One of a few words.
    pub(super) fn choice<T: Copy>(
        &mut self,
        value: &Value<'_>,
        what: &str,
        all: &[(&'static str, T)],
    ) -> Option<T> {
        let words = || all.iter().map(|(word, _)| *word);
        let listed = words().collect::<Vec<_>>().join(", ");
        let text = self.text(value, &format!("{what}, one of {listed}"))?;
        let chosen = all.iter().find(|(word, _)| *word == text);
        if chosen.is_none() {
            let message = format!("unknown {what} {text:?}; expected one of {listed}");
            self.problem(value.span(), message, did_you_mean(&text, words()));
        }
        chosen.map(|(_, choice)| *choice)
    }

    /// One rate, or a list of them; if one is wrong, none.
    pub(super) fn quotas(&mut self, value: &Value<'_>) -> Option<Vec<Quota>> {
        let expected = "a rate such as \"10/s burst 20\", or a list of them";
        if let DeValue::Integer(number) = value.get_ref() {
            self.expected(value, expected, Some(format!("did you mean \"{number}/s\"?")));
            return None;
        }
        let texts = self.texts(value, expected);
        let count = value.get_ref().as_array().map_or(1, |values| values.len().max(1));
        let rates: Vec<Quota> =
            texts.into_iter().filter_map(|(text, span)| self.quota(&text, span)).collect();
        (rates.len() == count).then_some(rates)
    }

    fn quota(&mut self, text: &str, span: Range<usize>) -> Option<Quota> {
        match text.parse::<Quota>() {
            Ok(quota) => {
                if quota.burst_size() == 0 && quota.count() > 0 {
                    let message = format!("rate {text:?} denies every request, because its burst is 0");
                    let help = format!("write burst 1, or leave burst out for a burst of {}", quota.count());
                    self.warn(span, message, help);
                }
                Some(quota)
            }
            Err(error) => {
                self.problem(span, error.to_string(), None);
                None
            }
        }
    }

    /// What a limit asks of a field.
    pub(super) fn condition(&mut self, field: &str, value: &Value<'_>) -> Option<Condition> {
        const EXPECTED: &str = "a text, a list of texts, or a table with is, like, network or absent";
        if value.get_ref().is_table() {
            return self.long_condition(value);
        }
        let texts = self.texts(value, EXPECTED);
        for (text, span) in &texts {
            self.doubt(field, text, span);
        }
        any_of(texts.into_iter().map(|(text, _)| Test::value(text)).collect())
    }

    /// Warns of a text that looks like a network, or like several texts. The long form says that a text is meant.
    fn doubt(&mut self, field: &str, text: &str, span: &Range<usize>) {
        let parts: Vec<&str> = text.split('|').collect();
        let (seems, instead) = if text.contains('/') && network::parse(text).is_ok() {
            ("a network", format!("{{ network = {text:?} }}"))
        } else if parts.len() > 1 && parts.iter().all(|part| !part.is_empty() && !part.contains(' ')) {
            ("several texts", format!("{parts:?}"))
        } else {
            return;
        };
        let message = format!("{text:?} looks like {seems}, but is compared as one text");
        let name = toml_key(field);
        let help = format!(
            "write match.{name} = {instead}; or match.{name} = {{ is = {text:?} }} if it is meant as a text"
        );
        self.warn(span.clone(), message, help);
    }

    fn long_condition(&mut self, value: &Value<'_>) -> Option<Condition> {
        let table = value.get_ref().as_table()?;
        for (name, _) in in_order(table).iter().filter(|(name, _)| !WORDS.contains(&name.get_ref().as_ref()))
        {
            let help = did_you_mean(name.get_ref(), WORDS);
            let message =
                format!("unknown condition {:?}; expected one of {}", name.get_ref(), WORDS.join(", "));
            self.problem(name.span(), message, help);
        }
        if table.is_empty() {
            self.problem(value.span(), format!("expected one of {}", WORDS.join(", ")), None);
        }
        let mut tests = Vec::new();
        if let Some(value) = table.get("is") {
            tests.extend(
                self.texts(value, "a text, or a list of texts").into_iter().map(|(text, _)| Test::Is(text)),
            );
        }
        if let Some(value) = table.get("like") {
            let texts = self.texts(value, "a pattern such as \"/api/*\", or a list of them");
            tests.extend(texts.into_iter().map(|(text, _)| Test::Like(Pattern::new(text))));
        }
        if let Some(value) = table.get("network") {
            tests.extend(self.networks(value));
        }
        match table.get("absent") {
            Some(absent) => self.absent(absent, table.len() == 1),
            None => any_of(tests),
        }
    }

    fn networks(&mut self, value: &Value<'_>) -> Vec<Test> {
        let texts = self.texts(value, "a network such as \"10.0.0.0/8\", or a list of them");
        let read = |(text, span): Text| match network::parse(&text) {
            Ok(net) => Some(Test::In(net)),
            Err((message, help)) => {
                self.problem(span, message, help);
                None
            }
        };
        texts.into_iter().filter_map(read).collect()
    }

    fn absent(&mut self, value: &Value<'_>, is_alone: bool) -> Option<Condition> {
        if !is_alone {
            self.problem(value.span(), "absent cannot be combined with another condition", None);
        }
        match value.get_ref() {
            DeValue::Boolean(true) => Some(Condition::Absent),
            DeValue::Boolean(false) => Some(Condition::present()),
            _ => {
                self.expected(value, "true or false", None);
                None
            }
        }
    }
}

/// Without any test there is no condition: whatever was wrong has been reported.
fn any_of(tests: Vec<Test>) -> Option<Condition> {
    (!tests.is_empty()).then_some(Condition::AnyOf(tests))
}

/// What a condition in long form may contain.
pub(super) const WORDS: [&str; 4] = ["is", "like", "network", "absent"];

/// What a part of a key in long form may contain.
pub(super) const KEY_WORDS: [&str; 3] = ["field", "ipv6_prefix", "cel"];

/// What a part of a key is.
const KEY_EXPECTED: &str =
    "a field such as \"ip\" or { field = \"ip\", ipv6_prefix = 64 }, { cel = \"…\" }, or a list of them";

/// What an override contains.
pub(super) const OVERRIDE_WORDS: [&str; 2] = ["field", "rates"];

/// What an entry in long form may contain.
pub(super) const ENTRY_WORDS: [&str; 3] = ["entry", "shared", "in_metrics"];

/// What a value is, in words.
pub(super) fn found(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) if text.chars().count() > 40 => "a long text".to_owned(),
        DeValue::String(text) => format!("the text {text:?}"),
        DeValue::Integer(number) => format!("the number {number}"),
        DeValue::Float(number) => format!("the number {number}"),
        DeValue::Boolean(truth) => truth.to_string(),
        DeValue::Datetime(date) => format!("the date {date}"),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

/// Numbers and the like are often meant as text.
fn in_quotes(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(_) | DeValue::Array(_) | DeValue::Table(_) => None,
        DeValue::Integer(number) => Some(format!("write it in quotes: \"{number}\"")),
        DeValue::Float(number) => Some(format!("write it in quotes: \"{number}\"")),
        DeValue::Boolean(truth) => Some(format!("write it in quotes: \"{truth}\"")),
        DeValue::Datetime(date) => Some(format!("write it in quotes: \"{date}\"")),
    }
}
