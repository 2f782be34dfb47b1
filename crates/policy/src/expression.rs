//! Conditions and keys in CEL, the Common Expression Language.
//!
//! An expression sees `descriptors`, a list of maps from the names of fields to their values as text, and `limit`, a map with
//! the limit's `name` and `id`. Without the feature `cel` no expression can be read.

#[cfg(not(feature = "cel"))]
mod disabled;
#[cfg(feature = "cel")]
mod enabled;

use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::source::Place;

#[cfg(not(feature = "cel"))]
pub(crate) use disabled::World;
#[cfg(not(feature = "cel"))]
use disabled::{Compiled, compile};
#[cfg(feature = "cel")]
pub(crate) use enabled::World;
#[cfg(feature = "cel")]
use enabled::{Compiled, compile};

/// The longest expression. Longer ones would take long to read.
const LONGEST: usize = 4096;

/// An expression as somebody wrote it. It is read once, however often it is cloned.
#[derive(Clone)]
pub struct Expression {
    text: String,
    place: Place,
    compiled: Arc<OnceLock<Result<Compiled, String>>>,
}

impl Expression {
    /// An expression that was written at that place.
    pub fn new(text: impl Into<String>, place: Place) -> Self {
        Self { text: text.into(), place, compiled: Arc::default() }
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Where it was written.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// What is wrong with it.
    pub(crate) fn problem(&self) -> Option<&str> {
        self.compiled().as_ref().err().map(String::as_str)
    }

    fn compiled(&self) -> &Result<Compiled, String> {
        self.compiled.get_or_init(|| {
            if self.text.len() > LONGEST {
                return Err(format!("an expression has at most {LONGEST} bytes"));
            }
            compile(&self.text)
        })
    }
}

impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Expression {}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Expression").field(&self.text).finish()
    }
}

/// What comes out of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome<T> {
    Is(T),
    /// It needs a field that is not there.
    Missing,
    /// It cannot be computed, for another reason.
    Failed(String),
}
