//! What comes back of what was taken.

use std::sync::Arc;

use tollgate_core::{Algorithm, Claim, GiveBack, Tick};

use super::{Queue, Shared};
use crate::cell::{Cell, Held, Retuned};
use crate::clock::Clock;
use crate::sync::{MutexGuard, Ordering, lock};

/// A change of quota, and how far the state had fallen by then.
#[derive(Debug)]
pub(super) struct Change<A: Algorithm> {
    pub(super) retuned: Retuned<A>,
    pub(super) fallen: u64,
}

/// Where a claim stands among the returns and changes of quota.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Epoch {
    fallen: u64,
    generation: u64,
}

impl Epoch {
    /// Before everything.
    pub(crate) const ORIGIN: Self = Self { fallen: 0, generation: 0 };
}

impl<A: Held, C: Clock> Shared<A, C> {
    /// How far returns have taken the state down, all together.
    pub(crate) fn fallen(&self) -> u64 {
        self.fallen.load(Ordering::Acquire)
    }

    /// To be read before a claim is made: a return in between then counts as one after it, which errs on the safe side.
    pub(crate) fn epoch(&self) -> Epoch {
        let (fallen, generation) =
            (self.fallen.load(Ordering::Acquire), self.generation.load(Ordering::Acquire));
        Epoch { fallen, generation }
    }

    /// Gives back part of a claim at an explicit time, or now, and lets those who wait have it.
    pub(crate) fn give_back(self: &Arc<Self>, claim: Claim, amount: u64, epoch: Epoch, at: Option<Tick>) {
        self.take_back(lock(&self.queue), claim, amount, epoch, at);
        self.watchers.tell();
    }

    /// Takes back a claim that was not used: as if it had never been made if nobody came after it, else as far as can be.
    pub(crate) fn undo(self: &Arc<Self>, claim: Claim, rise: u64, epoch: Epoch, now: Tick) {
        let mut queue = lock(&self.queue);
        // Without a return or a new quota in between, claims lie on each other in the order in which they were made, and those
        // below the topmost need not hear that it is gone: so `fallen` stays.
        let Epoch { fallen, generation } = self.epoch();
        let is_whole = fallen == epoch.fallen && generation == epoch.generation && !queue.spare.bars(claim);
        if is_whole && self.cell.undo(claim, rise) {
            queue.tail = None;
            queue.spare.forget();
            self.serve(queue, now);
        } else {
            self.take_back(queue, claim, claim.cost, epoch, None);
        }
        self.watchers.tell();
    }

    pub(super) fn take_back(
        self: &Arc<Self>,
        mut queue: MutexGuard<'_, Queue<A, C>>,
        claim: Claim,
        amount: u64,
        epoch: Epoch,
        at: Option<Tick>,
    ) {
        let now = || at.unwrap_or_else(|| self.clock.now());
        let Some(claim) = self.worth(&queue, claim, epoch) else {
            return;
        };
        let keeps_distance =
            || self.cell.standing(now()).is_some_and(|standing| standing.would_keep_distance(claim));
        if queue.spare.bars(claim) && !keeps_distance() {
            return;
        }
        let is_untouched = self.fallen.load(Ordering::Relaxed) == epoch.fallen;
        let back = GiveBack { claim, amount, ahead: self.ahead() };
        if self.generation.load(Ordering::Relaxed) == epoch.generation {
            let Some(fall) = self.cell.give_back(back, now) else {
                return;
            };
            // Those below the topmost need not hear that it is gone: see `undo`.
            if !(fall.was_last && is_untouched && amount >= claim.cost) {
                self.fallen.fetch_add(fall.by, Ordering::AcqRel);
            }
        } else {
            self.cell.give_back_carried(back, now);
        }
        queue.tail = None;
        queue.spare.forget();
        self.serve(queue, now());
    }

    /// What a claim is worth by now: lowered by every return since, and carried over every change of quota.
    pub(super) fn worth(&self, queue: &Queue<A, C>, claim: Claim, epoch: Epoch) -> Option<Claim> {
        let changes = self.generation.load(Ordering::Relaxed) - epoch.generation;
        let first = queue.changes.len().checked_sub(usize::try_from(changes).ok()?)?;
        let (mut claim, mut fallen) = (claim, epoch.fallen);
        for Change { retuned: Retuned { now, old, new }, fallen: then } in queue.changes.range(first..) {
            claim = old.0.lowered(claim, then.wrapping_sub(fallen))?;
            claim = old.0.carried(claim, &old.1, *now, &new.0, &new.1)?;
            fallen = *then;
        }
        // The count of what fell goes round, after very many returns.
        self.cell.algorithm().lowered(claim, self.fallen.load(Ordering::Relaxed).wrapping_sub(fallen))
    }
}
