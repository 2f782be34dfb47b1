//! The copies of a request that are on their way.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The copies on their way, in the order they were started. They run inside the task that polls them, and dropping the
/// flight drops them all.
pub(super) struct Flight<A> {
    /// `None` once it has landed.
    copies: Vec<Option<Pin<Box<A>>>>,
}

impl<A: Future> Flight<A> {
    pub(super) fn new() -> Self {
        Self { copies: Vec::new() }
    }

    pub(super) fn start(&mut self, copy: A) {
        self.copies.push(Some(Box::pin(copy)));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.copies.iter().all(Option::is_none)
    }

    /// The number of a copy that has landed, the first being 0, and what it brought. Of two at once the earlier one.
    ///
    /// Every copy is polled whenever one of them wakes the task; they are few.
    pub(super) fn poll_landed(&mut self, context: &mut Context<'_>) -> Poll<(usize, A::Output)> {
        for (number, slot) in self.copies.iter_mut().enumerate() {
            if let Some(Poll::Ready(output)) = slot.as_mut().map(|copy| copy.as_mut().poll(context)) {
                *slot = None;
                return Poll::Ready((number, output));
            }
        }
        Poll::Pending
    }
}

impl<A> fmt::Debug for Flight<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flying = self.copies.iter().filter(|copy| copy.is_some()).count();
        f.debug_struct("Flight").field("flying", &flying).finish_non_exhaustive()
    }
}
