//! The cell of an algorithm chosen at run time.

use tollgate_core::{
    Algorithm, AnyAlgorithm, AnyChange, AnyState, Ask, Claim, Decision, FixedWindow, GiveBack, LeakyBucket,
    PacedWindow, Quota, Tick, TokenBucket,
};

use super::atomic::LevelPlan;
use super::locked::LockedPlan;
use super::{AtomicCell, Cell, Fall, LockedCell, One, Prepared, Retuned, Standing, Taken, Taking};

/// A cell for any algorithm: atomic where one word is enough, locked otherwise.
#[derive(Debug)]
#[non_exhaustive]
pub enum AnyCell {
    /// A token bucket.
    TokenBucket(AtomicCell<TokenBucket>),
    /// A leaky bucket.
    LeakyBucket(AtomicCell<LeakyBucket>),
    /// A fixed window.
    FixedWindow(AtomicCell<FixedWindow>),
    /// A paced window.
    PacedWindow(AtomicCell<PacedWindow>),
    /// Everything else.
    Locked(LockedCell<AnyAlgorithm>),
}

macro_rules! each {
    ($self:expr, $cell:ident => $body:expr) => {
        match $self {
            Self::TokenBucket($cell) => $body,
            Self::LeakyBucket($cell) => $body,
            Self::FixedWindow($cell) => $body,
            Self::PacedWindow($cell) => $body,
            Self::Locked($cell) => $body,
        }
    };
}

/// Runs `$body` with the cell and its own kind of plan; a plan of another kind was never made here.
macro_rules! with_plan {
    ($self:expr, $plan:expr, |$cell:ident, $inner:ident| $body:expr, $otherwise:expr) => {
        match ($self, $plan) {
            (Self::TokenBucket($cell), AnyPlan::Level($inner)) => $body,
            (Self::LeakyBucket($cell), AnyPlan::Level($inner)) => $body,
            (Self::FixedWindow($cell), AnyPlan::Level($inner)) => $body,
            (Self::PacedWindow($cell), AnyPlan::Level($inner)) => $body,
            (Self::Locked($cell), AnyPlan::Locked($inner)) => $body,
            _ => $otherwise,
        }
    };
}

/// What is to be written to an [`AnyCell`].
#[derive(Clone, Debug)]
pub enum AnyPlan {
    /// One word.
    Level(LevelPlan),
    /// More than that.
    Locked(LockedPlan<AnyChange>),
}

impl Cell<AnyAlgorithm> for AnyCell {
    type Plan = AnyPlan;

    fn new(algorithm: AnyAlgorithm) -> Self {
        match algorithm {
            AnyAlgorithm::TokenBucket(curve) => Self::TokenBucket(AtomicCell::new(curve)),
            AnyAlgorithm::LeakyBucket(curve) => Self::LeakyBucket(AtomicCell::new(curve)),
            AnyAlgorithm::FixedWindow(curve) => Self::FixedWindow(AtomicCell::new(curve)),
            AnyAlgorithm::PacedWindow(curve) => Self::PacedWindow(AtomicCell::new(curve)),
            other => Self::Locked(LockedCell::new(other)),
        }
    }

    #[inline]
    fn quick_allow(&self, now: Tick) -> Option<bool> {
        each!(self, cell => cell.quick_allow(now))
    }

    #[inline]
    fn quick_check_one(&self, now: Tick) -> Option<Decision> {
        each!(self, cell => cell.quick_check_one(now))
    }

    #[inline]
    fn quick_check(&self, now: Tick, cost: u64) -> Option<Decision> {
        each!(self, cell => cell.quick_check(now, cost))
    }

    fn quick_peek(&self, now: Tick, ask: Ask) -> Option<Decision> {
        each!(self, cell => cell.quick_peek(now, ask))
    }

    #[inline]
    fn quick_take(&self, now: Tick, ask: Ask) -> Option<Taken> {
        each!(self, cell => cell.quick_take(now, ask))
    }

    #[inline]
    fn quick_prepare(&self, now: Tick, ask: Ask) -> Option<Prepared<AnyPlan>> {
        Some(match self {
            Self::TokenBucket(cell) => cell.quick_prepare(now, ask)?.map(AnyPlan::Level),
            Self::LeakyBucket(cell) => cell.quick_prepare(now, ask)?.map(AnyPlan::Level),
            Self::FixedWindow(cell) => cell.quick_prepare(now, ask)?.map(AnyPlan::Level),
            Self::PacedWindow(cell) => cell.quick_prepare(now, ask)?.map(AnyPlan::Level),
            Self::Locked(cell) => cell.quick_prepare(now, ask)?.map(AnyPlan::Locked),
        })
    }

    #[inline]
    fn quick_one(&self, now: Tick) -> Option<One> {
        each!(self, cell => cell.quick_one(now))
    }

    #[inline]
    fn hold_one(&self, plan: &LevelPlan) -> bool {
        each!(self, cell => cell.hold_one(plan))
    }

    #[inline]
    fn commit_one(&self, plan: &LevelPlan) {
        each!(self, cell => cell.commit_one(plan));
    }

    #[inline]
    fn let_go_one(&self, plan: &LevelPlan) {
        each!(self, cell => cell.let_go_one(plan));
    }

    fn prepare(&self, now: Tick, ask: Ask) -> Prepared<AnyPlan> {
        match self {
            Self::TokenBucket(cell) => cell.prepare(now, ask).map(AnyPlan::Level),
            Self::LeakyBucket(cell) => cell.prepare(now, ask).map(AnyPlan::Level),
            Self::FixedWindow(cell) => cell.prepare(now, ask).map(AnyPlan::Level),
            Self::PacedWindow(cell) => cell.prepare(now, ask).map(AnyPlan::Level),
            Self::Locked(cell) => cell.prepare(now, ask).map(AnyPlan::Locked),
        }
    }

    #[inline]
    fn hold(&self, plan: &AnyPlan) -> bool {
        with_plan!(self, plan, |cell, plan| cell.hold(plan), false)
    }

    #[inline]
    fn commit(&self, plan: AnyPlan) {
        with_plan!(self, plan, |cell, plan| cell.commit(plan), ());
    }

    #[inline]
    fn let_go(&self, plan: &AnyPlan) {
        with_plan!(self, plan, |cell, plan| cell.let_go(plan), ());
    }

    fn take(&self, now: Tick, ask: Ask) -> Taken {
        each!(self, cell => cell.take(now, ask))
    }

    fn shut(&self) {
        each!(self, cell => cell.shut());
    }

    fn open(&self) {
        each!(self, cell => cell.open());
    }

    fn algorithm(&self) -> AnyAlgorithm {
        match self {
            Self::TokenBucket(cell) => AnyAlgorithm::TokenBucket(cell.algorithm()),
            Self::LeakyBucket(cell) => AnyAlgorithm::LeakyBucket(cell.algorithm()),
            Self::FixedWindow(cell) => AnyAlgorithm::FixedWindow(cell.algorithm()),
            Self::PacedWindow(cell) => AnyAlgorithm::PacedWindow(cell.algorithm()),
            Self::Locked(cell) => cell.algorithm(),
        }
    }

    fn put(&self, state: AnyState) {
        match self {
            Self::TokenBucket(cell) => cell.put(state.level()),
            Self::LeakyBucket(cell) => cell.put(state.level()),
            Self::FixedWindow(cell) => cell.put(state.level()),
            Self::PacedWindow(cell) => cell.put(state.level()),
            Self::Locked(cell) => cell.put(state),
        }
    }

    fn snapshot(&self) -> (AnyAlgorithm, AnyState) {
        match self {
            Self::TokenBucket(cell) => level_of(AnyAlgorithm::TokenBucket, cell.snapshot()),
            Self::LeakyBucket(cell) => level_of(AnyAlgorithm::LeakyBucket, cell.snapshot()),
            Self::FixedWindow(cell) => level_of(AnyAlgorithm::FixedWindow, cell.snapshot()),
            Self::PacedWindow(cell) => level_of(AnyAlgorithm::PacedWindow, cell.snapshot()),
            Self::Locked(cell) => cell.snapshot(),
        }
    }

    fn give_back(&self, back: GiveBack, now: impl Fn() -> Tick) -> Option<Fall> {
        each!(self, cell => cell.give_back(back, now))
    }

    fn undo(&self, claim: Claim, rise: u64) -> bool {
        each!(self, cell => cell.undo(claim, rise))
    }

    fn give_back_carried(&self, back: GiveBack, now: impl Fn() -> Tick) -> bool {
        each!(self, cell => cell.give_back_carried(back, now))
    }

    fn holds_all(&self, claim: Claim, now: Tick) -> bool {
        each!(self, cell => cell.holds_all(claim, now))
    }

    fn standing(&self, now: Tick) -> Option<Standing> {
        each!(self, cell => cell.standing(now))
    }

    fn charge(&self, extra: u64, now: Tick) {
        each!(self, cell => cell.charge(extra, now));
    }

    fn retune(&self, now: Tick, quota: Quota) -> Retuned<AnyAlgorithm> {
        match self {
            Self::TokenBucket(cell) => retuned(AnyAlgorithm::TokenBucket, cell.retune(now, quota)),
            Self::LeakyBucket(cell) => retuned(AnyAlgorithm::LeakyBucket, cell.retune(now, quota)),
            Self::FixedWindow(cell) => retuned(AnyAlgorithm::FixedWindow, cell.retune(now, quota)),
            Self::PacedWindow(cell) => retuned(AnyAlgorithm::PacedWindow, cell.retune(now, quota)),
            Self::Locked(cell) => cell.retune(now, quota),
        }
    }
}

impl<P> Prepared<P> {
    #[inline]
    fn map<Q>(self, wrap: impl FnOnce(P) -> Q) -> Prepared<Q> {
        let taking = self.taking.map(|Taking { plan, rise, claim }| Taking { plan: wrap(plan), rise, claim });
        Prepared { decision: self.decision, taking }
    }
}

fn level_of<C>(kind: impl Fn(C) -> AnyAlgorithm, (curve, level): (C, u64)) -> (AnyAlgorithm, AnyState) {
    (kind(curve), AnyState::Level(level))
}

fn retuned<C: Algorithm<State = u64>>(
    kind: impl Fn(C) -> AnyAlgorithm,
    change: Retuned<C>,
) -> Retuned<AnyAlgorithm> {
    Retuned { now: change.now, old: level_of(&kind, change.old), new: level_of(&kind, change.new) }
}
