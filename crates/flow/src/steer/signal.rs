//! What is measured.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Something measured, of which more is worse: a load, a lag, a share of errors, a latency.
///
/// Any closure that returns a number is one. For something of which less is worse, return its opposite.
pub trait Signal: Send {
    /// What is measured now; `None` if there is nothing new to tell. Called once each interval.
    ///
    /// # Errors
    /// If it could not be measured.
    fn read(&mut self) -> io::Result<Option<f64>>;
}

impl<F: FnMut() -> f64 + Send> Signal for F {
    fn read(&mut self) -> io::Result<Option<f64>> {
        Ok(Some(self()))
    }
}

/// The average of what was added since the last reading: a latency, a queue lag, a share of errors. Clones share what
/// was added.
///
/// If nothing was added, there is nothing to tell.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate_flow::steer::{Average, Signal};
///
/// let (mut errors, mut latency) = (Average::new(), Average::new());
/// for failed in [false, false, true, false] {
///     errors.add_outcome(failed);
/// }
/// latency.add_span(Duration::from_millis(100));
/// latency.add_span(Duration::from_millis(400));
/// assert_eq!(errors.read()?, Some(0.25));
/// assert_eq!(latency.read()?, Some(0.25));
/// assert_eq!(latency.read()?, None);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Average {
    added: Arc<Mutex<Added>>,
}

#[derive(Debug, Default)]
struct Added {
    sum: f64,
    count: f64,
}

impl Average {
    /// Nothing added yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a number.
    pub fn add(&self, value: f64) {
        let mut added = self.added.lock().unwrap_or_else(PoisonError::into_inner);
        added.sum += value;
        added.count += 1.0;
    }

    /// Adds a span of time: the average is in seconds.
    pub fn add_span(&self, span: Duration) {
        self.add(span.as_secs_f64());
    }

    /// Adds how something went: the average is the share that failed, 0 to 1.
    pub fn add_outcome(&self, failed: bool) {
        self.add(if failed { 1.0 } else { 0.0 });
    }
}

impl Signal for Average {
    fn read(&mut self) -> io::Result<Option<f64>> {
        let mut added = self.added.lock().unwrap_or_else(PoisonError::into_inner);
        let Added { sum, count } = std::mem::take(&mut *added);
        Ok((count > 0.0).then(|| sum / count))
    }
}
