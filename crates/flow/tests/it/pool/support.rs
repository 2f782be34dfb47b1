//! What the tests of the pool have in common.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use futures_util::future::BoxFuture;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tollgate::{Limiter, Quota, TokenBucket, TokioClock};
use tollgate_flow::pool::JobContext;
use tollgate_flow::{Fault, Outcome, Outcomes};

pub(crate) const MS: Duration = Duration::from_millis(1);

/// A limiter by tokio's time.
pub(crate) fn limiter(quota: Quota) -> Limiter<TokenBucket, TokioClock> {
    Limiter::builder(quota).clock(TokioClock::new()).build()
}

/// A quota of `count` per second, one at a time.
pub(crate) fn evenly(count: u64) -> Quota {
    Quota::per_second(count).burst(1)
}

pub(crate) async fn sleep_ms(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

/// Sleeps for as many milliseconds as the job says, and returns them.
pub(crate) async fn nap(millis: Arc<u64>) -> Result<u64, Fault> {
    sleep_ms(*millis).await;
    Ok(*millis)
}

/// All outcomes there are.
pub(crate) async fn all<J, V, S>(mut outcomes: Outcomes<J, V, S>) -> Vec<Outcome<J, V>>
where
    J: Send + Sync + 'static,
    V: Send + 'static,
    S: Stream<Item = J> + Unpin,
{
    let mut read = Vec::new();
    while let Some(outcome) = outcomes.next().await {
        read.push(outcome);
    }
    assert!(outcomes.next().await.is_none(), "the end is the end");
    read
}

/// What outcomes come within `span`.
pub(crate) async fn for_a_while<J, V, S>(
    outcomes: &mut Outcomes<J, V, S>,
    span: Duration,
) -> Vec<Outcome<J, V>>
where
    J: Send + Sync + 'static,
    V: Send + 'static,
    S: Stream<Item = J> + Unpin,
{
    let end = Instant::now() + span;
    let mut read = Vec::new();
    while let Ok(Some(outcome)) = tokio::time::timeout_at(end, outcomes.next()).await {
        read.push(outcome);
    }
    read
}

pub(crate) fn positions<J, V>(outcomes: &[Outcome<J, V>]) -> Vec<u64> {
    outcomes.iter().map(|outcome| outcome.position).collect()
}

/// A channel as a stream.
pub(crate) struct Channel<J>(pub(crate) mpsc::Receiver<J>);

impl<J> Stream for Channel<J> {
    type Item = J;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<J>> {
        self.0.poll_recv(context)
    }
}

/// How many there are at once, and the most there ever were.
#[derive(Clone, Default)]
pub(crate) struct Crowd {
    now: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Crowd {
    /// One more, until it is dropped.
    pub(crate) fn join(&self) -> Member {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        Member(self.clone())
    }

    /// Work that [naps](nap) as a member of the crowd.
    pub(crate) fn napping(
        &self,
    ) -> impl Fn(Arc<u64>, JobContext) -> BoxFuture<'static, Result<u64, Fault>> + Clone + use<> {
        let crowd = self.clone();
        move |millis, _| {
            let member = crowd.join();
            Box::pin(async move {
                let result = nap(millis).await;
                drop(member);
                result
            })
        }
    }

    pub(crate) fn now(&self) -> usize {
        self.now.load(Ordering::SeqCst)
    }

    pub(crate) fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }
}

pub(crate) struct Member(Crowd);

impl Drop for Member {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Milliseconds since the test began; time is paused, so they are exact up to tokio's rounding.
#[derive(Clone, Copy)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn ms(self) -> u64 {
        u64::try_from(self.0.elapsed().as_millis()).unwrap()
    }
}
