//! What an algorithm's twin in the script is told, and what follows from its answer.
//!
//! The script keeps the state and decides; it tells a few whole numbers, from which the limit, what is left, and all times are
//! worked out here. Everything is counted in *ticks* of a microsecond and in units that are whole numbers below 2^53, where a
//! double is exact. So script and [core](tollgate::Algorithm) give the same answers, with times rounded up to the tick.
//!
//! Where that is not possible, because a bucket of a long period holds too many units, time comes in steps of more than a
//! microsecond, the rate is rounded down by less than one part in a million, and the burst by one in a billion, but at least one. What
//! is admitted is never more than the limit admits. (A leaky bucket stays exact, and holds less.)

mod level;
mod log;

use std::time::Duration;

use tollgate::store::Rule;
use tollgate::{Decision, Kind, Quota, Verdict};

use crate::script;

/// The largest number of units, counts or ticks: 2^52, so that sums of two are exact doubles.
pub(crate) const MOST: u64 = 1 << 52;
/// Stands for "no wait will help", and for a state that never pays off.
const NEVER: u64 = u64::MAX;

/// A quota, as the script is told about it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Twin {
    kind: Kind,
    pub(crate) code: u8,
    /// The most that can be had at once.
    pub(crate) limit: u64,
    /// Units that a tick of the algorithm gives.
    rate: u64,
    /// Units in full.
    depth: u64,
    /// Units of one.
    unit: u64,
    /// Microseconds of a tick of the algorithm.
    period: u64,
    /// What may be owed already, for a queue; parts, for sub-windows.
    extra: u64,
}

/// What the script told about one tier.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct View {
    /// The server's clock, in microseconds.
    pub(crate) now: i64,
    pub(crate) fits: bool,
    /// What the algorithm tells of its state.
    pub(crate) told: [f64; 3],
    pub(crate) born: f64,
    pub(crate) fallen: f64,
}

/// Where an admission left the state: what the script needs to give it back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Mark {
    at: f64,
    owed: f64,
    fallen: f64,
    born: f64,
}

impl Twin {
    /// The twin of one of a rule's quotas; `None` if it is unlimited, and nobody need be asked.
    pub(crate) fn of(rule: &Rule, quota: Quota) -> Option<Self> {
        let code = script::code_of(rule.kind())?;
        if quota.is_unlimited() {
            return None;
        }
        let new = Self { kind: rule.kind(), code, limit: 0, rate: 0, depth: 0, unit: 1, period: 1, extra: 0 };
        Some(match rule.kind() {
            Kind::TokenBucket | Kind::LeakyBucket | Kind::LeakyQueue => new.bucket(quota),
            Kind::SubWindows => new.parts(quota, rule.parts()),
            _ => new.window(quota),
        })
    }

    /// Windows and logs: as many as the count in each, and the period rounded up to whole microseconds. Nobody waits for 142
    /// years, and a longer period counts as that.
    fn window(self, quota: Quota) -> Self {
        let count = quota.count().min(MOST);
        let period = micros(quota).clamp(1, MOST);
        let unit = if self.kind == Kind::PacedWindow { common_divisor(count, period) } else { 1 };
        Self { limit: count, rate: count, depth: count, unit, period, ..self }
    }

    fn parts(self, quota: Quota, parts: u32) -> Self {
        let part = micros(quota).div_ceil(u64::from(parts.max(1)));
        Self { period: part.clamp(1, MOST), extra: parts.into(), ..self.window(quota) }
    }

    /// What a tier's numbers are, as the script reads them. `patient` is for one that comes alone, and may be delayed.
    #[allow(clippy::cast_precision_loss, reason = "all are below 2^53, but for costs that never fit anyway")]
    pub(crate) fn numbers(&self, cost: u64, patient: bool) -> [f64; 7] {
        let extra = if self.kind == Kind::LeakyQueue && !patient { 0 } else { self.extra };
        let [rate, depth, unit, period, extra] =
            [self.rate, self.depth, self.unit, self.period, extra].map(|number| number as f64);
        [f64::from(self.code), self.size(cost) as f64, rate, depth, unit, period, extra]
    }

    /// A cost in units; so large that it never fits if it is above the limit.
    pub(crate) fn size(&self, cost: u64) -> u64 {
        let unit = if self.is_bucket() { self.unit } else { 1 };
        cost.saturating_mul(unit).min(1 << 60)
    }

    /// Whether some of it can be lent: what is spaced evenly, or told apart by when it was used, must be asked for each time.
    pub(crate) fn is_leasable(&self) -> bool {
        matches!(self.kind, Kind::TokenBucket | Kind::FixedWindow)
    }

    /// How many fit in so many units.
    pub(crate) fn count(&self, units: f64) -> u64 {
        units as u64 / self.size(1).max(1)
    }

    /// How long it takes until so much has been restored; no time where that does not happen little by little.
    pub(crate) fn restored(&self, count: u64) -> Duration {
        if self.kind != Kind::TokenBucket || self.rate == 0 {
            return Duration::ZERO;
        }
        Duration::from_micros((self.size(count) / self.rate).saturating_mul(self.period))
    }

    fn is_bucket(&self) -> bool {
        matches!(self.kind, Kind::TokenBucket | Kind::LeakyBucket | Kind::LeakyQueue)
    }

    /// The decision about `cost` that follows from what the script saw before it took anything.
    pub(crate) fn decision(&self, view: &View, cost: u64, patient: bool) -> Decision {
        if cost == 0 {
            return self.facts(view);
        }
        let before = self.standing(view, 0);
        if view.fits {
            let (after, delay) = (self.standing(view, cost), self.delay(view));
            let verdict = if delay == 0 { Verdict::Allow } else { Verdict::Delay };
            return after.decision(verdict, self.limit, delay);
        }
        // At the least one tick: the script refused now.
        let wait = if cost > self.limit { NEVER } else { self.wait(view, cost, patient).max(1) };
        before.decision(Verdict::Deny, self.limit, wait)
    }

    /// How things stand.
    pub(crate) fn facts(&self, view: &View) -> Decision {
        self.standing(view, 0).decision(Verdict::Allow, self.limit, 0)
    }

    /// Where an admission of `cost` left the state.
    #[allow(clippy::cast_precision_loss, reason = "below 2^53")]
    pub(crate) fn mark(&self, view: &View, cost: u64) -> Mark {
        let [first, second, _] = view.told;
        let (at, owed) = match self.kind {
            Kind::SlidingLog => (second.max(view.now as f64), 0.0),
            Kind::SlidingCounter => (first, 0.0),
            // What is out on lease is told as owed, but is not yet.
            _ => (self.tick(view.now) as f64, first - second + self.size(cost) as f64),
        };
        Mark { at, owed, fallen: view.fallen, born: view.born }
    }

    /// What is left and when the state is fresh, after `cost` more was taken.
    fn standing(&self, view: &View, cost: u64) -> Standing {
        match self.kind {
            Kind::SlidingLog => self.log_standing(view, cost),
            Kind::SlidingCounter => self.counter_standing(view, cost),
            Kind::SubWindows => self.parts_standing(view, cost),
            _ => self.level_standing(view, cost),
        }
    }

    /// Microseconds until `cost` fits.
    fn wait(&self, view: &View, cost: u64, patient: bool) -> u64 {
        match self.kind {
            Kind::SlidingLog => until(whole(view.told[2]), view.now),
            Kind::SlidingCounter => self.counter_wait(view, cost),
            Kind::SubWindows => until(self.begin(whole(view.told[2])), view.now),
            _ => self.level_wait(view, cost, patient),
        }
    }

    /// The algorithm's own tick at a moment.
    fn tick(&self, now: i64) -> i128 {
        i128::from(now).div_euclid(self.period.into())
    }

    /// When one of the algorithm's ticks begins.
    fn begin(&self, tick: i128) -> i128 {
        tick * i128::from(self.period)
    }
}

impl Mark {
    /// As the script reads it.
    pub(crate) fn numbers(&self) -> [f64; 4] {
        [self.at, self.owed, self.fallen, self.born]
    }
}

/// How a state stands: what is left, and in how many microseconds it is fresh.
struct Standing {
    remaining: u64,
    reset: u64,
}

impl Standing {
    fn decision(&self, verdict: Verdict, limit: u64, wait: u64) -> Decision {
        Decision::new(verdict, limit, self.remaining, nanos(wait), nanos(self.reset))
    }
}

fn nanos(micros: u64) -> u64 {
    micros.saturating_mul(1_000)
}

/// The period in whole microseconds, rounded up.
fn micros(quota: Quota) -> u64 {
    u64::try_from(quota.period().as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX)
}

/// A number of the script, which are all whole.
fn whole(number: f64) -> i128 {
    number as i128
}

/// Microseconds from `now` to a moment; zero if that is over.
fn until(moment: i128, now: i64) -> u64 {
    let wait = moment - i128::from(now);
    u64::try_from(wait.max(0)).unwrap_or(NEVER)
}

/// A number that is not negative, for a caller.
fn clipped(number: i128) -> u64 {
    u64::try_from(number.max(0)).unwrap_or(u64::MAX)
}

fn common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a.max(1) } else { common_divisor(b, a % b) }
}
