//! The limits that apply to a call.

use crate::choice::{IfStoreFails, Mode};
use crate::limit::{Cost, Limit, Rates};
use crate::matcher::Asked;

/// Memory that [`Policy::matching`](crate::Policy::matching) uses again and again: after a few calls it allocates nothing.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(crate) ranks: Vec<u32>,
    found: Vec<Found>,
    keys: Vec<u8>,
    examined: usize,
}

#[derive(Debug)]
struct Found {
    rank: u32,
    rates: usize,
    cost: Cost,
    key_end: usize,
}

impl Scratch {
    /// No memory yet.
    pub fn new() -> Self {
        Self::default()
    }

    pub(crate) fn clear(&mut self) {
        self.ranks.clear();
        self.found.clear();
        self.keys.clear();
        self.examined = 0;
    }

    /// From ranks, which may come in any order and repeatedly, to what applies.
    pub(crate) fn fill(&mut self, limits: &[Limit], asked: &Asked<'_>, examined: usize) {
        self.ranks.sort_unstable();
        self.ranks.dedup();
        self.examined = examined;
        for &rank in &self.ranks {
            if replaced_by(limits, &self.ranks, rank).is_none() {
                let limit = &limits[rank as usize];
                limit.write_key(asked, &mut self.keys);
                let (rates, cost) = (limit.rates_for(asked).0, limit.cost_of(asked));
                self.found.push(Found { rank, rates, cost, key_end: self.keys.len() });
            }
        }
    }
}

/// Which of the limits that apply replaces one of them. What is only in shadow does not replace what is enforced: it would
/// decide something.
pub(crate) fn replaced_by(limits: &[Limit], ranks: &[u32], rank: u32) -> Option<u32> {
    let is_shadow = |rank: u32| limits[rank as usize].mode() == Mode::Shadow;
    let replaces = |&other: &u32| {
        let list = limits[other as usize].replaces();
        !list.is_empty() && list.binary_search(&rank).is_ok() && (is_shadow(rank) || !is_shadow(other))
    };
    ranks.iter().copied().find(replaces)
}

/// The limits that apply to a call, the most important first; those that others replace are left out.
#[derive(Debug)]
pub struct Matches<'a> {
    limits: &'a [Limit],
    scratch: &'a Scratch,
}

impl<'a> Matches<'a> {
    pub(crate) fn new(limits: &'a [Limit], scratch: &'a Scratch) -> Self {
        Self { limits, scratch }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.scratch.found.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The one in that place.
    pub fn get(&self, at: usize) -> Option<Match<'a>> {
        let found = self.scratch.found.get(at)?;
        let key_start = at.checked_sub(1).map_or(0, |before| self.scratch.found[before].key_end);
        let limit = &self.limits[found.rank as usize];
        Some(Match {
            limit,
            rates: &limit.rates()[found.rates],
            key: &self.scratch.keys[key_start..found.key_end],
            cost: found.cost,
        })
    }

    /// One after the other.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Match<'a>> + use<'_, 'a> {
        (0..self.len()).map(|at| self.get(at).expect("every place below the length has one"))
    }

    /// How many limits were looked at to find these: what the search cost, whatever the clock says.
    pub fn examined(&self) -> usize {
        self.scratch.examined
    }
}

/// A limit that applies to a call, with whose state it is.
#[derive(Clone, Copy, Debug)]
pub struct Match<'a> {
    limit: &'a Limit,
    rates: &'a Rates,
    key: &'a [u8],
    cost: Cost,
}

impl<'a> Match<'a> {
    /// The limit.
    pub fn limit(&self) -> &'a Limit {
        self.limit
    }

    /// Its rates, or those of the override that applies.
    pub fn rates(&self) -> &'a Rates {
        self.rates
    }

    /// Whose state it is: the values of the key's fields. One value stands there as it is; several are joined with commas,
    /// and a comma or a backslash in them has a backslash before it. Empty if all share one state.
    pub fn key(&self) -> &'a [u8] {
        self.key
    }

    /// What the call costs.
    pub fn cost(&self) -> Cost {
        self.cost
    }

    /// Whether it only counts and tells.
    pub fn is_shadow(&self) -> bool {
        self.limit.mode() == Mode::Shadow
    }

    /// What to answer when the store cannot.
    pub fn if_store_fails(&self) -> IfStoreFails {
        self.limit.if_store_fails()
    }
}
