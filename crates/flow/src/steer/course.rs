//! Where a limit goes: pure, no clock and no measuring.

use std::ops::RangeInclusive;

use super::SteerError;

/// What a reading means for the limit. The lesser is the tighter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Advice {
    /// Lower it: the reading is above its high mark.
    Lower,
    /// Leave it: the reading is between its marks, or nobody knows.
    Hold,
    /// Raise it: the reading is below its low mark.
    Raise,
}

/// Two marks, low and high. Between them the limit stays, so that a reading near one mark does not make it swing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Marks {
    low: f64,
    high: f64,
}

impl Marks {
    /// The marks of the signal `name`.
    pub(super) fn new(name: &str, marks: &RangeInclusive<f64>) -> Result<Self, SteerError> {
        let (low, high) = (*marks.start(), *marks.end());
        if low.is_finite() && high.is_finite() && low <= high {
            Ok(Self { low, high })
        } else {
            Err(SteerError::Marks { signal: name.to_owned(), low, high })
        }
    }

    pub(super) fn advice(self, reading: f64) -> Advice {
        if reading > self.high {
            Advice::Lower
        } else if reading < self.low {
            Advice::Raise
        } else {
            Advice::Hold
        }
    }
}

/// How much a step up adds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rise {
    By(f64),
    Percent(f64),
}

/// How large the steps are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steps {
    pub(super) factor: f64,
    pub(super) rise: Rise,
}

/// A limit on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Course {
    limit: f64,
    min: f64,
    max: f64,
    steps: Steps,
}

impl Course {
    /// A limit that begins at `start`, or at the bound next to it.
    pub(super) fn new(start: f64, bounds: &RangeInclusive<f64>, steps: Steps) -> Result<Self, SteerError> {
        let (min, max) = (*bounds.start(), *bounds.end());
        if !(min >= 0.0 && min <= max && max.is_finite()) {
            return Err(SteerError::Bounds { min, max });
        }
        if start.is_nan() {
            return Err(SteerError::Start);
        }
        steps.check(min)?;
        Ok(Self { limit: start.clamp(min, max), min, max, steps })
    }

    pub(super) fn limit(&self) -> f64 {
        self.limit
    }

    /// One step, as `advice` says.
    pub(super) fn follow(&mut self, advice: Advice) -> f64 {
        let aim = match (advice, self.steps.rise) {
            (Advice::Lower, _) => self.limit * self.steps.factor,
            (Advice::Hold, _) => self.limit,
            (Advice::Raise, Rise::By(amount)) => self.limit + amount,
            (Advice::Raise, Rise::Percent(percent)) => self.limit * (1.0 + percent / 100.0),
        };
        self.limit = aim.clamp(self.min, self.max);
        self.limit
    }
}

impl Steps {
    /// Whether a limit can move by these steps, down and up again from `min`.
    fn check(self, min: f64) -> Result<(), SteerError> {
        if !(self.factor > 0.0 && self.factor < 1.0) {
            return Err(SteerError::Factor(self.factor));
        }
        let (Rise::By(rise) | Rise::Percent(rise)) = self.rise;
        if !(rise > 0.0 && rise.is_finite()) {
            return Err(SteerError::Rise(rise));
        }
        if matches!(self.rise, Rise::Percent(_)) && min == 0.0 {
            return Err(SteerError::Stuck);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STEPS: Steps = Steps { factor: 0.5, rise: Rise::By(10.0) };

    fn course(start: f64, steps: Steps) -> Course {
        Course::new(start, &(5.0..=100.0), steps).unwrap()
    }

    #[test]
    fn a_reading_at_a_mark_holds_and_beyond_it_moves() {
        let marks = Marks::new("load", &(0.5..=0.8)).unwrap();
        for (reading, advice) in [
            (0.0, Advice::Raise),
            (0.499, Advice::Raise),
            (0.5, Advice::Hold),
            (0.65, Advice::Hold),
            (0.8, Advice::Hold),
            (0.801, Advice::Lower),
            (1e300, Advice::Lower),
        ] {
            assert_eq!(marks.advice(reading), advice, "at {reading}");
        }
    }

    #[test]
    fn steps_down_multiply_and_steps_up_add() {
        use Advice::{Hold, Lower, Raise};
        let mut course = course(80.0, STEPS);
        let series = [
            (Raise, 90.0),
            (Raise, 100.0),
            (Raise, 100.0),
            (Lower, 50.0),
            (Hold, 50.0),
            (Lower, 25.0),
            (Raise, 35.0),
            (Lower, 17.5),
            (Lower, 8.75),
            (Lower, 5.0),
            (Lower, 5.0),
            (Raise, 15.0),
        ];
        for (advice, limit) in series {
            assert_eq!(course.follow(advice).to_bits(), f64::to_bits(limit), "{advice:?}");
        }
    }

    #[test]
    fn steps_up_may_be_a_share_of_the_limit() {
        let mut course = course(40.0, Steps { rise: Rise::Percent(25.0), ..STEPS });
        let limits: Vec<f64> = (0..5).map(|_| course.follow(Advice::Raise)).collect();
        assert_eq!(limits, [50.0, 62.5, 78.125, 97.65625, 100.0]);
    }

    #[test]
    fn the_start_lies_within_the_bounds() {
        for (start, limit) in [(0.0, 5.0), (5.0, 5.0), (50.0, 50.0), (1e9, 100.0), (f64::INFINITY, 100.0)] {
            assert_eq!(course(start, STEPS).limit().to_bits(), f64::to_bits(limit));
        }
    }

    #[test]
    fn bounds_at_the_edge_of_numbers_do_not_overflow() {
        let mut course =
            Course::new(f64::MAX, &(1.0..=f64::MAX), Steps { rise: Rise::By(f64::MAX), ..STEPS }).unwrap();
        assert_eq!(course.follow(Advice::Raise).to_bits(), f64::MAX.to_bits());
        assert_eq!(course.follow(Advice::Lower).to_bits(), (f64::MAX / 2.0).to_bits());
    }

    #[test]
    fn what_cannot_work_is_refused() {
        let refused = |bounds, factor, rise| Course::new(10.0, &bounds, Steps { factor, rise }).unwrap_err();
        let percent = Rise::Percent(5.0);
        for bounds in [-1.0..=5.0, f64::NAN..=5.0, 1.0..=f64::NAN, 1.0..=f64::INFINITY, 9.0..=8.0] {
            assert!(matches!(refused(bounds, 0.5, percent), SteerError::Bounds { .. }));
        }
        for factor in [0.0, 1.0, -0.5, 1.5, f64::NAN, f64::INFINITY] {
            assert!(matches!(refused(1.0..=9.0, factor, percent), SteerError::Factor(_)));
        }
        for rise in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(matches!(refused(1.0..=9.0, 0.5, Rise::By(rise)), SteerError::Rise(_)));
            assert!(matches!(refused(1.0..=9.0, 0.5, Rise::Percent(rise)), SteerError::Rise(_)));
        }
        assert!(matches!(refused(0.0..=9.0, 0.5, percent), SteerError::Stuck));
        let nowhere = Course::new(f64::NAN, &(1.0..=9.0), STEPS);
        assert!(matches!(nowhere.unwrap_err(), SteerError::Start));
        for marks in [0.8..=0.5, f64::NAN..=1.0, 0.0..=f64::NAN, 0.0..=f64::INFINITY] {
            assert!(matches!(Marks::new("load", &marks), Err(SteerError::Marks { .. })));
        }
    }

    proptest! {
        #[test]
        fn a_limit_stays_within_its_bounds_and_moves_only_as_advised(
            start in 0.0..1e6_f64,
            min in 1e-3..1e3_f64,
            room in 0.0..1e6_f64,
            factor in 0.01..0.99_f64,
            rise in prop_oneof![(0.01..1e3_f64).prop_map(Rise::By), (0.01..1e3_f64).prop_map(Rise::Percent)],
            advices in prop::collection::vec(0..3_u8, 1..100),
        ) {
            let max = min + room;
            let mut course = Course::new(start, &(min..=max), Steps { factor, rise }).unwrap();
            for advice in advices {
                let advice = [Advice::Lower, Advice::Hold, Advice::Raise][usize::from(advice)];
                let before = course.limit();
                let after = course.follow(advice);
                prop_assert!((min..=max).contains(&after));
                match advice {
                    Advice::Lower => prop_assert!(after < before || after <= min),
                    Advice::Hold => prop_assert_eq!(after.to_bits(), before.to_bits()),
                    Advice::Raise => prop_assert!(after > before || after >= max),
                }
            }
        }
    }
}
