//! As a middleware of reqwest's.

use ::reqwest::{Request, Response};
use async_trait::async_trait;
use http::{Extensions, HeaderMap, StatusCode};
use reqwest_middleware::{Error, Middleware, Next, Result};

use super::errand::{Errand, upstream};
use super::error::NoAnswer;
use super::polite::Polite;
use super::wire::{BoxError, Wire};

/// Goes around all that comes after it in the client's list of middlewares, which runs for each attempt.
///
/// A [`Scope`](crate::Scope) or [`Repeat`](crate::client::Repeat) for a request is given by `with_extension`. Time-outs of reqwest's own
/// are for one attempt.
///
/// # Errors
/// What is not reqwest's own is a [`NoAnswer`] within `Error::Middleware`.
///
/// # Examples
/// ```no_run
/// use reqwest_middleware::ClientBuilder;
/// use tollgate_flow::client::Effort;
/// use tollgate_flow::Manners;
///
/// # async fn call() -> Result<(), reqwest_middleware::Error> {
/// let client = ClientBuilder::new(reqwest::Client::new()).with(Manners::new().build()).build();
/// let response = client.get("https://example.org/items").send().await?;
/// if let Some(effort) = response.extensions().get::<Effort>() {
///     println!("{} after {} attempts", response.status(), effort.attempts);
/// }
/// # Ok(())
/// # }
/// ```
#[async_trait]
impl Middleware for Polite {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        let url = request.url();
        let upstream =
            upstream(Some(url.scheme()), url.host_str().unwrap_or_default(), url.port_or_known_default());
        let errand = Errand::new(upstream, request.method(), request.headers(), extensions);
        let rest = Rest { next, extensions: extensions.clone() };
        let answer = self.call(errand, rest).make(request).await.map_err(error)?;
        *extensions = answer.extensions;
        Ok(answer.response)
    }
}

fn error(no_answer: NoAnswer) -> Error {
    let no_answer = match no_answer {
        NoAnswer::Failed(error) => match error.downcast::<Error>() {
            Ok(error) => return *error,
            Err(error) => NoAnswer::Failed(error),
        },
        other => other,
    };
    Error::middleware(no_answer)
}

/// The rest of the middlewares, and the client.
#[derive(Clone)]
struct Rest<'a> {
    next: Next<'a>,
    extensions: Extensions,
}

/// A response, and what the rest of the middlewares left for those before them.
struct Answer {
    response: Response,
    extensions: Extensions,
}

impl Wire for Rest<'_> {
    type Request = Request;
    type Answer = Answer;
    type Ready = Self;

    async fn ready(self) -> std::result::Result<Self, BoxError> {
        Ok(self)
    }

    async fn send(mut ready: Self, request: Request) -> std::result::Result<Answer, BoxError> {
        let response = ready.next.run(request, &mut ready.extensions).await?;
        Ok(Answer { response, extensions: ready.extensions })
    }

    fn copy(request: &Request) -> Option<Request> {
        request.try_clone()
    }

    fn head(answer: &Answer) -> (StatusCode, &HeaderMap) {
        (answer.response.status(), answer.response.headers())
    }

    fn extensions_mut(answer: &mut Answer) -> &mut Extensions {
        answer.response.extensions_mut()
    }
}
