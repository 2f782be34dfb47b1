//! Where a limiter keeps its state: one atomic word if that is enough, a lock otherwise.

mod any;
mod atomic;
mod locked;

use std::fmt;

use tollgate_core::{
    Algorithm, AnyAlgorithm, Ask, Claim, Decision, FixedWindow, GiveBack, Kind, LeakyBucket, PacedWindow,
    Quota, SlidingCounter, SlidingLog, SubWindows, Tick, TokenBucket,
};

pub use any::AnyCell;
pub use atomic::AtomicCell;
pub use locked::LockedCell;

/// A decision that was carried out, and its receipt if something was taken.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    /// The answer.
    pub decision: Decision,
    /// What was taken; `None` if nothing was.
    pub claim: Option<Claim>,
}

/// A place for the state of one limiter. Every method is atomic.
///
/// Those that begin with `quick` may be called by anybody, and answer `None` while the cell is [shut](Self::shut). The
/// others are for the holder of the limiter's lock.
pub trait Cell<A: Algorithm>: Send + Sync + fmt::Debug {
    /// A fresh state.
    fn new(algorithm: A) -> Self;

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

    /// Decides, and takes if admitted, shut or not.
    fn take(&self, now: Tick, ask: Ask) -> Taken;

    /// Turns the quick callers away.
    fn shut(&self);

    /// Lets the quick callers in again.
    fn open(&self);

    /// The algorithm.
    fn algorithm(&self) -> A;

    /// The algorithm and a copy of the state.
    fn snapshot(&self) -> (A, A::State);

    /// Gives back what can be: how far the state [fell](Algorithm::fall), or `None` if nothing could be.
    fn give_back(&self, back: GiveBack, now: Tick) -> Option<u64>;

    /// Gives back what can be of a claim from before a change of quota; whether anything was. Leaves the cell shut.
    fn give_back_carried(&self, back: GiveBack, now: Tick) -> bool {
        self.shut();
        self.give_back(back, now).is_some()
    }

    /// Whether all of a claim could be given back, so that somebody else may have it instead.
    fn holds_all(&self, claim: Claim, now: Tick) -> bool;

    /// Charges, whether it fits or not.
    fn charge(&self, extra: u64, now: Tick);

    /// Changes the quota.
    fn retune(&self, now: Tick, quota: Quota) -> Retuned<A>;
}

/// A change of quota: what was, and what is now.
#[derive(Clone, Debug)]
pub struct Retuned<A: Algorithm> {
    /// When.
    pub now: Tick,
    /// The algorithm and the state before.
    pub old: (A, A::State),
    /// The algorithm and the state after.
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
