//! Something taken whose cost will be known later.

use std::fmt;

use tollgate_core::{AnyAlgorithm, AnyLevel, Decision};

use super::draft::Place;
use super::table::{OwnedMember, Owner};
use super::{Hit, MemoryLimit};
use crate::clock::{Clock, DefaultClock};
use crate::gate::Permit;
use crate::keyed::KeyedReservation;

/// What was taken of a [`MemoryStore`](super::MemoryStore): see [`Store::settle`](super::Store::settle). It borrows nothing,
/// and can go wherever the request goes. Dropping it keeps what was taken.
#[must_use = "dropping it keeps what was taken"]
pub struct MemoryPermit<C: Clock = DefaultClock> {
    /// None once it is settled.
    taken: Option<Taken<C>>,
    /// The limits among them that callers supplied: their quotas must not be forgotten before they are settled.
    supplied: Vec<MemoryLimit<C>>,
}

/// What was taken, and of what.
pub(super) enum Taken<C: Clock> {
    Level(KeyedReservation<Owner, AnyLevel, C>),
    Other(KeyedReservation<Owner, AnyAlgorithm, C>),
    /// For every quota of every hit.
    Several(Permit<Vec<OwnedMember<C>>>, Box<[Place]>),
}

impl<C: Clock> Taken<C> {
    pub(super) fn decision(&self) -> Decision {
        match self {
            Self::Level(taken) => taken.decision(),
            Self::Other(taken) => taken.decision(),
            Self::Several(taken, _) => taken.decision().decision(),
        }
    }
}

impl<C: Clock> MemoryPermit<C> {
    pub(super) fn new(taken: Taken<C>) -> Self {
        Self { taken: Some(taken), supplied: Vec::new() }
    }

    /// The same, for as long as which the quotas of these hits are remembered.
    pub(super) fn keeping(self, hits: &[Hit<'_, MemoryLimit<C>>]) -> Self {
        let supplied = hits.iter().filter(|hit| hit.limit.as_ref().is_brought());
        Self { supplied: supplied.map(|hit| hit.limit.clone()).collect(), ..self }
    }

    pub(super) fn settle(&mut self, actual: &[u64]) {
        let (Some(taken), Some(&first)) = (self.taken.take(), actual.first()) else { return };
        match taken {
            Taken::Level(taken) => taken.settle(first),
            Taken::Other(taken) => taken.settle(first),
            Taken::Several(taken, places) => {
                let sums = sums(&places, actual);
                taken.settle_each(|tier, _| sums[tier.position()]);
            }
        }
        self.supplied.clear();
    }
}

/// What the hits really cost each tier. Those that nothing is said about cost what was asked.
fn sums(places: &[Place], actual: &[u64]) -> Vec<u64> {
    let tiers = places.iter().map(|place| place.tier + 1).max().unwrap_or(0);
    let mut sums = vec![0_u64; tiers];
    for place in places {
        let cost = actual.get(place.hit as usize).copied().unwrap_or(place.cost);
        sums[place.tier] = sums[place.tier].saturating_add(cost);
    }
    sums
}

impl<C: Clock> fmt::Debug for MemoryPermit<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decision = self.taken.as_ref().map(Taken::decision);
        f.debug_struct("MemoryPermit").field("decision", &decision).finish_non_exhaustive()
    }
}
