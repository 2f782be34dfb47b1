//! With the feature `cel`.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, LazyLock};

use cel::common::ast::{EntryExpr, Expr, IdedExpr};
use cel::{Context, Env, ExecutionError, Program, Value};

use super::{Expression, Outcome};
use crate::descriptor::{Descriptor, escaped};
use crate::draft::DraftLimit;

/// An expression that was read.
pub(super) struct Compiled(Program);

impl fmt::Debug for Compiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Compiled")
    }
}

/// All of the language, made once.
static LANGUAGE: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));

pub(super) fn compile(text: &str) -> Result<Compiled, String> {
    let program = LANGUAGE.compile(text).map_err(|errors| {
        let first = errors.errors.first().map(|error| {
            let words = error.msg.lines().next().unwrap_or_default().replace("Syntax error: ", "");
            format!(", at character {}: {words}", error.pos.1)
        });
        format!("invalid CEL expression{}", first.unwrap_or_default())
    })?;
    match unknown(program.expression()).first() {
        None => Ok(Compiled(program)),
        Some(name) => Err(format!(
            "unknown variable {name:?}; expressions can read descriptors and limit; for a field write descriptors[0][{name:?}]"
        )),
    }
}

/// The variables that there are not; those that the expression itself declares are no mistake.
fn unknown(expression: &IdedExpr) -> BTreeSet<String> {
    let (mut used, mut declared) =
        (BTreeSet::new(), BTreeSet::from(["descriptors", "limit"].map(String::from)));
    variables(expression, &mut used, &mut declared);
    used.difference(&declared).filter(|name| !name.starts_with('@')).cloned().collect()
}

fn variables(at: &IdedExpr, used: &mut BTreeSet<String>, declared: &mut BTreeSet<String>) {
    let mut visit = |below: &IdedExpr| variables(below, used, declared);
    match &at.expr {
        Expr::Unspecified | Expr::Literal(_) => {}
        Expr::Ident(name) => drop(used.insert(name.clone())),
        Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).for_each(visit),
        Expr::List(list) => list.elements.iter().for_each(visit),
        Expr::Select(select) => visit(&select.operand),
        Expr::Map(map) => map.entries.iter().for_each(|entry| in_entry(&entry.expr, &mut visit)),
        Expr::Struct(made) => made.entries.iter().for_each(|entry| in_entry(&entry.expr, &mut visit)),
        Expr::Comprehension(all) => {
            [&all.iter_range, &all.accu_init, &all.loop_cond, &all.loop_step, &all.result]
                .into_iter()
                .for_each(visit);
            declared.extend([all.iter_var.clone(), all.accu_var.clone()]);
            declared.extend(all.iter_var2.clone());
        }
    }
}

fn in_entry(entry: &EntryExpr, visit: &mut impl FnMut(&IdedExpr)) {
    match entry {
        EntryExpr::StructField(field) => visit(&field.value),
        EntryExpr::MapEntry(entry) => {
            visit(&entry.key);
            visit(&entry.value);
        }
    }
}

/// What expressions can see.
pub(crate) struct World {
    context: Context<'static, 'static>,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("World")
    }
}

impl World {
    pub(crate) fn new(descriptors: &[Descriptor<'_>]) -> Self {
        let mut context = Context::with_env(Arc::clone(&LANGUAGE));
        let maps: Vec<Value> = descriptors.iter().map(fields).collect();
        context.add_variable_from_value("descriptors", maps);
        Self { context }
    }

    /// Whether a condition holds.
    pub(crate) fn holds(&self, expression: &Expression, limit: &DraftLimit) -> Outcome<bool> {
        self.run(expression, limit, |value| match value {
            Value::Bool(truth) => Ok(truth),
            _ => Err("true or false"),
        })
    }

    /// What says whose state it is.
    pub(crate) fn value(&self, expression: &Expression, limit: &DraftLimit) -> Outcome<String> {
        self.run(expression, limit, |value| match value {
            Value::String(text) => Ok(text.to_string()),
            Value::Int(number) => Ok(number.to_string()),
            Value::UInt(number) => Ok(number.to_string()),
            Value::Float(number) => Ok(number.to_string()),
            Value::Bool(truth) => Ok(truth.to_string()),
            Value::Null => Ok("null".to_owned()),
            _ => Err("a text, a number, or true or false"),
        })
    }

    fn run<T>(
        &self,
        expression: &Expression,
        limit: &DraftLimit,
        read: impl FnOnce(Value) -> Result<T, &'static str>,
    ) -> Outcome<T> {
        let program = match expression.compiled() {
            Ok(Compiled(program)) => program,
            Err(problem) => return Outcome::Failed(problem.clone()),
        };
        let mut context = self.context.new_inner_scope();
        let text = |text: &Option<String>| text.as_deref().map_or(Value::Null, Value::from);
        let about = HashMap::from([("name", text(&limit.limitador.name)), ("id", text(&limit.limitador.id))]);
        context.add_variable_from_value("limit", about);
        match program.execute(&context) {
            Ok(value) => {
                read(value).map_or_else(|wanted| Outcome::Failed(format!("it is not {wanted}")), Outcome::Is)
            }
            Err(ExecutionError::NoSuchKey(_)) => Outcome::Missing,
            Err(error) => Outcome::Failed(error.to_string()),
        }
    }
}

/// A descriptor's fields as text; of several of one name the first counts.
fn fields(descriptor: &Descriptor<'_>) -> Value {
    let mut map: HashMap<&str, String> = HashMap::with_capacity(descriptor.fields().len());
    for (name, value) in descriptor.fields() {
        map.entry(name).or_insert_with(|| escaped(value).into_owned());
    }
    map.into()
}
