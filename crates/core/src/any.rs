//! An algorithm chosen at run time.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::sliding_counter::Counts;
use crate::sliding_log::{Log, LogChange};
use crate::sub_windows::{Parts, PartsChange};
use crate::{
    Algorithm, Ask, Claim, FixedWindow, GiveBack, LeakyBucket, PacedWindow, Quota, SlidingCounter,
    SlidingLog, Step, SubWindows, Tick, TokenBucket,
};

/// The algorithms by name, as a policy file or a flag writes them.
///
/// # Examples
/// ```
/// use tollgate_core::Kind;
///
/// assert_eq!("sub-windows".parse(), Ok(Kind::SubWindows));
/// assert_eq!(Kind::TokenBucket.to_string(), "token-bucket");
/// assert!("tokenbucket".parse::<Kind>().unwrap_err().to_string().contains("token-bucket, leaky-bucket"));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// [`TokenBucket`].
    #[default]
    TokenBucket,
    /// [`LeakyBucket::meter`].
    LeakyBucket,
    /// [`LeakyBucket::queue`].
    LeakyQueue,
    /// [`FixedWindow`].
    FixedWindow,
    /// [`SlidingLog`].
    SlidingLog,
    /// [`SlidingCounter`].
    SlidingCounter,
    /// [`SubWindows`] with ten parts.
    SubWindows,
    /// [`PacedWindow`].
    PacedWindow,
}

impl Kind {
    /// Every kind there is.
    pub const ALL: [Self; 8] = [
        Self::TokenBucket,
        Self::LeakyBucket,
        Self::LeakyQueue,
        Self::FixedWindow,
        Self::SlidingLog,
        Self::SlidingCounter,
        Self::SubWindows,
        Self::PacedWindow,
    ];

    /// The name that [`FromStr`] reads.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TokenBucket => "token-bucket",
            Self::LeakyBucket => "leaky-bucket",
            Self::LeakyQueue => "leaky-queue",
            Self::FixedWindow => "fixed-window",
            Self::SlidingLog => "sliding-window-log",
            Self::SlidingCounter => "sliding-window-counter",
            Self::SubWindows => "sub-windows",
            Self::PacedWindow => "paced-window",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Kind {
    type Err = UnknownKind;

    fn from_str(name: &str) -> Result<Self, UnknownKind> {
        Self::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| UnknownKind(name.to_string()))
    }
}

/// Error returned when an algorithm name is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownKind(String);

impl fmt::Display for UnknownKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown algorithm {:?}; expected one of ", self.0)?;
        for (index, kind) in Kind::ALL.iter().enumerate() {
            write!(f, "{}{kind}", if index == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl core::error::Error for UnknownKind {}

/// Any of the algorithms, chosen at run time.
///
/// # Examples
/// ```
/// use tollgate_core::{Algorithm, AnyAlgorithm, Ask, Kind, Quota, Tick};
///
/// let limit = AnyAlgorithm::new("sliding-window-log".parse().unwrap(), Quota::per_second(1));
/// let mut state = Default::default();
/// assert!(limit.step(&mut state, Tick::ZERO, Ask::now(1)).is_allowed());
/// assert!(!limit.step(&mut state, Tick::ZERO, Ask::now(1)).is_allowed());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AnyAlgorithm {
    /// A token bucket.
    TokenBucket(TokenBucket),
    /// A leaky bucket, as a meter or a queue.
    LeakyBucket(LeakyBucket),
    /// A fixed window.
    FixedWindow(FixedWindow),
    /// A sliding window log.
    SlidingLog(SlidingLog),
    /// A sliding window counter.
    SlidingCounter(SlidingCounter),
    /// Sub-windows.
    SubWindows(SubWindows),
    /// A paced window.
    PacedWindow(PacedWindow),
}

impl AnyAlgorithm {
    /// The algorithm of that kind for `quota`.
    pub const fn new(kind: Kind, quota: Quota) -> Self {
        match kind {
            Kind::TokenBucket => Self::TokenBucket(TokenBucket::new(quota)),
            Kind::LeakyBucket => Self::LeakyBucket(LeakyBucket::meter(quota)),
            Kind::LeakyQueue => Self::LeakyBucket(LeakyBucket::queue(quota)),
            Kind::FixedWindow => Self::FixedWindow(FixedWindow::new(quota)),
            Kind::SlidingLog => Self::SlidingLog(SlidingLog::new(quota)),
            Kind::SlidingCounter => Self::SlidingCounter(SlidingCounter::new(quota)),
            Kind::SubWindows => Self::SubWindows(SubWindows::new(quota)),
            Kind::PacedWindow => Self::PacedWindow(PacedWindow::new(quota)),
        }
    }

    /// The same with windows or parts that are [aligned](FixedWindow::aligned) to a moment `age` before the clock's origin, if it
    /// has any.
    #[must_use]
    pub const fn aligned(self, age: Duration) -> Self {
        match self {
            Self::FixedWindow(window) => Self::FixedWindow(window.aligned(age)),
            Self::PacedWindow(window) => Self::PacedWindow(window.aligned(age)),
            Self::SlidingCounter(counter) => Self::SlidingCounter(counter.aligned(age)),
            Self::SubWindows(parts) => Self::SubWindows(parts.aligned(age)),
            other => other,
        }
    }

    /// Which it is.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::TokenBucket(_) => Kind::TokenBucket,
            Self::LeakyBucket(bucket) if bucket.is_queue() => Kind::LeakyQueue,
            Self::LeakyBucket(_) => Kind::LeakyBucket,
            Self::FixedWindow(_) => Kind::FixedWindow,
            Self::SlidingLog(_) => Kind::SlidingLog,
            Self::SlidingCounter(_) => Kind::SlidingCounter,
            Self::SubWindows(_) => Kind::SubWindows,
            Self::PacedWindow(_) => Kind::PacedWindow,
        }
    }

    /// How many parts its states have: for [`SubWindows`], else zero.
    pub const fn parts(&self) -> u32 {
        if let Self::SubWindows(algorithm) = self { algorithm.part_count() } else { 0 }
    }
}

/// The state of [`AnyAlgorithm`]. The default is fresh, whichever algorithm it is used with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AnyState {
    /// Nothing was admitted yet.
    #[default]
    Fresh,
    /// A [level](crate::Curve).
    Level(u64),
    /// Of a [`SlidingLog`].
    Log(Log),
    /// Of a [`SlidingCounter`].
    Counts(Counts),
    /// Of [`SubWindows`].
    Parts(Parts),
}

impl AnyState {
    /// The level, if it is one; zero, which is fresh, if not.
    pub fn level(&self) -> u64 {
        if let Self::Level(level) = self { *level } else { 0 }
    }
}

/// What an admission by [`AnyAlgorithm`] changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnyChange {
    /// A new [level](crate::Curve).
    Level(u64),
    /// For a [`SlidingLog`].
    Log(LogChange),
    /// For a [`SlidingCounter`].
    Counts(Counts),
    /// For [`SubWindows`].
    Parts(PartsChange),
}

/// Runs `$body` with the inner algorithm as `$algorithm` and the inner state, or a fresh one if the state is not of its
/// kind, as `$state`; `$wrap` becomes the variant of both [`AnyState`] and [`AnyChange`].
macro_rules! with_inner {
    ($self:expr, $outer:expr, |$algorithm:ident, $state:ident, $wrap:ident| $body:expr) => {
        with_inner!(@each $self, $outer, $algorithm, $state, $wrap, $body,
            [TokenBucket Level] [LeakyBucket Level] [FixedWindow Level] [PacedWindow Level]
            [SlidingLog Log] [SlidingCounter Counts] [SubWindows Parts])
    };
    (@each $self:expr, $outer:expr, $algorithm:ident, $state:ident, $wrap:ident, $body:expr,
        $([$kind:ident $variant:ident])*) => {
        match $self {
            $(Self::$kind($algorithm) => {
                let fresh = Default::default();
                let $state = if let AnyState::$variant(inner) = $outer { inner } else { &fresh };
                #[allow(unused_macros)]
                macro_rules! $wrap {
                    (State, $inner:expr) => { AnyState::$variant($inner) };
                    (Change, $inner:expr) => { AnyChange::$variant($inner) };
                    (Kind, $inner:expr) => { Self::$kind($inner) };
                }
                $body
            })*
        }
    };
}

impl Algorithm for AnyAlgorithm {
    type State = AnyState;
    type Change = AnyChange;

    fn decide(&self, state: &AnyState, now: Tick, ask: Ask) -> Step<AnyChange> {
        with_inner!(self, state, |algorithm, state, wrap| {
            let Step { change, decision } = algorithm.decide(state, now, ask);
            Step { change: change.map(|inner| wrap!(Change, inner)), decision }
        })
    }

    fn apply(&self, outer: &mut AnyState, change: AnyChange) {
        match (change, self) {
            (AnyChange::Level(level), _) => *outer = AnyState::Level(level),
            (AnyChange::Counts(counts), _) => *outer = AnyState::Counts(counts),
            (AnyChange::Log(change), Self::SlidingLog(algorithm)) => {
                if !matches!(outer, AnyState::Log(_)) {
                    *outer = AnyState::Log(Log::default());
                }
                if let AnyState::Log(log) = outer {
                    algorithm.apply(log, change);
                }
            }
            (AnyChange::Parts(change), Self::SubWindows(algorithm)) => {
                if !matches!(outer, AnyState::Parts(_)) {
                    *outer = AnyState::Parts(Parts::default());
                }
                if let AnyState::Parts(parts) = outer {
                    algorithm.apply(parts, change);
                }
            }
            // A change of another algorithm: `decide` never makes one, so there is nothing to write.
            (AnyChange::Log(_) | AnyChange::Parts(_), _) => {}
        }
    }

    fn claim(&self, change: &AnyChange, cost: u64, act: Tick) -> Claim {
        match (change, self) {
            (AnyChange::Level(mark), _) => Claim { cost, act, mark: *mark },
            (AnyChange::Log(change), Self::SlidingLog(algorithm)) => algorithm.claim(change, cost, act),
            (AnyChange::Counts(change), Self::SlidingCounter(algorithm)) => {
                algorithm.claim(change, cost, act)
            }
            (AnyChange::Parts(change), Self::SubWindows(algorithm)) => algorithm.claim(change, cost, act),
            _ => Claim { cost, act, mark: 0 },
        }
    }

    fn give_back(&self, state: &AnyState, back: GiveBack, now: Tick) -> Option<AnyChange> {
        with_inner!(self, state, |algorithm, state, wrap| {
            algorithm.give_back(state, back, now).map(|inner| wrap!(Change, inner))
        })
    }

    fn refund(&self, state: &AnyState, amount: u64, now: Tick) -> Option<AnyChange> {
        with_inner!(self, state, |algorithm, state, wrap| {
            algorithm.refund(state, amount, now).map(|inner| wrap!(Change, inner))
        })
    }

    fn charge(&self, state: &AnyState, extra: u64, now: Tick) -> Option<AnyChange> {
        with_inner!(self, state, |algorithm, state, wrap| {
            algorithm.charge(state, extra, now).map(|inner| wrap!(Change, inner))
        })
    }

    fn retune(&self, state: &AnyState, now: Tick, quota: Quota) -> (Self, AnyState) {
        with_inner!(self, state, |algorithm, state, wrap| {
            let (algorithm, state) = algorithm.retune(state, now, quota);
            (wrap!(Kind, algorithm), wrap!(State, state))
        })
    }

    fn fall(&self, state: &AnyState, change: &AnyChange) -> u64 {
        match change {
            AnyChange::Level(next) => state.level().saturating_sub(*next),
            _ => 0,
        }
    }

    fn is_last(&self, state: &AnyState, claim: &Claim) -> bool {
        with_inner!(self, state, |algorithm, state, wrap| algorithm.is_last(state, claim))
    }

    fn lowered(&self, claim: Claim, fallen: u64) -> Option<Claim> {
        with_inner!(self, &AnyState::Fresh, |algorithm, _state, wrap| algorithm.lowered(claim, fallen))
    }

    fn carried(
        &self,
        claim: Claim,
        state: &AnyState,
        now: Tick,
        new: &Self,
        new_state: &AnyState,
    ) -> Option<Claim> {
        let (level, next) = (state.level(), new_state.level());
        match (self, new) {
            (Self::TokenBucket(old), Self::TokenBucket(new)) => old.carried(claim, &level, now, new, &next),
            (Self::LeakyBucket(old), Self::LeakyBucket(new)) => old.carried(claim, &level, now, new, &next),
            (Self::FixedWindow(old), Self::FixedWindow(new)) => old.carried(claim, &level, now, new, &next),
            (Self::PacedWindow(old), Self::PacedWindow(new)) => old.carried(claim, &level, now, new, &next),
            (Self::SlidingLog(_), Self::SlidingLog(_)) => Some(claim),
            (Self::SlidingCounter(old), Self::SlidingCounter(new)) => {
                old.carried(claim, &Counts::default(), now, new, &Counts::default())
            }
            (Self::SubWindows(old), Self::SubWindows(new)) => {
                old.carried(claim, &Parts::default(), now, new, &Parts::default())
            }
            _ => None,
        }
    }

    fn moved(&self, state: &AnyState, now: Tick, quota: Quota, new: &Self) -> AnyState {
        let level = state.level();
        match (self, new) {
            (Self::TokenBucket(old), Self::TokenBucket(new)) => {
                AnyState::Level(old.moved(&level, now, quota, new))
            }
            (Self::LeakyBucket(old), Self::LeakyBucket(new)) => {
                AnyState::Level(old.moved(&level, now, quota, new))
            }
            (Self::FixedWindow(old), Self::FixedWindow(new)) => {
                AnyState::Level(old.moved(&level, now, quota, new))
            }
            (Self::PacedWindow(old), Self::PacedWindow(new)) => {
                AnyState::Level(old.moved(&level, now, quota, new))
            }
            _ => self.retune(state, now, quota).1,
        }
    }

    fn can_return_early(&self) -> bool {
        with_inner!(self, &AnyState::Fresh, |algorithm, _state, wrap| algorithm.can_return_early())
    }

    fn is_idle(&self, state: &AnyState, now: Tick) -> bool {
        with_inner!(self, state, |algorithm, state, wrap| algorithm.is_idle(state, now))
    }

    /// As the algorithm itself does, so that it does not matter whether it was chosen at run time.
    fn write_state(&self, state: &AnyState, words: &mut Vec<u64>) {
        if *state != AnyState::Fresh {
            with_inner!(self, state, |algorithm, state, wrap| algorithm.write_state(state, words));
        }
    }

    fn read_state(&self, words: &[u64]) -> Option<AnyState> {
        if words.is_empty() {
            return Some(AnyState::Fresh);
        }
        with_inner!(self, &AnyState::Fresh, |algorithm, _state, wrap| {
            algorithm.read_state(words).map(|inner| wrap!(State, inner))
        })
    }

    fn patience(&self) -> Duration {
        match self {
            Self::LeakyBucket(bucket) => Algorithm::patience(bucket),
            _ => Duration::ZERO,
        }
    }
}
