//! Hits, as the tables see them.

use std::time::Duration;

use tollgate_core::{Decision, Tick};

use super::permit::{MemoryPermit, Taken};
use super::table::{Member, Owner};
use super::{Hit, MemoryLimit, Mode, Opened, Tier};
use crate::clock::Clock;
use crate::gate::{self, Gate};
use crate::store::{Answer, Said, StoreError};

/// What some hits ask of which owners.
pub(super) struct Draft<'a, C: Clock> {
    pub(super) tiers: Vec<Asked<'a, C>>,
    /// Every quota of every hit, in order.
    places: Vec<Place>,
}

/// Something asked of one owner.
pub(super) struct Asked<'a, C: Clock> {
    opened: &'a Opened<C>,
    tier: &'a Tier,
    owner: Owner,
    pub(super) cost: u64,
}

/// One quota of one hit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) hit: u32,
    quota: u32,
    pub(super) cost: u64,
    /// Which tier it is.
    pub(super) tier: usize,
}

impl<'a, C: Clock> Draft<'a, C> {
    /// What the hits ask for; where the same owner occurs several times, all of it together if `merges`.
    pub(super) fn of(hits: &[Hit<'a, MemoryLimit<C>>], merges: bool) -> Result<Self, StoreError> {
        let mut draft = Self { tiers: Vec::new(), places: Vec::new() };
        for (number, hit) in hits.iter().enumerate() {
            let opened = &*hit.limit.opened;
            if opened.tiers.is_empty() {
                return Err(problem(opened));
            }
            if opened.rule.is_floating() {
                return Err(floats(opened));
            }
            for (quota, tier) in opened.tiers.iter().enumerate() {
                let owner = opened.owner(tier, hit.key);
                let asked = Asked { opened, tier, owner, cost: hit.cost };
                let tier = draft.add(asked, merges);
                // Nobody has four billion of them.
                draft.places.push(Place { hit: number as u32, quota: quota as u32, cost: hit.cost, tier });
            }
        }
        Ok(draft)
    }

    /// Where it is among the tiers.
    fn add(&mut self, asked: Asked<'a, C>, merges: bool) -> usize {
        // The fingerprint stands for the rule too, and so for the table.
        let known = self.tiers.iter().position(|known| merges && known.owner == asked.owner);
        if let Some(place) = known {
            let cost = &mut self.tiers[place].cost;
            *cost = cost.saturating_add(asked.cost);
            return place;
        }
        self.tiers.push(asked);
        self.tiers.len() - 1
    }

    /// Takes of all owners or of none.
    pub(super) fn take(&self) -> Answer {
        match self.tiers.len() {
            // Most have few, which then need no room of their own.
            2 => self.take_by(self.members::<2>()),
            3 => self.take_by(self.members::<3>()),
            _ => self.take_by(self.tiers.iter().map(Asked::member).collect::<Vec<_>>()),
        }
    }

    fn take_by(&self, members: impl gate::Member) -> Answer {
        let mut each = Vec::with_capacity(self.tiers.len());
        Gate::new(members).check_noting(0, &mut each); // every member has a cost of its own
        self.answer(|tier| each[tier].1)
    }

    fn members<const N: usize>(&self) -> [Member<'_, C>; N] {
        std::array::from_fn(|tier| self.tiers[tier].member())
    }

    /// Takes of all owners or of none, to be settled later.
    pub(super) fn acquire(self) -> (Answer, Option<MemoryPermit<C>>) {
        let member = |asked: &Asked<'_, C>| asked.opened.table.owned_member(asked.owner, asked.cost);
        let members: Vec<_> = self.tiers.iter().map(member).collect();
        let mut each = Vec::with_capacity(members.len());
        let permit = Gate::new(members).acquire_noting(0, &mut each).ok();
        let answer = self.answer(|tier| each[tier].1);
        (answer, permit.map(|permit| MemoryPermit::new(Taken::Several(permit, self.places.into()))))
    }

    /// What follows from what was decided about each tier.
    pub(super) fn answer(&self, decision: impl Fn(usize) -> Decision) -> Answer {
        let said = |place: &Place| {
            let &Place { hit, quota, cost, tier } = place;
            Said { hit, quota, cost, decision: decision(tier) }
        };
        Answer::new(self.places.iter().map(said).collect())
    }
}

impl<'a, C: Clock> Asked<'a, C> {
    /// What is asked, if it is one hit on one quota.
    #[inline]
    pub(super) fn alone(hits: &[Hit<'a, MemoryLimit<C>>]) -> Option<Self> {
        let [hit] = hits else { return None };
        let opened = &*hit.limit.opened;
        let [tier] = &*opened.tiers else { return None };
        let owner = opened.owner(tier, hit.key);
        Some(Self { opened, tier, owner, cost: hit.cost })
    }

    /// The fingerprint of whom it is asked of.
    #[inline]
    pub(super) fn print(&self) -> u64 {
        self.owner.print
    }

    /// Whether it can be settled without a gate.
    pub(super) fn can_be_held(&self) -> bool {
        self.cost > 0 && !self.opened.rule.is_floating()
    }

    /// As a member of a gate, at a cost of its own.
    fn member(&self) -> Member<'_, C> {
        self.opened.table.member(&self.owner, self.cost)
    }

    /// Does to this owner what is asked, whatever becomes of others.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "most only take, and the decision is copied once less")]
    pub(super) fn act(&self, mode: Mode, now: Tick, is_alone: bool) -> Decision {
        match mode {
            Mode::Take => self.check(self.cost, now),
            Mode::Peek => self.peek(now, is_alone),
            Mode::Count => self.count(now, is_alone),
            Mode::Charge => self.charge(now),
            Mode::Refund => self.refund(now),
        }
    }

    /// Takes it, to be settled later.
    pub(super) fn acquire(&self) -> (Answer, Option<MemoryPermit<C>>) {
        match self.opened.table.reserve(&self.owner, self.cost, self.tier.patience) {
            Ok(taken) => (Answer::one(self.cost, taken.decision()), Some(MemoryPermit::new(taken))),
            Err(refused) => (Answer::one(self.cost, refused.0), None),
        }
    }

    #[inline]
    fn check(&self, cost: u64, now: Tick) -> Decision {
        self.opened.table.check_at(self.tier.level.as_ref(), &self.owner, cost, now)
    }

    fn peek(&self, now: Tick, is_alone: bool) -> Decision {
        let patience = if is_alone { self.tier.patience } else { Duration::ZERO };
        self.opened.table.peek_at(&self.owner, self.cost, patience, now)
    }

    /// [`check`](Self::check), without delay unless it comes alone.
    fn check_beside(&self, cost: u64, now: Tick, is_alone: bool) -> Decision {
        if is_alone || self.tier.patience.is_zero() {
            return self.check(cost, now);
        }
        match self.opened.table.reserve(&self.owner, cost, Duration::ZERO) {
            Ok(taken) => taken.decision(), // dropping it keeps what was taken
            Err(refused) => refused.0,
        }
    }

    /// Takes it if it fits, else what is left.
    fn count(&self, now: Tick, is_alone: bool) -> Decision {
        let decision = self.check_beside(self.cost, now, is_alone);
        if decision.is_admitted() {
            return decision;
        }
        let mut left = decision.remaining();
        while left > 0 {
            let rest = self.check_beside(left, now, is_alone);
            if rest.is_admitted() || rest.remaining() >= left {
                break;
            }
            left = rest.remaining(); // somebody else took of it
        }
        let after = self.peek(now, is_alone);
        if after.is_admitted() { decision } else { after } // unless something came back meanwhile
    }

    fn charge(&self, now: Tick) -> Decision {
        let is_remembered = self.opened.table.charge_at(&self.owner, self.cost, now);
        if is_remembered { self.facts(now) } else { self.peek(now, true) } // which says that there is no room
    }

    /// By a reading of its own, because nothing may have been taken after that.
    fn refund(&self, now: Tick) -> Decision {
        self.opened.table.refund(&self.owner, self.cost);
        self.facts(now)
    }

    /// How things stand.
    fn facts(&self, now: Tick) -> Decision {
        self.opened.table.peek_at(&self.owner, 0, Duration::ZERO, now)
    }
}

/// Why the store cannot keep a limit.
fn problem<C: Clock>(opened: &Opened<C>) -> StoreError {
    StoreError::permanent(opened.problem.as_ref().map(StoreError::to_string).unwrap_or_default())
}

fn floats<C: Clock>(opened: &Opened<C>) -> StoreError {
    StoreError::permanent(format!(
        "{} has a quota of the caller's own: hit it alone, without holding it",
        opened.rule
    ))
}
