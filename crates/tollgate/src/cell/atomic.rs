//! States that are one word, without a lock.
//!
//! The level lies alone on its cache lines; the numbers of the curve lie on others that are only read, except when the
//! quota changes or somebody starts or stops waiting. A caller
//!
//! 1. reads the version of the curve, and leaves if the cell is shut;
//! 2. reads the numbers, and works out what does not depend on the level;
//! 3. reads the level;
//! 4. reads the version again, and leaves if it changed;
//! 5. decides, and swaps the level if it is still the one it read; else it goes on from 4 with the other one. If there is
//!    nothing to swap but it read more numbers for its answer, it looks at the version once more.
//!
//! The version is a word of its own, the *gate*. For a cost of one it is the curve's *latch*: one of the numbers
//! themselves, which no two curves in a row have in common and which admits nothing while the cell is shut.
//!
//! Why a caller can never mix two curves. `retune` shuts the cell, swaps the level for one above every level the old curve
//! ever had, writes the numbers, and only then the cell is opened, with a new version. Whoever finds the same version in
//! steps 1 and 4 has read only numbers of that curve, and a level no younger. If the curve changes after that, so does
//! the level, and the old one never comes back: step 5 fails.
//!
//! A gate changes several cells together. It puts [`HELD`] in the place of each level it is about to change, and the new
//! levels in their places once it has them all; the last one may go from the old to the new at once. Whoever finds a level
//! held waits until it is back; so a change of quota, which changes the level before the numbers, waits too, and a held
//! curve is the one that was prepared.

use std::marker::PhantomData;

use tollgate_core::{
    Algorithm, Ask, Band, CLOSED, CURVE_WORDS, Claim, Curve, Decision, GiveBack, HELD, Quota, Step, Tick,
};

use super::{Cell, Fall, Held, One, Prepared, Retuned, Standing, Taken, Taking};
use crate::sync::{AtomicU64, Ordering, fence, give_way};

/// A cell for algorithms whose state is one word: lock-free, and a refusal writes nothing.
#[derive(Debug)]
pub struct AtomicCell<C> {
    level: Lines<AtomicU64>,
    curve: Lines<PackedCurve<C>>,
}

/// Keeps its content off everybody else's cache lines: two of 64 bytes, because processors fetch them in pairs.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Lines<T>(pub(super) T);

#[derive(Debug)]
struct PackedCurve<C> {
    /// The curve's latch while the cell is open, [`CLOSED`] while it is shut.
    latch: AtomicU64,
    /// Counts up; odd while the cell is shut.
    gate: AtomicU64,
    words: [AtomicU64; CURVE_WORDS],
    /// The highest level from which it has fallen, or was charged, under this curve.
    highest: AtomicU64,
    /// A level to which a charge led, and from which nothing can ever be had; zero if there was none under this curve.
    beyond_reach: AtomicU64,
    kind: PhantomData<C>,
}

impl<C: Curve> PackedCurve<C> {
    /// The version, for the short way.
    #[inline]
    fn latch(&self) -> &AtomicU64 {
        if C::LATCH.is_some() { &self.latch } else { &self.gate }
    }

    /// A number of the curve.
    #[inline]
    fn word(&self, index: usize) -> u64 {
        // Relaxed: the fence before the second look at the version puts it in its place.
        self.words[index].load(Ordering::Relaxed)
    }

    fn read(&self) -> C {
        C::unpack(std::array::from_fn(|index| self.word(index)))
    }

    fn write(&self, curve: C) {
        for (word, value) in self.words.iter().zip(curve.pack()) {
            word.store(value, Ordering::Release);
        }
        self.beyond_reach.store(0, Ordering::Relaxed);
    }

    fn shut(&self) {
        self.gate.fetch_or(1, Ordering::SeqCst);
        self.latch.store(CLOSED, Ordering::SeqCst);
    }

    fn open(&self) {
        let latch = C::LATCH.map_or(0, |index| self.word(index));
        self.latch.store(latch, Ordering::SeqCst);
        if is_shut(self.gate.load(Ordering::Relaxed)) {
            self.gate.fetch_add(1, Ordering::SeqCst);
        }
    }
}

fn is_shut(gate: u64) -> bool {
    gate & 1 == 1
}

/// Lets whoever has the cache line go on for a few hundred nanoseconds. Two threads that fight for every swap get 46 million a
/// second, two that take turns 90 (`cargo xtask bench direct`, allow-2t; docs/measurements.md names the machine).
#[cold]
fn back_off() {
    for _ in 0..16 {
        std::hint::spin_loop();
    }
}

/// Whether a version is still what it was, after everything read so far.
#[inline]
fn is_still(version: &AtomicU64, seen: u64) -> bool {
    fence(Ordering::Acquire);
    version.load(Ordering::Relaxed) == seen
}

impl<C: Curve> AtomicCell<C> {
    /// The one compare-and-swap loop: offers the level to `decide` until what it answers can be written, or there is
    /// nothing to write. `None` as soon as it gives up, or `settled` says that what it decides by no longer holds. If the level
    /// is held, waits until it is not, or with `MEETS_HELD` leaves that to `decide`.
    #[inline(always)]
    #[allow(
        clippy::inline_always,
        reason = "a decision returned through memory costs 6 ns of 16; cargo xtask bench direct"
    )]
    fn update<const MEETS_HELD: bool, T>(
        &self,
        settled: impl Fn() -> bool,
        mut decide: impl FnMut(u64) -> Option<(Option<u64>, T)>,
    ) -> Option<T> {
        let mut level = self.level.0.load(Ordering::Acquire);
        loop {
            if !MEETS_HELD && level == HELD {
                level = self.level_when_let_go();
            }
            if !settled() {
                return None;
            }
            let (next, answer) = decide(level)?;
            let Some(next) = next else {
                return Some(answer);
            };
            // What `decide` read of the curve counts as read before the swap, which fails if the curve has changed.
            fence(Ordering::Acquire);
            match self.level.0.compare_exchange_weak(level, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(answer),
                Err(other) => {
                    level = other;
                    back_off();
                }
            }
        }
    }

    /// Writes `next` if the level is still this one.
    #[inline]
    fn swap(&self, level: u64, next: u64) -> bool {
        // As in `update`: what was read of the curve counts as read before, and a curve that has changed fails here.
        fence(Ordering::Acquire);
        self.level.0.compare_exchange(level, next, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// The level, once nobody holds it.
    #[cold]
    fn level_when_let_go(&self) -> u64 {
        let mut times = 0;
        loop {
            match self.level.0.load(Ordering::Acquire) {
                HELD => give_way(times),
                level => return level,
            }
            times += 1;
        }
    }

    /// The level, of which nobody is just making another.
    #[inline]
    fn level(&self) -> u64 {
        match self.level.0.load(Ordering::Acquire) {
            HELD => self.level_when_let_go(),
            level => level,
        }
    }

    /// Updates by the shortest way for a cost of one. `None` if the cell is shut, or the long way must decide. What to answer say
    /// `admit`, given the band and the start, and `refuse`, given the version, the band and the level.
    #[inline(always)]
    #[allow(
        clippy::inline_always,
        reason = "a decision returned through memory costs 6 ns of 16; cargo xtask bench direct"
    )]
    fn one<T>(
        &self,
        now: Tick,
        admit: impl Fn(Band, u64) -> Option<T>,
        refuse: impl Fn(u64, Band, u64) -> Option<T>,
    ) -> Option<T> {
        let curve = &self.curve.0;
        let version = curve.latch().load(Ordering::Acquire);
        if C::LATCH.is_none() && is_shut(version) {
            return None;
        }
        let word = |index| if C::LATCH == Some(index) { version } else { curve.word(index) };
        let band = C::band_of_one(word, now);
        self.update::<true, _>(
            || is_still(curve.latch(), version),
            |level| {
                let start = level.max(band.floor);
                if start <= band.brink {
                    return Some((Some(start.wrapping_add(band.size)), admit(band, start)?));
                }
                // A level that is held lies beyond every brink, so only a refusal needs to look for that.
                if band.floor > band.brink || level == HELD {
                    return None; // held, or no band: shut, or not for the short way
                }
                // Above the brink is above the floor; and the level is known before the greater of the two is.
                Some((None, refuse(version, band, level)?))
            },
        )
    }

    /// [`quick_allow`](Cell::quick_allow), but `None` also if the level lies `plenty` below the brink.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "as for `one`")]
    pub(super) fn quick_allow_unless(&self, now: Tick, plenty: u64) -> Option<bool> {
        self.one(now, |band, start| (band.brink - start < plenty).then_some(true), |_, _, _| Some(false))
    }

    /// Updates with any cost; `None` if the cell is shut.
    #[inline]
    pub(super) fn quick<T>(&self, decide: impl Fn(C, u64) -> (Option<u64>, T)) -> Option<T> {
        let curve = &self.curve.0;
        loop {
            let version = curve.gate.load(Ordering::Acquire);
            if is_shut(version) {
                return None;
            }
            let numbers = curve.read();
            let settled = || is_still(&curve.gate, version);
            if let Some(answer) = self.update::<false, _>(settled, |level| Some(decide(numbers, level))) {
                return Some(answer);
            }
        }
    }

    /// A level above every one that this curve ever had, if it has `level` now.
    fn above_all(&self, level: u64) -> u64 {
        level.max(self.curve.0.highest.load(Ordering::Relaxed)).saturating_add(1)
    }

    /// Notes a level that there was, if anybody may be about to swap it. One beyond reach is nobody's to swap, and if it counted,
    /// no levels would be left for later curves.
    fn fell_from(&self, level: u64) {
        let curve = &self.curve.0;
        if level != curve.beyond_reach.load(Ordering::Relaxed) {
            curve.highest.fetch_max(level, Ordering::Relaxed);
        }
    }

    /// Updates while nobody else can change the curve, shut or not.
    pub(super) fn exclusively<T>(&self, decide: impl Fn(C, u64) -> (Option<u64>, T)) -> T {
        let curve = self.curve.0.read();
        self.update::<false, _>(|| true, |level| Some(decide(curve, level))).expect("it never gives up")
    }
}

/// The level that was found, and the one to write.
#[derive(Clone, Copy, Debug)]
pub struct LevelPlan {
    level: u64,
    next: u64,
}

/// Decides, and says what to write.
#[inline(always)]
#[allow(clippy::inline_always, reason = "a gate's decisions should stay in registers as a limiter's do")]
fn prepared<C: Curve>(curve: &C, level: u64, now: Tick, ask: Ask) -> Prepared<LevelPlan> {
    let Step { change, decision } = curve.decide_level(level, now, ask);
    let taking = change.map(|next| {
        let claim = curve.claim(&next, ask.cost(), now + decision.delay());
        Taking { plan: LevelPlan { level, next }, rise: next.saturating_sub(level), claim }
    });
    Prepared { decision, taking }
}

/// Decides, and makes out the receipt.
#[inline]
fn take<C: Curve>(curve: &C, level: u64, now: Tick, ask: Ask) -> (Option<u64>, Taken) {
    let Step { change, decision } = curve.decide_level(level, now, ask);
    let act = now + decision.delay();
    let claim = change.map(|level| curve.claim(&level, ask.cost(), act));
    (change, Taken { decision, claim })
}

impl<C> Cell<C> for AtomicCell<C>
where
    C: Curve + Held + Algorithm<State = u64, Change = u64>,
{
    type Plan = LevelPlan;

    fn new(curve: C) -> Self {
        let words = curve.pack().map(AtomicU64::new);
        let (latch, gate) = (AtomicU64::new(CLOSED), AtomicU64::new(0));
        let (highest, beyond_reach) = (AtomicU64::new(0), AtomicU64::new(0));
        let curve = PackedCurve { latch, gate, words, highest, beyond_reach, kind: PhantomData };
        curve.open();
        Self { level: Lines(AtomicU64::new(0)), curve: Lines(curve) }
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "as for `one`")]
    fn quick_allow(&self, now: Tick) -> Option<bool> {
        self.one(now, |_, _| Some(true), |_, _, _| Some(false))
    }

    #[inline(always)]
    #[allow(
        clippy::inline_always,
        reason = "a decision returned through memory costs 6 ns of 16; cargo xtask bench direct"
    )]
    fn quick_check_one(&self, now: Tick) -> Option<Decision> {
        let word = |index| self.curve.0.word(index);
        let admit = |band, start| Some(C::admit_one(word, band, start, now));
        self.one(now, admit, |version, band, level| {
            C::refuse_one(word, band, level, now).filter(|_| is_still(self.curve.0.latch(), version))
        })
    }

    fn quick_check(&self, now: Tick, cost: u64) -> Option<Decision> {
        self.quick(|curve, level| {
            let step = curve.decide_level(level, now, Ask::within(cost, Curve::patience(&curve)));
            (step.change, step.decision)
        })
    }

    fn quick_peek(&self, now: Tick, ask: Ask) -> Option<Decision> {
        self.quick(|curve, level| (None, curve.decide_level(level, now, ask).decision))
    }

    #[inline]
    fn quick_take(&self, now: Tick, ask: Ask) -> Option<Taken> {
        self.quick(|curve, level| take(&curve, level, now, ask))
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "as for `prepared`")]
    fn quick_prepare(&self, now: Tick, ask: Ask) -> Option<Prepared<LevelPlan>> {
        self.quick(|curve, level| (None, prepared(&curve, level, now, ask)))
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a gate's decisions should stay in registers as a limiter's do")]
    fn quick_one(&self, now: Tick) -> Option<One> {
        let curve = &self.curve.0;
        let version = curve.latch().load(Ordering::Acquire);
        if C::LATCH.is_none() && is_shut(version) {
            return None;
        }
        let word = |index| if C::LATCH == Some(index) { version } else { curve.word(index) };
        let band = C::band_of_one(word, now);
        let level = self.level.0.load(Ordering::Acquire);
        if level == HELD || !is_still(curve.latch(), version) {
            return None;
        }
        let start = level.max(band.floor);
        if start <= band.brink {
            // If the curve has changed since, so has the level, and it cannot be held.
            let decision = C::admit_one(word, band, start, now);
            return Some(One { decision, plan: LevelPlan { level, next: start + band.size } });
        }
        if band.floor > band.brink {
            return None; // no band: shut, or not for the short way
        }
        let decision = C::refuse_one(word, band, level, now).filter(|_| is_still(curve.latch(), version))?;
        Some(One { decision, plan: LevelPlan { level, next: level } })
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a gate's decisions should stay in registers as a limiter's do")]
    fn hold_one(&self, plan: &LevelPlan) -> bool {
        self.hold(plan)
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a gate's decisions should stay in registers as a limiter's do")]
    fn commit_one(&self, plan: &LevelPlan) {
        self.level.0.store(plan.next, Ordering::Release);
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a gate's decisions should stay in registers as a limiter's do")]
    fn let_go_one(&self, plan: &LevelPlan) {
        self.let_go(plan);
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a gate's decisions should stay in registers as a limiter's do")]
    fn take_one(&self, plan: &LevelPlan) -> bool {
        self.swap(plan.level, plan.next)
    }

    fn prepare(&self, now: Tick, ask: Ask) -> Prepared<LevelPlan> {
        self.exclusively(|curve, level| (None, prepared(&curve, level, now, ask)))
    }

    #[inline]
    fn hold(&self, plan: &LevelPlan) -> bool {
        self.swap(plan.level, HELD)
    }

    #[inline]
    fn commit(&self, plan: LevelPlan) {
        self.level.0.store(plan.next, Ordering::Release);
    }

    #[inline]
    fn let_go(&self, plan: &LevelPlan) {
        self.level.0.store(plan.level, Ordering::Release);
    }

    fn take(&self, now: Tick, ask: Ask) -> Taken {
        self.exclusively(|curve, level| take(&curve, level, now, ask))
    }

    fn shut(&self) {
        self.curve.0.shut();
    }

    fn open(&self) {
        self.curve.0.open();
    }

    fn algorithm(&self) -> C {
        self.curve.0.read()
    }

    fn put(&self, level: u64) {
        let before = self.exclusively(|_, before| (Some(level), before));
        self.fell_from(before);
    }

    fn snapshot(&self) -> (C, u64) {
        (self.curve.0.read(), self.level())
    }

    fn give_back(&self, back: GiveBack, now: impl Fn() -> Tick) -> Option<Fall> {
        let (level, fall) = self.exclusively(|curve, level| {
            let next = curve.returned(level, back, now());
            let fall = next.map(|next| Fall {
                by: curve.fall(&level, &next),
                was_last: curve.is_last(&level, &back.claim),
            });
            (next, fall.map(|fall| (level, fall)))
        })?;
        self.fell_from(level);
        Some(fall)
    }

    fn undo(&self, claim: Claim, rise: u64) -> bool {
        let undone = self.exclusively(|_, level| {
            let next = level.checked_sub(rise).filter(|_| level == claim.mark);
            (next, next.is_some())
        });
        if undone {
            self.fell_from(claim.mark);
        }
        undone
    }

    /// Lifts the curve instead of lowering the level: a level that fell below those of the new curve could be one of the
    /// old, and whoever still holds that might swap it.
    fn give_back_carried(&self, back: GiveBack, now: impl Fn() -> Tick) -> bool {
        self.shut();
        let lifted = self.exclusively(|curve, level| match curve.returned(level, back, now()) {
            // Above every level there was, so that whoever read one of those fails to swap it.
            Some(next) => {
                let (lifted, by) = curve.lifted(self.above_all(level) - next);
                (Some(next.saturating_add(by)), Some(lifted))
            }
            None => (None, None),
        });
        if let Some(curve) = lifted {
            self.curve.0.write(curve);
        }
        lifted.is_some()
    }

    fn holds_all(&self, claim: Claim, now: Tick) -> bool {
        let (curve, level) = self.snapshot();
        let next = curve.returned(level, GiveBack { claim, amount: claim.cost, ahead: now }, now);
        let size = curve.unit().checked_mul(claim.cost);
        let restored = size.is_none_or(|size| claim.mark < curve.floor(now).saturating_add(size));
        !restored && next.is_some_and(|next| Some(level - next) == size)
    }

    fn standing(&self, now: Tick) -> Option<Standing> {
        let (curve, level) = self.snapshot();
        let above = level.saturating_sub(curve.floor(now));
        Some(Standing { level, above, unit: curve.unit(), limit: curve.limit() })
    }

    fn charge(&self, extra: u64, now: Tick) {
        let (before, beyond_reach) = self.exclusively(|curve, level| {
            let next = curve.charge(&level, extra, now);
            let is_beyond = |next: &u64| curve.opening(*next, Tick::ZERO, 1).is_none();
            (next, (level, next.filter(is_beyond)))
        });
        self.fell_from(before);
        if let Some(level) = beyond_reach {
            self.curve.0.beyond_reach.store(level, Ordering::Relaxed);
        }
    }

    fn retune(&self, now: Tick, quota: Quota) -> Retuned<C> {
        self.shut();
        let retuned = self.exclusively(|curve, level| {
            let (new, next) = curve.retuned(level, now, quota);
            let (new, by) = match self.above_all(level).checked_sub(next) {
                Some(missing @ 1..) => new.lifted(missing),
                _ => (new, 0),
            };
            let next = next.saturating_add(by);
            (Some(next), Retuned { now, old: (curve, level), new: (new, next) })
        });
        self.curve.0.write(retuned.new.0);
        self.curve.0.highest.store(0, Ordering::Relaxed);
        retuned
    }
}
