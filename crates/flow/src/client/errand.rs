//! What a request says about how it is to be treated.

use http::uri::{Authority, Scheme};
use http::{Extensions, HeaderMap, Method, Uri};

use crate::Scope;

/// Whether a request may be sent more than once, whatever its method says: an extension of the request.
///
/// `Repeat(true)` is for a `POST` that changes nothing, such as a search, or that may happen twice. `Repeat(false)` makes
/// one attempt and no more, even if that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeat(pub bool);

/// What a request says about how it is to be treated.
#[derive(Clone, Debug)]
pub(super) struct Errand {
    /// The host and port it goes to, and nothing else of the address: this is logged.
    pub(super) upstream: String,
    pub(super) method: Method,
    pub(super) leave: Leave,
    /// The caller's, if there is one.
    pub(super) scope: Option<Scope>,
}

/// When a request may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leave {
    Never,
    /// If it is certain that nothing came of it.
    IfUndone,
    Always,
}

impl Errand {
    pub(super) fn new(
        upstream: String,
        method: &Method,
        headers: &HeaderMap,
        extensions: &Extensions,
    ) -> Self {
        let leave = match extensions.get() {
            Some(Repeat(false)) => Leave::Never,
            Some(Repeat(true)) => Leave::Always,
            None if is_repeatable(method, headers) => Leave::Always,
            None => Leave::IfUndone,
        };
        Self { upstream, method: method.clone(), leave, scope: extensions.get().cloned() }
    }

    /// Whether two copies of it may be on their way at once. A late copy of a `PUT` could undo what came after it, and the
    /// second of two `DELETE`s finds nothing; so being idempotent is not enough.
    pub(super) fn may_hedge(&self) -> bool {
        self.method.is_safe() && self.leave == Leave::Always
    }
}

/// RFC 9110, section 9.2.2; or the server promises to do it once, by the key.
fn is_repeatable(method: &Method, headers: &HeaderMap) -> bool {
    method.is_idempotent() || headers.contains_key("idempotency-key")
}

/// Host and port, in one way of writing. Never what comes before an `@`.
pub(super) fn upstream(scheme: Option<&str>, host: &str, port: Option<u16>) -> String {
    let known = match scheme {
        Some("http") => Some(80),
        Some("https") => Some(443),
        _ => None,
    };
    let host = host.to_ascii_lowercase();
    match port.or(known) {
        Some(port) => format!("{host}:{port}"),
        None => host,
    }
}

/// Where a request goes: by its address, or else its `Host`.
#[cfg_attr(not(feature = "tower"), allow(dead_code, reason = "reqwest has an address type of its own"))]
pub(super) fn upstream_of(uri: &Uri, headers: &HeaderMap) -> String {
    let named = || headers.get(http::header::HOST)?.to_str().ok()?.parse::<Authority>().ok();
    let authority = uri.authority().cloned().or_else(named);
    authority.map_or_else(String::new, |authority| {
        upstream(uri.scheme().map(Scheme::as_str), authority.host(), authority.port_u16())
    })
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn errand(method: &Method, headers: &HeaderMap, extensions: &Extensions) -> Errand {
        Errand::new("example.org".to_owned(), method, headers, extensions)
    }

    #[test]
    fn what_is_idempotent_may_always_be_sent_again() {
        let (headers, extensions) = (HeaderMap::new(), Extensions::new());
        let leave = |method: &Method| errand(method, &headers, &extensions).leave;
        for method in [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE, Method::PUT, Method::DELETE]
        {
            assert_eq!(leave(&method), Leave::Always, "{method}");
        }
        let unknown = Method::from_bytes(b"BREW").unwrap();
        for method in [Method::POST, Method::PATCH, Method::CONNECT, unknown] {
            assert_eq!(leave(&method), Leave::IfUndone, "{method}");
        }
    }

    #[test]
    fn a_key_makes_it_idempotent_and_the_caller_has_the_last_word() {
        let keyed = HeaderMap::from_iter([("idempotency-key".parse().unwrap(), HeaderValue::from(7))]);
        let mut extensions = Extensions::new();
        assert_eq!(errand(&Method::POST, &keyed, &extensions).leave, Leave::Always);
        extensions.insert(Repeat(false));
        assert_eq!(errand(&Method::POST, &keyed, &extensions).leave, Leave::Never);
        assert!(!errand(&Method::GET, &keyed, &extensions).may_hedge());
        extensions.insert(Repeat(true));
        assert_eq!(errand(&Method::PATCH, &HeaderMap::new(), &extensions).leave, Leave::Always);
    }

    #[test]
    fn only_what_changes_nothing_is_hedged() {
        let may_hedge = |method: &Method| errand(method, &HeaderMap::new(), &Extensions::new()).may_hedge();
        assert!(may_hedge(&Method::GET) && may_hedge(&Method::HEAD));
        assert!(!may_hedge(&Method::PUT) && !may_hedge(&Method::DELETE) && !may_hedge(&Method::POST));
    }

    #[test]
    fn one_upstream_has_one_name() {
        let to = |uri: &str| upstream_of(&uri.parse().unwrap(), &HeaderMap::new());
        assert_eq!(to("https://Example.ORG/a?secret"), "example.org:443");
        assert_eq!(to("https://name:word@example.org:443/b"), "example.org:443");
        assert_eq!(to("http://example.org"), "example.org:80");
        assert_eq!(to("http://[::1]:8080/"), "[::1]:8080");
        assert_eq!(to("/only/a/path"), "");
    }

    #[test]
    fn without_an_authority_the_host_field_tells() {
        let headers = |host: &str| HeaderMap::from_iter([(http::header::HOST, host.parse().unwrap())]);
        let to = |host: &str| upstream_of(&Uri::from_static("/a"), &headers(host));
        assert_eq!(to("Example.org:81"), "example.org:81");
        assert_eq!(to("example.org"), "example.org");
        assert_eq!(to("not a host"), "");
    }
}
