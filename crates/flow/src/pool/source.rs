//! Where jobs come from.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;
use tollgate::Tick;

use super::hub::{Entry, State};
use crate::Time;

/// An iterator as a stream that is always ready; and still an iterator, to go on with what is left.
#[derive(Clone, Debug)]
pub struct Iterated<I> {
    iterator: I,
}

impl<I> Iterated<I> {
    pub(super) fn new(iterator: I) -> Self {
        Self { iterator }
    }
}

/// Nothing in it is ever pinned.
impl<I> Unpin for Iterated<I> {}

impl<I: Iterator> Stream for Iterated<I> {
    type Item = I::Item;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<I::Item>> {
        Poll::Ready(self.iterator.next())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.iterator.size_hint()
    }
}

impl<I: Iterator> Iterator for Iterated<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        self.iterator.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.iterator.size_hint()
    }
}

/// What a job costs at the gate, and how soon it is to be done.
pub(super) struct Appraisal<J> {
    pub(super) cost: Option<Judgement<J, u64>>,
    pub(super) priority: Option<Judgement<J, u8>>,
}

type Judgement<J, N> = Arc<dyn Fn(&J) -> N + Send + Sync>;

impl<J> Appraisal<J> {
    fn of(&self, job: &J) -> (u64, u8) {
        let cost = self.cost.as_ref().map_or(1, |cost| cost(job));
        (cost, self.priority.as_ref().map_or(0, |priority| priority(job)))
    }
}

impl<J> Clone for Appraisal<J> {
    fn clone(&self) -> Self {
        Self { cost: self.cost.clone(), priority: self.priority.clone() }
    }
}

impl<J> fmt::Debug for Appraisal<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Appraisal")
            .field("has_cost", &self.cost.is_some())
            .field("has_priority", &self.priority.is_some())
            .finish()
    }
}

/// Takes jobs from the source, as many as there is room for.
#[derive(Debug)]
pub(super) struct Intake<J, S> {
    pub(super) source: S,
    appraisal: Appraisal<J>,
    is_exhausted: bool,
    taken: u64,
    /// Between the source and the queue, each with its priority. Empty but for a moment, unless the source or an appraisal panics.
    batch: Vec<(u8, Entry<J>)>,
}

impl<J, S: Stream<Item = J> + Unpin> Intake<J, S> {
    pub(super) fn new(source: S, appraisal: Appraisal<J>) -> Self {
        Self { source, appraisal, is_exhausted: false, taken: 0, batch: Vec::new() }
    }

    /// Whether the source has ended.
    pub(super) fn is_exhausted(&self) -> bool {
        self.is_exhausted
    }

    /// How many jobs were taken.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// Takes up to `room` jobs; whether the source may have more right now. If not, it wakes `context` when it has.
    pub(super) fn pull(&mut self, room: usize, time: &Time, context: &mut Context<'_>) -> bool {
        let mut now = None;
        for _ in 0..room {
            if self.is_exhausted {
                return false;
            }
            match Pin::new(&mut self.source).poll_next(context) {
                Poll::Pending => return false,
                Poll::Ready(None) => self.is_exhausted = true,
                Poll::Ready(Some(job)) => self.take(job, *now.get_or_insert_with(|| time.now())),
            }
        }
        !self.is_exhausted
    }

    fn take(&mut self, job: J, queued: Tick) {
        let appraised = catch_unwind(AssertUnwindSafe(|| self.appraisal.of(&job)));
        // A panic is the caller's, and goes on to the reader; but not before the job is in a safe place.
        let (cost, priority) = *appraised.as_ref().unwrap_or(&(1, 0));
        let entry = Entry { job: Arc::new(job), position: self.taken, cost, queued };
        self.batch.push((priority, entry));
        self.taken += 1;
        if let Err(panic) = appraised {
            resume_unwind(panic);
        }
    }

    /// Puts what was taken into the queue.
    pub(super) fn hand_over<V>(&mut self, state: &mut State<J, V>) {
        state.meter.taken = self.taken;
        for (priority, entry) in self.batch.drain(..) {
            state.queue.push(priority, entry);
        }
    }
}
