//! Errors of Redis as store errors: whether a retry can help, and whether the cost may have been charged.

use redis::{ErrorKind, RedisError, ServerErrorKind};
use tollgate::store::StoreError;

/// Returns the error for a missing connection; `why` the last attempt failed.
pub(crate) fn not_connected(why: &str) -> StoreError {
    StoreError::transient(format!("cannot connect to Redis: {why}")).without_effect()
}

/// Returns the error for a failed call.
pub(crate) fn of_call(error: RedisError) -> StoreError {
    describe(&error).caused_by(error)
}

fn describe(error: &RedisError) -> StoreError {
    use ServerErrorKind as Server;
    match error.kind() {
        ErrorKind::Io => StoreError::transient("no response from Redis; the cost may have been charged"),
        ErrorKind::Server(Server::ReadOnly) => nothing(true, "Redis is a replica; the primary moved"),
        ErrorKind::Server(Server::BusyLoading) => nothing(true, "Redis is loading its data"),
        ErrorKind::Server(Server::MasterDown) => nothing(true, "Redis has lost its primary"),
        ErrorKind::Server(Server::ClusterDown) => nothing(true, "a part of the Redis cluster is down"),
        ErrorKind::Server(Server::Moved | Server::Ask | Server::TryAgain) => {
            nothing(true, "the Redis cluster is moving this key")
        }
        ErrorKind::ClusterConnectionNotFound => {
            nothing(true, "cannot connect to any node of the Redis cluster")
        }
        ErrorKind::MasterNameNotFoundBySentinel | ErrorKind::NoValidReplicasFoundBySentinel => {
            nothing(true, "no Sentinel knows a primary")
        }
        ErrorKind::Server(Server::NoPerm) | ErrorKind::AuthenticationFailed => {
            nothing(false, "Redis denies access: check user, password and ACL")
        }
        _ => describe_code(error),
    }
}

/// Describes errors that the client knows by their code only.
fn describe_code(error: &RedisError) -> StoreError {
    match error.code() {
        Some("OOM") => nothing(true, "Redis has no memory left: check maxmemory"),
        Some("BUSY") => nothing(true, "Redis is busy with a script"),
        Some("MISCONF") => nothing(true, "Redis refuses writes, because it cannot save its data"),
        Some("NOREPLICAS") => nothing(true, "Redis refuses writes, because it has too few replicas"),
        Some("NOAUTH" | "WRONGPASS") => nothing(false, "Redis denies access: check user, password and ACL"),
        Some("WRONGTYPE") => {
            // Other keys of the same call may have been written.
            StoreError::permanent("another program writes to the keys of tollgate: set another prefix")
        }
        _ => StoreError::permanent("Redis returned an error"),
    }
}

/// Returns an error of a call that changed nothing.
fn nothing(is_transient: bool, what: &str) -> StoreError {
    let what = format!("{what}; nothing was charged");
    let made = if is_transient { StoreError::transient(what) } else { StoreError::permanent(what) };
    made.without_effect()
}

/// Whether the client should reconnect: the connection is broken, or the server is no longer the primary.
pub(crate) fn asks_for_another_connection(error: &RedisError) -> bool {
    error.is_unrecoverable_error() || error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly)
}

/// Whether the script did not run because the server does not have it.
pub(crate) fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}
