//! Where a limiter keeps its state: one atomic word if that is enough, a lock otherwise.

mod any;
mod atomic;
mod lanes;
mod leased;
mod locked;

use std::fmt;

use tollgate_core::{
    Algorithm, AnyAlgorithm, AnyLevel, Ask, Claim, Decision, FixedWindow, GiveBack, Kind, LeakyBucket,
    PacedWindow, Quota, Sharded, SlidingCounter, SlidingLog, SubWindows, Tick, TokenBucket,
};

pub use any::AnyCell;
pub use atomic::{AtomicCell, LevelPlan};
pub use leased::LeasedCell;
pub use locked::LockedCell;

/// A decision that was carried out, and its receipt if something was taken.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    /// The answer.
    pub decision: Decision,
    /// What was taken; `None` if nothing was.
    pub claim: Option<Claim>,
}

/// A decision that was made and not carried out.
#[derive(Clone, Copy, Debug)]
pub struct Prepared<P> {
    /// The answer.
    pub decision: Decision,
    /// What carrying it out takes; `None` if nothing is to be taken.
    pub taking: Option<Taking<P>>,
}

/// A decision on a cost of one by the short way, for states that are one word.
#[derive(Clone, Copy, Debug)]
pub struct One {
    /// The answer.
    pub decision: Decision,
    /// The level that was found, and the one to write.
    pub plan: LevelPlan,
}

/// How far a state that is a level stands from being fresh.
#[derive(Clone, Copy, Debug)]
pub struct Standing {
    /// The level.
    pub level: u64,
    /// How far it is above the floor.
    pub above: u64,
    /// What one unit of cost adds to it.
    pub unit: u64,
    /// The most that can be had at once, in units of cost.
    pub limit: u64,
}

impl Standing {
    /// A quarter of the limit, as a distance between levels.
    pub fn quarter(&self) -> u64 {
        (self.limit / 4).max(1).saturating_mul(self.unit)
    }

    /// Whether it is at least that far above the floor.
    pub fn keeps_distance(&self) -> bool {
        self.above >= self.quarter()
    }

    /// Whether it would be if `claim` were the last that was taken, and came back.
    pub fn would_keep_distance(&self, claim: Claim) -> bool {
        let floor = self.level.saturating_sub(self.above);
        let size = self.unit.saturating_mul(claim.cost);
        claim.mark >= floor.saturating_add(size).saturating_add(self.quarter())
    }
}

/// What is to be taken.
#[derive(Clone, Copy, Debug)]
pub struct Taking<P> {
    /// What the state was and will be.
    pub plan: P,
    /// How far the state rises, where it is a level. More than the claim's cost if it was below its floor.
    pub rise: u64,
    /// The receipt, once it is taken.
    pub claim: Claim,
}

/// A place for the state of one limiter. Every method is atomic.
///
/// Those that begin with `quick` may be called by anybody, and answer `None` while the cell is [shut](Self::shut). The
/// others are for the holder of the limiter's lock.
///
/// Several cells change together like this: [`quick_prepare`](Self::quick_prepare) in each, which changes nothing; then
/// [`hold`](Self::hold) each, which fails if the state is no longer the one that was prepared; then
/// [`commit`](Self::commit) all, or [`let_go`](Self::let_go) of those that were held. While a cell is held everybody else
/// waits, so nobody ever sees one changed and another not yet. Whoever holds a cell must wait for nobody.
pub trait Cell<A: Algorithm>: Send + Sync + fmt::Debug {
    /// What `prepare` found, and what `commit` will write.
    type Plan: Clone + Send + fmt::Debug;

    /// A fresh state.
    fn new(algorithm: A) -> Self;

    /// Takes `n` if they may go ahead now, by a `clock` that need not be read if they come out of a lease; whether they may. Cells
    /// without leases answer `None`.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "nothing at all, for most cells")]
    fn quick_lease(&self, n: u64, clock: impl Fn() -> Tick) -> Option<bool> {
        let _ = (n, clock);
        None
    }

    /// Takes one if it may go ahead now; whether it may. Also `None` if [`quick_take`](Self::quick_take) must decide.
    fn quick_allow(&self, now: Tick) -> Option<bool>;

    /// Takes one if it may go ahead now. `None` if [`quick_check`](Self::quick_check) must decide.
    fn quick_check_one(&self, now: Tick) -> Option<Decision>;

    /// Decides with the algorithm's own [patience](Algorithm::patience), and takes if admitted.
    fn quick_check(&self, now: Tick, cost: u64) -> Option<Decision>;

    /// Decides, and takes nothing.
    fn quick_peek(&self, now: Tick, ask: Ask) -> Option<Decision>;

    /// Decides, and takes if admitted.
    fn quick_take(&self, now: Tick, ask: Ask) -> Option<Taken>;

    /// Decides, and takes nothing yet.
    fn quick_prepare(&self, now: Tick, ask: Ask) -> Option<Prepared<Self::Plan>>;

    /// Decides on a cost of one by the short way, and takes nothing yet. Also `None` if [`quick_prepare`](Self::quick_prepare)
    /// must decide.
    fn quick_one(&self, now: Tick) -> Option<One> {
        let _ = now;
        None
    }

    /// [`hold`](Self::hold), after [`quick_one`](Self::quick_one).
    fn hold_one(&self, plan: &LevelPlan) -> bool {
        let _ = plan;
        false
    }

    /// [`commit`](Self::commit), after [`quick_one`](Self::quick_one).
    fn commit_one(&self, plan: &LevelPlan) {
        let _ = plan;
    }

    /// [`hold_one`](Self::hold_one) and [`commit_one`](Self::commit_one) at once.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a gate's decisions should stay in registers as a limiter's do")]
    fn take_one(&self, plan: &LevelPlan) -> bool {
        let holds = self.hold_one(plan);
        if holds {
            self.commit_one(plan);
        }
        holds
    }

    /// [`let_go`](Self::let_go), after [`quick_one`](Self::quick_one).
    fn let_go_one(&self, plan: &LevelPlan) {
        let _ = plan;
    }

    /// Decides, shut or not, and takes nothing yet.
    fn prepare(&self, now: Tick, ask: Ask) -> Prepared<Self::Plan>;

    /// Keeps the state as it was prepared; `false` if it is not that any more. For anybody.
    fn hold(&self, plan: &Self::Plan) -> bool;

    /// Writes what was prepared, and lets go. Only after [`hold`](Self::hold).
    fn commit(&self, plan: Self::Plan);

    /// Lets go, with nothing changed. Only after [`hold`](Self::hold).
    fn let_go(&self, plan: &Self::Plan);

    /// Decides, and takes if admitted, shut or not.
    fn take(&self, now: Tick, ask: Ask) -> Taken;

    /// Turns the quick callers away.
    fn shut(&self);

    /// Lets the quick callers in again.
    fn open(&self);

    /// The algorithm.
    fn algorithm(&self) -> A;

    /// Replaces the state.
    fn put(&self, state: A::State);

    /// The algorithm and a copy of the state.
    fn snapshot(&self) -> (A, A::State);

    /// Gives back what can be: how far the state [fell](Algorithm::fall), or `None` if nothing could be. The time is asked for when
    /// the state is known, so that nothing in it was taken later: by an older time, what time has restored would come back again.
    fn give_back(&self, back: GiveBack, now: impl Fn() -> Tick) -> Option<Fall>;

    /// Takes a claim back as if it had never been made: the state falls by as much as it rose. Only if nothing was taken or
    /// given back since; whether it was so.
    fn undo(&self, claim: Claim, rise: u64) -> bool;

    /// Gives back what can be of a claim from before a change of quota; whether anything was. Leaves the cell shut.
    fn give_back_carried(&self, back: GiveBack, now: impl Fn() -> Tick) -> bool {
        self.shut();
        self.give_back(back, now).is_some()
    }

    /// Whether all of a claim could be given back, so that somebody else may have it instead.
    fn holds_all(&self, claim: Claim, now: Tick) -> bool;

    /// Where the state stands; `None` if it is not a level.
    fn standing(&self, now: Tick) -> Option<Standing> {
        let _ = now;
        None
    }

    /// Charges, whether it fits or not.
    fn charge(&self, extra: u64, now: Tick);

    /// Changes the quota.
    fn retune(&self, now: Tick, quota: Quota) -> Retuned<A>;
}

/// How far a state came down.
#[derive(Clone, Copy, Debug)]
pub struct Fall {
    /// How far.
    pub by: u64,
    /// Whether it was the [last](Algorithm::is_last) that was taken.
    pub was_last: bool,
}

/// A change of quota: what was, and what is now.
#[derive(Clone, Debug)]
pub struct Retuned<A: Algorithm> {
    /// When.
    pub now: Tick,
    /// The algorithm and the state before; a fresh one instead if claims are not [carried by it](Held::carries_by_state).
    pub old: (A, A::State),
    /// The algorithm and the state after, likewise.
    pub new: (A, A::State),
}

/// Algorithms that a limiter can hold, each in the smallest cell that fits.
pub trait Held: Algorithm<State: Send, Change: Send> + Send + Sync + 'static {
    /// Its cell.
    type Cell: Cell<Self>;

    /// Which algorithm it is.
    fn kind(&self) -> Kind;

    /// How many parts its states have: for [`SubWindows`], else zero.
    fn parts(&self) -> u32;

    /// Whether it takes the states to tell what a claim is worth after a change of quota. If not, they need not be kept: they may
    /// be large.
    fn carries_by_state(&self) -> bool {
        !matches!(self.kind(), Kind::SlidingLog | Kind::SlidingCounter | Kind::SubWindows)
    }
}

macro_rules! held_in {
    ($cell:ident: $($algorithm:ident),*) => { $(
        impl Held for $algorithm {
            type Cell = $cell<$algorithm>;

            fn kind(&self) -> Kind {
                AnyAlgorithm::$algorithm(*self).kind()
            }

            fn parts(&self) -> u32 {
                AnyAlgorithm::$algorithm(*self).parts()
            }
        }
    )* };
}

held_in!(AtomicCell: TokenBucket, LeakyBucket, FixedWindow, PacedWindow);
held_in!(LockedCell: SlidingLog, SlidingCounter, SubWindows);

impl Held for AnyAlgorithm {
    type Cell = AnyCell;

    fn kind(&self) -> Kind {
        AnyAlgorithm::kind(self)
    }

    fn parts(&self) -> u32 {
        AnyAlgorithm::parts(self)
    }
}

impl Held for AnyLevel {
    /// It is for stores of many states, which have no cells.
    type Cell = LockedCell<Self>;

    fn kind(&self) -> Kind {
        AnyLevel::kind(self)
    }

    fn parts(&self) -> u32 {
        0
    }
}

impl Held for Sharded {
    type Cell = LeasedCell;

    fn kind(&self) -> Kind {
        Kind::TokenBucket
    }

    fn parts(&self) -> u32 {
        0
    }
}
