//! Bodies of requests and responses, bounded in time and memory.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::io::IoSlice;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tollgate_flow::{Sleep, Time};

use super::activity::{Activity, ResponseGuard};

/// How many bytes the requests of one connection hold together, how many their responses do, and how long a request body may take.
///
/// hyper grants an HTTP/2 peer another byte for every byte that is read, and hands each response to HTTP/2 as a whole. So without a
/// budget a connection could hold as many bodies as it has streams.
#[derive(Clone, Debug)]
pub(crate) struct BodyBudget {
    requests: Arc<Semaphore>,
    responses: Arc<Semaphore>,
    total: usize,
    timeout: Duration,
    /// Set when a request body is complete.
    has_request: Arc<AtomicBool>,
}

/// How much larger than its request a response can be, about: a list of short checks is answered by a list of decisions.
const RESPONSE_FACTOR: usize = 8;

impl BodyBudget {
    /// A budget of `total` bytes for requests, and as much for responses.
    pub(crate) fn new(total: usize, timeout: Duration) -> Self {
        let total = total.min(u32::MAX as usize).min(Semaphore::MAX_PERMITS);
        let semaphore = || Arc::new(Semaphore::new(total));
        Self { requests: semaphore(), responses: semaphore(), total, timeout, has_request: Arc::default() }
    }

    /// The same for a connection whose [`Activity`] notes that a request is complete when its body is.
    pub(crate) fn noted_by(self, activity: &Activity) -> Self {
        Self { has_request: activity.has_request(), ..self }
    }

    /// Bounds a request body, of which at most `largest` bytes will be read.
    pub(crate) fn limit<B>(&self, body: B, largest: usize) -> LimitedBody<B> {
        let reserved = Reserved::No;
        LimitedBody { body, budget: self.clone(), largest, received: 0, reserved, read: None, deadline: None }
    }

    /// Reserves what a body may still need: a larger one than the budget gets all of it.
    fn reserve(&self, bytes: u64, largest: usize) -> Reserved {
        let bytes = self.at_most_all(usize::try_from(bytes).unwrap_or(usize::MAX).min(largest));
        match Arc::clone(&self.requests).try_acquire_many_owned(bytes) {
            Ok(permit) => Reserved::Yes(permit),
            Err(_) => Reserved::Waiting(Box::pin(Arc::clone(&self.requests).acquire_many_owned(bytes))),
        }
    }

    /// Waits until there is room for the response to a request. It is held until the response is sent.
    pub(crate) async fn response(&self, request_bytes: usize) -> OwnedSemaphorePermit {
        self.room(request_bytes.saturating_mul(RESPONSE_FACTOR)).await
    }

    /// Waits until there is room for a response of so many bytes. It is held until the response is sent.
    pub(crate) async fn room(&self, bytes: usize) -> OwnedSemaphorePermit {
        let bytes = self.at_most_all(bytes);
        Arc::clone(&self.responses).acquire_many_owned(bytes).await.expect(NEVER_CLOSED)
    }

    fn at_most_all(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.min(self.total)).expect("the budget is at most u32::MAX")
    }
}

const NEVER_CLOSED: &str = "the budget is never closed";

/// A request body that takes from its connection's [`BodyBudget`] until it is dropped.
///
/// A body that is complete takes what it has. One of which more is to come reserves all that it may need before it goes on, so bodies never
/// wait for each other in a circle.
pub(crate) struct LimitedBody<B> {
    body: B,
    budget: BodyBudget,
    largest: usize,
    /// How many bytes were read.
    received: usize,
    reserved: Reserved,
    /// A frame that was read and waits for its reservation.
    read: Option<Frame<Bytes>>,
    /// Set when the body makes its reader wait, which most never do.
    deadline: Option<Sleep>,
}

enum Reserved {
    No,
    Waiting(Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send>>),
    Yes(OwnedSemaphorePermit),
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
        if matches!(self.reserved, Reserved::No) && self.budget.requests.available_permits() == 0 {
            let upper = self.body.size_hint().upper().unwrap_or(u64::MAX);
            self.reserved = self.budget.reserve(upper, self.largest);
        }
        loop {
            if let Reserved::Waiting(permit) = &mut self.reserved {
                let permit = ready!(permit.as_mut().poll(context)).expect(NEVER_CLOSED);
                self.reserved = Reserved::Yes(permit);
            }
            if let Some(frame) = self.read.take() {
                self.received += frame.data_ref().map_or(0, Bytes::len);
                if self.body.is_end_stream() {
                    self.complete();
                }
                return Poll::Ready(Some(Ok(frame)));
            }
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => return Poll::Ready(Some(Err(BodyError::Failed(error)))),
                None => {
                    self.complete();
                    return Poll::Ready(None);
                }
            };
            if let (Reserved::No, Some(data)) = (&self.reserved, frame.data_ref()) {
                let rest = if self.body.is_end_stream() { Some(0) } else { self.body.size_hint().upper() };
                let whole = rest.map_or(u64::MAX, |rest| rest.saturating_add(data.len() as u64));
                self.reserved = self.budget.reserve(whole, self.largest);
            }
            self.read = Some(frame);
        }
    }
}

impl<B> LimitedBody<B> {
    /// A body that is complete needs no more than it has.
    fn complete(&mut self) {
        self.budget.has_request.store(true, Ordering::Relaxed);
        if let Reserved::Yes(permit) = &mut self.reserved {
            let surplus = permit.num_permits().saturating_sub(self.received);
            drop(permit.split(surplus));
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
            Self::TimedOut => f.write_str("request body not complete in time"),
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

/// A response body that counts as unfinished until its last byte was handed to the socket, or it is dropped.
#[derive(Debug)]
pub(crate) struct GuardedBody<B> {
    body: B,
    /// None where a response may take as long as it likes.
    unfinished: Option<Rc<Unfinished>>,
}

/// Held by a response body and by each of its pieces.
#[derive(Debug)]
pub(crate) struct Unfinished {
    _guard: ResponseGuard,
    _room: Option<OwnedSemaphorePermit>,
}

/// A piece of a [`GuardedBody`]. HTTP/2 takes a body as a whole, whatever the peer's window, and keeps the pieces until they are sent.
#[derive(Debug)]
pub(crate) struct GuardedData<D> {
    data: D,
    _unfinished: Option<Rc<Unfinished>>,
}

impl<B> GuardedBody<B> {
    /// A body that is unfinished as long as this guard lives, and holds its room in the budget as long.
    pub(crate) fn new(body: B, guard: ResponseGuard, room: Option<OwnedSemaphorePermit>) -> Self {
        Self { body, unfinished: Some(Rc::new(Unfinished { _guard: guard, _room: room })) }
    }

    /// A body that may take as long as it likes.
    pub(crate) fn unguarded(body: B) -> Self {
        Self { body, unfinished: None }
    }
}

impl<B: Body + Unpin> Body for GuardedBody<B> {
    type Data = GuardedData<B::Data>;
    type Error = B::Error;

    #[inline]
    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        let guarded = |data| GuardedData { data, _unfinished: self.unfinished.clone() };
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(guarded))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<D: Buf> Buf for GuardedData<D> {
    fn remaining(&self) -> usize {
        self.data.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.data.chunk()
    }

    fn chunks_vectored<'a>(&'a self, into: &mut [IoSlice<'a>]) -> usize {
        self.data.chunks_vectored(into)
    }

    fn advance(&mut self, count: usize) {
        self.data.advance(count);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::pin::pin;
    use std::task::Waker;

    use http_body_util::{BodyExt, Full};

    use super::*;
    use crate::server::activity::Timeouts;

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
        let budget = BodyBudget::new(2_000, SECOND);
        let mut unfinished: Vec<_> =
            (0..3).map(|_| budget.limit(pieces(&[400, 400], false), 1_000)).collect();
        let read: Vec<usize> = unfinished.iter_mut().map(readable).collect();
        assert_eq!(read, [800, 800, 0], "each may grow to a thousand bytes");
        let mut small = budget.limit(pieces(&[10], true), 1_000);
        assert_eq!(readable(&mut small), 0, "the third comes first");
        unfinished.remove(0);
        assert_eq!((readable(&mut unfinished[1]), readable(&mut small)), (800, 0));
        unfinished.remove(0);
        assert_eq!(readable(&mut small), 10);
    }

    /// Guards, item 2.
    #[tokio::test(start_paused = true)]
    async fn bodies_that_are_complete_take_what_they_have() {
        let budget = BodyBudget::new(2_000, SECOND);
        let mut complete: Vec<_> = (0..20).map(|_| budget.limit(pieces(&[100], true), 1_000)).collect();
        assert!(complete.iter_mut().all(|body| readable(body) == 100));
        assert_eq!(readable(&mut budget.limit(pieces(&[1], true), 1_000)), 0, "nothing is left");
        drop(complete);
        assert_eq!(readable(&mut budget.limit(pieces(&[900, 100], true), 1_000)), 1_000);
    }

    /// Guards, item 2.
    #[tokio::test(start_paused = true)]
    async fn a_body_that_is_complete_releases_what_it_had_reserved() {
        let budget = BodyBudget::new(1_000, SECOND);
        let mut body = budget.limit(pieces(&[10, 10], true), 1_000);
        assert_eq!(readable(&mut body), 20);
        let mut next = budget.limit(pieces(&[980], true), 1_000);
        assert_eq!(readable(&mut next), 980);
        assert_eq!(readable(&mut budget.limit(pieces(&[1], true), 1_000)), 0, "both are held");
    }

    /// Guards, item 1: a connection whose first request is never complete is closed, also if its response has begun.
    #[tokio::test(start_paused = true)]
    async fn a_request_is_complete_when_its_body_is() {
        for (sizes, ends) in [(&[][..], true), (&[], false), (&[10], true), (&[10], false)] {
            let activity = Activity::new(Timeouts { read: SECOND, write: SECOND });
            let budget = BodyBudget::new(1_000, SECOND).noted_by(&activity);
            let _response = activity.respond_early();
            readable(&mut budget.limit(pieces(sizes, ends), 1_000));
            assert_eq!(activity.has_request().load(Ordering::Relaxed), ends, "{sizes:?}");
        }
    }

    /// Guards, item 2.
    #[tokio::test(start_paused = true)]
    async fn a_response_holds_its_room_and_is_unfinished_until_its_last_piece_is_dropped() {
        let (budget, timeouts) = (BodyBudget::new(800, SECOND), Timeouts { read: SECOND, write: SECOND });
        let activity = Activity::new(timeouts);
        let room = budget.response(100).await;
        let body = Full::new(Bytes::from_static(b"answer"));
        let mut body = GuardedBody::new(body, activity.respond(), Some(room));
        let piece = body.frame().await.unwrap().unwrap().into_data().unwrap();
        drop(body);
        let mut next = pin!(budget.response(1));
        let mut context = Context::from_waker(Waker::noop());
        assert!(next.as_mut().poll(&mut context).is_pending());
        assert_eq!((piece.chunk(), activity.unfinished()), (&b"answer"[..], 1));
        drop(piece);
        assert!(next.as_mut().poll(&mut context).is_ready());
        assert_eq!(activity.unfinished(), 0);
    }

    /// Guards, item 2.
    #[tokio::test(start_paused = true)]
    async fn a_body_that_is_late_is_an_error_whatever_it_waits_for() {
        let budget = BodyBudget::new(1_000, SECOND);
        let (slow, waiting) =
            (budget.limit(pieces(&[10], false), 1_000), budget.limit(pieces(&[10], true), 1_000));
        let (slow, waiting) = tokio::join!(slow.collect(), waiting.collect());
        assert!(matches!(slow.unwrap_err(), BodyError::TimedOut));
        assert!(matches!(waiting.unwrap_err(), BodyError::TimedOut));
    }
}
