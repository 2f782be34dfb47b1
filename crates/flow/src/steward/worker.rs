//! One worker, from its start to its end.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{JoinError, JoinHandle};
use tokio_util::sync::CancellationToken;

use super::{Death, StewardEvent};
use crate::{Health, Heart, Monitor, Rhythm, Time};

type Outcome = Result<(), Box<dyn Error + Send + Sync>>;
type Start = dyn Fn(Heart, CancellationToken) -> Pin<Box<dyn Future<Output = Outcome> + Send>> + Send + Sync;

/// How long an aborted task gets to notice: it does at its next `await`, so one that needs longer blocks its thread.
const ABORT_WAIT: Duration = Duration::from_secs(1);

/// How workers are made and ended.
#[derive(Clone)]
pub(super) struct Workers {
    start: Arc<Start>,
    pub(super) rhythm: Rhythm,
    pub(super) grace: Duration,
    /// tokio's, if not set. That needs a runtime, which a steward does only once it runs.
    pub(super) time: Option<Time>,
}

impl Workers {
    pub(super) fn new<S, W, E>(rhythm: Rhythm, start: S) -> Self
    where
        S: Fn(Heart, CancellationToken) -> W + Send + Sync + 'static,
        W: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        let start: Arc<Start> = Arc::new(move |heart, stop| {
            let worker = start(heart, stop);
            Box::pin(async move { worker.await.map_err(Into::into) })
        });
        Self { start, rhythm, grace: Duration::from_secs(5), time: None }
    }

    pub(super) fn time(&self) -> Time {
        self.time.clone().unwrap_or_else(Time::tokio)
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers")
            .field("rhythm", &self.rhythm)
            .field("grace", &self.grace)
            .finish_non_exhaustive()
    }
}

/// How it ended.
#[derive(Debug)]
pub(super) enum End {
    /// By itself and well.
    Finished,
    /// Because it was asked to; what it died of, if it did.
    Stopped(Option<Death>),
    /// Too early.
    Died(Death),
}

/// A running worker. Dropping it cancels and aborts it.
#[derive(Debug)]
pub(super) struct Worker {
    task: JoinHandle<Outcome>,
    stop: CancellationToken,
    monitor: Monitor,
    time: Time,
    grace: Duration,
}

impl Worker {
    /// Starts a worker whose token is a child of `stop`.
    pub(super) fn start(workers: &Workers, stop: &CancellationToken) -> Self {
        let (time, stop) = (workers.time(), stop.child_token());
        let heart = Heart::new(workers.rhythm, time.clone());
        let monitor = heart.monitor();
        let (start, token) = (Arc::clone(&workers.start), stop.clone());
        // `start` itself may panic, so it too is called inside the task.
        let task = tokio::spawn(async move { start(heart, token).await });
        Self { task, stop, monitor, time, grace: workers.grace }
    }

    /// Waits until it ended, fell silent, or `stop` asked for its end; in each case it has ended then.
    pub(super) async fn watch(&mut self, stop: &CancellationToken, tell: impl Fn(&StewardEvent)) -> End {
        tokio::select! {
            biased;
            () = stop.cancelled() => End::Stopped(self.end(&tell).await.err()),
            joined = &mut self.task => match outcome_of(joined) {
                Ok(()) => End::Finished,
                Err(death) => End::Died(death),
            },
            () = silent(&mut self.monitor, &tell) => {
                let silence = self.time.now().since(self.monitor.latest().at);
                // Whatever it still says, it died of its silence.
                let _ = self.end(&tell).await;
                End::Died(Death::Silent(silence))
            }
        }
    }

    /// Asks it to end, then makes it.
    async fn end(&mut self, tell: impl Fn(&StewardEvent)) -> Result<(), Death> {
        self.stop.cancel();
        if let Ok(joined) = self.time.timeout(self.grace, &mut self.task).await {
            return outcome_of(joined);
        }
        self.task.abort();
        if let Ok(joined) = self.time.timeout(ABORT_WAIT, &mut self.task).await {
            return outcome_of(joined);
        }
        tell(&StewardEvent::LeftBehind);
        Ok(())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop.cancel();
        self.task.abort();
    }
}

fn outcome_of(joined: Result<Outcome, JoinError>) -> Result<(), Death> {
    joined.map_err(Death::of_task)?.map_err(Death::failed)
}

/// Waits until the worker counts as dead; for ever, if its heart is dropped.
async fn silent(monitor: &mut Monitor, tell: impl Fn(&StewardEvent)) {
    loop {
        match monitor.changed().await {
            Some(Health::Dead) => return,
            Some(Health::Slow) => tell(&StewardEvent::Slow),
            Some(Health::Healthy) => tell(&StewardEvent::Recovered),
            Some(Health::Ended) | None => std::future::pending().await,
        }
    }
}
