//! How long work may take, and who may stop it.

mod ended;
mod preempt;
mod rollback;
mod run;

use std::convert::Infallible;
use std::future::{Future, pending};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tollgate::Tick;

pub use ended::Ended;
pub use preempt::Preempt;
pub use rollback::{AsyncRollback, Rollback};
pub use run::Run;

use crate::Time;

/// The context of a piece of work, passed down to whoever does a part of it: until when it must be done, and whether it
/// is still wanted.
///
/// A scope ends when it is [cancelled](Self::cancel) or its deadline passes, and never begins again. A child
/// ([`child`](Self::child), [`within`](Self::within), [`until`](Self::until)) ends at the latest with its parent: its
/// deadline is never later, and cancelling the parent cancels it; what ends the child does not touch the parent. A
/// deadline is a moment and not a span, so time spent waiting, in a queue or for a retry, counts.
///
/// Most work calls [`run`](Self::run), which drops a future when the scope ends. [`needs`](Self::needs) refuses work
/// that cannot be done in time, before it begins. [`preempt`](Self::preempt) is for long computations, which nobody can
/// drop in the middle; [`Rollback`] undoes what was half done.
///
/// Clones are the same scope. It can be used from any thread.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate_flow::{Ended, Scope, Time};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
/// # runtime.block_on(async {
/// let time = Time::tokio();
/// let request = Scope::new(time.clone()).within(Duration::from_secs(5));
///
/// let lookup = request.within(Duration::from_secs(1)); // its share of the five seconds
/// assert_eq!(lookup.run(time.sleep(Duration::from_secs(3))).await, Err(Ended::Deadline));
///
/// // One second is gone. What needs longer than the rest is not even begun.
/// assert_eq!(
///     request.needs(Duration::from_secs(5)),
///     Err(Ended::TooShort { needed: Duration::from_secs(5), left: Duration::from_secs(4) })
/// );
/// assert_eq!(request.run(async { 7 }).await, Ok(7));
/// # });
/// ```
///
/// ## Wait for a limiter no longer than the scope lasts
/// What cannot be had in time is refused at once:
/// ```
/// # use std::time::Duration;
/// use tollgate::{Limiter, Quota};
/// # use tollgate_flow::{Fault, Scope, Time};
///
/// async fn call(limiter: &Limiter, scope: &Scope) -> Result<(), Fault> {
///     scope.run(limiter.wait().within(scope.left())).await??;
///     // ... call
///     Ok(())
/// }
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
/// # runtime.block_on(async {
/// let limiter = Limiter::new(Quota::per_hour(1));
/// let scope = Scope::new(Time::tokio()).within(Duration::from_secs(5));
/// call(&limiter, &scope).await.unwrap();
/// assert!(call(&limiter, &scope).await.unwrap_err().to_string().starts_with("deadline too soon"));
/// # });
/// ```
#[derive(Clone, Debug)]
pub struct Scope {
    time: Time,
    /// [`Tick::MAX`] if there is none.
    deadline: Tick,
    token: CancellationToken,
}

impl Scope {
    /// A scope without a parent and without a deadline, that goes by `time`.
    pub fn new(time: Time) -> Self {
        Self { time, deadline: Tick::MAX, token: CancellationToken::new() }
    }

    /// A child with the same deadline.
    #[must_use]
    pub fn child(&self) -> Self {
        self.until(Tick::MAX)
    }

    /// A child that has `span` from now, or less if this scope has less.
    #[must_use]
    pub fn within(&self, span: Duration) -> Self {
        self.until(self.time.now() + span)
    }

    /// A child that has until `moment`, or less if this scope has less. [`Tick::MAX`] is no deadline.
    #[must_use]
    pub fn until(&self, moment: Tick) -> Self {
        let deadline = self.deadline.min(moment);
        Self { time: self.time.clone(), deadline, token: self.token.child_token() }
    }

    /// Ends it now, with its children and their children.
    pub fn cancel(&self) {
        self.token.cancel();
    }

    /// Ends it when the guard is dropped: so that work on another thread or in another task ends together with whoever
    /// wants its result.
    pub fn cancel_on_drop(&self) -> CancelOnDrop {
        CancelOnDrop { scope: self.clone() }
    }

    /// The time it goes by.
    pub fn time(&self) -> &Time {
        &self.time
    }

    /// When it ends at the latest, by its [`time`](Self::time); `None` if there is no such moment.
    pub fn deadline(&self) -> Option<Tick> {
        (self.deadline < Tick::MAX).then_some(self.deadline)
    }

    /// How long until the deadline; [`Duration::MAX`] if there is none.
    pub fn left(&self) -> Duration {
        self.deadline().map_or(Duration::MAX, |deadline| deadline.since(self.time.now()))
    }

    /// Whether it has ended.
    ///
    /// # Errors
    /// Why it has. One that was cancelled says so, even if its deadline has passed as well.
    pub fn check(&self) -> Result<(), Ended> {
        self.check_at(self.time.now())
    }

    /// Whether work that takes `span` can be done in time. It can if it would end at the deadline.
    ///
    /// # Errors
    /// [`Ended::TooShort`] with what is left, or why the scope has ended already.
    pub fn needs(&self, span: Duration) -> Result<(), Ended> {
        self.check()?;
        let left = self.left();
        if span <= left { Ok(()) } else { Err(Ended::TooShort { needed: span, left }) }
    }

    /// Runs `future` until it is done or the scope ends, whichever is first; then the future is dropped at once. What
    /// is done at the very moment of the end is done. A scope that has ended already does not poll the future at all.
    ///
    /// A future can only be dropped between two polls. One that computes for long without waiting for anything should
    /// use [`preempt`](Self::preempt).
    ///
    /// # Cancel safety
    /// Dropping it drops the future, no more and no less.
    pub fn run<F: Future>(&self, future: F) -> Run<F> {
        Run::new(self.clone(), future)
    }

    /// Waits until it ends, and says why.
    ///
    /// # Cancel safety
    /// Nothing is lost by dropping it.
    pub async fn ended(&self) -> Ended {
        match self.run(pending::<Infallible>()).await {
            Err(ended) => ended,
        }
    }

    /// Makes a long computation give way at least once in every `period`; see [`Preempt`].
    pub fn preempt(&self, period: Duration) -> Preempt {
        Preempt::new(self.clone(), period)
    }

    fn check_at(&self, now: Tick) -> Result<(), Ended> {
        if self.token.is_cancelled() {
            Err(Ended::Cancelled)
        } else if now >= self.deadline {
            Err(Ended::Deadline)
        } else {
            Ok(())
        }
    }
}

/// Cancels a scope when it is dropped; made by [`Scope::cancel_on_drop`].
#[must_use = "it cancels the scope at once if it is not kept"]
#[derive(Debug)]
pub struct CancelOnDrop {
    scope: Scope,
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.scope.cancel();
    }
}
