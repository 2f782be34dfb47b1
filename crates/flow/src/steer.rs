//! A limit that follows what is measured.

mod builder;
mod course;
mod proc;
mod signal;
mod system;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tollgate::Tick;

use crate::Time;

pub use builder::{SteerBuilder, SteerError};
pub use course::Advice;
use course::{Course, Marks};
pub use signal::{Average, Signal};
pub use system::{CpuShare, LoadAverage, MemoryShare, RunQueue};

/// A limit of rate or concurrency, driven by measured signals: lowered while any of them is too high, raised while all of
/// them are low.
///
/// Every signal has two marks. Once each interval all are read, and
///
/// ```text
/// advice(signal) = lower   reading > high
///                  raise   reading < low
///                  hold    between, nothing to tell, or unreadable
/// advice = the tightest of them: lower before hold before raise
///
/// lower:  limit' = max(min, limit · factor)     factor = 0.7 unless set
/// raise:  limit' = min(max, limit + rise)       rise = 5 % of the limit unless set
/// ```
///
/// *Into load*, a signal passes its high mark and the limit falls by the factor each interval until it is below: from max to a
/// tenth in 7 steps of 0.7. *In between* the limit stays, so a reading that wavers around one mark does not make it swing.
/// *Out of load*, it rises by small steps: back to tenfold in 48 steps of 5 %. Choose the interval no shorter than the limit
/// takes to show in the signals, and the marks far enough apart that one step does not cross both.
///
/// A signal that cannot be read holds the limit where it is, and is reported in the [`SteerStep`]. Only one should steer a limit: it keeps
/// its own count of where the limit is, and writes over what others set.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tokio_util::sync::CancellationToken;
/// use tollgate::ConcurrencyLimit;
/// use tollgate_flow::steer::Average;
/// use tollgate_flow::{Steer, Time};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
/// # runtime.block_on(async {
/// let (limit, latency) = (ConcurrencyLimit::new(100), Average::new());
/// let mut steer = Steer::concurrency(&limit, 4..=200)
///     .signal("latency", latency.clone(), 0.050..=0.200) // in seconds
///     .signal("queue", || 17.0, 100.0..=1_000.0)
///     .every(Duration::from_secs(1))
///     .build()?;
///
/// latency.add_span(Duration::from_millis(250));
/// let (time, stop) = (Time::tokio(), CancellationToken::new());
/// tokio::select! {
///     () = steer.run(&time, &stop) => {}
///     () = time.sleep(Duration::from_millis(1_500)) => {}
/// }
/// assert_eq!(limit.limit(), 70);
/// # Ok::<(), tollgate_flow::steer::SteerError>(())
/// # }).unwrap();
/// ```
#[must_use = "a limit is not steered until run() or step() is called"]
pub struct Steer {
    course: Course,
    signals: Vec<Watched>,
    interval: Duration,
    /// No step before that.
    due: Tick,
    apply: Box<dyn FnMut(f64) + Send>,
    listener: Box<dyn FnMut(&SteerStep) + Send>,
}

/// A signal with its marks.
struct Watched {
    name: Arc<str>,
    signal: Box<dyn Signal>,
    marks: Marks,
}

/// What happened at one interval.
#[derive(Debug)]
#[non_exhaustive]
pub struct SteerStep {
    /// What the limit did: the tightest advice of all.
    pub advice: Advice,
    /// The limit now. Whole limits are rounded down from it.
    pub limit: f64,
    /// What each signal said, in the order they were given.
    pub readings: Vec<Reading>,
}

/// What one signal said.
#[derive(Debug)]
#[non_exhaustive]
pub struct Reading {
    /// The signal's name.
    pub name: Arc<str>,
    /// What it read; `None` if there was nothing to tell. A number that is not finite counts as unreadable.
    pub value: io::Result<Option<f64>>,
    /// What that means for the limit.
    pub advice: Advice,
}

impl Steer {
    /// The limit now. Whole limits are rounded down from it.
    pub fn limit(&self) -> f64 {
        self.course.limit()
    }

    /// Reads all signals and moves the limit by one step, unless an interval has not passed since the last step: then nothing
    /// is read, and the answer is `None`.
    pub fn step(&mut self, now: Tick) -> Option<SteerStep> {
        if now < self.due {
            return None;
        }
        self.due = now + self.interval;
        let readings: Vec<_> = self.signals.iter_mut().map(Watched::read).collect();
        let advice = readings.iter().map(|reading| reading.advice).min().unwrap_or(Advice::Hold);
        let before = self.course.limit();
        let limit = self.course.follow(advice);
        if limit.to_bits() != before.to_bits() {
            (self.apply)(limit);
        }
        Some(SteerStep { advice, limit, readings })
    }

    /// Takes a step each interval, the first after one interval, until `stop` is cancelled. The limit then stays where it is.
    ///
    /// # Cancel safety
    /// Safe: a step is taken as a whole, and running can go on later.
    pub async fn run(&mut self, time: &Time, stop: &CancellationToken) {
        while stop.run_until_cancelled(time.sleep(self.interval)).await.is_some() {
            if let Some(step) = self.step(time.now()) {
                (self.listener)(&step);
            }
        }
    }
}

impl Watched {
    fn read(&mut self) -> Reading {
        let value = self.signal.read().and_then(finite);
        let advice = match value {
            Ok(Some(reading)) => self.marks.advice(reading),
            Ok(None) | Err(_) => Advice::Hold,
        };
        Reading { name: Arc::clone(&self.name), value, advice }
    }
}

fn finite(reading: Option<f64>) -> io::Result<Option<f64>> {
    match reading {
        Some(odd) if !odd.is_finite() => {
            Err(io::Error::new(io::ErrorKind::InvalidData, format!("a reading of {odd} says nothing")))
        }
        fine => Ok(fine),
    }
}

impl fmt::Debug for Steer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let signals: Vec<_> = self.signals.iter().map(|watched| &watched.name).collect();
        f.debug_struct("Steer")
            .field("course", &self.course)
            .field("signals", &signals)
            .field("interval", &self.interval)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
