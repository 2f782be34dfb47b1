//! Doing many jobs within limits: jobs in, outcomes out.
//!
//! # How it works
//! The reader of the [`Outcomes`] drives a run (`outcomes.rs`). Each time it is polled it takes over what is done, takes jobs
//! from the source as long as there is room (`source.rs`), and starts those that get a slot and pass the gate (`crew.rs`,
//! `toll.rs`). Jobs run on tasks, the *runners* (`runner.rs`), which put the outcomes away and go on with the next job
//! where that is possible. What both sides share is in `hub.rs`.
//!
//! A job is always in exactly one place: in the intake's batch, in the queue, in the hold of a runner, among the outcomes, or among
//! the unfinished. A hold that is dropped with its job, because the task was cancelled, puts it among the unfinished.

mod control;
mod crew;
mod hold;
mod hub;
mod lessons;
mod metrics;
mod observer;
mod outcome;
mod outcomes;
mod policy;
mod queue;
mod rules;
mod runner;
#[cfg(feature = "signal")]
mod signal;
mod source;
mod stats;
mod toll;
mod unread;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_core::Stream;
use tollgate::{ConcurrencyLimit, Member, Permit};

use crate::retry::{Judge, Notify};
use crate::{AdaptiveLimit, Again, Fault, Retry, Time};
use crew::Crew;
use hub::Run;
use metrics::Metering;
use observer::OnAttempt;
use rules::Rules;
use source::{Appraisal, Intake};
use toll::Members;

pub use control::Control;
pub use observer::{Attempted, Observer};
pub use outcome::{Outcome, Rest, Times, Unfinished};
pub use outcomes::Outcomes;
pub use runner::JobContext;
#[cfg(feature = "signal")]
pub use signal::EndSignals;
pub use source::Iterated;
pub use stats::{Stats, WaitTimes};

/// Does any number of jobs, in bounded memory, within limits of rate and concurrency that can change meanwhile.
///
/// Jobs come from an iterator or a [`Stream`], which is asked for more only when there is room. The outcomes are a stream as
/// well: each has its job, the value or fault, the attempts and the times. The work gets the job in an [`Arc`], so that it can
/// be tried again and handed back whatever happens, and need not be [`Clone`]. A panic in the work is a fault.
///
/// Every job that was taken from the source comes out exactly once: as an outcome, or, if the run was stopped, among what
/// [`Outcomes::stop`] hands back.
///
/// A pool is a recipe; each [`run`](Self::run) has a queue, numbers and a [`Control`] of its own. What is shared between
/// runs is what was given to it: the limits, the retry policy, the observers.
///
/// # Examples
/// ```
/// use tollgate::{Gate, Limiter, Quota};
/// use tollgate_flow::{Fault, Pool};
///
/// # let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build().unwrap();
/// # runtime.block_on(async {
/// let rate = Limiter::new(Quota::per_second(1_000).burst(50));
/// let pool = Pool::new(8).gate(rate.clone());
/// let mut outcomes = pool.run(1..=20_u64, |number, _| async move { Ok::<_, Fault>(*number * *number) });
/// let mut sum = 0;
/// while let Some(outcome) = outcomes.next().await {
///     sum += outcome.result.unwrap();
/// }
/// assert_eq!(sum, 2_870);
/// # });
/// ```
pub struct Pool<J> {
    rules: Rules,
    time: Option<Time>,
    appraisal: Appraisal<J>,
    in_input_order: bool,
}

impl<J> Pool<J> {
    /// A pool that does up to `concurrency` jobs at once. With zero it waits until that is changed.
    pub fn new(concurrency: u64) -> Self {
        Self::sharing(ConcurrencyLimit::new(concurrency))
    }

    /// A pool that does as many jobs at once as `limit` has slots for it. Others may use the same limit.
    pub fn sharing(limit: ConcurrencyLimit) -> Self {
        let rules = Rules {
            limit,
            toll: None,
            retry: None,
            attempt_timeout: None,
            job_timeout: None,
            observers: Vec::new(),
            metering: Metering::default(),
            queued: DEFAULT_QUEUED,
            unread: DEFAULT_UNREAD,
        };
        let appraisal = Appraisal { cost: None, priority: None };
        Self { rules, time: None, appraisal, in_input_order: false }
    }

    /// A pool whose concurrency finds itself: `limit` has the slots, and learns from every attempt.
    pub fn adapting(limit: &AdaptiveLimit) -> Self {
        Self::sharing(limit.concurrency().clone()).observer(limit.clone())
    }

    /// Every attempt of a job passes this gate first: a limiter, or limits composed by a [`Gate`](tollgate::Gate). It takes what
    /// [`cost`](Self::cost) says, and holds slots of concurrency limits among them until the attempt ends.
    ///
    /// The caller keeps clones of the limits, and may change them at any time.
    #[must_use]
    pub fn gate<M>(mut self, limits: M) -> Self
    where
        M: Member + Send + Sync + 'static,
        Permit<M>: Send,
    {
        self.rules.toll = Some(Arc::new(Members::new(limits)));
        self
    }

    /// What a job costs at the [gate](Self::gate); otherwise one. A job that costs more than the gate can ever give gets a
    /// fault.
    #[must_use]
    pub fn cost(mut self, cost: impl Fn(&J) -> u64 + Send + Sync + 'static) -> Self {
        self.appraisal.cost = Some(Arc::new(cost));
        self
    }

    /// How urgent a job is; otherwise all are alike. Among the [queued](Self::queued) jobs the one with the highest number
    /// starts first, and equals in order of input.
    ///
    /// # Starvation
    /// One start in eight goes to the oldest of the queued jobs whatever its priority. So a job waits for at most eight times
    /// as many starts as there were jobs before it in the queue.
    #[must_use]
    pub fn priority(mut self, priority: impl Fn(&J) -> u8 + Send + Sync + 'static) -> Self {
        self.appraisal.priority = Some(Arc::new(priority));
        self
    }

    /// Tries jobs again that failed, as this policy says. A job keeps its slot while it backs off, so that a failing upstream
    /// is asked less and not by others instead; and each attempt passes the gate anew. Panics are judged like other faults.
    ///
    /// Without one, a job is tried once.
    #[must_use]
    pub fn retry<K, N>(mut self, policy: Retry<K, N>) -> Self
    where
        K: Judge<Fault> + Send + Sync + 'static,
        N: Notify<Fault> + Send + Sync + 'static,
    {
        self.rules.retry = Some(Arc::new(policy));
        self
    }

    /// How long an attempt may take; then it is cancelled, and has failed.
    #[must_use]
    pub fn attempt_timeout(mut self, span: Duration) -> Self {
        self.rules.attempt_timeout = Some(span);
        self
    }

    /// How long a job may take in all, from its first attempt on, with retries and the waits between them; then it is
    /// cancelled, and has failed.
    #[must_use]
    pub fn job_timeout(mut self, span: Duration) -> Self {
        self.rules.job_timeout = Some(span);
        self
    }

    /// Gives the outcomes in the order of the jobs, and not as they are done. While the next one is not done, at most
    /// [`queued`](Self::queued) and [`unread`](Self::unread) jobs (or as many as run at once, if that is more) are taken
    /// after it, and none more until it is.
    #[must_use]
    pub fn in_input_order(mut self) -> Self {
        self.in_input_order = true;
        self
    }

    /// How many jobs are taken from the source ahead of being started: 64 unless told otherwise, and at least one. More is
    /// better for [priorities](Self::priority), fewer leave more in the source.
    #[must_use]
    pub fn queued(mut self, jobs: usize) -> Self {
        self.rules.queued = jobs.max(1);
        self
    }

    /// How many outcomes may wait for the reader: 64 unless told otherwise, and at least one. With so many, no job is
    /// started; those that are running then come on top.
    #[must_use]
    pub fn unread(mut self, outcomes: usize) -> Self {
        self.rules.unread = outcomes.max(1);
        self
    }

    /// Somebody who hears of every attempt; there may be several.
    #[must_use]
    pub fn observer(mut self, observer: impl Observer + 'static) -> Self {
        self.rules.observers.push(Arc::new(observer));
        self
    }

    /// A closure that hears how every attempt went, and may steer the run.
    #[must_use]
    pub fn on_attempt(self, hear: impl Fn(&Attempted<'_>, &Control) + Send + Sync + 'static) -> Self {
        self.observer(OnAttempt(hear))
    }

    /// Holds the whole run when an attempt is told when to come back ([`Again::After`], such as by a 429 with Retry-After):
    /// until then nobody would be served.
    #[must_use]
    pub fn heed_pushback(self) -> Self {
        self.on_attempt(|attempt, run| {
            if let Some(Again::After(span)) = attempt.fault.map(Fault::again) {
                run.hold(span);
            }
        })
    }

    /// Goes by `time` instead of tokio's.
    #[must_use]
    pub fn time(mut self, time: Time) -> Self {
        self.time = Some(time);
        self
    }
}

impl<J: Send + Sync + 'static> Pool<J> {
    /// Does the jobs of an iterator.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn run<I, V, W, F, E>(&self, jobs: I, work: W) -> Outcomes<J, V, Iterated<I::IntoIter>>
    where
        I: IntoIterator<Item = J>,
        V: Send + 'static,
        W: Fn(Arc<J>, JobContext) -> F + Send + Sync + 'static,
        F: Future<Output = Result<V, E>> + Send + 'static,
        E: Into<Fault> + 'static,
    {
        self.begin(Iterated::new(jobs.into_iter()), work)
    }

    /// Does the jobs of a stream.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn run_stream<S, V, W, F, E>(&self, jobs: S, work: W) -> Outcomes<J, V, Pin<Box<S>>>
    where
        S: Stream<Item = J>,
        V: Send + 'static,
        W: Fn(Arc<J>, JobContext) -> F + Send + Sync + 'static,
        F: Future<Output = Result<V, E>> + Send + 'static,
        E: Into<Fault> + 'static,
    {
        self.begin(Box::pin(jobs), work)
    }

    fn begin<S, V, W, F, E>(&self, source: S, work: W) -> Outcomes<J, V, S>
    where
        S: Stream<Item = J> + Unpin,
        V: Send + 'static,
        W: Fn(Arc<J>, JobContext) -> F + Send + Sync + 'static,
        F: Future<Output = Result<V, E>> + Send + 'static,
        E: Into<Fault> + 'static,
    {
        let time = self.time.clone().unwrap_or_else(Time::tokio);
        let run = Arc::new(Run::new(self.rules.clone(), time));
        let crew = Crew::new(Arc::clone(&run), work);
        Outcomes::new(run, Intake::new(source, self.appraisal.clone()), crew, self.in_input_order)
    }
}

const DEFAULT_QUEUED: usize = 64;
const DEFAULT_UNREAD: usize = 64;

impl<J> Clone for Pool<J> {
    /// Another pool by the same rules, with the same limits.
    fn clone(&self) -> Self {
        let Self { rules, time, appraisal, in_input_order } = self;
        let (rules, time, appraisal) = (rules.clone(), time.clone(), appraisal.clone());
        Self { rules, time, appraisal, in_input_order: *in_input_order }
    }
}

impl<J> fmt::Debug for Pool<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("rules", &self.rules)
            .field("appraisal", &self.appraisal)
            .field("in_input_order", &self.in_input_order)
            .finish_non_exhaustive()
    }
}
