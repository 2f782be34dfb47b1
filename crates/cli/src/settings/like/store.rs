//! The address of Redis, as envoyproxy/ratelimit has it in several variables.

use std::fmt::Write as _;

use super::{Environment, go};

/// The address of the store in our form, unless there is no `REDIS_URL`.
pub(super) fn address(environment: &Environment, _: &[&'static str]) -> Option<String> {
    let url = environment.get("REDIS_URL")?;
    if url.contains("://") {
        return Some(url.to_owned());
    }
    let has_tls = environment.get("REDIS_TLS").and_then(go::boolean).is_some_and(|truth| truth == "true");
    let scheme = if has_tls { "rediss" } else { "redis" };
    let login = environment.get("REDIS_AUTH").map(login).unwrap_or_default();
    let kind = environment.get("REDIS_TYPE").unwrap_or("single").to_lowercase();
    Some(match (kind.as_str(), url.split_once(',')) {
        ("sentinel", Some((service, sentinels))) => {
            format!("{scheme}+sentinel://{login}{sentinels}/{service}")
        }
        ("cluster", _) => format!("{scheme}+cluster://{login}{url}"),
        _ if url.starts_with('/') => socket(url, environment.get("REDIS_AUTH")),
        _ => format!("{scheme}://{login}{url}"),
    })
}

/// A socket of this machine, which has the login in its query.
fn socket(path: &str, auth: Option<&str>) -> String {
    match auth.map(user_and_password) {
        None => format!("redis+unix://{path}"),
        Some((None, password)) => format!("redis+unix://{path}?pass={password}"),
        Some((Some(user), password)) => format!("redis+unix://{path}?user={user}&pass={password}"),
    }
}

/// What stands before the first host.
fn login(auth: &str) -> String {
    let (user, password) = user_and_password(auth);
    format!("{}:{password}@", user.unwrap_or_default())
}

/// `password`, or `user:password`, encoded for an address.
fn user_and_password(auth: &str) -> (Option<String>, String) {
    match auth.split_once(':') {
        None => (None, encoded(auth)),
        Some((user, password)) => (Some(encoded(user)), encoded(password)),
    }
}

fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        if byte.is_ascii_alphanumeric() {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
        encoded
    })
}
