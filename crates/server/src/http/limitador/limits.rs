//! The limits of a namespace, as limitador shows them.

use serde::Serialize;
use tollgate::store::Store;
use tollgate_policy::{Condition, KeyPart, Limit, Test};

use crate::engine::Engine;

/// A limit, as in limitador's files.
#[derive(Debug, Serialize)]
pub(super) struct LimitShown {
    id: Option<String>,
    namespace: String,
    max_value: u64,
    seconds: u64,
    name: Option<String>,
    conditions: Vec<String>,
    variables: Vec<String>,
}

/// Returns the limits of a namespace that are as in limitador's files.
pub(super) fn limits<S: Store>(engine: &Engine<S>, namespace: &str) -> Vec<LimitShown> {
    let loaded = engine.loaded();
    of_namespace(loaded.policy().limits(), namespace).map(LimitShown::new).collect()
}

/// The limits of a namespace that are as in limitador's files.
pub(super) fn of_namespace<'l>(limits: &'l [Limit], namespace: &str) -> impl Iterator<Item = &'l Limit> {
    limits.iter().filter(move |limit| limit.is_once() && limit.domain() == namespace)
}

impl LimitShown {
    pub(super) fn new(limit: &Limit) -> Self {
        let quota = limit.rates()[0].quotas()[0];
        let expressions = limit.when().iter().map(|expression| expression.text().to_owned());
        Self {
            id: limit.id().map(str::to_owned),
            namespace: limit.domain().to_owned(),
            max_value: quota.count(),
            seconds: quota.period().as_secs(),
            name: limit.label().map(str::to_owned),
            conditions: limit.conditions().iter().map(condition).chain(expressions).collect(),
            variables: limit.key().iter().map(variable).collect(),
        }
    }
}

/// A condition in CEL.
fn condition((field, condition): &(String, Condition)) -> String {
    match condition {
        Condition::AnyOf(tests) => match &tests[..] {
            [Test::Is(value)] => format!("{} == {}", path(field), quoted(value)),
            _ => format!("{}: {condition}", path(field)),
        },
        absent @ Condition::Absent => format!("{}: {absent}", path(field)),
    }
}

/// A part of a key in CEL.
pub(super) fn variable(part: &KeyPart) -> String {
    match part {
        KeyPart::Field { name, .. } => path(name),
        KeyPart::Cel(expression) => expression.text().to_owned(),
    }
}

fn path(field: &str) -> String {
    format!("descriptors[0][{}]", quoted(field))
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}
