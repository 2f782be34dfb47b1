//! What went wrong, for a caller: whether trying again can help, and whether something may have been taken.

use redis::{ErrorKind, RedisError, ServerErrorKind};
use tollgate::store::StoreError;

/// There is no connection, and `why` the last attempt to make one failed.
pub(crate) fn not_connected(why: &str) -> StoreError {
    StoreError::transient(format!("redis cannot be reached, nothing was taken: {why}")).without_effect()
}

/// A call failed.
pub(crate) fn of_call(error: RedisError) -> StoreError {
    describe(&error).caused_by(error)
}

fn describe(error: &RedisError) -> StoreError {
    use ServerErrorKind as Server;
    match error.kind() {
        ErrorKind::Io => {
            StoreError::transient("redis did not answer, and what was asked for may have been taken")
        }
        ErrorKind::Server(Server::ReadOnly) => {
            nothing(true, "redis is a replica now, and another is the primary")
        }
        ErrorKind::Server(Server::BusyLoading) => nothing(true, "redis is loading its data"),
        ErrorKind::Server(Server::MasterDown) => nothing(true, "redis has lost its primary"),
        ErrorKind::Server(Server::ClusterDown) => nothing(true, "a part of the redis cluster is down"),
        ErrorKind::Server(Server::Moved | Server::Ask | Server::TryAgain) => {
            nothing(true, "the redis cluster is moving this key")
        }
        ErrorKind::ClusterConnectionNotFound => nothing(true, "no node of the redis cluster can be reached"),
        ErrorKind::MasterNameNotFoundBySentinel | ErrorKind::NoValidReplicasFoundBySentinel => {
            nothing(true, "no sentinel knows a primary")
        }
        ErrorKind::Server(Server::NoPerm) | ErrorKind::AuthenticationFailed => {
            nothing(false, "redis does not let this user do that")
        }
        _ => describe_code(error),
    }
}

/// Errors that the client knows by their code only.
fn describe_code(error: &RedisError) -> StoreError {
    match error.code() {
        Some("OOM") => nothing(true, "redis has no memory left (see its maxmemory)"),
        Some("BUSY") => nothing(true, "redis is busy with a script"),
        Some("MISCONF") => nothing(true, "redis cannot save its data, and refuses to write"),
        Some("NOREPLICAS") => nothing(true, "redis has too few replicas, and refuses to write"),
        Some("NOAUTH" | "WRONGPASS") => nothing(false, "redis wants another user or password"),
        Some("WRONGTYPE") => {
            // Other keys of the same call may have been written.
            StoreError::permanent(
                "another program writes to tollgate's keys: give tollgate a prefix of its own",
            )
        }
        _ => StoreError::permanent("redis answered with an error"),
    }
}

/// The server said no before it did anything.
fn nothing(is_transient: bool, what: &str) -> StoreError {
    let what = format!("{what}; nothing was taken");
    let made = if is_transient { StoreError::transient(what) } else { StoreError::permanent(what) };
    made.without_effect()
}

/// Whether the connection should be made anew: it is broken, or leads to a server that is no longer the primary.
pub(crate) fn asks_for_another_connection(error: &RedisError) -> bool {
    error.is_unrecoverable_error() || error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly)
}

/// Whether the script was not run because this server has not seen it yet.
pub(crate) fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}
