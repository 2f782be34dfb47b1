//! A job in the hands of a runner.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use tollgate::{OwnedSlot, Tick, WaitError};

use super::hub::{Entry, Run, State};
use super::observer::{Attempted, Observer};
use super::outcome::{Outcome, Times, Unfinished};
use super::rules::Rules;
use super::runner::JobContext;
use super::toll::Paid;
use crate::retry::Schedule;
use crate::{Fault, Sleep};

/// A job in the hands of a runner. Dropped before the job is put away, it hands it back.
pub(super) struct Hold<J, V> {
    run: Arc<Run<J, V>>,
    slot: Option<OwnedSlot>,
    entry: Option<Entry<J>>,
    started: Tick,
    attempts: u32,
    /// Whether its runner has not begun.
    is_fresh: bool,
    /// Of a job that failed.
    schedule: Option<Box<Schedule>>,
    /// When the attempt began, if anybody wants to know.
    began: Tick,
}

impl<J, V> Hold<J, V> {
    /// `entry` must be counted as running, and its runner as fresh.
    pub(super) fn new(run: Arc<Run<J, V>>, slot: OwnedSlot, entry: Entry<J>, started: Tick) -> Self {
        Self {
            run,
            slot: Some(slot),
            entry: Some(entry),
            started,
            attempts: 0,
            is_fresh: true,
            schedule: None,
            began: started,
        }
    }

    /// The runner begins.
    pub(super) fn begin(&mut self) {
        if !std::mem::take(&mut self.is_fresh) {
            return;
        }
        let mut state = self.run.state();
        if !state.begin() {
            return;
        }
        self.run.stir();
        wake(state);
    }

    pub(super) fn rules(&self) -> &Rules {
        &self.run.rules
    }

    pub(super) fn started(&self) -> Tick {
        self.started
    }

    pub(super) fn now(&self) -> Tick {
        self.run.time.now()
    }

    pub(super) fn alarm(&self, span: Duration) -> Sleep {
        self.run.time.sleep(span)
    }

    /// Counts an attempt, and tells those who want to know.
    pub(super) fn begin_attempt(&mut self) -> (Arc<J>, JobContext) {
        self.attempts = self.attempts.saturating_add(1);
        if self.attempts == 1
            && let Some(policy) = &self.run.rules.retry
        {
            policy.begin();
        }
        if !self.run.rules.observers.is_empty() {
            self.began = self.now();
            self.tell_each(|observer| observer.begins());
        }
        let entry = self.entry.as_ref().expect("there is a job until it is put away");
        (Arc::clone(&entry.job), JobContext { attempt: self.attempts, position: entry.position })
    }

    /// Tells those who want to know how an attempt went.
    pub(super) fn end_attempt(&self, fault: Option<&Fault>)
    where
        J: Send + Sync + 'static,
        V: Send + 'static,
    {
        if self.run.rules.observers.is_empty() {
            return;
        }
        let cost = self.entry.as_ref().map_or(0, |entry| entry.cost);
        let attempt = Attempted { number: self.attempts, cost, fault, took: self.now().since(self.began) };
        let control = self.run.control();
        self.tell_each(|observer| observer.ended(&attempt, &control));
    }

    /// An observer that panics must not take the job with it, nor keep the others from hearing.
    fn tell_each(&self, tell: impl Fn(&dyn Observer)) {
        for observer in &self.run.rules.observers {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| tell(&**observer))) {
                Fault::panicked(panic).with("in", "an observer of a pool").report();
            }
        }
    }

    /// How long to back off after a fault, if the job is to be tried again.
    pub(super) fn backoff(&mut self, fault: &Fault) -> Option<Duration> {
        let policy = self.run.rules.retry.as_ref()?;
        let schedule = self.schedule.get_or_insert_with(|| Box::new(policy.schedule()));
        let elapsed = self.run.time.now().since(self.started);
        let wait = policy.next(self.attempts, elapsed, fault, schedule)?;
        self.run.state().count_retry(fault);
        Some(wait)
    }

    /// Backs off, and then waits for the turn of the next attempt.
    pub(super) fn next_turn(
        &self,
        backoff: Duration,
    ) -> impl Future<Output = Result<Option<Paid>, WaitError>> + use<J, V> {
        let (run, cost) = (Arc::clone(&self.run), self.entry.as_ref().map_or(0, |entry| entry.cost));
        async move {
            run.time.sleep(backoff).await;
            run.next_turn(cost).await
        }
    }

    /// Puts the outcome away and takes the next job, if it may go on; whether it does.
    pub(super) fn put_away(&mut self, result: Result<V, Fault>, now: Tick, may_go_on: bool) -> bool {
        let Some(Entry { job, position, queued, .. }) = self.entry.take() else { return false };
        let times = Times { queued, waited: self.started.since(queued), ran: now.since(self.started) };
        let attempts = std::mem::take(&mut self.attempts);
        (self.schedule, self.started) = (None, now);
        let run = &*self.run;
        let may_go_on = may_go_on && run.rules.toll.is_none() && !run.rules.is_above_limit();

        let mut state = run.state();
        state.count_outcome(result.is_ok(), now);
        let unwanted = state.put_away(Outcome { job, result, attempts, position, times });
        if may_go_on && state.may_start(&run.rules) && state.way(|| now).is_open() {
            self.entry = state.start_next(now);
        }
        let goes_on = self.entry.is_some();
        if goes_on {
            state.running -= 1; // the one that has ended
            state.tell();
            wake(state);
        } else {
            drop(state);
            self.leave(None);
        }
        drop(unwanted);
        goes_on
    }

    /// Gives the slot back, and only then counts as ended: whoever sees the end of a run finds every slot free.
    fn leave(&mut self, left: Option<Unfinished<J>>) {
        self.slot = None;
        let mut state = self.run.state();
        state.running -= 1;
        let unwanted = left.and_then(|left| state.hand_back(left));
        self.run.stir();
        state.tell();
        wake(state);
        drop(unwanted);
    }
}

/// Wakes the reader, without the lock.
fn wake<J, V>(mut state: MutexGuard<'_, State<J, V>>) {
    let waker = state.waker();
    drop(state);
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl<J, V> Drop for Hold<J, V> {
    fn drop(&mut self) {
        self.begin();
        if let Some(Entry { job, position, .. }) = self.entry.take() {
            self.leave(Some(Unfinished { job, position, attempts: self.attempts }));
        }
    }
}
