//! A call on its way, or in line.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{Request, Response};
use pin_project_lite::pin_project;
use tollgate_http::retry_after_value;
use tower_service::Service;

use super::slots::Permit;
use crate::body::LimitedBody;
use crate::head::Head;
use crate::rate_limit::{Denial, Reason};

/// None if it took too long.
pub(super) type Waiting = Pin<Box<dyn Future<Output = Option<Permit>> + Send>>;

pin_project! {
    /// The answer of a [`ConcurrencyLimited`](crate::ConcurrencyLimited) service.
    ///
    /// # Cancel safety
    /// A call that is dropped gives its slot, or its place in line, back at once.
    pub struct ConcurrencyFuture<N, B>
    where
        N: Service<Request<B>>,
    {
        #[pin]
        state: State<N, B>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<N, B>
    where
        N: Service<Request<B>>,
    {
        Waiting { waiting: Waiting, call: Option<(N, Request<B>)> },
        Calling { #[pin] call: N::Future, permit: Option<Permit> },
        Refused { response: Option<Response<Bytes>> },
    }
}

impl<N: Service<Request<B>>, B> ConcurrencyFuture<N, B> {
    pub(super) fn waiting(waiting: Waiting, inner: N, request: Request<B>) -> Self {
        Self { state: State::Waiting { waiting, call: Some((inner, request)) } }
    }

    pub(super) fn calling(call: N::Future, permit: Permit) -> Self {
        Self { state: State::Calling { call, permit: Some(permit) } }
    }

    pub(super) fn refused(head: &Head<'_>) -> Self {
        Self { state: State::Refused { response: Some(busy(*head)) } }
    }
}

impl<N, B, R> Future for ConcurrencyFuture<N, B>
where
    N: Service<Request<B>, Response = Response<R>>,
{
    type Output = Result<Response<LimitedBody<R>>, N::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateProjection::Waiting { waiting, call } => {
                    let permit = ready!(waiting.as_mut().poll(context));
                    let (mut inner, request) = call.take().expect(POLLED_AGAIN);
                    match permit {
                        Some(permit) => State::Calling { call: inner.call(request), permit: Some(permit) },
                        None => State::Refused { response: Some(busy(Head::of(&request))) },
                    }
                }
                StateProjection::Calling { call, permit } => {
                    let result = ready!(call.poll(context));
                    let permit = permit.take(); // which is given back, however it went
                    let response = result?;
                    permit.expect(POLLED_AGAIN).answered(response.status());
                    return Poll::Ready(Ok(response.map(|body| LimitedBody::of_service(body, None))));
                }
                StateProjection::Refused { response } => {
                    let response = response.take().expect(POLLED_AGAIN);
                    return Poll::Ready(Ok(response.map(LimitedBody::of_refusal)));
                }
            };
            this.state.set(next);
        }
    }
}

const POLLED_AGAIN: &str = "a future is not polled after it was ready";

/// Nobody knows when there is a slot again: soon, mostly.
const COME_BACK_AFTER: Duration = Duration::from_secs(1);

fn busy(head: Head<'_>) -> Response<Bytes> {
    tracing::debug!("request rejected: concurrency limit reached");
    let mut response = Denial::of(head, Reason::TooManyAtOnce).response();
    response.headers_mut().insert(RETRY_AFTER, retry_after_value(COME_BACK_AFTER));
    response
}

impl<N: Service<Request<B>>, B> fmt::Debug for ConcurrencyFuture<N, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::Waiting { .. } => "waiting",
            State::Calling { .. } => "calling",
            State::Refused { .. } => "refused",
        };
        f.debug_struct("ConcurrencyFuture").field("state", &state).finish()
    }
}
