//! Doing jobs.
//!
//! A runner is a task that has a slot and a job. When the job is done it goes on with the next one, if there is one and
//! nothing speaks against it: so short jobs do not cost a task each. It ends when it has had its slot for a while, so that
//! others who want one get it.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tollgate::{ConcurrencyLimit, Permit, Tick};

use super::hub::{Entry, Run};
use super::observer::Attempted;
use super::outcome::{Outcome, Times, Unfinished};
use super::toll::Paid;
use crate::{Elapsed, Fault, Time, catch};

/// What the work is told besides the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobContext {
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// The job's position in the source, from zero.
    pub position: u64,
}

/// How many jobs a runner does with one slot, at most.
const LONGEST_CHAIN: u32 = 64;
/// For how long it begins new ones with the slot it has.
const LONGEST_STAY: Duration = Duration::from_millis(1);

/// Does one job after the other.
pub(super) async fn run<J, V, W, F, E>(mut hold: Hold<J, V>, work: Arc<W>, mut paid: Option<Paid>)
where
    W: Fn(Arc<J>, JobContext) -> F,
    F: Future<Output = Result<V, E>>,
    E: Into<Fault>,
{
    let until = hold.started + LONGEST_STAY;
    for jobs_left in (0..LONGEST_CHAIN).rev() {
        let result = hold.finish(&*work, paid.take()).await;
        let now = hold.run.time.now();
        if !hold.put_away(result, now, jobs_left > 0 && now < until) {
            break;
        }
    }
}

/// A job in the hands of a runner. Dropped before the job is done, it hands it back.
pub(super) struct Hold<J, V> {
    run: Arc<Run<J, V>>,
    slot: Option<Permit<ConcurrencyLimit>>,
    entry: Option<Entry<J>>,
    started: Tick,
    attempts: u32,
}

impl<J, V> Hold<J, V> {
    /// `entry` must be counted as running.
    pub(super) fn new(
        run: Arc<Run<J, V>>,
        slot: Permit<ConcurrencyLimit>,
        entry: Entry<J>,
        started: Tick,
    ) -> Self {
        Self { run, slot: Some(slot), entry: Some(entry), started, attempts: 0 }
    }

    /// Does the job, in as many attempts and as much time as it may have.
    async fn finish<W, F, E>(&mut self, work: &W, paid: Option<Paid>) -> Result<V, Fault>
    where
        W: Fn(Arc<J>, JobContext) -> F,
        F: Future<Output = Result<V, E>>,
        E: Into<Fault>,
    {
        let (time, span) = (self.run.time.clone(), self.run.rules.job_timeout);
        match within(&time, span, self.try_until_done(work, paid)).await {
            Ok(result) => result,
            Err(Elapsed) => Err(timed_out("all attempts", span)),
        }
    }

    async fn try_until_done<W, F, E>(&mut self, work: &W, mut paid: Option<Paid>) -> Result<V, Fault>
    where
        W: Fn(Arc<J>, JobContext) -> F,
        F: Future<Output = Result<V, E>>,
        E: Into<Fault>,
    {
        let fault = match self.attempt(work).await {
            Ok(value) => return Ok(value),
            Err(fault) => fault,
        };
        drop(paid.take());
        Err(fault)
    }

    async fn attempt<W, F, E>(&mut self, work: &W) -> Result<V, Fault>
    where
        W: Fn(Arc<J>, JobContext) -> F,
        F: Future<Output = Result<V, E>>,
        E: Into<Fault>,
    {
        self.attempts += 1;
        let entry = self.entry.as_ref().expect("there is a job until it is put away");
        let context = JobContext { attempt: self.attempts, position: entry.position };
        let job = Arc::clone(&entry.job);
        let span = self.run.rules.attempt_timeout;
        match within(&self.run.time, span, catch(async move { work(job, context).await })).await {
            Ok(Ok(Ok(value))) => Ok(value),
            Ok(Ok(Err(error))) => Err(error.into()),
            Ok(Err(panic)) => Err(panic),
            Err(Elapsed) => Err(timed_out("one attempt", span)),
        }
    }

    /// Puts the outcome away and takes the next job, if it may go on; whether it does.
    fn put_away(&mut self, result: Result<V, Fault>, now: Tick, may_go_on: bool) -> bool {
        let Some(Entry { job, position, queued, .. }) = self.entry.take() else { return false };
        let times = Times { queued, waited: self.started.since(queued), ran: now.since(self.started) };
        let attempts = std::mem::take(&mut self.attempts);
        let run = Arc::clone(&self.run);
        let may_go_on = may_go_on && run.rules.toll.is_none() && !run.rules.is_above_limit();

        let mut state = run.state();
        state.meter.ended(result.is_ok(), now);
        state.done.push_back(Outcome { job, result, attempts, position, times });
        state.running -= 1;
        if may_go_on && state.may_start(&run.rules) && state.way(|| now).is_open() {
            self.entry = state.start_next(now);
        }
        if self.entry.is_none() {
            run.stir();
        }
        let waker = state.waker();
        drop(state);

        self.started = now;
        if self.entry.is_none() {
            self.slot = None; // before anybody is told
        }
        if let Some(waker) = waker {
            waker.wake();
        }
        self.entry.is_some()
    }
}

impl<J, V> Drop for Hold<J, V> {
    fn drop(&mut self) {
        let Some(Entry { job, position, .. }) = self.entry.take() else { return };
        self.slot = None;
        let mut state = self.run.state();
        state.running -= 1;
        state.unfinished.push(Unfinished { job, position, attempts: self.attempts });
        self.run.stir();
        let waker = state.waker();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Gives `future` no longer than `span`, if there is one. Unlike [`Time::timeout`] it costs nothing if there is none.
async fn within<F: Future>(time: &Time, span: Option<Duration>, future: F) -> Result<F::Output, Elapsed> {
    let mut future = pin!(future);
    let mut alarm = span.map(|span| time.sleep(span));
    poll_fn(|context| {
        if let Poll::Ready(output) = future.as_mut().poll(context) {
            return Poll::Ready(Ok(output));
        }
        match &mut alarm {
            Some(alarm) => Pin::new(alarm).poll(context).map(|()| Err(Elapsed)),
            None => Poll::Pending,
        }
    })
    .await
}

/// The fault of a job that took too long.
fn timed_out(what: &str, span: Option<Duration>) -> Fault {
    Fault::from(Elapsed).with("time limit", format_args!("{:?} for {what}", span.unwrap_or_default()))
}
