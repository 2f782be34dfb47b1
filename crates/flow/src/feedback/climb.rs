//! How the rate grows: before the first refusal, and again after each.

use std::time::Duration;

use tollgate::Tick;

/// What a climb is told at each success.
#[derive(Clone, Copy, Debug)]
pub(super) struct Foothold {
    pub(super) now: Tick,
    pub(super) rate: f64,
    /// The time in which a rate may double.
    pub(super) round: Duration,
    /// The most that unproven growth may reach.
    pub(super) cap: f64,
}

/// What made the rate go down.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fall {
    /// The rate at which it happened, and the one that it fell to.
    pub(super) from: f64,
    pub(super) to: f64,
    /// Whether things went well for a while before: then the limit is about there. Else it is somewhere below.
    pub(super) is_calm: bool,
    /// How long nothing may be sent.
    pub(super) hold: Duration,
    /// When that ends.
    pub(super) until: Tick,
}

/// Twice as much each round, until the first refusal.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SlowStart {
    doubled: Option<Tick>,
}

impl SlowStart {
    pub(super) fn step(&mut self, foothold: Foothold) -> f64 {
        let Foothold { now, rate, round, cap } = foothold;
        if now.since(*self.doubled.get_or_insert(now)) < round {
            return rate;
        }
        self.doubled = Some(now);
        (2.0 * rate).min(cap)
    }
}

/// The way back up.
#[derive(Clone, Debug)]
pub(super) enum Climb {
    Linear(Linear),
    Cubic(Cubic),
}

impl Climb {
    pub(super) fn fall(&mut self, fall: Fall) {
        match self {
            Self::Linear(linear) => linear.fall(fall),
            Self::Cubic(cubic) => cubic.fall(fall),
        }
    }

    pub(super) fn step(&mut self, foothold: Foothold) -> f64 {
        match self {
            Self::Linear(linear) => linear.step(foothold),
            Self::Cubic(cubic) => cubic.step(foothold),
        }
    }
}

/// Evenly, with a rest just below where the limit was met last.
#[derive(Clone, Debug, Default)]
pub(super) struct Linear {
    /// Where it fell from; where it fell several times in a row, from where it fell first.
    top: f64,
    /// Where the limit was met, if it is about there.
    ceiling: Option<f64>,
    /// Where it was met the last time that this was known.
    known: Option<f64>,
    resting_since: Option<Tick>,
    patience: Duration,
    stepped: Tick,
}

/// Growth per second: 5 % of the top, at least one.
const SLOPE: f64 = 0.05;
const LEAST_SLOPE: f64 = 1.0;
/// Where to rest, as a share of the ceiling.
const BRIM: f64 = 0.97;
/// Two ceilings that differ by less than this factor are the same one.
const SAME: f64 = 1.25;
/// How long to rest: at first, and at most.
const PATIENCE: Duration = Duration::from_secs(2);
const MOST_PATIENCE: Duration = Duration::from_secs(60);
/// Rests are so many times as long as the hold that the next attempt will cost, which is then 5 % of the time.
const HOLDS: u32 = 20;
/// A step longer than this is no proof that all went well for so long.
const LONGEST_STEP: Duration = Duration::from_secs(1);

impl Linear {
    fn fall(&mut self, fall: Fall) {
        let is_same = self.known.is_some_and(|known| fall.from < known * SAME && fall.from > known / SAME);
        self.patience = if fall.is_calm && is_same {
            let patience = self.patience.saturating_mul(2).max(fall.hold.saturating_mul(HOLDS));
            patience.min(MOST_PATIENCE)
        } else {
            PATIENCE
        };
        self.ceiling = fall.is_calm.then_some(fall.from);
        self.known = self.ceiling.or(self.known);
        self.top = if fall.is_calm { fall.from } else { self.top.max(fall.from) };
        (self.resting_since, self.stepped) = (None, fall.until);
    }

    fn step(&mut self, foothold: Foothold) -> f64 {
        let Foothold { now, rate, round, cap } = foothold;
        let passed = now.since(self.stepped).min(LONGEST_STEP).as_secs_f64();
        self.stepped = self.stepped.max(now);
        match self.ceiling.map(|ceiling| BRIM * ceiling) {
            // It went well up to there before.
            Some(brim) if rate < brim => (rate * (passed / round.as_secs_f64()).exp2()).min(brim),
            Some(_) if now.since(*self.resting_since.get_or_insert(now)) < self.patience => rate,
            _ => (rate + (SLOPE * self.top).max(LEAST_SLOPE) * passed).min(cap),
        }
    }
}

/// Quickly at first, slowly around where it fell from, then ever more quickly: `0.4 (t - K)³ + top`, where K is such that
/// it begins where it fell to.
#[derive(Clone, Debug, Default)]
pub(super) struct Cubic {
    top: f64,
    k: f64,
    since: Tick,
}

const SCALE: f64 = 0.4;

impl Cubic {
    fn fall(&mut self, fall: Fall) {
        *self = Self { top: fall.from, k: ((fall.from - fall.to) / SCALE).cbrt(), since: fall.until };
    }

    fn step(&self, foothold: Foothold) -> f64 {
        let passed = foothold.now.since(self.since).as_secs_f64();
        (SCALE * (passed - self.k).powi(3) + self.top).min(foothold.cap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn fall(from: f64, is_calm: bool, hold: Duration) -> Fall {
        Fall { from, to: 0.7 * from, is_calm, hold, until: Tick::ZERO + hold }
    }

    #[test]
    fn rests_get_longer_where_the_limit_is_met_again() {
        let mut linear = Linear::default();
        let cases = [
            (100.0, true, 0, 2),
            (110.0, true, 0, 4),
            (95.0, true, 0, 8),
            (95.0, true, 1, 20),
            (95.0, true, 1, 40),
            (95.0, true, 1, 60),
            (95.0, true, 1, 60),
            (118.0, true, 1, 60), // below 1.25 · 95 = 118.75
            (94.0, true, 1, 2),   // below 118 / 1.25 = 94.4
            (94.0, false, 1, 2),  // not calm: it is somewhere below
            (94.0, true, 0, 4),
        ];
        for (step, (from, is_calm, hold, patience)) in cases.into_iter().enumerate() {
            linear.fall(fall(from, is_calm, SECOND * hold));
            assert_eq!(linear.patience, Duration::from_secs(patience), "step {step}");
        }
    }

    #[test]
    fn cubic_by_hand() {
        let mut cubic = Cubic::default();
        cubic.fall(fall(100.0, true, SECOND));
        let step = |seconds: f64, cap: f64| {
            let now = Tick::ZERO + SECOND + Duration::from_secs_f64(seconds);
            cubic.step(Foothold { now, rate: 70.0, round: SECOND / 10, cap })
        };
        // K = cbrt(30 / 0.4) = cbrt 75 = 4.217163
        let k = 4.217_163_326_508_746;
        let cases = [
            (0.0, 70.0),
            (k / 2.0, 96.25), // 100 - 0.4 · 75 / 8
            (k, 100.0),
            (k + 1.0, 100.4),
            (k + 5.0, 150.0), // 0.4 · 125
        ];
        for (seconds, rate) in cases {
            let found = step(seconds, 1e9);
            assert!((found - rate).abs() < 1e-6, "after {seconds} s: {found}");
        }
        assert!((step(k + 5.0, 120.0) - 120.0).abs() < 1e-9);
    }
}
