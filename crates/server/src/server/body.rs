//! Bodies of requests and responses, bounded in time and memory.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tollgate_flow::{Sleep, Time};

use super::activity::ResponseGuard;

/// How many bytes the unfinished request bodies of one connection hold together, and how long each may take.
///
/// hyper grants an HTTP/2 peer another byte for every byte that is read, so without a budget a connection could hold as many whole
/// bodies as it has streams.
#[derive(Clone, Debug)]
pub(crate) struct BodyBudget {
    free: Arc<Semaphore>,
    total: usize,
    largest: usize,
    timeout: Duration,
}

impl BodyBudget {
    /// A budget of `total` bytes, for bodies of at most `largest` bytes.
    pub(crate) fn new(total: usize, largest: usize, timeout: Duration) -> Self {
        let total = total.min(Semaphore::MAX_PERMITS);
        Self { free: Arc::new(Semaphore::new(total)), total, largest, timeout }
    }

    /// Bounds a request body.
    pub(crate) fn limit<B>(&self, body: B) -> LimitedBody<B> {
        LimitedBody { body, budget: self.clone(), reserved: Reserved::No, read: None, deadline: None }
    }

    /// Reserves what a body may still need: a larger one than the budget gets all of it.
    fn reserve(&self, bytes: u64) -> Reserved {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).min(self.largest).min(self.total);
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        match Arc::clone(&self.free).try_acquire_many_owned(bytes) {
            Ok(permit) => Reserved::Yes { _permit: permit },
            Err(_) => Reserved::Waiting(Box::pin(Arc::clone(&self.free).acquire_many_owned(bytes))),
        }
    }
}

/// A request body that takes from its connection's [`BodyBudget`] until it is dropped.
///
/// A body that is complete takes what it has. One of which more is to come reserves all that it may need before it goes on, so bodies never
/// wait for each other in a circle.
pub(crate) struct LimitedBody<B> {
    body: B,
    budget: BodyBudget,
    reserved: Reserved,
    /// A frame that was read and waits for its reservation.
    read: Option<Frame<Bytes>>,
    /// Set when the body makes its reader wait, which most never do.
    deadline: Option<Sleep>,
}

enum Reserved {
    No,
    Waiting(Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send>>),
    Yes { _permit: OwnedSemaphorePermit },
}

/// Why a body could not be read.
#[derive(Debug)]
pub(crate) enum BodyError {
    /// It was not complete in time.
    TimedOut,
    /// The connection failed, or the peer broke the protocol.
    Failed(hyper::Error),
}

impl<B: Body<Data = Bytes, Error = hyper::Error> + Unpin> LimitedBody<B> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if matches!(self.reserved, Reserved::No) && self.budget.free.available_permits() == 0 {
            let upper = self.body.size_hint().upper().unwrap_or(u64::MAX);
            self.reserved = self.budget.reserve(upper);
        }
        loop {
            if let Reserved::Waiting(permit) = &mut self.reserved {
                let permit = ready!(permit.as_mut().poll(context)).expect("the budget is never closed");
                self.reserved = Reserved::Yes { _permit: permit };
            }
            if let Some(frame) = self.read.take() {
                return Poll::Ready(Some(Ok(frame)));
            }
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => return Poll::Ready(Some(Err(BodyError::Failed(error)))),
                None => return Poll::Ready(None),
            };
            if let (Reserved::No, Some(data)) = (&self.reserved, frame.data_ref()) {
                let rest = if self.body.is_end_stream() { Some(0) } else { self.body.size_hint().upper() };
                let whole = rest.map_or(u64::MAX, |rest| rest.saturating_add(data.len() as u64));
                self.reserved = self.budget.reserve(whole);
            }
            self.read = Some(frame);
        }
    }
}

impl<B: Body<Data = Bytes, Error = hyper::Error> + Unpin> Body for LimitedBody<B> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Poll::Ready(frame) = self.poll(context) {
            return Poll::Ready(frame);
        }
        let timeout = self.budget.timeout;
        let deadline = self.deadline.get_or_insert_with(|| Time::tokio().sleep(timeout));
        ready!(Pin::new(deadline).poll(context));
        Poll::Ready(Some(Err(BodyError::TimedOut)))
    }

    fn is_end_stream(&self) -> bool {
        self.read.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.read.is_none() { self.body.size_hint() } else { SizeHint::default() }
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut => f.write_str("the body of the request took too long"),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl Error for BodyError {}

impl<B: fmt::Debug> fmt::Debug for LimitedBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitedBody").field("body", &self.body).finish_non_exhaustive()
    }
}

/// A response body that counts as unfinished until it is dropped.
#[derive(Debug)]
pub(crate) struct GuardedBody<B> {
    pub(crate) body: B,
    /// None where a response may take as long as it likes.
    pub(crate) _guard: Option<ResponseGuard>,
}

impl<B: Body + Unpin> Body for GuardedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    #[inline]
    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::task::Waker;

    use http_body_util::BodyExt;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A body whose pieces are there, and which then ends or never does.
    struct Pieces {
        left: VecDeque<Bytes>,
        ends: bool,
    }

    impl Body for Pieces {
        type Data = Bytes;
        type Error = hyper::Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
            match self.left.pop_front() {
                Some(piece) => Poll::Ready(Some(Ok(Frame::data(piece)))),
                None if self.ends => Poll::Ready(None),
                None => Poll::Pending,
            }
        }

        fn is_end_stream(&self) -> bool {
            self.ends && self.left.is_empty()
        }
    }

    fn pieces(sizes: &[usize], ends: bool) -> Pieces {
        Pieces { left: sizes.iter().map(|size| vec![0; *size].into()).collect(), ends }
    }

    /// How many bytes can be read of a body now.
    fn readable(body: &mut LimitedBody<Pieces>) -> usize {
        let mut read = 0;
        let mut context = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(frame)) = Pin::new(&mut *body).poll_frame(&mut context) {
            read += frame.expect("it is in time").into_data().expect("data").len();
        }
        read
    }

    /// Guards, item 2.
    #[tokio::test(start_paused = true)]
    async fn bodies_wait_when_others_have_reserved_the_budget() {
        let budget = BodyBudget::new(2_000, 1_000, SECOND);
        let mut unfinished: Vec<_> = (0..3).map(|_| budget.limit(pieces(&[400, 400], false))).collect();
        let read: Vec<usize> = unfinished.iter_mut().map(readable).collect();
        assert_eq!(read, [800, 800, 0], "each may grow to a thousand bytes");
        let mut small = budget.limit(pieces(&[10], true));
        assert_eq!(readable(&mut small), 0, "the third comes first");
        unfinished.remove(0);
        assert_eq!((readable(&mut unfinished[1]), readable(&mut small)), (800, 0));
        unfinished.remove(0);
        assert_eq!(readable(&mut small), 10);
    }

    /// Guards, item 2.
    #[tokio::test(start_paused = true)]
    async fn bodies_that_are_complete_take_what_they_have() {
        let budget = BodyBudget::new(2_000, 1_000, SECOND);
        let mut complete: Vec<_> = (0..20).map(|_| budget.limit(pieces(&[100], true))).collect();
        assert!(complete.iter_mut().all(|body| readable(body) == 100));
        assert_eq!(readable(&mut budget.limit(pieces(&[1], true))), 0, "nothing is left");
        drop(complete);
        assert_eq!(readable(&mut budget.limit(pieces(&[900, 100], true))), 1_000);
    }

    /// Guards, item 2.
    #[tokio::test(start_paused = true)]
    async fn a_body_that_is_late_is_an_error_whatever_it_waits_for() {
        let budget = BodyBudget::new(1_000, 1_000, SECOND);
        let (slow, waiting) = (budget.limit(pieces(&[10], false)), budget.limit(pieces(&[10], true)));
        let (slow, waiting) = tokio::join!(slow.collect(), waiting.collect());
        assert!(matches!(slow.unwrap_err(), BodyError::TimedOut));
        assert!(matches!(waiting.unwrap_err(), BodyError::TimedOut));
    }
}
