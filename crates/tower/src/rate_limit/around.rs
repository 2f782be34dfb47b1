//! Limits around a whole router of axum.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use http::{Request, Response};
use pin_project_lite::pin_project;
use tollgate::store::{MemoryStore, Store};
use tower_layer::Layer;
use tower_service::Service;

use super::future::RateLimitFuture;
use super::layer::RateLimitLayer;
use super::service::RateLimit;

impl<S: Store> RateLimitLayer<S> {
    /// Puts the limits around a whole router, which costs a call less than [`Router::layer`]: that one puts them around each route,
    /// which boxes every call, and the body of every answer, once more. The route that a call takes is not known yet, so
    /// [`Key::matched_route`](crate::Key::matched_route) finds none.
    ///
    /// # Examples
    /// ```
    /// use std::net::SocketAddr;
    ///
    /// use axum::extract::Request;
    /// use axum::routing::get;
    /// use axum::{Router, ServiceExt};
    /// use tokio::net::TcpListener;
    /// use tollgate_tower::{Key, Limit, NoKey, Quota, RateLimitLayer};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let per_client = Limit::new("per-client", Quota::per_minute(100)).per(Key::client(), NoKey::Refuse);
    /// let limits = RateLimitLayer::new(per_client)?;
    /// let app = limits.around(Router::new().route("/", get(async || "hello")));
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// let service = ServiceExt::<Request>::into_make_service_with_connect_info::<SocketAddr>(app);
    /// let serving = axum::serve(listener, service).with_graceful_shutdown(async { /* until something happens */ });
    /// serving.await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn around(&self, router: Router) -> LimitedRouter<S> {
        // With its state, a router is made ready for calls once, and not for each.
        LimitedRouter { inner: self.layer(router.with_state(())) }
    }
}

/// A router with limits around it; made by [`RateLimitLayer::around`]. Clones share one state.
pub struct LimitedRouter<S: Store = MemoryStore> {
    inner: RateLimit<Router, S>,
}

impl<S: Store> Service<Request<Body>> for LimitedRouter<S> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = LimitedRouterFuture<S>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Service::<Request<Body>>::poll_ready(&mut self.inner, context)
    }

    fn call(&mut self, request: Request<Body>) -> LimitedRouterFuture<S> {
        LimitedRouterFuture { call: self.inner.call(request) }
    }
}

impl<S: Store> Clone for LimitedRouter<S> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone() }
    }
}

impl<S: Store> fmt::Debug for LimitedRouter<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LimitedRouter").field(&self.inner).finish()
    }
}

pin_project! {
    /// The answer of a [`LimitedRouter`].
    ///
    /// # Cancel safety
    /// As that of a [`RateLimitFuture`].
    pub struct LimitedRouterFuture<S: Store> {
        #[pin]
        call: RateLimitFuture<Router, S, Body, Body>,
    }
}

impl<S: Store> Future for LimitedRouterFuture<S> {
    type Output = Result<Response<Body>, Infallible>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().call.poll(context).map_ok(|response| response.map(Body::from))
    }
}

impl<S: Store> fmt::Debug for LimitedRouterFuture<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LimitedRouterFuture").field(&self.call).finish()
    }
}
