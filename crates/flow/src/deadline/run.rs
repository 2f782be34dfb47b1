//! Work that ends with its scope.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::{Ended, Scope};
use crate::Sleep;

pin_project! {
    /// A future that ends with a scope; made by [`Scope::run`].
    #[must_use = "a future does nothing unless it is awaited"]
    #[derive(Debug)]
    pub struct Run<F> {
        scope: Scope,
        // Until the scope has ended; then there is a `why`.
        #[pin]
        future: Option<F>,
        why: Option<Ended>,
        has_begun: bool,
        #[pin]
        cancelled: WaitForCancellationFutureOwned,
        // Rings at the deadline. Set when there is something to wait for.
        alarm: Option<Sleep>,
    }
}

impl<F> Run<F> {
    pub(super) fn new(scope: Scope, future: F) -> Self {
        let cancelled = scope.token.clone().cancelled_owned();
        Self { scope, future: Some(future), why: None, has_begun: false, cancelled, alarm: None }
    }

    /// Drops the future, and remembers why.
    fn end(self: Pin<&mut Self>, why: Ended) -> Ended {
        let mut this = self.project();
        this.future.set(None);
        *this.why = Some(why);
        why
    }

    /// Whether the scope has ended; if not, the task is woken when it does.
    fn poll_end(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Ended> {
        // tokio's alarms do not ring for a task that has used up its budget, and the future may use it up every time.
        if let Err(why) = self.scope.check() {
            return Poll::Ready(why);
        }
        let this = self.project();
        if this.cancelled.poll(context).is_ready() {
            return Poll::Ready(Ended::Cancelled);
        }
        let Some(deadline) = this.scope.deadline() else { return Poll::Pending };
        let alarm = this.alarm.get_or_insert_with(|| this.scope.time.sleep_until(deadline));
        Pin::new(alarm).poll(context).map(|()| Ended::Deadline)
    }
}

impl<F: Future> Future for Run<F> {
    type Output = Result<F::Output, Ended>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(why) = self.why {
            return Poll::Ready(Err(why));
        }
        if !self.has_begun
            && let Err(why) = self.scope.check()
        {
            return Poll::Ready(Err(self.end(why)));
        }
        let this = self.as_mut().project();
        *this.has_begun = true;
        if let Some(future) = this.future.as_pin_mut()
            && let Poll::Ready(output) = future.poll(context)
        {
            return Poll::Ready(Ok(output));
        }
        self.as_mut().poll_end(context).map(|why| Err(self.end(why)))
    }
}
