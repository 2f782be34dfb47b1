//! Trying again, with care for whoever is on the other side.

mod backoff;
mod budget;
mod jitter;
mod judge;
mod outcome;

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use backoff::{Backoff, Schedule};
pub use budget::{Allowance, RetryBudget};
use fastrand::Rng;
pub use jitter::Jitter;
pub use judge::{Attempt, Itself, Judge, Nobody, Notify, Setback, Transient};
pub use outcome::{GaveUp, Why};

use tollgate::Tick;

use crate::{Again, Ended, Scope, Time};

/// Tries again what failed, after a [`Backoff`], as long as that can help and the other side can bear it.
///
/// It gives up, and says [why](Why), when
/// - the error says that trying again will not help ([`Transient`], or a closure given to [`judge`](Self::judge)). Where
///   nobody knows ([`Again::Unknown`]), it tries again;
/// - there were as many [tries](Self::tries) as allowed; by default there is no limit;
/// - the next try would come later than the backoff's total, 15 minutes by default;
/// - the [`RetryBudget`] is used up. Each policy has one by default, shared by its clones: 20 % of the requests and 10 per
///   second. [`budget`](Self::budget) shares one between policies, as all that call the same service should;
/// - the [scope](Self::within) ends: at once, in the middle of a try or of a wait. And if its deadline comes before the next
///   try, it does not wait for that.
///
/// A wait the error asks for ([`Again::After`], such as a Retry-After) is a minimum, with jitter on top; one that does not
/// fit into what is left of the total or the deadline ends it at once.
///
/// # Examples
/// ```
/// use std::io::{Error, ErrorKind};
/// use tollgate_flow::retry::Why;
/// use tollgate_flow::Retry;
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
/// # runtime.block_on(async {
/// let retry = Retry::new().tries(5);
/// let answer = retry
///     .run(|attempt| async move {
///         // The server is back at the third try.
///         if attempt.number < 3 { Err(Error::from(ErrorKind::ConnectionRefused)) } else { Ok("hello") }
///     })
///     .await;
/// assert_eq!(answer.unwrap(), "hello");
///
/// let failed = retry.run(|_| async { Err::<(), _>(Error::from(ErrorKind::NotFound)) }).await.unwrap_err();
/// assert_eq!((failed.why, failed.tries), (Why::Permanent, 1));
/// # });
/// ```
///
/// ## Hear of each failure
/// ```
/// # use std::io::Error;
/// # use tollgate_flow::retry::Setback;
/// # use tollgate_flow::{Again, Retry};
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
/// # runtime.block_on(async {
/// let retry = Retry::new()
///     .tries(3)
///     .judge(|error: &String| if error == "busy" { Again::Later } else { Again::Never })
///     .notify(|setback: &Setback<'_, String>| match &setback.next {
///         Ok(wait) => println!("try {} failed: {}; again in {wait:?}", setback.number, setback.error),
///         Err(why) => println!("try {} failed: {}; {why}", setback.number, setback.error),
///     });
/// let failed = retry.run(|_| async { Err::<(), _>("busy".to_owned()) }).await.unwrap_err();
/// assert_eq!(failed.error.as_deref(), Some("busy"));
/// # });
/// ```
#[derive(Clone)]
pub struct Retry<J = Itself, N = Nobody> {
    backoff: Backoff,
    tries: Option<u32>,
    budget: Option<RetryBudget>,
    scope: Option<Scope>,
    time: Time,
    /// Shared by clones, so that they do not draw the same jitter.
    rng: Arc<Mutex<Rng>>,
    judge: J,
    notify: N,
}

impl Retry {
    /// The defaults, by tokio's time.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn new() -> Self {
        Self::with_time(Time::tokio())
    }

    /// The defaults, by another time.
    pub fn with_time(time: Time) -> Self {
        Self {
            backoff: Backoff::new(),
            tries: None,
            budget: Some(RetryBudget::new(time.clone())),
            scope: None,
            time,
            rng: Arc::new(Mutex::new(Rng::new())),
            judge: Itself,
            notify: Nobody,
        }
    }
}

impl Default for Retry {
    fn default() -> Self {
        Self::new()
    }
}

impl<J, N> Retry<J, N> {
    /// How long to wait between tries.
    #[must_use]
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// The most tries, the first among them; at least 1.
    #[must_use]
    pub fn tries(mut self, most: u32) -> Self {
        self.tries = Some(most.max(1));
        self
    }

    /// Pays for retries from this budget, which others may share.
    #[must_use]
    pub fn budget(mut self, budget: RetryBudget) -> Self {
        self.budget = Some(budget);
        self
    }

    /// Tries again whatever the load. In an outage that multiplies it.
    #[must_use]
    pub fn unbudgeted(mut self) -> Self {
        self.budget = None;
        self
    }

    /// The same policy for work that belongs to `scope`: it ends with it, and does not wait for what would come too late. Budget
    /// and jitter are shared.
    #[must_use]
    pub fn within(&self, scope: &Scope) -> Self
    where
        Self: Clone,
    {
        Self { scope: Some(scope.clone()), ..self.clone() }
    }

    /// Draws jitter from this seed, so that a test runs the same way every time.
    #[must_use]
    pub fn seeded(mut self, seed: u64) -> Self {
        self.rng = Arc::new(Mutex::new(Rng::with_seed(seed)));
        self
    }

    /// Lets a closure say whether trying again can help, instead of the error itself.
    #[must_use]
    pub fn judge<E, K: Fn(&E) -> Again>(self, judge: K) -> Retry<K, N> {
        let Self { backoff, tries, budget, scope, time, rng, notify, .. } = self;
        Retry { backoff, tries, budget, scope, time, rng, judge, notify }
    }

    /// Tells a closure of each failed try. It is called before the wait, so it should be quick.
    #[must_use]
    pub fn notify<E, M: Fn(&Setback<'_, E>)>(self, notify: M) -> Retry<J, M> {
        let Self { backoff, tries, budget, scope, time, rng, judge, .. } = self;
        Retry { backoff, tries, budget, scope, time, rng, judge, notify }
    }
}

impl<J, N> Retry<J, N> {
    /// Makes the first try, and more as needed; `attempt` is told which one it is.
    ///
    /// The total of the backoff keeps late tries from beginning. What ends a try that hangs is the scope, or a time-out of
    /// its own.
    ///
    /// # Errors
    /// [`GaveUp`], with the last error.
    ///
    /// # Cancel safety
    /// Dropping the future drops the try it is in, if any, and makes no other.
    pub async fn run<F, A, T, E>(&self, attempt: F) -> Result<T, GaveUp<E>>
    where
        F: FnMut(Attempt) -> A,
        A: Future<Output = Result<T, E>>,
        J: Judge<E>,
        N: Notify<E>,
    {
        let mut work = Work::begin(self);
        let done = work.finish(attempt).await;
        done.map_err(|why| GaveUp { why, took: work.elapsed(), error: work.error, tries: work.tries })
    }

    /// Counts a request with the budget, for those who make the tries themselves.
    pub(crate) fn deposit(&self) {
        if let Some(budget) = &self.budget {
            budget.deposit();
        }
    }

    /// What the tries belong to.
    pub(crate) fn scope(&self) -> Option<&Scope> {
        self.scope.as_ref()
    }

    /// The waits of one piece of work.
    pub(crate) fn schedule(&self) -> Schedule {
        self.backoff.schedule()
    }

    /// How long to wait after a try that failed, or why there is no other. Tells who wants to hear of it.
    pub(crate) fn failed<E>(
        &self,
        number: u32,
        elapsed: Duration,
        error: &E,
        schedule: &mut Schedule,
    ) -> Result<Duration, Why>
    where
        J: Judge<E>,
        N: Notify<E>,
    {
        let next = self.next(number, self.judge.judge(error), elapsed, schedule);
        self.notify.notify(&Setback { number, elapsed, error, next });
        next
    }

    /// How long to wait after a failure, if it makes sense. Pays for the retry.
    fn next(
        &self,
        tries: u32,
        again: Again,
        elapsed: Duration,
        schedule: &mut Schedule,
    ) -> Result<Duration, Why> {
        let stated = match again {
            Again::Never => return Err(Why::Permanent),
            Again::After(wait) => wait,
            _ => Duration::ZERO,
        };
        if self.tries.is_some_and(|most| tries >= most) {
            return Err(Why::Tries);
        }
        let wait = schedule.next_after(stated, elapsed, &mut self.rng()).ok_or(Why::Elapsed)?;
        self.leaves_room(wait).map_err(Why::Ended)?;
        if self.budget.as_ref().is_none_or(RetryBudget::withdraw) { Ok(wait) } else { Err(Why::Budget) }
    }

    /// Whether a try after `wait` would still begin before the scope's deadline.
    fn leaves_room(&self, wait: Duration) -> Result<(), Ended> {
        let Some(scope) = &self.scope else { return Ok(()) };
        scope.check()?;
        let left = scope.left();
        if wait < left || scope.deadline().is_none() {
            Ok(())
        } else {
            Err(Ended::TooShort { needed: wait, left })
        }
    }

    fn rng(&self) -> MutexGuard<'_, Rng> {
        // Drawing a number cannot panic half way, so a poisoned lock guards a sound generator.
        self.rng.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<J, N> fmt::Debug for Retry<J, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("Retry");
        fields.field("backoff", &self.backoff).field("tries", &self.tries).field("budget", &self.budget);
        fields.finish_non_exhaustive()
    }
}

/// One piece of work on its way.
struct Work<'a, J, N, E> {
    retry: &'a Retry<J, N>,
    start: Tick,
    schedule: Schedule,
    tries: u32,
    /// Of the last try that failed.
    error: Option<E>,
}

impl<'a, J, N, E> Work<'a, J, N, E> {
    fn begin(retry: &'a Retry<J, N>) -> Self {
        retry.deposit();
        Self { retry, start: retry.time.now(), schedule: retry.schedule(), tries: 0, error: None }
    }

    fn elapsed(&self) -> Duration {
        self.retry.time.now().since(self.start)
    }

    async fn finish<F, A, T>(&mut self, mut attempt: F) -> Result<T, Why>
    where
        F: FnMut(Attempt) -> A,
        A: Future<Output = Result<T, E>>,
        J: Judge<E>,
        N: Notify<E>,
    {
        loop {
            let next = self.next_attempt()?;
            match self.inside(attempt(next)).await? {
                Ok(value) => return Ok(value),
                Err(error) => {
                    let wait = self.failed(error)?;
                    self.inside(self.retry.time.sleep(wait)).await?;
                }
            }
        }
    }

    fn next_attempt(&mut self) -> Result<Attempt, Why> {
        self.retry.scope.as_ref().map_or(Ok(()), Scope::check).map_err(Why::Ended)?;
        self.tries = self.tries.saturating_add(1);
        Ok(Attempt { number: self.tries, elapsed: self.elapsed() })
    }

    /// How long to wait until the next try.
    fn failed(&mut self, error: E) -> Result<Duration, Why>
    where
        J: Judge<E>,
        N: Notify<E>,
    {
        let next = self.retry.failed(self.tries, self.elapsed(), &error, &mut self.schedule);
        self.error = Some(error);
        next
    }

    /// Schedule for `future`, unless the scope ends first.
    async fn inside<A: Future>(&self, future: A) -> Result<A::Output, Why> {
        match &self.retry.scope {
            Some(scope) => scope.run(future).await.map_err(Why::Ended),
            None => Ok(future.await),
        }
    }
}

#[cfg(test)]
mod tests;
