//! Which Host a request may name, and which pages of the web may send it.
//!
//! A web page cannot read from or write to another host, but its own host name may be made to resolve to this machine. So where a
//! client does not prove who it is, the host that it names must be one that this service is known by.

use std::net::IpAddr;

use http::header::{HOST, ORIGIN};
use http::request::Parts;
use http::{StatusCode, Version};

use super::refusal::Refusal;

/// The host names that a service is known by, besides `localhost`, names below it, and every IP address.
///
/// # Examples
/// ```
/// use tollgate_server::Hosts;
///
/// let hosts = Hosts::new(["tollgate.internal"]);
/// assert!(hosts.allows(b"tollgate.internal:8080") && hosts.allows(b"127.0.0.1:8080") && hosts.allows(b"localhost"));
/// assert!(!hosts.allows(b"attacker.example"));
/// assert!(Hosts::new(["*"]).allows(b"attacker.example"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts {
    names: Vec<String>,
}

impl Hosts {
    /// These names; `*` is every name.
    pub fn new(names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { names: names.into_iter().map(Into::into).collect() }
    }

    /// Whether a host, with or without a port, is one of them.
    pub fn allows(&self, host: &[u8]) -> bool {
        let Some(name) = std::str::from_utf8(host).ok().map(without_port) else { return false };
        let is_address = || name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().is_ok();
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        let is_local = || is("localhost") || is_below(name, ".localhost");
        is_address() || is_local() || self.names.iter().any(|known| known == "*" || is(known))
    }
}

fn is_below(name: &str, suffix: &str) -> bool {
    let start = name.len().saturating_sub(suffix.len());
    start > 0 && name.get(start..).is_some_and(|end| end.eq_ignore_ascii_case(suffix))
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        // The colons of an IPv6 address stand within brackets.
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.is_empty() => name,
        _ => host,
    }
}

/// The host that a request names.
///
/// # Errors
/// If a request of HTTP/1.1 has no Host field, or any request has two.
pub(super) fn host_of(head: &Parts) -> Result<Option<&[u8]>, Refusal> {
    let mut fields = head.headers.get_all(HOST).iter();
    let (field, second) = (fields.next(), fields.next());
    if second.is_some() {
        return Err(Refusal::last(StatusCode::BAD_REQUEST, "two Host headers"));
    }
    if field.is_none() && head.version == Version::HTTP_11 {
        return Err(Refusal::last(StatusCode::BAD_REQUEST, "missing Host header"));
    }
    let authority = head.uri.authority().map(|authority| authority.as_str().as_bytes());
    Ok(authority.or(field.map(http::HeaderValue::as_bytes)))
}

/// Rejects a request from a web page of another origin.
pub(super) fn same_origin(head: &Parts, host: Option<&[u8]>) -> Result<(), Refusal> {
    let Some(origin) = head.headers.get(ORIGIN) else { return Ok(()) };
    let authority = origin.to_str().ok().and_then(|origin| Some(origin.split_once("://")?.1));
    if authority
        .is_some_and(|authority| host.is_some_and(|host| host.eq_ignore_ascii_case(authority.as_bytes())))
    {
        return Ok(());
    }
    let detail = format!("request from another origin, {origin:?}, rejected");
    Err(Refusal::new(StatusCode::FORBIDDEN, detail))
}

/// Returns the error for an unauthenticated request that names an unknown host.
pub(super) fn unknown_host(host: &[u8]) -> Refusal {
    let host: String = String::from_utf8_lossy(host).chars().take(255).collect();
    let detail = format!(
        "unknown host {host:?}: use an IP address or localhost, send a token, or add the name to http.hosts"
    );
    Refusal::new(StatusCode::MISDIRECTED_REQUEST, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guards, item 5.
    #[test]
    fn addresses_and_loopback_names_are_allowed() {
        let hosts = Hosts::default();
        for good in [
            "127.0.0.1",
            "127.0.0.1:8080",
            "10.0.0.7:1",
            "[::1]",
            "[::1]:8080",
            "localhost",
            "LocalHost:8080",
            "a.localhost",
            "a.b.localhost:80",
        ] {
            assert!(hosts.allows(good.as_bytes()), "{good}");
        }
        for bad in
            ["", ":80", "h", "localhost.example", "notlocalhost", "127.0.0.1.example", ".localhost", "\u{e9}"]
        {
            assert!(!hosts.allows(bad.as_bytes()), "{bad}");
        }
        assert!(!hosts.allows(b"\xff"));
    }

    /// Guards, item 5.
    #[test]
    fn given_names_are_allowed_with_any_port_and_case() {
        let hosts = Hosts::new(["tollgate.internal"]);
        for good in ["tollgate.internal", "TOLLGATE.internal:9"] {
            assert!(hosts.allows(good.as_bytes()), "{good}");
        }
        assert!(!hosts.allows(b"a.tollgate.internal"));
    }
}
