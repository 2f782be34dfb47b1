//! The actual cost of a hold.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;
use tollgate::store::{Store, StoreError};

use super::case::Case;
use super::notes::{CostFrom, Want};

/// The actual cost of a hold.
///
/// A number settles the limits that took the cost of the check; if none did, those that read their cost from a field. Names
/// settle the limits that read these cost fields. Every other limit keeps its cost.
#[derive(Clone, Copy, Debug)]
pub enum Actual<'a> {
    /// The cost that the call stated.
    Cost(u64),
    /// Cost fields by name.
    Fields(&'a [(&'a str, u64)]),
}

/// An error that leaves a hold unsettled. The hold stays open, unless the store may have settled it: then a retry finds no
/// hold and changes nothing.
#[derive(Debug)]
#[non_exhaustive]
pub enum SettleError {
    /// The actual cost is a number, and no limit took the cost of the check.
    Unstated,
    /// The actual cost is a number, and limits read their cost from several fields.
    Several {
        /// The fields.
        fields: Vec<String>,
    },
    /// No limit reads its cost from this field.
    NoSuchField {
        /// The field.
        field: String,
        /// The cost fields of this hold.
        there: Vec<String>,
    },
    /// The store is unavailable.
    Store(StoreError),
}

/// The actual cost of each hit.
pub(super) type HitCosts = SmallVec<[u64; 4]>;

/// The sources of the costs of a hold.
pub(super) struct Costs {
    hits: SmallVec<[HitCost; 4]>,
    /// Whether any limit applies to the call, and whether one takes the cost that the call stated.
    is_limited: bool,
    is_stated: bool,
    /// The cost fields of the call that limits read.
    fields: SmallVec<[Arc<str>; 1]>,
}

/// The estimated cost of a hit.
struct HitCost {
    taken: u64,
    from: CostFrom,
    /// The field from which the limit reads its cost, whether the call has it or not.
    field: Option<Arc<str>>,
}

impl Costs {
    /// The costs of a call. Only those of the limits that are enforced can be settled.
    pub(super) fn of<S: Store>(case: &Case<'_, S>) -> Self {
        let hit = |want: &Want| {
            let field = case.cost_field(want).map(Arc::clone);
            HitCost { taken: want.cost, from: want.cost_from, field }
        };
        let hits = case.enforced().iter().map(hit).collect();
        let mut costs = Self { hits, is_limited: false, is_stated: false, fields: SmallVec::new() };
        for want in case.wants() {
            costs.is_limited = true;
            match (want.cost_from, case.cost_field(want)) {
                (CostFrom::Call, _) => costs.is_stated = true,
                (CostFrom::Field, Some(field)) if !costs.fields.contains(field) => {
                    costs.fields.push(Arc::clone(field));
                }
                _ => {}
            }
        }
        costs
    }

    /// Returns the actual cost of each hit. `is_cost_field` returns whether a limit of the policy reads its cost from a field:
    /// naming the field of a limit that does not apply to this hold is no error.
    pub(super) fn actual(
        &self,
        actual: Actual<'_>,
        is_cost_field: impl Fn(&str) -> bool,
    ) -> Result<HitCosts, SettleError> {
        match (actual, &self.fields[..]) {
            (Actual::Cost(cost), _) if self.is_stated => {
                Ok(self.with(|hit| (hit.from == CostFrom::Call).then_some(cost)))
            }
            (Actual::Cost(_), []) if self.is_limited => Err(SettleError::Unstated),
            (Actual::Cost(_), []) => Ok(self.with(|_| None)),
            (Actual::Cost(cost), [_]) => Ok(self.with(|hit| (hit.from == CostFrom::Field).then_some(cost))),
            (Actual::Cost(_), several) => Err(SettleError::Several { fields: names(several) }),
            (Actual::Fields(actual), there) => {
                let is_known = |name: &str| there.iter().any(|field| **field == *name) || is_cost_field(name);
                if let Some((field, _)) = actual.iter().find(|(name, _)| !is_known(name)) {
                    return Err(SettleError::NoSuchField { field: (*field).to_owned(), there: names(there) });
                }
                let cost =
                    |hit: &HitCost| actual.iter().find(|(name, _)| hit.field.as_deref() == Some(*name));
                Ok(self.with(|hit| cost(hit).map(|(_, cost)| *cost)))
            }
        }
    }

    /// The cost of each hit: what was taken, where `actual` says nothing.
    fn with(&self, actual: impl Fn(&HitCost) -> Option<u64>) -> HitCosts {
        self.hits.iter().map(|hit| actual(hit).unwrap_or(hit.taken)).collect()
    }
}

fn names(fields: &[Arc<str>]) -> Vec<String> {
    fields.iter().map(|field| field.as_ref().to_owned()).collect()
}

impl fmt::Display for SettleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unstated => f.write_str(
                "a number cannot settle this hold, because no limit took its cost; name cost fields",
            ),
            Self::Several { fields } => {
                write!(f, "limits read their cost from several fields; settle each of ")?;
                write_list(f, fields)
            }
            Self::NoSuchField { field, there } => {
                write!(f, "no limit reads its cost from field {field:?}")?;
                if there.is_empty() {
                    return Ok(());
                }
                f.write_str("; the cost fields of this hold are ")?;
                write_list(f, there)
            }
            Self::Store(_) => f.write_str("store unavailable; a retry is safe"),
        }
    }
}

fn write_list(f: &mut fmt::Formatter<'_>, fields: &[String]) -> fmt::Result {
    for (place, field) in fields.iter().enumerate() {
        let separator = if place == 0 { "" } else { ", " };
        write!(f, "{separator}{field:?}")?;
    }
    Ok(())
}

impl Error for SettleError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Store(error) => Some(error),
            _ => None,
        }
    }
}
