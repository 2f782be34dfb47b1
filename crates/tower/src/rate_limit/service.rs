//! A service with limits in front of it.

use std::fmt;
use std::mem;
use std::task::{Context, Poll};

use http::{Request, Response};
use tollgate::store::{MemoryStore, Store};
use tower_service::Service;

use super::current::Current;
use super::future::RateLimitFuture;
use super::judge::{Judged, Ruling};
use crate::body::LimitedBody;
use crate::head::Head;

/// A service with limits in front of it; made by [`RateLimitLayer`](crate::RateLimitLayer).
///
/// It is ready whenever the inner service is; limits are asked when it is called, so being ready takes nothing of them. Clones
/// share one state.
pub struct RateLimit<N, S: Store = MemoryStore> {
    pub(super) current: Current<S>,
    pub(super) inner: N,
}

impl<N, S, B, R> Service<Request<B>> for RateLimit<N, S>
where
    N: Service<Request<B>, Response = Response<R>> + Clone,
    S: Store,
{
    type Response = Response<LimitedBody<R>>;
    type Error = N::Error;
    type Future = RateLimitFuture<N, S, B, R>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), N::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let rules = self.current.rules();
        let head = Head::of(&request);
        let judged = match rules.judge_call(&head) {
            Ok(pass) => return RateLimitFuture::calling(&rules, self.inner.call(request), pass),
            Err(judged) => judged,
        };
        match judged {
            Judged::Now(Ruling::Pass(pass)) => {
                RateLimitFuture::calling(&rules, self.inner.call(request), pass)
            }
            Judged::Now(Ruling::Refuse(refusal)) => RateLimitFuture::refused(rules.refuse(head, &refusal)),
            Judged::Later(judging) => {
                // The one that said it is ready is the one to be called.
                let clone = self.inner.clone();
                let ready = mem::replace(&mut self.inner, clone);
                RateLimitFuture::judging(&rules, judging, ready, request)
            }
        }
    }
}

impl<N: Clone, S: Store> Clone for RateLimit<N, S> {
    fn clone(&self) -> Self {
        Self { current: self.current.clone(), inner: self.inner.clone() }
    }
}

impl<N: fmt::Debug, S: Store> fmt::Debug for RateLimit<N, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit")
            .field("limits", &self.current.rules().limits())
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
