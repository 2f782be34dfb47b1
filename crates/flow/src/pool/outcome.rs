//! What became of a job.

use std::sync::Arc;
use std::time::Duration;

use tollgate::Tick;

use crate::Fault;

/// What became of a job.
#[derive(Debug)]
#[non_exhaustive]
pub struct Outcome<J, V> {
    /// The job. Nobody else holds it, unless the work kept a clone.
    pub job: Arc<J>,
    /// The value, or the fault of the last attempt.
    pub result: Result<V, Fault>,
    /// How often it was tried; zero if it could not even be started.
    pub attempts: u32,
    /// Its position in the source, from zero.
    pub position: u64,
    /// When it happened.
    pub times: Times,
}

/// When a job was pulled from the source, and how long it took from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Times {
    /// When it was pulled from the source, by the pool's [`Time`](crate::Time).
    pub queued: Tick,
    /// How long it then waited for a slot and the gate.
    pub waited: Duration,
    /// How long all its attempts took, and the waits between them.
    pub ran: Duration,
}

impl Times {
    /// From the source to the outcome.
    pub fn total(&self) -> Duration {
        self.waited.saturating_add(self.ran)
    }
}

/// A job that was pulled from the source and did not get an outcome, because the pool was stopped.
#[derive(Debug)]
#[non_exhaustive]
pub struct Unfinished<J> {
    /// The job.
    pub job: Arc<J>,
    /// Its position in the source, from zero.
    pub position: u64,
    /// How often it was tried, the attempt that was cut short included; zero if it was not started.
    pub attempts: u32,
}

impl<J> Unfinished<J> {
    /// Whether it was tried, so that it may have had an effect.
    pub fn was_started(&self) -> bool {
        self.attempts > 0
    }
}

/// What is left of a run that was stopped: together with the outcomes read before, every job there was.
#[derive(Debug)]
#[non_exhaustive]
pub struct Rest<J, V, S> {
    /// Outcomes that nobody had read yet.
    pub outcomes: Vec<Outcome<J, V>>,
    /// Jobs without an outcome, in order of input.
    pub unfinished: Vec<Unfinished<J>>,
    /// The source, with everything that was not pulled from it.
    pub source: S,
}
