//! What every Redis answers about itself.

use std::time::UNIX_EPOCH;

use tollgate::store::Store;

use super::super::reply::{Replies, Version};
use super::super::request::{Arguments, integer};
use super::{help, unknown_subcommand, wrong_count};
use crate::engine::{Clerk, Engine};

/// The Redis whose commands callers may expect, as far as they are here.
pub(super) const REDIS_VERSION: &str = "7.2.0";

/// Everything that is answered.
const COMMANDS: [&str; 25] = [
    "cl.throttle",
    "throttle",
    "tg.check",
    "tg.allow",
    "tg.settle",
    "tg.reset",
    "tg.limits",
    "ping",
    "echo",
    "select",
    "quit",
    "reset",
    "time",
    "auth",
    "hello",
    "client",
    "info",
    "command",
    "config",
    "cluster",
    "readonly",
    "readwrite",
    "asking",
    "post",
    "host:",
];

/// What somebody who wants to configure a Redis asks for, and how it stands with us.
const SETTINGS: [(&str, &str); 5] =
    [("save", ""), ("appendonly", "no"), ("databases", "1"), ("maxmemory", "0"), ("timeout", "0")];

const COMMAND_HELP: [(&str, &str); 5] = [
    ("(no subcommand)", "Return an empty list: no table of the commands is kept."),
    ("COUNT", "Return the number of commands."),
    ("DOCS [<command-name> ...]", "Return an empty map."),
    ("INFO [<command-name> ...]", "Return null for each command."),
    ("LIST", "Return the names of the commands."),
];

const CONFIG_HELP: [(&str, &str); 1] =
    [("GET <pattern> [<pattern> ...]", "Return the parameters of these names, or all for *.")];

pub(super) fn ping(arguments: Arguments<'_>, replies: &mut Replies) {
    match (arguments.len(), arguments.get(1)) {
        (1, _) => replies.status("PONG"),
        (2, Some(message)) => replies.bulk(message),
        _ => wrong_count("ping", replies),
    }
}

pub(super) fn echo(arguments: Arguments<'_>, replies: &mut Replies) {
    match (arguments.len(), arguments.get(1)) {
        (2, Some(message)) => replies.bulk(message),
        _ => wrong_count("echo", replies),
    }
}

pub(super) fn select(arguments: Arguments<'_>, replies: &mut Replies) {
    match (arguments.len(), arguments.get(1).and_then(integer)) {
        (2, Some(0)) => replies.status("OK"),
        (2, Some(_)) => replies.error("ERR DB index is out of range"),
        (2, None) => replies.error("ERR value is not an integer or out of range"),
        _ => wrong_count("select", replies),
    }
}

pub(super) fn time<S: Store>(engine: &Engine<S>, arguments: Arguments<'_>, replies: &mut Replies) {
    if arguments.len() != 1 {
        return wrong_count("time", replies);
    }
    let now = engine.time().utc().duration_since(UNIX_EPOCH).unwrap_or_default();
    replies.array(2);
    replies.bulk(now.as_secs().to_string().as_bytes());
    replies.bulk(now.subsec_micros().to_string().as_bytes());
}

pub(super) async fn info<S: Store>(clerk: &Clerk<S>, replies: &mut Replies) {
    let engine = clerk.engine();
    let keys = engine.store().usage().await.ok().and_then(|usage| usage.keys).unwrap_or(0);
    let text = format!(
        "# Server\r\nredis_version:{REDIS_VERSION}\r\nredis_mode:standalone\r\ntollgate_version:{}\r\n\r\n\
         # Persistence\r\nloading:0\r\n\r\n# Replication\r\nrole:master\r\nconnected_slaves:0\r\n\r\n\
         # Tollgate\r\nkeys:{keys}\r\nlimits:{}\r\nheld:{}\r\n",
        env!("CARGO_PKG_VERSION"),
        engine.loaded().policy().limits().len(),
        engine.held(),
    );
    replies.bulk(text.as_bytes());
}

/// `COMMAND`, `COMMAND COUNT`, `COMMAND LIST`, `COMMAND INFO`, `COMMAND DOCS`: their names, and no table of what they take.
pub(super) fn command(arguments: Arguments<'_>, replies: &mut Replies) {
    let Some(subcommand) = arguments.get(1) else { return replies.array(0) };
    match (&subcommand.to_ascii_lowercase()[..], arguments.len()) {
        (b"count", 2) => replies.integer((COMMANDS.len() as u64).cast_signed()),
        (b"list", 2) => {
            replies.array(COMMANDS.len());
            for name in COMMANDS {
                replies.bulk(name.as_bytes());
            }
        }
        (b"docs", _) => replies.map(0),
        (b"info", count) => {
            replies.array(count - 2);
            for _ in 2..count {
                null_array(replies);
            }
        }
        (b"help", 2) => help("COMMAND", &COMMAND_HELP, replies),
        (b"count" | b"list" | b"help", _) => wrong_count("command", replies),
        _ => unknown_subcommand(subcommand, "COMMAND", replies),
    }
}

fn null_array(replies: &mut Replies) {
    match replies.version {
        Version::Two => replies.bytes.extend_from_slice(b"*-1\r\n"),
        Version::Three => replies.null(),
    }
}

/// `CONFIG GET name…`.
pub(super) fn config(arguments: Arguments<'_>, replies: &mut Replies) {
    let Some(subcommand) = arguments.get(1) else { return wrong_count("config", replies) };
    if subcommand.eq_ignore_ascii_case(b"help") && arguments.len() == 2 {
        return help("CONFIG", &CONFIG_HELP, replies);
    }
    if !subcommand.eq_ignore_ascii_case(b"get") {
        return unknown_subcommand(subcommand, "CONFIG", replies);
    }
    if arguments.len() < 3 {
        return wrong_count("config|get", replies);
    }
    let is_asked = |name: &str| {
        let name = name.as_bytes();
        arguments.from(2).iter().any(|asked| asked == b"*" || asked.eq_ignore_ascii_case(name))
    };
    let found = SETTINGS.iter().filter(|(name, _)| is_asked(name));
    replies.map(found.clone().count());
    for (name, value) in found {
        replies.bulk(name.as_bytes());
        replies.bulk(value.as_bytes());
    }
}
