//! A service that gets only so many calls at once.

use std::mem;
use std::task::{Context, Poll};

use http::{Request, Response};
use tollgate_flow::Time;
use tower_service::Service;

use super::future::{ConcurrencyFuture, Waiting};
use super::layer::ConcurrencyLimitLayer;
use crate::body::LimitedBody;
use crate::head::Head;

/// A service that gets only so many calls at once; made by [`ConcurrencyLimitLayer`] and [`LoadShed`](crate::LoadShed).
///
/// It is ready whenever the inner service is; a slot is taken when it is called, so being ready holds none. Clones share one
/// limit.
#[derive(Clone, Debug)]
pub struct ConcurrencyLimited<N> {
    pub(super) layer: ConcurrencyLimitLayer,
    pub(super) inner: N,
}

impl<N, B, R> Service<Request<B>> for ConcurrencyLimited<N>
where
    N: Service<Request<B>, Response = Response<R>> + Clone,
{
    type Response = Response<LimitedBody<R>>;
    type Error = N::Error;
    type Future = ConcurrencyFuture<N, B>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), N::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if let Some(permit) = self.layer.slots.try_acquire() {
            return ConcurrencyFuture::calling(self.inner.call(request), permit);
        }
        if self.layer.longest_wait.is_zero() {
            return ConcurrencyFuture::refused(&Head::of(&request));
        }
        // The one that said it is ready is the one to be called.
        let clone = self.inner.clone();
        let ready = mem::replace(&mut self.inner, clone);
        ConcurrencyFuture::waiting(wait(self.layer.clone()), ready, request)
    }
}

/// Waits for a slot, but not for ever.
fn wait(layer: ConcurrencyLimitLayer) -> Waiting {
    let ConcurrencyLimitLayer { slots, longest_wait, time } = layer;
    let time = time.unwrap_or_else(Time::tokio);
    Box::pin(async move { time.timeout(longest_wait, slots.acquire()).await.ok()?.ok() })
}
