//! What the expressions of limits come to for a call.

use std::cell::OnceCell;

use crate::descriptor::Descriptor;
use crate::draft::DraftLimit;
use crate::expression::{Outcome, World};

/// What expressions see of a call, made when it is first needed: one descriptor, or, for limits that look once, all of them.
pub(crate) struct Worlds<'c, 'd> {
    descriptors: &'c [Descriptor<'d>],
    at: usize,
    one: OnceCell<World>,
    all: OnceCell<World>,
}

impl<'c, 'd> Worlds<'c, 'd> {
    pub(crate) fn new(descriptors: &'c [Descriptor<'d>], at: usize) -> Self {
        Self { descriptors, at, one: OnceCell::new(), all: OnceCell::new() }
    }

    /// What the limit is seen by.
    pub(crate) fn of(&self, limit: &DraftLimit) -> &World {
        if limit.limitador.once {
            self.all.get_or_init(|| World::new(self.descriptors))
        } else {
            self.one.get_or_init(|| World::new(self.descriptors.get(self.at..=self.at).unwrap_or_default()))
        }
    }

    /// What the limit counts by, if all its conditions hold.
    pub(crate) fn compute(&self, limit: &DraftLimit) -> Outcome<Vec<String>> {
        // A condition that does not hold wins over one that fails, in whatever order they are written.
        let mut failed = None;
        for condition in &limit.when {
            match self.of(limit).holds(condition, limit) {
                Outcome::Is(true) => {}
                Outcome::Is(false) | Outcome::Missing => return Outcome::Missing,
                // limitador takes a condition that cannot be evaluated for a false one.
                Outcome::Failed(_) if limit.limitador.once => return Outcome::Missing,
                Outcome::Failed(why) => failed = failed.or(Some(why)),
            }
        }
        if let Some(why) = failed {
            return Outcome::Failed(why);
        }
        let mut values = Vec::new();
        for expression in limit.key_expressions() {
            match self.of(limit).value(expression, limit) {
                Outcome::Is(value) => values.push(value),
                Outcome::Missing => return Outcome::Missing,
                Outcome::Failed(why) => return Outcome::Failed(why),
            }
        }
        Outcome::Is(values)
    }
}
