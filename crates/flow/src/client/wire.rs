//! How requests are sent.

use std::error::Error;
use std::future::Future;

use http::{Extensions, HeaderMap, StatusCode};

pub(super) type BoxError = Box<dyn Error + Send + Sync>;

/// An ordinary client, as far as it is needed here. Clones send to the same place.
pub(super) trait Wire: Clone + Send {
    type Request: Send;
    type Answer: Send;
    /// A client that is ready for one request.
    type Ready: Send;

    /// Waits until the client can take a request.
    fn ready(self) -> impl Future<Output = Result<Self::Ready, BoxError>> + Send;

    /// Sends one.
    fn send(
        ready: Self::Ready,
        request: Self::Request,
    ) -> impl Future<Output = Result<Self::Answer, BoxError>> + Send;

    /// The same request once more, if it can be had.
    fn copy(request: &Self::Request) -> Option<Self::Request>;

    fn head(answer: &Self::Answer) -> (StatusCode, &HeaderMap);

    fn extensions_mut(answer: &mut Self::Answer) -> &mut Extensions;
}
