//! Files of limitador: a list of limits whose conditions and variables are expressions.
//!
//! A comparison of a field with a text is an ordinary condition here, and a field as a variable is a part of the key; so such
//! limits are found as quickly as any. Everything else stays an expression.

mod simple;

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tollgate_core::{Kind, Quota};

use super::Names;
use crate::condition::{Condition, Test};
use crate::draft::{Draft, DraftLimit, name_problem};
use crate::expression::Expression;
use crate::key_part::KeyPart;
use crate::yaml::{Fields, Node, Reader};

const LIMIT: [&str; 7] = ["namespace", "max_value", "seconds", "conditions", "variables", "name", "id"];

/// The longest window that a state can hold.
const MOST_SECONDS: u64 = 10 * 365 * 86_400;

/// Reads a file.
pub(super) fn read(root: &Node, reader: Reader<'_>) -> Draft {
    let mut limitador = Limitador { reader, seen: HashMap::new() };
    let mut limits = Vec::new();
    for node in limitador.reader.list(root, "a list of limits") {
        limits.extend(limitador.limit(node));
    }
    name(&mut limits);
    Draft::new(limits)
}

struct Limitador<'s> {
    reader: Reader<'s>,
    /// Where which limit stands.
    seen: HashMap<Vec<String>, usize>,
}

impl Limitador<'_> {
    fn limit(&mut self, node: &Node) -> Option<DraftLimit> {
        let fields = self.reader.fields(node, "a limit", &LIMIT, |_| None)?;
        let mut limit = DraftLimit::new("", Quota::UNLIMITED);
        limit.place = self.reader.place(fields.mark.clone());
        limit.kind = Kind::FixedWindow;
        limit.limitador.once = true;
        let namespace = self.needed(&fields, "namespace", "namespace: web");
        if let Some(namespace) = namespace.and_then(|node| self.namespace(node)) {
            limit.domain = namespace;
        }
        let most = self.needed(&fields, "max_value", "max_value: 10");
        let most = most.and_then(|node| self.reader.whole_number(node, 0, u64::MAX));
        let seconds = self.needed(&fields, "seconds", "seconds: 60");
        let seconds = seconds.and_then(|node| self.reader.whole_number(node, 1, MOST_SECONDS));
        let period = Duration::from_secs(seconds.unwrap_or(1));
        limit.rates = vec![Quota::per(most.unwrap_or_default(), period)];
        let optional = |reader: &mut Reader<'_>, name: &str| {
            fields.get(name).and_then(|node| reader.text(node, "a text"))
        };
        limit.limitador.name = optional(&mut self.reader, "name");
        limit.limitador.id = optional(&mut self.reader, "id");
        let conditions = self.expressions(&fields, "conditions");
        let variables = self.expressions(&fields, "variables");
        let identity = identity(&limit.domain, period, &conditions, &variables);
        self.conditions(conditions, &mut limit);
        self.variables(variables, &mut limit);
        if namespace.is_some() && seconds.is_some() {
            self.check_new(&identity, &fields);
        }
        Some(limit)
    }

    fn needed<'n>(&mut self, fields: &Fields<'n>, name: &str, example: &str) -> Option<&'n Node> {
        let found = fields.get(name);
        if found.is_none() {
            self.reader.problem(
                fields.mark.clone(),
                format!("this limit has no {name}"),
                format!("add for example {example}"),
            );
        }
        found
    }

    fn namespace(&mut self, node: &Node) -> Option<String> {
        let text = self.reader.text(node, "the name of a namespace")?;
        match name_problem("namespace", &text) {
            None => Some(text),
            Some(message) => {
                self.reader.problem(node.mark(), message, None);
                None
            }
        }
    }

    /// Expressions, each once: their order means nothing.
    fn expressions(&mut self, fields: &Fields<'_>, name: &str) -> Vec<Expression> {
        let Some(list) = fields.get(name) else { return Vec::new() };
        let mut all: Vec<Expression> = Vec::new();
        for node in self.reader.list(list, "a list of expressions in CEL") {
            if let Some(text) = self.reader.text(node, "an expression in CEL") {
                let expression = Expression::new(text, self.reader.place(node.mark()));
                if !all.contains(&expression) {
                    all.push(expression);
                }
            }
        }
        all
    }

    fn conditions(&mut self, conditions: Vec<Expression>, limit: &mut DraftLimit) {
        for condition in conditions {
            if self.is_of_the_old_kind(&condition, simple::old_condition(condition.text())) {
                continue;
            }
            match simple::condition(condition.text()) {
                Some((field, value)) if limit.conditions.iter().all(|(known, _)| *known != field) => {
                    limit.conditions.push((field, Condition::AnyOf(vec![Test::Is(value)])));
                }
                _ => limit.when.push(condition),
            }
        }
    }

    /// Fields go first in the key, each once.
    fn variables(&mut self, variables: Vec<Expression>, limit: &mut DraftLimit) {
        let mut computed = Vec::new();
        for variable in variables {
            if self.is_of_the_old_kind(&variable, simple::old_variable(variable.text())) {
                continue;
            }
            match simple::variable(variable.text()).map(KeyPart::text) {
                Some(field) if !limit.key.contains(&field) => limit.key.push(field),
                Some(_) => {}
                None => computed.push(KeyPart::Cel(variable)),
            }
        }
        limit.key.append(&mut computed);
    }

    /// Before limitador 2 expressions were of another kind.
    fn is_of_the_old_kind(&mut self, expression: &Expression, now: Option<String>) -> bool {
        let Some(now) = now else { return false };
        let message = format!("{:?} is the syntax of limitador 1", expression.text());
        self.reader.problem(expression.place().span(), message, format!("write {now}"));
        true
    }

    fn check_new(&mut self, identity: &[String], fields: &Fields<'_>) {
        if let Some(first) = self.seen.insert(identity.to_vec(), fields.mark.start) {
            let line = self.reader.problems.line(self.reader.source, first);
            let message = format!("this is the same limit as in line {line}");
            let help = "limits differ by namespace, seconds, conditions or variables".to_owned();
            self.reader.problem(fields.mark.clone(), message, help);
        }
    }
}

/// What says which limit it is: not how much it allows, nor what it is called.
fn identity(
    namespace: &str,
    period: Duration,
    conditions: &[Expression],
    variables: &[Expression],
) -> Vec<String> {
    let sorted = |all: &[Expression]| {
        let mut texts: Vec<String> = all.iter().map(|one| one.text().to_owned()).collect();
        texts.sort_unstable();
        texts
    };
    let mut identity = vec![namespace.to_owned(), format!("{}s", period.as_secs())];
    identity.extend(sorted(conditions));
    identity.push(String::new());
    identity.extend(sorted(variables));
    identity
}

/// A limit is called by its name if no other of its namespace is, else by what it is.
fn name(limits: &mut [DraftLimit]) {
    let mut names: HashMap<String, Names> = HashMap::new();
    let mut used: HashSet<(String, String)> = HashSet::new();
    for limit in limits {
        let names = names.entry(limit.domain.clone()).or_default();
        let label = limit.limitador.name.clone();
        let is_first = label.as_ref().is_some_and(|label| used.insert((limit.domain.clone(), label.clone())));
        let by_label = label.and_then(|label| names.label(&label, is_first));
        limit.name = by_label
            .unwrap_or_else(|| names.parts(&parts(limit).iter().map(String::as_str).collect::<Vec<_>>()));
    }
}

/// `60s`, `path=/toys`, `by-user`: what a limit is, but not how much it allows, nor in which order it was said.
fn parts(limit: &DraftLimit) -> Vec<String> {
    let sorted = |mut parts: Vec<String>| {
        parts.sort_unstable();
        parts
    };
    let value = |condition: &Condition| match condition {
        Condition::AnyOf(tests) if matches!(&tests[..], [Test::Is(_)]) => {
            tests.iter().map(|test| if let Test::Is(text) = test { text.as_str() } else { "" }).collect()
        }
        _ => String::new(),
    };
    let conditions =
        limit.conditions.iter().map(|(field, condition)| format!("{field}={}", value(condition)));
    let expressions = limit.when.iter().map(|condition| condition.text().to_owned());
    let key = limit.key.iter().map(|part| format!("by-{part}"));
    let seconds = limit.rates.first().map_or(0, |rate| rate.period().as_secs());
    let mut parts = vec![format!("{seconds}s")];
    parts.extend(sorted(conditions.chain(expressions).collect()));
    parts.extend(sorted(key.collect()));
    parts
}
