//! An algorithm chosen at run time, of those whose state is one word.

use core::time::Duration;

use alloc::vec::Vec;

use crate::{
    Algorithm, Ask, Claim, Decision, FixedWindow, GiveBack, Kind, LeakyBucket, PacedWindow, Quota, Step,
    Tick, TokenBucket,
};

/// Any of the algorithms whose state is one [level](crate::Curve), chosen at run time.
///
/// As [`AnyAlgorithm`](crate::AnyAlgorithm), but for a store of millions of states: each is eight bytes.
///
/// # Examples
/// ```
/// use tollgate_core::{Algorithm, AnyLevel, Ask, Kind, Quota, Tick};
///
/// let limit = AnyLevel::new(Kind::FixedWindow, Quota::per_second(1)).unwrap();
/// let mut level = 0;
/// assert!(limit.step(&mut level, Tick::ZERO, Ask::now(1)).is_allowed());
/// assert!(!limit.step(&mut level, Tick::ZERO, Ask::now(1)).is_allowed());
/// assert_eq!(AnyLevel::new(Kind::SlidingLog, Quota::per_second(1)), None); // it needs more than a word
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AnyLevel {
    /// A token bucket.
    TokenBucket(TokenBucket),
    /// A leaky bucket, as a meter or a queue.
    LeakyBucket(LeakyBucket),
    /// A fixed window.
    FixedWindow(FixedWindow),
    /// A paced window.
    PacedWindow(PacedWindow),
}

impl AnyLevel {
    /// The algorithm of that kind for `quota`; `None` if its state is more than a word.
    pub const fn new(kind: Kind, quota: Quota) -> Option<Self> {
        Some(match kind {
            Kind::TokenBucket => Self::TokenBucket(TokenBucket::new(quota)),
            Kind::LeakyBucket => Self::LeakyBucket(LeakyBucket::meter(quota)),
            Kind::LeakyQueue => Self::LeakyBucket(LeakyBucket::queue(quota)),
            Kind::FixedWindow => Self::FixedWindow(FixedWindow::new(quota)),
            Kind::PacedWindow => Self::PacedWindow(PacedWindow::new(quota)),
            Kind::SlidingLog | Kind::SlidingCounter | Kind::SubWindows => return None,
        })
    }

    /// The same with windows that are [aligned](FixedWindow::aligned) to a moment `age` before the clock's origin, if it has
    /// windows.
    #[must_use]
    pub const fn aligned(self, age: Duration) -> Self {
        match self {
            Self::FixedWindow(window) => Self::FixedWindow(window.aligned(age)),
            Self::PacedWindow(window) => Self::PacedWindow(window.aligned(age)),
            bucket => bucket,
        }
    }

    /// Which it is.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::TokenBucket(_) => Kind::TokenBucket,
            Self::LeakyBucket(bucket) if bucket.is_queue() => Kind::LeakyQueue,
            Self::LeakyBucket(_) => Kind::LeakyBucket,
            Self::FixedWindow(_) => Kind::FixedWindow,
            Self::PacedWindow(_) => Kind::PacedWindow,
        }
    }
}

/// Runs `$body` with the inner algorithm as `$inner`.
macro_rules! each {
    ($self:expr, $inner:ident => $body:expr) => {
        match $self {
            Self::TokenBucket($inner) => $body,
            Self::LeakyBucket($inner) => $body,
            Self::FixedWindow($inner) => $body,
            Self::PacedWindow($inner) => $body,
        }
    };
}

/// Runs `$body` with both inner algorithms, if they are the same.
macro_rules! both {
    ($old:expr, $new:expr, |$inner:ident, $other:ident| $body:expr, $otherwise:expr) => {
        match ($old, $new) {
            (Self::TokenBucket($inner), Self::TokenBucket($other)) => $body,
            (Self::LeakyBucket($inner), Self::LeakyBucket($other)) => $body,
            (Self::FixedWindow($inner), Self::FixedWindow($other)) => $body,
            (Self::PacedWindow($inner), Self::PacedWindow($other)) => $body,
            _ => $otherwise,
        }
    };
}

impl Algorithm for AnyLevel {
    type State = u64;
    type Change = u64;

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "it only asks another, which a call costs half as much as")]
    fn decide(&self, level: &u64, now: Tick, ask: Ask) -> Step<u64> {
        each!(self, curve => curve.decide(level, now, ask))
    }

    #[inline]
    fn step(&self, level: &mut u64, now: Tick, ask: Ask) -> Decision {
        each!(self, curve => curve.step(level, now, ask))
    }

    #[inline]
    fn allow(&self, level: &mut u64, now: Tick) -> bool {
        each!(self, curve => curve.allow(level, now))
    }

    #[inline]
    fn apply(&self, level: &mut u64, next: u64) {
        *level = next;
    }

    #[inline]
    fn claim(&self, change: &u64, cost: u64, act: Tick) -> Claim {
        each!(self, curve => curve.claim(change, cost, act))
    }

    fn give_back(&self, level: &u64, back: GiveBack, now: Tick) -> Option<u64> {
        each!(self, curve => curve.give_back(level, back, now))
    }

    fn refund(&self, level: &u64, amount: u64, now: Tick) -> Option<u64> {
        each!(self, curve => curve.refund(level, amount, now))
    }

    fn fall(&self, level: &u64, next: &u64) -> u64 {
        each!(self, curve => curve.fall(level, next))
    }

    fn is_last(&self, level: &u64, claim: &Claim) -> bool {
        each!(self, curve => curve.is_last(level, claim))
    }

    fn lowered(&self, claim: Claim, fallen: u64) -> Option<Claim> {
        each!(self, curve => curve.lowered(claim, fallen))
    }

    fn charge(&self, level: &u64, extra: u64, now: Tick) -> Option<u64> {
        each!(self, curve => curve.charge(level, extra, now))
    }

    fn retune(&self, level: &u64, now: Tick, quota: Quota) -> (Self, u64) {
        match self {
            Self::TokenBucket(curve) => with_level(Self::TokenBucket, curve.retune(level, now, quota)),
            Self::LeakyBucket(curve) => with_level(Self::LeakyBucket, curve.retune(level, now, quota)),
            Self::FixedWindow(curve) => with_level(Self::FixedWindow, curve.retune(level, now, quota)),
            Self::PacedWindow(curve) => with_level(Self::PacedWindow, curve.retune(level, now, quota)),
        }
    }

    fn moved(&self, level: &u64, now: Tick, quota: Quota, new: &Self) -> u64 {
        both!(self, new, |old, new| old.moved(level, now, quota, new), self.retune(level, now, quota).1)
    }

    fn carried(&self, claim: Claim, level: &u64, now: Tick, new: &Self, new_level: &u64) -> Option<Claim> {
        both!(self, new, |old, new| old.carried(claim, level, now, new, new_level), None)
    }

    fn can_return_early(&self) -> bool {
        each!(self, curve => curve.can_return_early())
    }

    fn is_idle(&self, level: &u64, now: Tick) -> bool {
        each!(self, curve => curve.is_idle(level, now))
    }

    fn write_state(&self, level: &u64, words: &mut Vec<u64>) {
        each!(self, curve => curve.write_state(level, words));
    }

    fn read_state(&self, words: &[u64]) -> Option<u64> {
        each!(self, curve => curve.read_state(words))
    }

    #[inline]
    fn patience(&self) -> Duration {
        each!(self, curve => Algorithm::patience(curve))
    }
}

fn with_level<A>(wrap: impl FnOnce(A) -> AnyLevel, (algorithm, level): (A, u64)) -> (AnyLevel, u64) {
    (wrap(algorithm), level)
}
