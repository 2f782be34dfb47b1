//! The limits that apply to a call.

use crate::choice::{Mode, OnBadValue, OnStoreFailure};
use crate::compute::Worlds;
use crate::descriptor::Descriptor;
use crate::expression::Outcome;
use crate::limit::{Cost, Limit, Rates};
use crate::matcher::Asked;

/// Memory that [`Policy::matching`](crate::Policy::matching) uses again and again: after a few calls it allocates nothing, but
/// for what expressions compute.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(crate) ranks: Vec<u32>,
    pub(crate) text: Vec<u8>,
    pub(crate) examined: usize,
    met: Vec<Met>,
    found: Vec<Found>,
    keys: Vec<u8>,
    bad: Vec<Bad>,
}

/// A limit whose conditions hold.
#[derive(Debug)]
struct Met {
    descriptor: usize,
    rank: u32,
    /// What came out of its expressions.
    computed: Vec<String>,
}

#[derive(Debug)]
struct Found {
    descriptor: usize,
    rank: u32,
    rates: usize,
    cost: Cost,
    key_end: usize,
}

/// A value that a limit cannot use.
#[derive(Debug)]
struct Bad {
    descriptor: usize,
    rank: u32,
    why: String,
}

impl Scratch {
    /// No memory yet.
    pub fn new() -> Self {
        Self::default()
    }

    pub(crate) fn clear(&mut self) {
        self.ranks.clear();
        self.met.clear();
        self.found.clear();
        self.keys.clear();
        self.examined = 0;
        self.bad.clear();
    }

    /// Takes over the ranks found for a descriptor, which may come in any order and repeatedly, as far as expressions agree.
    pub(crate) fn meet(&mut self, limits: &[Limit], descriptors: &[Descriptor<'_>], descriptor: usize) {
        self.ranks.sort_unstable();
        self.ranks.dedup();
        let worlds = Worlds::new(descriptors, descriptor);
        for rank in self.ranks.drain(..) {
            let limit = &limits[rank as usize];
            if descriptor > 0 && limit.is_once() {
                continue;
            }
            match worlds.compute(limit.draft()) {
                Outcome::Is(computed) => self.met.push(Met { descriptor, rank, computed }),
                Outcome::Missing => {}
                Outcome::Failed(why) => self.bad.push(Bad { descriptor, rank, why }),
            }
        }
    }

    /// From what was met to what applies.
    pub(crate) fn fill(&mut self, limits: &[Limit], asked: &[Asked<'_>]) {
        let is_replaced =
            |rank: u32| replaced_by(limits, self.met.iter().map(|met| met.rank), rank).is_some();
        self.bad.retain(|bad| !is_replaced(bad.rank));
        for Met { descriptor, rank, computed } in self.met.iter().filter(|met| !is_replaced(met.rank)) {
            let (limit, asked) = (&limits[*rank as usize], &asked[*descriptor]);
            let cost = match limit.cost_of(asked) {
                Ok(cost) => cost,
                Err(why) => {
                    self.bad.push(Bad { descriptor: *descriptor, rank: *rank, why });
                    if limit.on_bad_value() == OnBadValue::Deny {
                        continue;
                    }
                    Cost::Asked
                }
            };
            limit.write_key(asked, computed, &mut self.keys);
            let (rates, key_end) = (limit.rates_for(asked).0, self.keys.len());
            self.found.push(Found { descriptor: *descriptor, rank: *rank, rates, cost, key_end });
        }
    }
}

/// Which of the limits that apply replaces one of them. What is only in shadow does not replace what is enforced: it would
/// decide something. In Envoy's files it does; and an unlimited limit stays unlimited there, whatever replaces it.
pub(crate) fn replaced_by(limits: &[Limit], ranks: impl IntoIterator<Item = u32>, rank: u32) -> Option<u32> {
    let limit = &limits[rank as usize];
    if !limit.entries().is_empty() && limit.rates()[0].is_unlimited() {
        return None;
    }
    let is_shadow = |rank: u32| limits[rank as usize].mode() == Mode::Shadow;
    let replaces = |&other: &u32| {
        let (limit, list) = (&limits[other as usize], limits[other as usize].replaces());
        let may_replace = || is_shadow(rank) || !is_shadow(other) || !limit.entries().is_empty();
        !list.is_empty() && list.binary_search(&rank).is_ok() && may_replace()
    };
    ranks.into_iter().find(replaces)
}

/// The limits that apply to a call, by its descriptors, and for each the most important first; those that others replace are
/// left out.
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
            descriptor: found.descriptor,
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

    /// The values of the call that a limit cannot use: costs that are no whole number, and expressions that fail although all
    /// fields that they need are there. Such a value counts as absent; or, if it [denies](BadValue::denies), the limit is not among
    /// the matches, and the call is denied unless the limit is in shadow.
    pub fn bad_values(&self) -> impl ExactSizeIterator<Item = BadValue<'a>> + use<'_, 'a> {
        self.scratch.bad.iter().map(|bad| BadValue {
            descriptor: bad.descriptor,
            limit: &self.limits[bad.rank as usize],
            why: &bad.why,
        })
    }

    /// How many limits were looked at to find these: what the search cost, whatever the clock says.
    pub fn examined(&self) -> usize {
        self.scratch.examined
    }
}

/// A limit that applies to a call, with whose state it is.
#[derive(Clone, Copy, Debug)]
pub struct Match<'a> {
    descriptor: usize,
    limit: &'a Limit,
    rates: &'a Rates,
    key: &'a [u8],
    cost: Cost,
}

impl<'a> Match<'a> {
    /// Which of the call's descriptors it is about, counted from zero.
    pub fn descriptor(&self) -> usize {
        self.descriptor
    }

    /// The limit.
    pub fn limit(&self) -> &'a Limit {
        self.limit
    }

    /// Its rates, or those of the override that applies.
    pub fn rates(&self) -> &'a Rates {
        self.rates
    }

    /// Whose state it is: the values of the key's fields. One value stands there as it is; several are joined with commas,
    /// and a comma or a backslash in them has a backslash before it. Empty if all share one state. For a limit with entries
    /// the values are the entries as `key_value`, or what is written in the limit where that is shared.
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
    pub fn on_store_failure(&self) -> OnStoreFailure {
        self.limit.on_store_failure()
    }
}

/// A value of a call that a limit cannot use.
#[derive(Clone, Copy, Debug)]
pub struct BadValue<'a> {
    descriptor: usize,
    limit: &'a Limit,
    why: &'a str,
}

impl<'a> BadValue<'a> {
    /// Which of the call's descriptors it is about, counted from zero.
    pub fn descriptor(&self) -> usize {
        self.descriptor
    }

    /// The limit.
    pub fn limit(&self) -> &'a Limit {
        self.limit
    }

    /// What is wrong with the value.
    pub fn why(&self) -> &'a str {
        self.why
    }

    /// Whether the limit denies calls with a bad value.
    pub fn denies(&self) -> bool {
        self.limit.on_bad_value() == OnBadValue::Deny
    }

    /// Whether the limit only counts and tells.
    pub fn is_shadow(&self) -> bool {
        self.limit.mode() == Mode::Shadow
    }
}
