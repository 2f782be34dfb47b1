//! Finding the limits that apply, without looking at those that cannot.
//!
//! A tree. A node holds limits of which certain conditions are known to hold; the root, all of a domain. Each limit of a node
//! is filed under the one of its remaining conditions that it shares with the fewest others, and goes into the node below,
//! which is entered only if that condition holds:
//!
//! ```text
//! node ── field of the descriptor ─▶ branch ─┬─ value (hash) ────────────────▶ node
//!  │                                         ├─ prefix, suffix, network ─────▶ nodes, the longest and those it extends
//!  └── fields that must be absent ─▶ node    └─ whatever the value ──────────▶ node
//! ```
//!
//! What is asked of a value is filed once for each of its alternatives. A node with few limits is a list: to look at them is
//! as quick as to look them up. So the work grows with the fields of the descriptor and the limits that apply, not with the
//! limits that do not; only patterns such as `*x*`, which start and end with a star, are tried one by one wherever their
//! field is there.

mod build;
mod longest;
mod node;
mod tree;

use smallvec::SmallVec;

use crate::descriptor::Field;
use crate::limit::Limit;
pub(crate) use node::Node;
pub(crate) use tree::Tree;

/// A field that some limit of the domain looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FieldId(pub(crate) u32);

/// The fields of a descriptor that some limit looks at, each once.
pub(crate) type Known<'d> = SmallVec<[(FieldId, &'d [u8]); 8]>;

/// Adds a field to those of a descriptor, which begin at `start`. Of several fields of one name the first counts.
pub(crate) fn know<'d>(known: &mut Known<'d>, start: usize, field: FieldId, value: &'d [u8]) {
    if known[start..].iter().all(|(other, _)| *other != field) {
        known.push((field, value));
    }
}

/// What is asked of limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'s> {
    /// What some limit looks at.
    pub(crate) fields: &'s [(FieldId, &'s [u8])],
    /// All of the descriptor, in its order.
    pub(crate) entries: &'s [Field<'s>],
}

impl<'s> Asked<'s> {
    pub(crate) fn value(&self, field: FieldId) -> Option<&'s [u8]> {
        self.fields.iter().find(|(known, _)| *known == field).map(|(_, value)| *value)
    }
}

/// A search in progress.
pub(crate) struct Search<'s> {
    pub(crate) asked: Asked<'s>,
    pub(crate) limits: &'s [Limit],
    pub(crate) found: &'s mut Vec<u32>,
    pub(crate) examined: usize,
}
