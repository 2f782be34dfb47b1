//! What is known of a call before its body, and of its answer.

use http::{Extensions, HeaderMap, Method, Request, Response, StatusCode, Uri};

/// A request without its body: what limits may look at.
///
/// # Examples
/// ```
/// use http::Request;
/// use tollgate_tower::Head;
///
/// let request = Request::get("/items?page=2").header("x-tenant", "acme").body(()).unwrap();
/// let head = Head::of(&request);
/// assert_eq!((head.uri.path(), head.text("x-tenant")), ("/items", Some("acme")));
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Head<'a> {
    /// What to do.
    pub method: &'a Method,
    /// With what.
    pub uri: &'a Uri,
    /// What else was sent.
    pub headers: &'a HeaderMap,
    /// What the server and the layers further out added.
    pub extensions: &'a Extensions,
}

impl<'a> Head<'a> {
    /// That of a request.
    pub fn of<B>(request: &'a Request<B>) -> Self {
        Self {
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            extensions: request.extensions(),
        }
    }

    /// The first value of a header, if it is text.
    pub fn text(&self, name: &str) -> Option<&'a str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// An answer without its body: what a cost may be settled by.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Reply<'a> {
    /// How it went.
    pub status: StatusCode,
    /// What else is sent.
    pub headers: &'a HeaderMap,
    /// What the handler and the layers further in added.
    pub extensions: &'a Extensions,
}

impl<'a> Reply<'a> {
    /// That of a response.
    pub fn of<B>(response: &'a Response<B>) -> Self {
        Self { status: response.status(), headers: response.headers(), extensions: response.extensions() }
    }
}
