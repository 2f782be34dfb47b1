//! `tollgate serve` where not everybody may come in, as a process of its own.

mod admin;
mod keys;
mod tls;

use crate::support::Service;

/// Enough of everything.
const CHECK: &str = r#"{"descriptor": {"user": "ann"}}"#;

/// A service with these flags.
fn start(flags: &[impl AsRef<str>]) -> Service {
    Service::start(&flags.iter().map(AsRef::as_ref).collect::<Vec<_>>())
}

/// A request whose answer ends the connection, of somebody with a token.
fn request(method: &str, path: &str, body: &str, token: Option<&str>) -> String {
    let token = token.map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
    crate::support::request(method, path, body).replacen("host:", &format!("{token}host:"), 1)
}

/// The status of an HTTP answer.
fn status(answer: &str) -> u16 {
    answer
        .get(9..12)
        .and_then(|status| status.parse().ok())
        .unwrap_or_else(|| panic!("no answer: {answer:?}"))
}
