//! What is steered, by what, and in which steps.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use tollgate::{Clock, ConcurrencyLimit, Held, Limiter, Quota, Tick};

use super::course::{Course, Marks, Rise, Steps};
use super::{Signal, Steer, SteerStep, Watched};

/// Builds a [`Steer`].
#[must_use = "a builder builds nothing until build() is called"]
pub struct SteerBuilder {
    start: f64,
    bounds: RangeInclusive<f64>,
    steps: Steps,
    interval: Duration,
    signals: Vec<Watched>,
    apply: Box<dyn FnMut(f64) + Send>,
    listener: Box<dyn FnMut(&SteerStep) + Send>,
    /// What was wrong first; `build` says so.
    wrong: Option<SteerError>,
}

impl Steer {
    /// Steers how many may happen at once, from what the limit is now.
    pub fn concurrency(limit: &ConcurrencyLimit, bounds: RangeInclusive<u64>) -> SteerBuilder {
        let (start, limit) = (limit.limit(), limit.clone());
        SteerBuilder::new(float(start), floats(&bounds), move |aim| limit.set_limit(whole(aim)))
    }

    /// Steers how many may happen in each period of the limiter's quota, from what it is now. The period and the burst stay
    /// as they are: at `600/min burst 50`, bounds of `60..=600` are per minute.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Limiter, Quota, Tick};
    /// use tollgate_flow::Steer;
    ///
    /// let limiter = Limiter::new(Quota::per_minute(600).burst(50));
    /// let mut steer = Steer::rate(&limiter, 60..=600).signal("load", || 0.95, 0.6..=0.8).build()?;
    /// steer.step(Tick::ZERO);
    /// assert_eq!(limiter.quota(), Quota::per_minute(420).burst(50));
    /// # Ok::<(), tollgate_flow::steer::SteerError>(())
    /// ```
    pub fn rate<A: Held, C: Clock>(limiter: &Limiter<A, C>, bounds: RangeInclusive<u64>) -> SteerBuilder {
        let (quota, limiter) = (limiter.quota(), limiter.clone());
        let (period, burst) = (quota.period(), quota.burst_size());
        let builder = SteerBuilder::new(float(quota.count()), floats(&bounds), move |aim| {
            limiter.set_quota(Quota::per(whole(aim), period).burst(burst));
        });
        if quota.is_unlimited() { builder.refuse(SteerError::Unlimited) } else { builder }
    }

    /// Steers anything: `apply` gets each new limit, beginning with `start`.
    pub fn any(
        start: f64,
        bounds: RangeInclusive<f64>,
        apply: impl FnMut(f64) + Send + 'static,
    ) -> SteerBuilder {
        SteerBuilder::new(start, bounds, apply)
    }
}

impl SteerBuilder {
    fn new(start: f64, bounds: RangeInclusive<f64>, apply: impl FnMut(f64) + Send + 'static) -> Self {
        Self {
            start,
            bounds,
            steps: Steps { factor: 0.7, rise: Rise::Percent(5.0) },
            interval: Duration::from_secs(1),
            signals: Vec::new(),
            apply: Box::new(apply),
            listener: Box::new(|_| {}),
            wrong: None,
        }
    }

    /// Adds a signal. Below the first mark the limit may rise, above the second it falls, in between it stays.
    pub fn signal(mut self, name: &str, signal: impl Signal + 'static, marks: RangeInclusive<f64>) -> Self {
        match Marks::new(name, &marks) {
            Ok(marks) => {
                self.signals.push(Watched { name: Arc::from(name), signal: Box::new(signal), marks });
                self
            }
            Err(wrong) => self.refuse(wrong),
        }
    }

    /// How often the signals are read. The default is each second.
    pub fn every(self, interval: Duration) -> Self {
        Self { interval, ..self }
    }

    /// What a step down leaves of the limit: more than 0, less than 1. The default is 0.7.
    pub fn lower_to(mut self, factor: f64) -> Self {
        self.steps.factor = factor;
        self
    }

    /// Raises the limit by that amount at each step up.
    pub fn raise_by(mut self, amount: f64) -> Self {
        self.steps.rise = Rise::By(amount);
        self
    }

    /// Raises the limit by so many per cent of itself at each step up. The default is 5.
    pub fn raise_percent(mut self, percent: f64) -> Self {
        self.steps.rise = Rise::Percent(percent);
        self
    }

    /// Tells `listener` of each step that [`Steer::run`] takes.
    pub fn on_step(self, listener: impl FnMut(&SteerStep) + Send + 'static) -> Self {
        Self { listener: Box::new(listener), ..self }
    }

    /// The steer; the limit is brought within its bounds.
    ///
    /// # Errors
    /// If it could never work; the error says what to change.
    pub fn build(self) -> Result<Steer, SteerError> {
        let Self { start, bounds, steps, interval, signals, mut apply, listener, wrong } = self;
        if let Some(wrong) = wrong {
            return Err(wrong);
        }
        if signals.is_empty() {
            return Err(SteerError::NoSignal);
        }
        if interval.is_zero() {
            return Err(SteerError::Interval);
        }
        let course = Course::new(start, &bounds, steps)?;
        apply(course.limit());
        Ok(Steer { course, signals, interval, due: Tick::ZERO, apply, listener })
    }

    fn refuse(mut self, wrong: SteerError) -> Self {
        self.wrong.get_or_insert(wrong);
        self
    }
}

impl fmt::Debug for SteerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SteerBuilder")
            .field("start", &self.start)
            .field("bounds", &self.bounds)
            .field("steps", &self.steps)
            .field("interval", &self.interval)
            .finish_non_exhaustive()
    }
}

fn floats(bounds: &RangeInclusive<u64>) -> RangeInclusive<f64> {
    float(*bounds.start())..=float(*bounds.end())
}

#[allow(clippy::cast_precision_loss, reason = "a limit above 2^53 is steered to the nearest float")]
fn float(limit: u64) -> f64 {
    limit as f64
}

/// Rounded down, so that the limit is never above what was steered to. The cast stops at both ends.
fn whole(aim: f64) -> u64 {
    aim.floor() as u64
}

/// Why a [`Steer`] could never work.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum SteerError {
    /// The bounds of the limit are in the wrong order, negative or not finite.
    Bounds {
        /// The lower one.
        min: f64,
        /// The upper one.
        max: f64,
    },
    /// The marks of a signal are in the wrong order or not finite.
    Marks {
        /// Which signal.
        signal: String,
        /// The lower one.
        low: f64,
        /// The upper one.
        high: f64,
    },
    /// A step down would not lower the limit to something above zero.
    Factor(f64),
    /// A step up would not raise the limit.
    Rise(f64),
    /// From a limit of zero no percentage leads up again.
    Stuck,
    /// The start is not a number.
    Start,
    /// The interval is zero.
    Interval,
    /// There is nothing to steer by.
    NoSignal,
    /// The quota of the limiter is unlimited, so it has no period in which to count.
    Unlimited,
}

impl fmt::Display for SteerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bounds { min, max } => {
                write!(
                    f,
                    "bounds {min}..={max}: the first must be at least 0, the second finite and no less than the first"
                )
            }
            Self::Marks { signal, low, high } => {
                write!(
                    f,
                    "signal \"{signal}\": marks {low}..={high} must be finite, the second no less than the first"
                )
            }
            Self::Factor(factor) => {
                write!(f, "lower_to({factor}): must be more than 0 and less than 1, such as 0.7")
            }
            Self::Rise(rise) => write!(f, "a rise of {rise}: must be more than 0 and finite"),
            Self::Stuck => f.write_str(
                "a limit of 0 cannot rise by per cent: use raise_by, or bounds that begin above 0",
            ),
            Self::Start => f.write_str("the start is not a number"),
            Self::Interval => f.write_str("an interval of zero: must be longer, such as a second"),
            Self::NoSignal => f.write_str("nothing to steer by: add a signal"),
            Self::Unlimited => {
                f.write_str("an unlimited quota has no rate to steer: set one, such as 100/s, first")
            }
        }
    }
}

impl std::error::Error for SteerError {}
