//! Hits, as the script sees them.

use tollgate::store::{Answer, Hit, Said, StoreError};
use tollgate::{Decision, Verdict};

use crate::call::Line;
use crate::keys::{Keys, Label, Tag};
use crate::limit::RedisLimit;
use crate::twin::{Twin, View};

/// The most tiers in one call, so that the script's answer fits what Lua can handle in one go.
const MOST_TIERS: usize = 1_000;
/// What an unlimited quota says; nobody need be asked.
const UNLIMITED: Decision = Decision::new(Verdict::Allow, u64::MAX, u64::MAX, 0, 0);

/// What some hits ask of which states.
pub(crate) struct Draft {
    pub(crate) tiers: Vec<Tier>,
    /// Every quota of every hit, in order.
    pub(crate) places: Vec<Place>,
    /// Whether it is one hit on one quota, which a queue may delay.
    pub(crate) is_alone: bool,
}

/// Something asked of one state.
#[derive(Clone, Debug)]
pub(crate) struct Tier {
    pub(crate) twin: Twin,
    pub(crate) key: Vec<u8>,
    pub(crate) label: Label,
    pub(crate) tag: Tag,
    pub(crate) cost: u64,
}

impl Tier {
    /// As the script is asked.
    pub(crate) fn line(&self, patient: bool) -> Line<'_> {
        Line::new(&self.key, self.twin.code, &self.twin.numbers(self.cost, patient))
    }

    /// As the script is asked that also lends: `terms` are those of the lease.
    pub(crate) fn line_with(&self, terms: [f64; 6]) -> Line<'_> {
        let numbers: Vec<f64> = self.twin.numbers(self.cost, false).into_iter().chain(terms).collect();
        Line::new(&self.key, self.twin.code, &numbers)
    }
}

/// One quota of one hit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) hit: u32,
    quota: u32,
    pub(crate) cost: u64,
    /// Which tier it is; `None` if it is unlimited.
    pub(crate) tier: Option<usize>,
}

impl Draft {
    /// What the hits ask for; where the same state occurs several times, all of it together if `merges`.
    pub(crate) fn of(keys: &Keys, hits: &[Hit<'_, RedisLimit>], merges: bool) -> Result<Self, StoreError> {
        let mut draft = Self { tiers: Vec::new(), places: Vec::new(), is_alone: hits.len() == 1 };
        for (number, hit) in hits.iter().enumerate() {
            hit.limit.check()?;
            let tag = keys.tag(hit.limit.as_ref(), hit.key);
            draft.is_alone &= hit.limit.quotas().len() == 1;
            for (quota, opened) in hit.limit.quotas().iter().enumerate() {
                let tier = opened.twin.map(|twin| {
                    let key = keys.name(tag, &opened.name, hit.key);
                    let label = Label::of(&opened.name, hit.key);
                    draft.add(Tier { twin, key, label, tag, cost: hit.cost }, merges)
                });
                // Nobody has four billion of them.
                draft.places.push(Place { hit: number as u32, quota: quota as u32, cost: hit.cost, tier });
            }
        }
        if draft.tiers.len() > MOST_TIERS {
            let many = draft.tiers.len();
            return Err(StoreError::permanent(format!(
                "{many} limits in one call; at most {MOST_TIERS} are allowed"
            )));
        }
        Ok(draft)
    }

    /// Where it is among the tiers.
    fn add(&mut self, asked: Tier, merges: bool) -> usize {
        let known = self.tiers.iter().position(|known| merges && known.key == asked.key);
        if let Some(place) = known {
            let cost = &mut self.tiers[place].cost;
            *cost = cost.saturating_add(asked.cost);
            return place;
        }
        self.tiers.push(asked);
        self.tiers.len() - 1
    }

    /// The tiers by where they are, narrow ones first: those whose limits are smallest refuse most, and what has been
    /// refused need not be given back by those after them.
    pub(crate) fn by_place(&self) -> Vec<Vec<usize>> {
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for (index, tier) in self.tiers.iter().enumerate() {
            match groups.iter_mut().find(|group| self.tiers[group[0]].tag == tier.tag) {
                Some(group) => group.push(index),
                None => groups.push(vec![index]),
            }
        }
        groups.sort_by_key(|group| group.iter().map(|index| self.tiers[*index].twin.limit).min());
        groups
    }

    /// What was decided, by what was seen of each tier before anything was taken.
    pub(crate) fn decided(&self, views: &[View], patient: bool) -> Answer {
        self.answer(|index| {
            let tier = &self.tiers[index];
            tier.twin.decision(&views[index], tier.cost, patient)
        })
    }

    /// How things stand.
    pub(crate) fn standing(&self, views: &[View]) -> Answer {
        self.answer(|index| self.tiers[index].twin.facts(&views[index]))
    }

    /// The answer that follows from the decision about each tier.
    pub(crate) fn answer(&self, decision: impl Fn(usize) -> Decision) -> Answer {
        let said = |place: &Place| {
            let &Place { hit, quota, cost, tier } = place;
            let decision = tier.map_or(UNLIMITED, &decision);
            Said { hit, quota, cost, decision }
        };
        Answer::new(self.places.iter().map(said).collect())
    }
}
