//! Somebody who looks after a worker.

mod event;
mod restarts;
mod worker;

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::{Backoff, Heart, Jitter, Rhythm, Time};

pub use event::{Death, StewardEvent, StewardGaveUp};
use restarts::{Restarts, Rules};
use worker::{End, Worker, Workers};

/// Looks after a worker: starts it, listens to its heart, and replaces it when it dies.
///
/// A worker is dead if it is silent for as long as its [`Rhythm`] says, if it panics, or if it returns an error. A silent
/// one is first asked to stop through its token; if it has not ended after the [`grace`](Self::grace) its task is aborted. Only
/// when the old one is gone does a new one start, after a [`backoff`](Self::backoff). Too many deaths in too short a time
/// and the steward [gives up](Self::give_up_after). A worker that returns `Ok` is done, and so is its steward.
///
/// The worker is made by a function of its heart and its token. It should beat (see [`Heart`]), and return when the token is
/// cancelled. Dropping the heart early is allowed: from then on only its end is looked at, not its silence.
///
/// A steward is a worker too: [`work`](Self::work) has its shape, beats, and fails when it gives up, so stewards can look after
/// stewards. The outer one should then have a longer grace than the inner one, which needs its own to stop its worker.
///
/// What nobody can end is a worker that blocks its thread: it ends at its next `await`. A second after the abort it is
/// left behind and replaced all the same; [`StewardEvent::LeftBehind`] says so.
///
/// Clones are the same steward: they share the count of restarts. It needs a tokio runtime to run workers on.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tokio_util::sync::CancellationToken;
/// use tollgate_flow::{Heart, Rhythm, Steward};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
/// # runtime.block_on(async {
/// let steward = Steward::new(Rhythm::every(Duration::from_secs(1)), |heart: Heart, stop: CancellationToken| async move {
///     for _job in 0..3 {
///         heart.begin_unit();
///         if stop.is_cancelled() {
///             break;
///         }
///     }
///     Ok::<(), std::io::Error>(())
/// });
/// steward.run(CancellationToken::new()).await?;
/// assert_eq!(steward.restarts(), 0);
/// # Ok::<(), tollgate_flow::steward::StewardGaveUp>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
#[must_use = "a steward does nothing until it runs"]
pub struct Steward {
    workers: Workers,
    rules: Rules,
    backoff: Backoff,
    listener: Listener,
    restarts: Arc<AtomicU64>,
}

type Listener = Arc<dyn Fn(&StewardEvent) + Send + Sync>;

impl Steward {
    /// A steward of workers that `start` makes and that beat in `rhythm`.
    pub fn new<S, W, E>(rhythm: Rhythm, start: S) -> Self
    where
        S: Fn(Heart, CancellationToken) -> W + Send + Sync + 'static,
        W: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        Self {
            workers: Workers::new(rhythm, start),
            rules: Rules { most: 5, within: Duration::from_secs(60), steady_after: Duration::from_secs(60) },
            backoff: DOUBLING,
            listener: Arc::new(|_| {}),
            restarts: Arc::new(AtomicU64::new(0)),
        }
    }

    /// How long a worker that was asked to stop may take before it is aborted. The default is 5 s.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.workers.grace = grace;
        self
    }

    /// How long to wait before a new worker starts, longer after each death in a row; its total does not count. The default is
    /// 100 ms, doubled each time, at most 30 s, without jitter.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff.total(Duration::MAX);
        self
    }

    /// A worker that lived for so long was well: the backoff begins anew. The default is 60 s.
    pub fn steady_after(mut self, span: Duration) -> Self {
        self.rules.steady_after = span;
        self
    }

    /// Gives up at a death before which there were `restarts` restarts `within` that span. The default is 5 within 60 s. Zero
    /// gives up at the first death.
    pub fn give_up_after(mut self, restarts: u32, within: Duration) -> Self {
        self.rules = Rules { most: restarts, within, ..self.rules };
        self
    }

    /// Tells `listener` of everything that happens, on the steward's own task: it should be quick.
    pub fn on_event(mut self, listener: impl Fn(&StewardEvent) + Send + Sync + 'static) -> Self {
        self.listener = Arc::new(listener);
        self
    }

    /// Goes by `time` instead of tokio's.
    pub fn time(mut self, time: Time) -> Self {
        self.workers.time = Some(time);
        self
    }

    /// How many times a dead worker was replaced, since the steward was made.
    pub fn restarts(&self) -> u64 {
        self.restarts.load(Ordering::Relaxed)
    }

    /// Looks after workers until one is done, or until `stop` is cancelled and the worker has ended.
    ///
    /// # Errors
    /// [`StewardGaveUp`], with the last reason, if workers died too often.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the worker's token and aborts its task at once, without grace.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn run(
        &self,
        stop: CancellationToken,
    ) -> impl Future<Output = Result<(), StewardGaveUp>> + Send + use<> {
        let steward = self.clone();
        async move {
            let heart = Heart::new(steward.workers.rhythm, steward.workers.time());
            steward.work(heart, stop).await
        }
    }

    /// [`run`](Self::run) as a worker of another steward: it beats `heart` at its interval, and begins a unit of work with each
    /// worker that it starts.
    ///
    /// # Errors
    /// [`StewardGaveUp`], with the last reason, if workers died too often.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the worker's token and aborts its task at once, without grace.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use tokio_util::sync::CancellationToken;
    /// use tollgate_flow::{Rhythm, Steward};
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    /// # runtime.block_on(async {
    /// let rhythm = Rhythm::every(Duration::from_secs(1));
    /// let inner = Steward::new(rhythm, |_heart, _stop| async { Ok::<(), std::io::Error>(()) });
    /// let outer = Steward::new(rhythm, move |heart, stop| inner.work(heart, stop));
    /// outer.run(CancellationToken::new()).await
    /// # }).unwrap();
    /// ```
    pub fn work(
        &self,
        heart: Heart,
        stop: CancellationToken,
    ) -> impl Future<Output = Result<(), StewardGaveUp>> + Send + use<> {
        let steward = self.clone();
        async move { heart.beating(steward.look_after(&heart, &stop)).await }
    }

    async fn look_after(&self, heart: &Heart, stop: &CancellationToken) -> Result<(), StewardGaveUp> {
        let time = self.workers.time();
        let (mut restarts, mut failure) = (Restarts::new(self.rules), None);
        let mut schedule = self.backoff.schedule();
        while !stop.is_cancelled() {
            heart.begin_unit();
            let born = time.now();
            let death = match self.one_life(stop).await {
                End::Finished => {
                    self.tell(&StewardEvent::Finished);
                    return Ok(());
                }
                End::Stopped(death) => {
                    failure = death;
                    break;
                }
                End::Died(death) => death,
            };
            let died = time.now();
            let Some(in_a_row) = restarts.died(died, died.since(born)) else {
                return Err(self.give_up(death));
            };
            if in_a_row == 0 {
                schedule = self.backoff.schedule();
            }
            let wait = schedule.next(Duration::ZERO, &mut fastrand::Rng::new()).unwrap_or(Duration::MAX);
            self.back_off(&time, death, wait, stop).await;
        }
        self.tell(&StewardEvent::Stopped { failure });
        Ok(())
    }

    /// From the start of a worker to its end, whatever that is.
    async fn one_life(&self, stop: &CancellationToken) -> End {
        let mut worker = Worker::start(&self.workers, stop);
        self.tell(&StewardEvent::Started { restarts: self.restarts() });
        worker.watch(stop, |event| self.tell(event)).await
    }

    /// Waits before the next start, unless there will be none.
    async fn back_off(&self, time: &Time, death: Death, wait: Duration, stop: &CancellationToken) {
        self.tell(&StewardEvent::Died { death, restart_in: wait });
        if stop.run_until_cancelled(time.sleep(wait)).await.is_some() {
            self.restarts.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn give_up(&self, last: Death) -> StewardGaveUp {
        let Rules { most, within, .. } = self.rules;
        let gave_up = StewardGaveUp { restarts: most, within, last };
        self.tell(&StewardEvent::GaveUp(gave_up.clone()));
        gave_up
    }

    fn tell(&self, event: &StewardEvent) {
        (self.listener)(event);
    }
}

impl fmt::Debug for Steward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Steward")
            .field("workers", &self.workers)
            .field("rules", &self.rules)
            .field("restarts", &self.restarts())
            .finish_non_exhaustive()
    }
}

/// 100 ms, doubled each time, at most 30 s.
const DOUBLING: Backoff = Backoff::new()
    .initial(Duration::from_millis(100))
    .factor(2.0)
    .cap(Duration::from_secs(30))
    .total(Duration::MAX)
    .jitter(Jitter::None);

#[cfg(test)]
mod tests;
