//! Panics become faults.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use super::Fault;

/// Runs `future`; if it panics, that is a fault (see [`Fault::panicked`]) and not the end of the task.
///
/// The future is dropped at once after a panic. What it shared with others is as the panic left it. A program built
/// with `panic = "abort"` ends at a panic, whatever catches it.
///
/// # Cancel safety
/// Dropping it drops the future, no more and no less.
///
/// # Examples
/// ```
/// use tollgate_flow::catch;
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// # runtime.block_on(async {
/// let jobs = [3, 0];
/// assert_eq!(catch(async { 12 / jobs[0] }).await.unwrap(), 4);
/// let fault = catch(async { 12 / jobs[1] }).await.unwrap_err();
/// assert!(fault.is_unexpected());
/// assert_eq!(fault.cause().unwrap().to_string(), "panicked: attempt to divide by zero");
/// # });
/// ```
#[track_caller]
pub fn catch<F: Future>(future: F) -> Catch<F> {
    Catch { future: Some(future), location: Location::caller() }
}

pin_project! {
    /// A future whose panics are faults; made by [`catch`].
    #[must_use = "a future does nothing unless it is awaited"]
    #[derive(Debug)]
    pub struct Catch<F> {
        #[pin]
        future: Option<F>,
        location: &'static Location<'static>,
    }
}

impl<F: Future> Future for Catch<F> {
    type Output = Result<F::Output, Fault>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let Some(future) = this.future.as_mut().as_pin_mut() else {
            let again = Fault::unexpected_at("polled again after a panic".into(), this.location);
            return Poll::Ready(Err(again));
        };
        // Nobody sees the future again after a panic, so it does not matter in what state that left it.
        match catch_unwind(AssertUnwindSafe(|| future.poll(context))) {
            Ok(poll) => poll.map(Ok),
            Err(payload) => {
                // What poll left alive may panic as well when it is dropped. The first panic is the one to report.
                contain(|| this.future.set(None));
                Poll::Ready(Err(Fault::panicked_at(payload, this.location)))
            }
        }
    }
}

/// What was said when something panicked: the cause of the fault that came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Panicked(String);

impl Panicked {
    pub(super) fn new(payload: Box<dyn Any + Send>) -> Self {
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
        contain(|| drop(payload));
        Self(text.unwrap_or_else(|| "a value that is not text".to_owned()))
    }
}

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "panicked: {}", self.0)
    }
}

impl std::error::Error for Panicked {}

/// Does it, and keeps quiet if it panics. What that panic carries is leaked, because to drop it could panic again.
fn contain(action: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(action)) {
        std::mem::forget(payload);
    }
}
