//! States that are one word, without a lock.
//!
//! The level lies alone on its cache line; the numbers of the curve lie on another that is only read, except when the
//! quota changes. `version` guards the numbers: it is even and constant while they are, odd while the cell is
//! shut, and never takes the same value twice. A caller
//!
//! 1. reads the version, and leaves if it is odd;
//! 2. reads the numbers, then the level, and decides;
//! 3. reads the version again, and starts over if it changed;
//! 4. swaps the level, if it is still the one it decided on.
//!
//! Why a caller can never write a level of the old curve into the new one: `retune` first shuts the cell, then swaps the level
//! for one above every level the old curve ever had, then writes the numbers. A caller that read the new level
//! also sees the new version in step 3, because the level is written after the version; one that read the old level
//! fails in step 4, because the old level never comes back.

use std::marker::PhantomData;

use tollgate_core::{Algorithm, Ask, CURVE_WORDS, Curve, Decision, GiveBack, Quota, Step, Tick};

use super::{Cell, Held, Retuned, Taken};
use crate::sync::{AtomicU64, Ordering, fence};

/// A cell for algorithms whose state is one word: lock-free, and a refusal writes nothing.
#[derive(Debug)]
#[repr(align(128))]
pub struct AtomicCell<C> {
    level: Line<AtomicU64>,
    curve: Line<PackedCurve<C>>,
}

/// Keeps its content off everybody else's cache lines. Two lines of 64 bytes, because processors fetch them in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Line<T>(T);

#[derive(Debug)]
struct PackedCurve<C> {
    version: AtomicU64,
    words: [AtomicU64; CURVE_WORDS],
    kind: PhantomData<C>,
}

/// The version's lowest bit: the cell is shut.
const SHUT: u64 = 1;

impl<C: Curve> PackedCurve<C> {
    #[inline]
    fn read(&self) -> C {
        // Relaxed: the version, read before and after, says whether they belong together.
        C::unpack(std::array::from_fn(|index| self.words[index].load(Ordering::Relaxed)))
    }

    /// Whether the version is still `version`, after everything read so far.
    #[inline]
    fn is_still(&self, version: u64) -> bool {
        fence(Ordering::Acquire);
        self.version.load(Ordering::Relaxed) == version
    }

    fn write(&self, curve: C) {
        for (word, value) in self.words.iter().zip(curve.pack()) {
            word.store(value, Ordering::Release);
        }
    }
}

impl<C: Curve> AtomicCell<C> {
    /// The one compare-and-swap loop: offers the level to `decide` until what it answers can be written, or there is
    /// nothing to write. `None` if `settled` says that the answer no longer counts.
    #[inline]
    fn update<T>(
        &self,
        mut decide: impl FnMut(u64) -> (Option<u64>, T),
        settled: impl Fn() -> bool,
    ) -> Option<T> {
        let mut level = self.level.0.load(Ordering::Acquire);
        loop {
            let (next, answer) = decide(level);
            if !settled() {
                return None;
            }
            let Some(next) = next else {
                return Some(answer);
            };
            match self.level.0.compare_exchange_weak(level, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(answer),
                Err(other) => level = other,
            }
        }
    }

    /// Updates under a curve that does not change meanwhile; `None` if the cell is shut. `prepare` does what does not
    /// depend on the level, so that little lies between reading and swapping it.
    #[inline]
    fn quick<D, T>(&self, prepare: impl Fn(C) -> D) -> Option<T>
    where
        D: FnMut(u64) -> (Option<u64>, T),
    {
        loop {
            let version = self.curve.0.version.load(Ordering::Acquire);
            if version & SHUT != 0 {
                return None;
            }
            let decide = prepare(self.curve.0.read());
            if let Some(answer) = self.update(decide, || self.curve.0.is_still(version)) {
                return Some(answer);
            }
        }
    }

    /// Updates while nobody else can change the curve.
    fn exclusively<T>(&self, decide: impl FnMut(C, u64) -> (Option<u64>, T)) -> T {
        let (curve, mut decide) = (self.curve.0.read(), decide);
        let answer = self.update(|level| decide(curve, level), || true);
        answer.expect("an update that is always settled always answers")
    }
}

#[inline]
fn taken<C: Curve>(curve: &C, step: Step<u64>, now: Tick, ask: Ask) -> (Option<u64>, Taken) {
    let act = now + step.decision.delay();
    let claim = step.change.map(|level| curve.claim(&level, ask.cost(), act));
    (step.change, Taken { decision: step.decision, claim })
}

impl<C> Cell<C> for AtomicCell<C>
where
    C: Curve + Held + Algorithm<State = u64, Change = u64>,
{
    fn new(curve: C) -> Self {
        let words = curve.pack().map(AtomicU64::new);
        let curve = PackedCurve { version: AtomicU64::new(0), words, kind: PhantomData };
        Self { level: Line(AtomicU64::new(0)), curve: Line(curve) }
    }

    #[inline]
    fn quick_allow(&self, now: Tick) -> Option<bool> {
        let answer = self.quick(|curve| {
            let band = curve.band_of_one(now);
            move |level| {
                let start = level.max(band.floor);
                let allowed = start <= band.brink;
                // A brink below the floor: this curve has no band for one, and the long way must answer.
                (allowed.then_some(start + band.size), (allowed, band.brink < band.floor))
            }
        });
        match answer {
            Some((false, true)) => self.quick_take(now, Ask::now(1)).map(|taken| taken.decision.is_allowed()),
            Some((allowed, _)) => Some(allowed),
            None => None,
        }
    }

    #[inline]
    fn quick_check(&self, now: Tick, cost: u64) -> Option<Decision> {
        self.quick(|curve| {
            let ask = Ask::within(cost, Curve::patience(&curve));
            move |level| {
                let step = curve.decide_level(level, now, ask);
                (step.change, step.decision)
            }
        })
    }

    fn quick_peek(&self, now: Tick, ask: Ask) -> Option<Decision> {
        self.quick(|curve| move |level| (None, curve.decide_level(level, now, ask).decision))
    }

    #[inline]
    fn quick_take(&self, now: Tick, ask: Ask) -> Option<Taken> {
        self.quick(|curve| move |level| taken(&curve, curve.decide_level(level, now, ask), now, ask))
    }

    fn take(&self, now: Tick, ask: Ask) -> Taken {
        self.exclusively(|curve, level| taken(&curve, curve.decide_level(level, now, ask), now, ask))
    }

    fn shut(&self) {
        self.curve.0.version.fetch_or(SHUT, Ordering::SeqCst);
    }

    fn open(&self) {
        // From odd to the next even number: a version never comes back.
        if self.curve.0.version.load(Ordering::Relaxed) & SHUT != 0 {
            self.curve.0.version.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn algorithm(&self) -> C {
        self.curve.0.read()
    }

    fn snapshot(&self) -> (C, u64) {
        (self.curve.0.read(), self.level.0.load(Ordering::Acquire))
    }

    fn give_back(&self, back: GiveBack, now: Tick) -> bool {
        self.exclusively(|curve, level| {
            let next = curve.returned(level, back, now);
            (next, next.is_some())
        })
    }

    fn charge(&self, extra: u64, now: Tick) {
        self.exclusively(|curve, level| (curve.charge(&level, extra, now), ()));
    }

    fn retune(&self, now: Tick, quota: Quota) -> Retuned<C> {
        self.shut();
        let retuned = self.exclusively(|curve, level| {
            let (new, next) = curve.retuned(level, now, quota);
            (Some(next), Retuned { old: (curve, level), new: (new, next) })
        });
        self.curve.0.write(retuned.new.0);
        retuned
    }
}
