//! States that are one word, without a lock.
//!
//! The level lies alone on its cache lines; the numbers of the curve lie on others that are only read, except when the
//! quota changes or somebody starts or stops waiting. A caller
//!
//! 1. reads the level;
//! 2. reads the gate, and leaves if it is shut (for a cost of one the curve's *latch* does both: it is a number of
//!    the curve, and a value that admits nothing while the gate is shut);
//! 3. reads the numbers, and decides;
//! 4. swaps the level, if it is still the one it read; or, if it takes nothing, sees that it still is.
//!
//! Why a caller can never mix two curves. `retune` shuts the gate, swaps the level for one above every level the old curve
//! ever had, writes the numbers, and only then is the gate opened. Whoever read a level of the new curve in step 1 finds the
//! gate shut, or open and all the new numbers behind it. Whoever read a level of the old curve and any number of the
//! new one comes to step 4 after the level was swapped, and the old level never comes back.

use std::marker::PhantomData;

use tollgate_core::{
    Algorithm, Ask, Band, CLOSED, CURVE_WORDS, Claim, Curve, Decision, GiveBack, Quota, Step, Tick,
};

use super::{Cell, Held, Retuned, Taken};
use crate::sync::{AtomicU64, Ordering, fence};

/// A cell for algorithms whose state is one word: lock-free, and a refusal writes nothing.
#[derive(Debug)]
pub struct AtomicCell<C> {
    level: Lines<AtomicU64>,
    curve: Lines<PackedCurve<C>>,
}

/// Keeps its content off everybody else's cache lines: two of 64 bytes, because processors fetch them in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Lines<T>(T);

#[derive(Debug)]
struct PackedCurve<C> {
    /// The curve's latch while the gate is open, [`CLOSED`] while it is shut.
    latch: AtomicU64,
    gate: AtomicU64,
    words: [AtomicU64; CURVE_WORDS],
    kind: PhantomData<C>,
}

const OPEN: u64 = 0;
const SHUT: u64 = 1;

impl<C: Curve> PackedCurve<C> {
    /// A number of the curve, for the short way.
    #[inline]
    fn word(&self, index: usize) -> u64 {
        if C::LATCH == Some(index) {
            return self.latch.load(Ordering::Acquire);
        }
        // Relaxed: the fence before step 4 puts it in its place.
        self.words[index].load(Ordering::Relaxed)
    }

    fn is_shut(&self) -> bool {
        self.gate.load(Ordering::Acquire) == SHUT
    }

    fn read(&self) -> C {
        C::unpack(std::array::from_fn(|index| self.words[index].load(Ordering::Relaxed)))
    }

    fn write(&self, curve: C) {
        for (word, value) in self.words.iter().zip(curve.pack()) {
            word.store(value, Ordering::Release);
        }
    }

    fn shut(&self) {
        self.latch.store(CLOSED, Ordering::SeqCst);
        self.gate.store(SHUT, Ordering::SeqCst);
    }

    fn open(&self) {
        let latch = C::LATCH.map_or(0, |index| self.words[index].load(Ordering::Relaxed));
        self.gate.store(OPEN, Ordering::SeqCst);
        self.latch.store(latch, Ordering::SeqCst);
    }
}

impl<C: Curve> AtomicCell<C> {
    /// The one compare-and-swap loop: offers the level to `decide` until what it answers can be written, or it writes
    /// nothing and the level has not changed meanwhile. `None` as soon as `decide` gives up.
    #[inline]
    fn update<T>(&self, mut decide: impl FnMut(u64) -> Option<(Option<u64>, T)>) -> Option<T> {
        let mut level = self.level.0.load(Ordering::Acquire);
        loop {
            let (next, answer) = decide(level)?;
            // Everything read of the curve counts as read before what follows.
            fence(Ordering::Acquire);
            let seen = match next {
                Some(next) => {
                    match self.level.0.compare_exchange_weak(level, next, Ordering::AcqRel, Ordering::Acquire)
                    {
                        Ok(_) => return Some(answer),
                        Err(other) => other,
                    }
                }
                None => self.level.0.load(Ordering::Acquire),
            };
            if next.is_none() && seen == level {
                return Some(answer);
            }
            level = seen;
        }
    }

    /// The band for a cost of one, by the shortest way there is. Empty if the gate is shut or the long way must decide.
    #[inline]
    fn band_of_one(&self, now: Tick) -> Band {
        let curve = &self.curve.0;
        if C::LATCH.is_none() && curve.is_shut() {
            return Band { floor: 1, brink: 0, size: 0 };
        }
        C::band_of_one(|index| curve.word(index), now)
    }

    /// Updates with any cost; `None` if the gate is shut.
    #[inline]
    fn quick<T>(&self, decide: impl Fn(C, u64) -> (Option<u64>, T)) -> Option<T> {
        self.update(|level| (!self.curve.0.is_shut()).then(|| decide(self.curve.0.read(), level)))
    }

    /// Updates while nobody else can change the curve, shut or not.
    fn exclusively<T>(&self, decide: impl Fn(C, u64) -> (Option<u64>, T)) -> T {
        let curve = self.curve.0.read();
        self.update(|level| Some(decide(curve, level))).expect("it never gives up")
    }
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
    fn new(curve: C) -> Self {
        let words = curve.pack().map(AtomicU64::new);
        let (latch, gate) = (AtomicU64::new(CLOSED), AtomicU64::new(SHUT));
        let curve = PackedCurve { latch, gate, words, kind: PhantomData };
        curve.open();
        Self { level: Lines(AtomicU64::new(0)), curve: Lines(curve) }
    }

    #[inline]
    fn quick_allow(&self, now: Tick) -> Option<bool> {
        self.update(|level| {
            let band = self.band_of_one(now);
            let start = level.max(band.floor);
            if start <= band.brink {
                return Some((Some(start.wrapping_add(band.size)), true));
            }
            (band.floor <= band.brink).then_some((None, false))
        })
    }

    #[inline]
    fn quick_check_one(&self, now: Tick) -> Option<Decision> {
        let word = |index| self.curve.0.word(index);
        self.update(|level| {
            let band = self.band_of_one(now);
            let start = level.max(band.floor);
            if start <= band.brink {
                return Some((Some(start.wrapping_add(band.size)), C::admit_one(word, band, start, now)));
            }
            if band.floor > band.brink {
                return None;
            }
            C::refuse_one(word, band, start, now).map(|decision| (None, decision))
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

    fn snapshot(&self) -> (C, u64) {
        (self.curve.0.read(), self.level.0.load(Ordering::Acquire))
    }

    fn give_back(&self, back: GiveBack, now: Tick) -> Option<u64> {
        self.exclusively(|curve, level| {
            let next = curve.returned(level, back, now);
            (next, next.map(|next| level - next))
        })
    }

    /// Lifts the curve instead of lowering the level: a level that fell below those of the new curve could be one of the
    /// old, and whoever still holds that might swap it.
    fn give_back_carried(&self, back: GiveBack, now: Tick) -> bool {
        self.shut();
        let lifted = self.exclusively(|curve, level| match curve.returned(level, back, now) {
            // One up for both, so that whoever read the level before fails to swap it.
            Some(next) => (Some(level + 1), Some(curve.lifted(level - next + 1))),
            None => (None, None),
        });
        if let Some(curve) = lifted {
            self.curve.0.write(curve);
        }
        lifted.is_some()
    }

    fn holds_all(&self, claim: Claim, now: Tick) -> bool {
        let (curve, level) = self.snapshot();
        let next = curve.returned(level, GiveBack { claim, amount: claim.cost }, now);
        next.is_some_and(|next| Some(level - next) == curve.unit().checked_mul(claim.cost))
    }

    fn charge(&self, extra: u64, now: Tick) {
        self.exclusively(|curve, level| (curve.charge(&level, extra, now), ()));
    }

    fn retune(&self, now: Tick, quota: Quota) -> Retuned<C> {
        self.shut();
        let retuned = self.exclusively(|curve, level| {
            let (new, next) = curve.retuned(level, now, quota);
            (Some(next), Retuned { now, old: (curve, level), new: (new, next) })
        });
        self.curve.0.write(retuned.new.0);
        retuned
    }
}
