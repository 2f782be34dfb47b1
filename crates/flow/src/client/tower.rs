//! Around a tower service.

use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Extensions, HeaderMap, Request, Response, StatusCode};
use tower_layer::Layer;
use tower_service::Service;

use super::errand::{Errand, upstream_of};
use super::error::NoAnswer;
use super::polite::Polite;
use super::wire::{BoxError, Wire};

/// Wraps a service of HTTP requests.
///
/// # Examples
/// ```
/// use http::{Request, Response};
/// use tollgate_flow::client::Effort;
/// use tollgate_flow::Manners;
/// use tower_layer::Layer;
/// use tower_service::Service;
/// # #[derive(Clone)]
/// # struct Hello;
/// # impl Service<Request<String>> for Hello {
/// #     type Response = Response<&'static str>;
/// #     type Error = std::io::Error;
/// #     type Future = std::future::Ready<Result<Self::Response, Self::Error>>;
/// #     fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
/// #         std::task::Poll::Ready(Ok(()))
/// #     }
/// #     fn call(&mut self, _: Request<String>) -> Self::Future {
/// #         std::future::ready(Ok(Response::new("hello")))
/// #     }
/// # }
/// # fn http_client() -> Hello { Hello }
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
/// # runtime.block_on(async {
/// let mut client = Manners::new().build().layer(http_client());
/// let request = Request::get("https://example.org/items").body(String::new()).unwrap();
/// let response = client.call(request).await?;
/// assert_eq!(*response.body(), "hello");
/// assert_eq!(response.extensions().get::<Effort>().unwrap().attempts, 1);
/// # Ok::<(), tollgate_flow::client::NoAnswer>(())
/// # }).unwrap();
/// ```
impl<S> Layer<S> for Polite {
    type Service = PoliteService<S>;

    fn layer(&self, inner: S) -> PoliteService<S> {
        PoliteService { polite: self.clone(), inner }
    }
}

/// An HTTP client as a tower service, with manners; made by [`Polite`] as a layer.
///
/// It is always ready, and holds nothing that was not asked for: calls wait for their turns in line, and the inner service is
/// asked whether it is ready when a turn has come. The inner service is cloned for each attempt, so its clones should
/// send to the same place. Bodies are cloned for each attempt, too: those that are streams must be collected first.
///
/// Clones, and all other services of the same [`Polite`], share one state.
#[derive(Clone, Debug)]
pub struct PoliteService<S> {
    polite: Polite,
    inner: S,
}

impl<S, B, R> Service<Request<B>> for PoliteService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: Clone + Send + 'static,
    R: Send + 'static,
{
    type Response = Response<R>;
    type Error = NoAnswer;
    type Future = Pin<Box<dyn Future<Output = Result<Response<R>, NoAnswer>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), NoAnswer>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let upstream = upstream_of(request.uri(), request.headers());
        let errand = Errand::new(upstream, request.method(), request.headers(), request.extensions());
        let call = self.polite.call(errand, Inner(self.inner.clone(), PhantomData));
        Box::pin(call.make(request))
    }
}

/// The inner service, for requests with bodies of `B`.
struct Inner<S, B>(S, PhantomData<fn(B)>);

impl<S: Clone, B> Clone for Inner<S, B> {
    fn clone(&self) -> Self {
        Self(self.0.clone(), PhantomData)
    }
}

impl<S, B, R> Wire for Inner<S, B>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: Clone + Send,
    R: Send,
{
    type Request = Request<B>;
    type Answer = Response<R>;
    type Ready = S;

    async fn ready(mut self) -> Result<S, BoxError> {
        poll_fn(|context| self.0.poll_ready(context)).await.map_err(Into::into)?;
        Ok(self.0)
    }

    async fn send(mut ready: S, request: Request<B>) -> Result<Response<R>, BoxError> {
        ready.call(request).await.map_err(Into::into)
    }

    fn copy(request: &Request<B>) -> Option<Request<B>> {
        Some(request.clone())
    }

    fn head(answer: &Response<R>) -> (StatusCode, &HeaderMap) {
        (answer.status(), answer.headers())
    }

    fn extensions_mut(answer: &mut Response<R>) -> &mut Extensions {
        answer.extensions_mut()
    }
}
