//! States that are one word: a level that only time and admissions raise.
//!
//! A level counts everything ever consumed. Two lines rise with time: the *floor*, below which a level is as good as
//! fresh (what was not used in time is lost), and the *brink*, the highest level at which a call of a given cost may
//! still start. Deciding is then the same few instructions for every such algorithm:
//!
//! ```text
//! start = max(level, floor(now))
//! admit iff start <= brink(now, cost);     level' = start + size(cost)
//! ```
//!
//! Why the bound holds. Take the admissions whose clock readings lie in [t1, t2], in the order in which they were written.
//! Before the first, the start is at least floor(t1); after the last, the level is at most brink(t2) + size; between them
//! the level never falls. Their sizes therefore add up to no more than brink(t2) + size - floor(t1). The argument uses
//! neither ordered readings nor a clock that only goes forward: a stale or backward reading can only refuse.

use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use crate::decision::NEVER;
use crate::{Algorithm, Ask, Claim, Decision, GiveBack, Quota, Step, Tick, Verdict};

/// How many words hold a [`Curve`].
pub const CURVE_WORDS: usize = 7;

/// What shuts a [latch](Curve::LATCH).
pub const CLOSED: u64 = 1 << 63;

/// A number that is no level: whoever keeps one may write this in its place to say that somebody has it in hand.
pub const HELD: u64 = u64::MAX;

/// Where a call may start, at one moment and for one cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Band {
    /// A level below this counts as this.
    pub floor: u64,
    /// The highest level at which the call may start. Below `floor` if it may not start at any.
    pub brink: u64,
    /// What the call adds to the level.
    pub size: u64,
}

/// An algorithm whose state is one level between two rising lines.
///
/// Implementing this gives [`Algorithm`] for free, and lets a limiter keep the state in one atomic word and these numbers
/// in a few others.
pub trait Curve: Copy + fmt::Debug + PartialEq {
    /// Where [`pack`](Self::pack) keeps a word that, set to [`CLOSED`], leaves [`band_of_one`](Self::band_of_one) without a
    /// place to start, and that differs from curve to curve: a new one by [`retuned`](Self::retuned) or
    /// [`lifted`](Self::lifted) does not have it in common with any of the 65 535 before. `None` if there is no such word.
    const LATCH: Option<usize> = None;

    /// The band for a cost of one: the common case, with as little arithmetic as possible. Takes the curve word by word,
    /// so that a cell need not load what is not used, and asks for the [latch](Self::LATCH) first.
    #[inline]
    fn band_of_one(word: impl Fn(usize) -> u64, now: Tick) -> Band {
        Self::unpack(core::array::from_fn(word)).band(now, 1)
    }

    /// The decision to admit a cost of one that starts at `start` in its band.
    #[inline]
    fn admit_one(word: impl Fn(usize) -> u64, band: Band, start: u64, now: Tick) -> Decision {
        Self::unpack(core::array::from_fn(word)).admission(start + band.size, now, 0)
    }

    /// The decision to refuse a cost of one at a `level` beyond the brink of its band, where that is easily said and nobody would
    /// wait. `None` elsewhere: then [`decide_rest`](Self::decide_rest) says it.
    #[inline]
    fn refuse_one(word: impl Fn(usize) -> u64, band: Band, level: u64, now: Tick) -> Option<Decision> {
        let _ = (word, band, level, now);
        None
    }

    /// The band for any cost; a cost that can never be had gets a brink below the floor.
    fn band(&self, now: Tick, cost: u64) -> Band;

    /// The first moment at or after `now` at which a call of `cost` may start, and the level it starts from; `None` if
    /// that never comes.
    fn opening(&self, level: u64, now: Tick, cost: u64) -> Option<(Tick, u64)>;

    /// What is left at `now`, in whole units of cost.
    fn remaining(&self, level: u64, now: Tick) -> u64;

    /// Nanoseconds from `now` until `level` counts as fresh.
    fn reset_ns(&self, level: u64, now: Tick) -> u64;

    /// The most that can be had at once.
    fn limit(&self) -> u64;

    /// Whether everything is admitted.
    fn is_unlimited(&self) -> bool;

    /// The level after giving back; `None` if nothing can be.
    fn returned(&self, level: u64, back: GiveBack, now: Tick) -> Option<u64>;

    /// The level after giving back `amount` without a receipt; `None` if nothing comes back.
    fn refunded(&self, level: u64, amount: u64, now: Tick) -> Option<u64> {
        // What lies above the floor is what was taken and time has not restored.
        let next = level.saturating_sub(self.unit().saturating_mul(amount)).max(self.floor(now));
        (next < level && !self.is_unlimited()).then_some(next)
    }

    /// The level after charging `extra` regardless.
    fn charged(&self, level: u64, extra: u64, now: Tick) -> u64;

    /// The curve for another quota and the level that carries over; above every level this curve ever had, so that a
    /// compare-and-swap that began under the old curve cannot succeed under the new one.
    fn retuned(&self, level: u64, now: Tick, quota: Quota) -> (Self, u64);

    /// What one unit of cost adds to the level.
    fn unit(&self) -> u64;

    /// Whether claims can be given back in any order, because only their sum counts.
    const COMMUTES: bool = false;

    /// Whether claims can still be given back after a change to `new`.
    fn carries(&self, level: u64, now: Tick, new: &Self) -> bool {
        let _ = (level, now, new);
        true
    }

    /// A level below this counts as this.
    fn floor(&self, now: Tick) -> u64;

    /// The same curve on levels that are at least `by` higher, and by how much they are.
    fn lifted(&self, by: u64) -> (Self, u64);

    /// How long a caller that says nothing about waiting may be delayed.
    #[inline]
    fn patience(&self) -> Duration {
        Duration::ZERO
    }

    /// The curve as bare words.
    fn pack(&self) -> [u64; CURVE_WORDS];

    /// The curve that [`pack`](Self::pack) wrote.
    fn unpack(words: [u64; CURVE_WORDS]) -> Self;

    /// Decides on a level. This is [`Algorithm::decide`], and the whole of it.
    #[inline]
    fn decide_level(&self, level: u64, now: Tick, ask: Ask) -> Step<u64> {
        if ask.cost == 1 {
            let word = |index: usize| self.pack()[index];
            let band = Self::band_of_one(word, now);
            let start = level.max(band.floor);
            if start <= band.brink {
                let decision = Self::admit_one(word, band, start, now);
                return Step { change: Some(start + band.size), decision };
            }
            if ask.patience_ns == 0
                && band.floor <= band.brink
                && let Some(decision) = Self::refuse_one(word, band, level, now)
            {
                return Step { change: None, decision };
            }
        }
        self.decide_rest(level, now, ask)
    }

    /// The less common cases: costs other than one, waiting, unlimited, never.
    fn decide_rest(&self, level: u64, now: Tick, ask: Ask) -> Step<u64> {
        if self.is_unlimited() {
            return Step::UNLIMITED;
        }
        if ask.cost == 0 {
            return Step { change: None, decision: self.admission(level, now, 0) };
        }
        let band = self.band(now, ask.cost);
        let start = level.max(band.floor);
        if start <= band.brink {
            let next = start + band.size;
            return Step { change: Some(next), decision: self.admission(next, now, 0) };
        }
        let Some((at, start)) = self.opening(level, now, ask.cost) else {
            return self.refuse(level, now, NEVER);
        };
        let wait = at.as_nanos() - now.as_nanos();
        if wait <= ask.patience_ns {
            let next = start + band.size;
            Step { change: Some(next), decision: self.admission(next, now, wait) }
        } else {
            self.refuse(level, now, wait - ask.patience_ns)
        }
    }

    /// The decision to admit, leaving `level` behind.
    #[inline]
    fn admission(&self, level: u64, now: Tick, wait_ns: u64) -> Decision {
        let verdict = if wait_ns == 0 { Verdict::Allow } else { Verdict::Delay };
        Decision::new(verdict, self.limit(), self.remaining(level, now), wait_ns, self.reset_ns(level, now))
    }

    /// The decision to refuse.
    #[inline]
    fn refuse(&self, level: u64, now: Tick, wait_ns: u64) -> Step<u64> {
        let (remaining, reset_ns) = (self.remaining(level, now), self.reset_ns(level, now));
        Step {
            change: None,
            decision: Decision::new(Verdict::Deny, self.limit(), remaining, wait_ns, reset_ns),
        }
    }
}

/// What is not admitted at once, for one. Apart, so that the other way is short.
#[inline(never)]
fn step_seldom<C: Curve>(curve: &C, level: &mut u64, now: Tick, ask: Ask) -> Decision {
    let Step { change, decision } = curve.decide_level(*level, now, ask);
    *level = change.unwrap_or(*level);
    decision
}

impl<C: Curve> Algorithm for C {
    type State = u64;
    type Change = u64;

    #[inline]
    fn decide(&self, level: &u64, now: Tick, ask: Ask) -> Step<u64> {
        self.decide_level(*level, now, ask)
    }

    /// As by `decide`, but what is most frequent is written at once, and nothing of it is copied.
    #[inline]
    fn step(&self, level: &mut u64, now: Tick, ask: Ask) -> Decision {
        if ask.cost == 1 {
            let word = |index: usize| self.pack()[index];
            let band = Self::band_of_one(word, now);
            let start = (*level).max(band.floor);
            if start <= band.brink {
                *level = start + band.size;
                return Self::admit_one(word, band, start, now);
            }
        }
        step_seldom(self, level, now, ask)
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "as for `Limiter::allow`: a call costs as much as the work")]
    fn allow(&self, level: &mut u64, now: Tick) -> bool {
        let band = Self::band_of_one(|index| self.pack()[index], now);
        let start = (*level).max(band.floor);
        if start <= band.brink {
            *level = start + band.size;
            return true;
        }
        // Without a band the long way must say.
        band.floor > band.brink && self.step(level, now, Ask::now(1)).is_allowed()
    }

    #[inline]
    fn apply(&self, level: &mut u64, next: u64) {
        *level = next;
    }

    #[inline]
    fn claim(&self, change: &u64, cost: u64, act: Tick) -> Claim {
        Claim { cost, act, mark: *change }
    }

    fn give_back(&self, level: &u64, back: GiveBack, now: Tick) -> Option<u64> {
        self.returned(*level, back, now)
    }

    fn refund(&self, level: &u64, amount: u64, now: Tick) -> Option<u64> {
        self.refunded(*level, amount, now)
    }

    fn charge(&self, level: &u64, extra: u64, now: Tick) -> Option<u64> {
        let next = self.charged(*level, extra, now);
        (extra > 0 && next != *level).then_some(next)
    }

    fn retune(&self, level: &u64, now: Tick, quota: Quota) -> (Self, u64) {
        self.retuned(*level, now, quota)
    }

    fn moved(&self, level: &u64, now: Tick, quota: Quota, new: &Self) -> u64 {
        // The curve that comes out is `new`, lifted.
        let (lifted, level) = self.retuned(*level, now, quota);
        new.floor(now).saturating_add(level.saturating_sub(lifted.floor(now)))
    }

    fn fall(&self, level: &u64, next: &u64) -> u64 {
        level.saturating_sub(*next)
    }

    fn is_last(&self, level: &u64, claim: &Claim) -> bool {
        *level == claim.mark
    }

    fn lowered(&self, claim: Claim, fallen: u64) -> Option<Claim> {
        if C::COMMUTES {
            return Some(claim);
        }
        claim.mark.checked_sub(fallen).map(|mark| Claim { mark, ..claim })
    }

    fn carried(&self, claim: Claim, level: &u64, now: Tick, new: &Self, new_level: &u64) -> Option<Claim> {
        if !self.carries(*level, now, new) {
            return None;
        }
        // What time had restored by then is not part of it any more.
        let held = claim.mark.checked_sub(self.floor(now))?.checked_div(self.unit())?;
        // What was taken after the claim, in units of the new curve and rounded up, so that less comes back.
        let later = u128::from(level.checked_sub(claim.mark)?) * u128::from(new.unit());
        let later = u64::try_from(later.div_ceil(u128::from(self.unit()))).ok()?;
        let mark = new_level.checked_sub(later)?;
        (held > 0).then_some(Claim { cost: claim.cost.min(held), act: claim.act, mark })
    }

    fn can_return_early(&self) -> bool {
        true
    }

    fn is_idle(&self, level: &u64, now: Tick) -> bool {
        self.is_unlimited() || self.reset_ns(*level, now) == 0
    }

    fn write_state(&self, level: &u64, words: &mut Vec<u64>) {
        words.push(*level);
    }

    fn read_state(&self, words: &[u64]) -> Option<u64> {
        match words {
            [] => Some(0),
            [level] => Some(*level),
            _ => None,
        }
    }

    #[inline]
    fn patience(&self) -> Duration {
        Curve::patience(self)
    }
}
