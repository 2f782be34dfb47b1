//! Without the feature `cel`.

use super::{Expression, Outcome};
use crate::descriptor::Descriptor;
use crate::draft::DraftLimit;

/// There is none.
#[derive(Debug)]
pub(super) enum Compiled {}

pub(super) fn compile(_: &str) -> Result<Compiled, String> {
    Err("this program was built without CEL; only comparisons such as descriptors[0].plan == 'gold' can be read".to_owned())
}

/// What expressions can see.
#[derive(Debug)]
pub(crate) struct World;

#[allow(clippy::unused_self, reason = "with the feature they look at it")]
impl World {
    pub(crate) fn new(_: &[Descriptor<'_>]) -> Self {
        Self
    }

    pub(crate) fn holds(&self, expression: &Expression, _: &DraftLimit) -> Outcome<bool> {
        match expression.compiled() {
            Ok(never) => match *never {},
            Err(problem) => Outcome::Failed(problem.clone()),
        }
    }

    pub(crate) fn value(&self, expression: &Expression, _: &DraftLimit) -> Outcome<String> {
        match expression.compiled() {
            Ok(never) => match *never {},
            Err(problem) => Outcome::Failed(problem.clone()),
        }
    }
}
