//! Something taken whose cost will be known later.

use std::fmt;

use crate::call::Line;
use crate::draft::{Draft, Place, Tier};
use crate::twin::{Mark, View};

/// What was taken of a [`RedisStore`](crate::RedisStore): see [`Store::settle`](tollgate::store::Store::settle). It can go
/// wherever the request goes, and be settled by any store on the same Redis. Dropping it keeps what was taken.
///
/// What comes back is what core gives back too: never what time has restored, and nothing that older returns have handed
/// out already. A receipt is worth nothing after a reset, or after Redis forgot the key, be it that it was
/// paid off, evicted, or lost in a failover.
#[must_use = "dropping it keeps what was taken"]
pub struct RedisPermit {
    taken: Vec<Taken>,
    places: Vec<Place>,
}

/// What was taken of one state.
pub(crate) struct Taken {
    pub(crate) tier: Tier,
    pub(crate) mark: Mark,
}

/// What is still to be done about a state: more is charged, or some of it comes back.
pub(crate) enum Change<'a> {
    Charge(&'a Taken, u64),
    GiveBack(&'a Taken, u64),
}

impl RedisPermit {
    pub(crate) fn new(draft: Draft, views: &[View]) -> Self {
        let taken = draft.tiers.into_iter().zip(views).map(|(tier, view)| Taken::new(tier, view));
        Self { taken: taken.collect(), places: draft.places }
    }

    /// Leaves nothing to be settled.
    pub(crate) fn spend(&mut self) {
        self.taken.clear();
        self.places.clear();
    }

    /// What follows from what each hit really cost. Those that nothing is said about cost what was asked.
    pub(crate) fn changes(&self, actual: &[u64]) -> Vec<Change<'_>> {
        let mut sums = vec![0_u64; self.taken.len()];
        for place in &self.places {
            if let Some(tier) = place.tier {
                let cost = actual.get(place.hit as usize).copied().unwrap_or(place.cost);
                sums[tier] = sums[tier].saturating_add(cost);
            }
        }
        let change = |(taken, actual): (_, u64)| {
            let taken: &Taken = taken;
            let asked = taken.tier.cost;
            match actual.cmp(&asked) {
                std::cmp::Ordering::Less => Some(Change::GiveBack(taken, asked - actual)),
                std::cmp::Ordering::Equal => None,
                std::cmp::Ordering::Greater => Some(Change::Charge(taken, actual - asked)),
            }
        };
        self.taken.iter().zip(sums).filter_map(change).collect()
    }
}

impl Taken {
    pub(crate) fn new(tier: Tier, view: &View) -> Self {
        Self { mark: tier.twin.mark(view, tier.cost), tier }
    }
}

impl Change<'_> {
    pub(crate) fn taken(&self) -> &Taken {
        match self {
            Self::Charge(taken, _) | Self::GiveBack(taken, _) => taken,
        }
    }

    /// As the script is asked: what costs less than nothing comes back.
    pub(crate) fn line(&self) -> Line<'_> {
        let (taken, amount, sign) = match self {
            Self::Charge(taken, amount) => (taken, *amount, 1.0),
            Self::GiveBack(taken, amount) => (taken, *amount, -1.0),
        };
        let twin = &taken.tier.twin;
        let [code, cost, rate, depth, unit, period, extra] = twin.numbers(amount, false);
        let [at, owed, fallen, born] = taken.mark.numbers();
        let whole = f64::from(u8::from(amount >= taken.tier.cost));
        let numbers = [code, cost * sign, rate, depth, unit, period, extra, at, owed, fallen, born, whole];
        Line::new(&taken.tier.key, twin.code, &numbers)
    }
}

impl fmt::Debug for RedisPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let costs: Vec<u64> = self.taken.iter().map(|taken| taken.tier.cost).collect();
        f.debug_struct("RedisPermit").field("costs", &costs).finish_non_exhaustive()
    }
}
