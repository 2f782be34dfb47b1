//! A call on its way.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use pin_project_lite::pin_project;
use tollgate::store::Store;
use tower_service::Service;

use super::judge::{Judging, Pass, Ruling};
use super::rules::Rules;
use super::settle::{Closing, Settling};
use crate::body::{Counter, LimitedBody};
use crate::head::Head;

pin_project! {
    /// The answer of a [`RateLimit`](crate::RateLimit).
    ///
    /// # Cancel safety
    /// A call that is dropped costs what was taken at first, if it had been taken by then.
    pub struct RateLimitFuture<N, S, B, R>
    where
        N: Service<Request<B>>,
        S: Store,
    {
        #[pin]
        state: State<N, S, B, R>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<N, S, B, R>
    where
        N: Service<Request<B>>,
        S: Store,
    {
        // What waits is rare, and large.
        Judging { rules: Arc<Rules<S>>, judging: Judging<S>, call: Option<Box<(N, Request<B>)>> },
        // With the rules that are to be closed by, if there is anything to close.
        Calling { #[pin] call: N::Future, open: Option<(Arc<Rules<S>>, Pass<S>)> },
        Settling { rules: Arc<Rules<S>>, settling: Settling<S>, response: Option<Response<R>> },
        Refused { response: Option<Response<Bytes>> },
    }
}

impl<N: Service<Request<B>>, S: Store, B, R> RateLimitFuture<N, S, B, R> {
    pub(super) fn judging(rules: &Arc<Rules<S>>, judging: Judging<S>, inner: N, request: Request<B>) -> Self {
        let (rules, call) = (Arc::clone(rules), Some(Box::new((inner, request))));
        Self { state: State::Judging { rules, judging, call } }
    }

    #[inline]
    pub(super) fn calling(rules: &Arc<Rules<S>>, call: N::Future, pass: Pass<S>) -> Self {
        Self { state: State::calling(rules, call, pass) }
    }

    pub(super) fn refused(response: Response<Bytes>) -> Self {
        Self { state: State::Refused { response: Some(response) } }
    }
}

impl<N: Service<Request<B>>, S: Store, B, R> State<N, S, B, R> {
    #[inline]
    fn calling(rules: &Arc<Rules<S>>, call: N::Future, pass: Pass<S>) -> Self {
        let is_open = !matches!(pass, Pass::Free);
        Self::Calling { call, open: is_open.then(|| (Arc::clone(rules), pass)) }
    }
}

impl<N, S, B, R> Future for RateLimitFuture<N, S, B, R>
where
    N: Service<Request<B>, Response = Response<R>>,
    S: Store,
{
    type Output = Result<Response<LimitedBody<R>>, N::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateProjection::Judging { rules, judging, call } => {
                    let ruling = ready!(judging.as_mut().poll(context));
                    let (mut inner, request) = *call.take().expect(POLLED_AGAIN);
                    match ruling {
                        Ruling::Pass(pass) => State::calling(rules, inner.call(request), pass),
                        Ruling::Refuse(refusal) => {
                            let response = rules.refuse(Head::of(&request), &refusal);
                            State::Refused { response: Some(response) }
                        }
                    }
                }
                StateProjection::Calling { call, open } => {
                    let mut response = ready!(call.poll(context))?;
                    let Some((rules, pass)) = open else { return answered(response, None) };
                    match rules.close(pass, &mut response) {
                        Closing::Done => return answered(response, None),
                        Closing::Count(counter) => return answered(response, Some(counter)),
                        Closing::Settle(settling) => {
                            let rules = Arc::clone(rules);
                            State::Settling { rules, settling, response: Some(response) }
                        }
                    }
                }
                StateProjection::Settling { rules, settling, response } => {
                    let taken = ready!(settling.as_mut().poll(context));
                    let mut response = response.take().expect(POLLED_AGAIN);
                    rules.write(&taken, response.headers_mut());
                    return answered(response, None);
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

fn answered<R, E>(
    response: Response<R>,
    counter: Option<Counter>,
) -> Poll<Result<Response<LimitedBody<R>>, E>> {
    Poll::Ready(Ok(response.map(|body| LimitedBody::of_service(body, counter))))
}

impl<N: Service<Request<B>>, S: Store, B, R> fmt::Debug for RateLimitFuture<N, S, B, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::Judging { .. } => "judging",
            State::Calling { .. } => "calling",
            State::Settling { .. } => "settling",
            State::Refused { .. } => "refused",
        };
        f.debug_struct("RateLimitFuture").field("state", &state).finish_non_exhaustive()
    }
}
