//! Starting jobs: who has a slot and has paid at the gate gets a runner.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tollgate::{ConcurrencyLimit, Gate, OwnedSlot, Tick, WaitError};

use super::control::Course;
use super::hold::Hold;
use super::hub::{MOST_FRESH, Run, Way};
use super::runner::{JobContext, Runner};
use super::toll::{Paid, Pass, Turnstile};
use crate::{Fault, Sleep};

/// The runners of a run, and what it takes to start one. Dropping it ends the run.
pub(super) struct Crew<J, V> {
    run: Arc<Run<J, V>>,
    runners: JoinSet<()>,
    runtime: Handle,
    spawn: Box<Spawn<J, V>>,
    slots: Turnstile<ConcurrencyLimit>,
    toll: Option<Box<dyn Pass>>,
    /// Rings when a hold ends.
    alarm: Option<(Tick, Sleep)>,
    is_stopped: bool,
}

type Spawn<J, V> = dyn Fn(&mut JoinSet<()>, &Handle, Hold<J, V>, Option<Paid>) + Send;

impl<J: Send + Sync + 'static, V: Send + 'static> Crew<J, V> {
    /// # Panics
    /// Outside of a tokio runtime.
    pub(super) fn new<W, F, E>(run: Arc<Run<J, V>>, work: W) -> Self
    where
        W: Fn(Arc<J>, JobContext) -> F + Send + Sync + 'static,
        F: Future<Output = Result<V, E>> + Send + 'static,
        E: Into<Fault> + 'static,
    {
        let work = Arc::new(work);
        let spawn = move |runners: &mut JoinSet<()>, runtime: &Handle, hold, paid| {
            runners.spawn_on(Runner::new(hold, Arc::clone(&work), paid), runtime);
        };
        let slots = Turnstile::new(Gate::new(run.rules.limit.clone()));
        let toll = run.rules.toll.as_ref().map(|toll| toll.turnstile());
        let (runners, runtime) = (JoinSet::new(), Handle::current());
        Self { run, runners, runtime, spawn: Box::new(spawn), slots, toll, alarm: None, is_stopped: false }
    }
}

impl<J, V> Crew<J, V> {
    /// Starts as many jobs as may be, and has `context` woken when there may be more; whether it took any from the queue.
    pub(super) fn start(&mut self, context: &mut Context<'_>) -> bool {
        let mut now = None; // one reading will do for all that start together
        while let Some(cost) = self.next_cost(context) {
            let Poll::Ready(passed) = self.poll_pass(cost, context) else { break };
            let now = *now.get_or_insert_with(|| self.run.time.now());
            match passed {
                Ok((slot, paid)) => self.start_next(slot, paid, now),
                Err(error) => self.refuse_next(error, now),
            }
        }
        now.is_some()
    }

    /// What the next job costs at the gate, if there is one and it may start.
    fn next_cost(&mut self, context: &mut Context<'_>) -> Option<u64> {
        loop {
            let state = self.run.state();
            let may_start = state.may_start(&self.run.rules) && state.fresh < MOST_FRESH;
            let next = state.queue.peek().filter(|_| may_start).map(|entry| entry.cost);
            let way = state.way(|| self.run.time.now());
            drop(state);
            match (next, way) {
                (Some(cost), Way::Open) => return Some(cost),
                (Some(_), Way::HeldUntil(moment)) if self.is_over(moment, context) => {}
                _ => {
                    self.leave();
                    return None;
                }
            }
        }
    }

    /// Whether a hold is over; if not, `context` is woken then.
    fn is_over(&mut self, moment: Tick, context: &mut Context<'_>) -> bool {
        self.alarm.take_if(|(known, _)| *known != moment);
        let (_, alarm) = self.alarm.get_or_insert_with(|| (moment, self.run.time.sleep_until(moment)));
        let is_over = Pin::new(alarm).poll(context).is_ready();
        if is_over {
            self.alarm = None;
        }
        is_over
    }

    /// Passes both, or waits for one of them holding nothing: a reader who does not look must not keep others waiting.
    fn poll_pass(
        &mut self,
        cost: u64,
        context: &mut Context<'_>,
    ) -> Poll<Result<(OwnedSlot, Option<Paid>), WaitError>> {
        let Poll::Ready(slot) = self.poll_slot(context)? else {
            if let Some(toll) = &mut self.toll {
                toll.leave();
            }
            return Poll::Pending;
        };
        let paid = match &mut self.toll {
            None => Poll::Ready(None),
            Some(toll) => toll.poll_pass(cost, context)?.map(Some),
        };
        paid.map(|paid| Ok((slot, paid)))
    }

    /// A slot, or `context` is woken when one comes back.
    fn poll_slot(&mut self, context: &mut Context<'_>) -> Poll<Result<OwnedSlot, WaitError>> {
        loop {
            if let Some(slot) = self.run.rules.limit.try_acquire() {
                self.slots.leave();
                return Poll::Ready(Ok(slot.into_owned()));
            }
            // Whoever hears first of a slot may not be the first to take it: that is tried above.
            match self.slots.poll_permit(1, context)? {
                Poll::Ready(permit) => permit.cancel(),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn start_next(&mut self, slot: OwnedSlot, paid: Option<Paid>, now: Tick) {
        let mut state = self.run.state();
        let entry = state.start_next(now);
        state.fresh += usize::from(entry.is_some());
        drop(state);
        match entry {
            Some(entry) => {
                let hold = Hold::new(Arc::clone(&self.run), slot, entry, now);
                (self.spawn)(&mut self.runners, &self.runtime, hold, paid);
            }
            // A runner was quicker.
            None => {
                if let Some(paid) = paid {
                    paid.take_back();
                }
            }
        }
    }

    fn refuse_next(&mut self, error: WaitError, now: Tick) {
        let mut state = self.run.state();
        if let Some(entry) = state.queue.pop() {
            state.refuse(entry, error, now);
        }
    }

    fn leave(&mut self) {
        self.slots.leave();
        if let Some(toll) = &mut self.toll {
            toll.leave();
        }
    }

    /// Forgets runners that have ended.
    pub(super) fn tidy(&mut self) {
        while self.runners.try_join_next().is_some() {}
    }

    /// Cancels what is running; it hands its jobs back in its own time.
    pub(super) fn stop(&mut self) {
        if !self.is_stopped {
            self.is_stopped = true;
            self.leave();
            self.runners.abort_all();
        }
    }
}

impl<J, V> Drop for Crew<J, V> {
    fn drop(&mut self) {
        let mut state = self.run.state();
        state.course = Course::Abandon;
        let left =
            (state.queue.drain(), std::mem::take(&mut state.done), std::mem::take(&mut state.unfinished));
        state.tell();
        drop(state);
        drop(left); // without the lock: who knows what a job does when it is dropped
    }
}

impl<J, V> fmt::Debug for Crew<J, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crew").field("runners", &self.runners.len()).finish_non_exhaustive()
    }
}
