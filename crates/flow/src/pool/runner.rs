//! Doing jobs.
//!
//! A runner is a task that has a slot and a job. When the job is done it goes on with the next one, if there is one and
//! nothing speaks against it: so short jobs do not cost a task each. It ends when it has had its slot for a while, so that
//! others who want one get it.
//!
//! It is written as a state machine, and not with `async`, because its size is what a task costs: it has room for the work
//! once, and what only failing jobs need is boxed.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use tollgate::{Tick, WaitError};

use super::hold::Hold;
use super::toll::Paid;
use crate::fault::Catch;
use crate::{Elapsed, Ended, Fault, Scope, Sleep, catch};

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

pin_project! {
    /// Does one job after the other.
    pub(super) struct Runner<J, V, W, F> {
        // In this order they are dropped: when the job is handed back, nobody works on it any more.
        #[pin]
        attempt: Option<Catch<F>>,
        attempt_alarm: Option<Sleep>,
        job_alarm: Option<Sleep>,
        scope_end: Option<ScopeEnd>,
        next_turn: Option<NextTurn>,
        paid: Option<Paid>,
        work: Arc<W>,
        until: Tick,
        jobs_left: u32,
        hold: Hold<J, V>,
    }
}

/// The end of what the job belongs to.
type ScopeEnd = Pin<Box<dyn Future<Output = Ended> + Send>>;

/// The wait between two attempts.
type NextTurn = Pin<Box<dyn Future<Output = Result<Option<Paid>, WaitError>> + Send>>;

impl<J, V, W, F, E> Runner<J, V, W, F>
where
    J: Send + Sync + 'static,
    V: Send + 'static,
    W: Fn(Arc<J>, JobContext) -> F,
    F: Future<Output = Result<V, E>>,
    E: Into<Fault>,
{
    pub(super) fn new(hold: Hold<J, V>, work: Arc<W>, paid: Option<Paid>) -> Self {
        let until = hold.started() + LONGEST_STAY;
        Self {
            attempt: None,
            attempt_alarm: None,
            job_alarm: None,
            scope_end: None,
            next_turn: None,
            paid,
            work,
            until,
            jobs_left: LONGEST_CHAIN,
            hold,
        }
    }

    /// Does the job, in as much time as it may have.
    fn poll_job(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<V, Fault>> {
        let polled = self.as_mut().poll_attempts(context);
        let result = match polled {
            Poll::Ready(result) => result,
            Poll::Pending => {
                let fault = ready!(self.as_mut().poll_end(context));
                let this = self.as_mut().project();
                let was_trying = this.attempt.is_some();
                self.as_mut().rest();
                if was_trying {
                    self.as_mut().project().hold.end_attempt(Some(&fault));
                }
                Err(fault)
            }
        };
        self.as_mut().rest();
        let this = self.project();
        (*this.job_alarm, *this.scope_end) = (None, None);
        Poll::Ready(result)
    }

    /// What ends the job before it is done: its scope, or the time it may have.
    fn poll_end(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Fault> {
        let this = self.project();
        if let Some(scope_end) = this.scope_end
            && let Poll::Ready(ended) = scope_end.as_mut().poll(context)
        {
            return Poll::Ready(ended.into());
        }
        poll_alarm(this.job_alarm, context).map(|()| timed_out("all attempts", this.hold.rules().job_timeout))
    }

    /// Tries until it works or there is no more use.
    fn poll_attempts(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<V, Fault>> {
        loop {
            let this = self.as_mut().project();
            if let Some(next_turn) = this.next_turn {
                let paid = ready!(next_turn.as_mut().poll(context));
                *this.next_turn = None;
                *this.paid = paid?;
            }
            let result = match this.attempt.is_none().then(|| self.as_mut().begin_attempt()) {
                Some(Err(panic)) => Err(panic),
                _ => ready!(self.as_mut().poll_attempt(context)),
            };
            self.as_mut().rest();
            let this = self.as_mut().project();
            this.hold.end_attempt(result.as_ref().err());
            match result.as_ref().err().and_then(|fault| this.hold.backoff(fault)) {
                None => return Poll::Ready(result),
                Some(backoff) => *this.next_turn = Some(Box::pin(this.hold.next_turn(backoff))),
            }
        }
    }

    fn begin_attempt(self: Pin<&mut Self>) -> Result<(), Fault> {
        let mut this = self.project();
        this.hold.rules().scope().map_or(Ok(()), Scope::check)?;
        let (job, context) = this.hold.begin_attempt();
        let rules = this.hold.rules();
        if context.attempt == 1 {
            *this.job_alarm = rules.job_timeout.map(|span| this.hold.alarm(span));
            *this.scope_end = rules
                .scope()
                .cloned()
                .map(|scope| -> ScopeEnd { Box::pin(async move { scope.ended().await }) });
        }
        *this.attempt_alarm = rules.attempt_timeout.map(|span| this.hold.alarm(span));
        let work = &**this.work;
        let future = catch_unwind(AssertUnwindSafe(|| work(job, context))).map_err(Fault::panicked)?;
        this.attempt.set(Some(catch(future)));
        Ok(())
    }

    fn poll_attempt(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<V, Fault>> {
        let this = self.project();
        let Some(attempt) = this.attempt.as_pin_mut() else { return Poll::Pending };
        if let Poll::Ready(result) = attempt.poll(context) {
            return Poll::Ready(result.and_then(|result| result.map_err(Into::into)));
        }
        ready!(poll_alarm(this.attempt_alarm, context));
        Poll::Ready(Err(timed_out("one attempt", this.hold.rules().attempt_timeout)))
    }

    /// Lets go of everything that belongs to an attempt.
    fn rest(self: Pin<&mut Self>) {
        let mut this = self.project();
        this.attempt.set(None);
        *this.attempt_alarm = None;
        *this.next_turn = None;
        *this.paid = None;
    }
}

impl<J, V, W, F, E> Future for Runner<J, V, W, F>
where
    J: Send + Sync + 'static,
    V: Send + 'static,
    W: Fn(Arc<J>, JobContext) -> F,
    F: Future<Output = Result<V, E>>,
    E: Into<Fault>,
{
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.as_mut().project().hold.begin();
        loop {
            let polled = catch_unwind(AssertUnwindSafe(|| self.as_mut().poll_job(context)));
            let result = match polled {
                Ok(polled) => ready!(polled),
                Err(panic) => {
                    let _ = catch_unwind(AssertUnwindSafe(|| self.as_mut().rest())).map_err(std::mem::forget);
                    let this = self.as_mut().project();
                    (*this.job_alarm, *this.scope_end) = (None, None);
                    Err(Fault::panicked(panic))
                }
            };
            let this = self.as_mut().project();
            *this.jobs_left -= 1;
            let now = this.hold.now();
            if !this.hold.put_away(result, now, *this.jobs_left > 0 && now < *this.until) {
                return Poll::Ready(());
            }
        }
    }
}

/// Never, if there is none.
fn poll_alarm(alarm: &mut Option<Sleep>, context: &mut Context<'_>) -> Poll<()> {
    match alarm {
        Some(alarm) => Pin::new(alarm).poll(context),
        None => Poll::Pending,
    }
}

/// The fault of a job that took too long.
fn timed_out(what: &str, span: Option<Duration>) -> Fault {
    Fault::from(Elapsed).with("time limit", format_args!("{:?} for {what}", span.unwrap_or_default()))
}
