//! What every algorithm has in common.

use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use crate::{Ask, Decision, Quota, Step, Tick};

/// A rate-limiting algorithm: a pure transition from a state to a decision and the next state.
///
/// Nothing here reads a clock, locks or waits, so the same code runs inside a compare-and-swap loop (which may run it
/// several times), under a lock, in a simulator and in a test. The rules every implementation keeps, checked by
/// `tollgate-sim` on each of them:
///
/// 1. the same inputs give the same output;
/// 2. a refusal changes nothing;
/// 3. `State::default()` is the fresh state, and a state that [`is_idle`](Self::is_idle) decides like it;
/// 4. what is admitted over any span stays within the algorithm's stated bound;
/// 5. `retry_after` is right to the nanosecond;
/// 6. a clock that steps back never admits more;
/// 7. giving back never creates capacity that time has already restored;
/// 8. no input overflows, panics or drifts.
///
/// # Examples
/// ```
/// use tollgate_core::{Algorithm, Ask, FixedWindow, Quota, Tick};
///
/// let window = FixedWindow::new(Quota::per_second(2));
/// let mut state = Default::default();
/// let answers = [0, 1, 2].map(|ns| window.step(&mut state, Tick::from_nanos(ns), Ask::now(1)).is_allowed());
/// assert_eq!(answers, [true, true, false]);
/// ```
pub trait Algorithm: Clone + fmt::Debug {
    /// What is remembered between calls. The default is the fresh state.
    type State: Clone + Default + fmt::Debug + PartialEq;
    /// What an admission writes.
    type Change: Clone + fmt::Debug;

    /// Decides, and writes nothing.
    fn decide(&self, state: &Self::State, now: Tick, ask: Ask) -> Step<Self::Change>;

    /// Writes what [`decide`](Self::decide) said an admission changes.
    fn apply(&self, state: &mut Self::State, change: Self::Change);

    /// Decides, and writes the change if there is one.
    #[inline]
    fn step(&self, state: &mut Self::State, now: Tick, ask: Ask) -> Decision {
        let Step { change, decision } = self.decide(state, now, ask);
        if let Some(change) = change {
            self.apply(state, change);
        }
        decision
    }

    /// Takes one if it may go ahead now; whether it may. As [`step`](Self::step), for those who want to know no more.
    #[inline]
    fn allow(&self, state: &mut Self::State, now: Tick) -> bool {
        self.step(state, now, Ask::now(1)).is_allowed()
    }

    /// The receipt of an admission, with which it can be given back.
    fn claim(&self, change: &Self::Change, cost: u64, act: Tick) -> Claim;

    /// What giving back part of a claim changes, if anything: never more than time has not already restored.
    ///
    /// Whoever keeps the state adds up how far changes by `give_back` made it [`fall`](Self::fall), and hands in a claim that
    /// was [`lowered`](Self::lowered) by what fell since it was made. Otherwise two returns could hand out the same
    /// capacity twice. And `now` must be no older than any reading by which something was taken: what time has restored by
    /// then is not seen by an older one.
    fn give_back(&self, state: &Self::State, back: GiveBack, now: Tick) -> Option<Self::Change>;

    /// What giving back `amount` changes when there is no receipt of what it was taken by; `None` if nothing comes back.
    ///
    /// Nobody can tell then which admission it was, so what comes back is what time would restore first: at most what
    /// counts at `now`, so that a state never becomes better than a fresh one, and a fresh one stays as it is. What is
    /// admitted in any span stays within the algorithm's bound plus what was refunded in that span; or before it, where
    /// something was promised for a moment in it, since what comes back is then had on top of that. From a
    /// [queue](crate::LeakyBucket::queue), where all were given their times one after the other, nothing comes back.
    ///
    /// # Examples
    /// ```
    /// use tollgate_core::{Algorithm, Ask, Quota, Tick, TokenBucket};
    ///
    /// let bucket = TokenBucket::new(Quota::per_second(1).burst(5));
    /// let mut level = 0;
    /// assert!(bucket.step(&mut level, Tick::ZERO, Ask::now(3)).is_allowed());
    /// let change = bucket.refund(&level, 100, Tick::ZERO).unwrap();
    /// bucket.apply(&mut level, change);
    /// assert!(!bucket.decide(&level, Tick::ZERO, Ask::now(6)).decision.is_allowed()); // full, and no more than that
    /// assert_eq!(bucket.refund(&level, 1, Tick::ZERO), None);
    /// ```
    fn refund(&self, state: &Self::State, amount: u64, now: Tick) -> Option<Self::Change> {
        let _ = (state, amount, now);
        None
    }

    /// How far a change takes the state down, where marks are levels; zero elsewhere.
    fn fall(&self, state: &Self::State, change: &Self::Change) -> u64 {
        let _ = (state, change);
        0
    }

    /// Whether nothing was taken after `claim`, so that giving back all of it leaves the state as if it had never been made. If
    /// nothing else has come back since either, those before it need not hear of it, and that the state [fell](Self::fall) is not
    /// added up: whatever lies below lies where it did.
    fn is_last(&self, state: &Self::State, claim: &Claim) -> bool {
        let _ = (state, claim);
        false
    }

    /// The claim as it stands after the state fell by `fallen` since it was made; `None` if nothing is left of it.
    fn lowered(&self, claim: Claim, fallen: u64) -> Option<Claim> {
        let _ = fallen;
        Some(claim)
    }

    /// Charges `extra` whether it fits or not: the cost of something already done that turned out to be dearer than
    /// asked for. Later callers wait until it is paid off.
    fn charge(&self, state: &Self::State, extra: u64, now: Tick) -> Option<Self::Change>;

    /// The algorithm for another quota, with the state that carries over what was used: nobody gets a free burst, and no
    /// debt is forgiven.
    #[must_use]
    fn retune(&self, state: &Self::State, now: Tick, quota: Quota) -> (Self, Self::State)
    where
        Self: Sized;

    /// The state that [`retune`](Self::retune) to `quota` would carry over, for use with `new`, which is the algorithm of that
    /// quota as it is made. For stores in which many states share one algorithm.
    fn moved(&self, state: &Self::State, now: Tick, quota: Quota, new: &Self) -> Self::State {
        let _ = new;
        self.retune(state, now, quota).1
    }

    /// What a claim made under this algorithm is worth after a [`retune`](Self::retune) at `now`, from `state` to `new`
    /// and `new_state`; `None` if it cannot be given back any more.
    fn carried(
        &self,
        claim: Claim,
        state: &Self::State,
        now: Tick,
        new: &Self,
        new_state: &Self::State,
    ) -> Option<Claim> {
        let _ = (claim, state, now, new, new_state);
        None
    }

    /// Whether a claim that was decided as of a later moment can be given back before that moment. Not where deciding forgets
    /// what will be over by then: that would be missing.
    fn can_return_early(&self) -> bool {
        false
    }

    /// Whether the state decides like a fresh one from `now` on, so that it may be forgotten.
    fn is_idle(&self, state: &Self::State, now: Tick) -> bool;

    /// Appends the state as plain words, so that it can be kept in a file.
    ///
    /// # Examples
    /// ```
    /// use tollgate_core::{Algorithm, Ask, Quota, SlidingLog, Tick};
    ///
    /// let log = SlidingLog::new(Quota::per_second(2));
    /// let mut state = Default::default();
    /// assert!(log.step(&mut state, Tick::ZERO, Ask::now(2)).is_allowed());
    /// let mut words = Vec::new();
    /// log.write_state(&state, &mut words);
    /// assert_eq!(log.read_state(&words), Some(state));
    /// assert_eq!(log.read_state(&[2, 1, 1, 1]), None); // out of order
    /// ```
    fn write_state(&self, state: &Self::State, words: &mut Vec<u64>);

    /// The state that [`write_state`](Self::write_state) wrote as these words; no words are the fresh state. `None` if this
    /// algorithm has no such state, whatever its quota was. A state that was read is safe to use: it may be a lie, but
    /// nothing overflows.
    fn read_state(&self, words: &[u64]) -> Option<Self::State>;

    /// How long a caller that says nothing about waiting may be delayed: zero for all but a queue.
    fn patience(&self) -> Duration {
        Duration::ZERO
    }
}

/// The receipt of an admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// What was taken.
    pub cost: u64,
    /// When the caller may act.
    pub act: Tick,
    /// Where the state stood right after the admission, for states that are one word; zero for the others.
    pub mark: u64,
}

/// A claim, or part of one, on its way back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GiveBack {
    /// The admission it came from, [lowered](Algorithm::lowered) by what fell since.
    pub claim: Claim,
    /// How much of it comes back, at most its cost.
    pub amount: u64,
    /// The latest moment as of which anything was taken, if that is yet to come: a gate may take of a limit for the time at which
    /// another one admits.
    pub ahead: Tick,
}
