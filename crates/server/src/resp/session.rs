//! A caller's commands, one after the other.

mod client;
mod hello;
mod server;

use std::fmt::Write;

use tollgate::store::Store;

use super::allow::{self, Remembered};
use super::reply::{Quoted, Replies, Version};
use super::request::Arguments;
use super::{check, throttle};
use crate::access::{Access, Principal, Scope, Scopes};
use crate::audit;
use crate::engine::Clerk;

/// The longest key, and the longest name or value of a field, in bytes.
pub const MAX_KEY_BYTES: usize = 1_024;

/// What is remembered of a caller.
pub(super) struct Session {
    id: u64,
    name: Vec<u8>,
    access: Access,
    /// What was said to prove more than the connection itself does.
    token: Option<Box<[u8]>>,
    principal: Principal,
    limit: Remembered,
    /// How many decisions were asked for.
    decided: u64,
}

/// What happens after a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The next one.
    Command,
    /// What was answered is sent, and the connection ends.
    Close,
    /// The same, and what still comes is not looked at: it cannot be understood.
    Hang,
    /// The connection ends. Nobody would read an answer.
    Drop,
}

/// The error for a caller that charges or refunds without the scope `settle`.
pub(super) const NEEDS_SETTLE: &str = "NOPERM REFUND and CHARGE need the scope settle";

/// The error for a caller that holds a cost without the scope `hold`.
pub(super) const NEEDS_HOLD: &str = "NOPERM HOLD needs the scope hold";

/// The longest name of a command.
const LONGEST_NAME: usize = 16;

/// The commands that are sent most.
enum Frequent {
    ClThrottle,
    TgAllow,
}

impl Frequent {
    #[inline]
    fn of(arguments: Arguments<'_>) -> Option<Self> {
        let name = arguments.name();
        // Letter by letter takes ten times as long, and few write it so that they must be compared.
        let is = |known: &[u8]| name == known || name.eq_ignore_ascii_case(known);
        match name.len() {
            11 if is(b"CL.THROTTLE") => Some(Self::ClThrottle),
            8 if is(b"TG.ALLOW") => Some(Self::TgAllow),
            _ => None,
        }
    }
}

/// A name in large letters; none if it is too long for a command.
#[inline]
fn upper_case<'a>(name: &[u8], upper: &'a mut [u8; LONGEST_NAME]) -> &'a [u8] {
    // Letter by letter: to call somebody who copies takes longer.
    for (upper, letter) in upper.iter_mut().zip(name) {
        *upper = letter.to_ascii_uppercase();
    }
    upper.get(..name.len()).unwrap_or_default()
}

impl Session {
    pub(super) fn new(id: u64, access: Access) -> Self {
        let (principal, limit) = (access.principal(), Remembered::default());
        Self { id, name: Vec::new(), access, token: None, principal, limit, decided: 0 }
    }

    /// Reads again who the caller is and what it may do: the keys may have changed.
    #[inline]
    pub(super) fn refresh(&mut self) {
        let by_token = self.token.as_ref().and_then(|token| self.access.principal_with(token));
        self.principal = by_token.unwrap_or_else(|| self.access.principal());
    }

    fn scopes(&self) -> Scopes {
        self.principal.scopes
    }

    /// How many decisions were asked for since this was last called.
    pub(super) fn take_decided(&mut self) -> u64 {
        std::mem::take(&mut self.decided)
    }

    /// Tells the clerk what the next command will be about, if it is one of those that are sent most.
    #[inline]
    pub(super) fn prepare<S: Store>(&self, clerk: &Clerk<S>, arguments: Arguments<'_>) {
        match Frequent::of(arguments) {
            Some(Frequent::ClThrottle) => throttle::prepare_cl_throttle(clerk, arguments),
            Some(Frequent::TgAllow) => allow::prepare(clerk, &self.limit, arguments),
            None => {}
        }
    }

    /// Answers a command, if it is one of those that are sent most and nobody must be waited for. `None` says nothing and did
    /// nothing.
    #[inline]
    pub(super) fn answer_now<S: Store>(
        &mut self,
        clerk: &mut Clerk<S>,
        arguments: Arguments<'_>,
        replies: &mut Replies,
    ) -> Option<()> {
        let frequent = Frequent::of(arguments).filter(|_| self.scopes().has(Scope::Check))?;
        clerk.set_caller(self.principal.caller);
        match frequent {
            Frequent::ClThrottle => throttle::cl_throttle_now(clerk, arguments, replies)?,
            Frequent::TgAllow => allow::allow_now(clerk, &mut self.limit, arguments, replies)?,
        }
        self.decided += 1;
        Some(())
    }

    /// Answers one command.
    ///
    /// # Cancel safety
    /// What it had taken by then stays taken.
    #[inline]
    pub(super) async fn answer<S: Store>(
        &mut self,
        clerk: &mut Clerk<S>,
        arguments: Arguments<'_>,
        replies: &mut Replies,
    ) -> Next {
        let mut upper = [0; LONGEST_NAME];
        let upper = upper_case(arguments.name(), &mut upper);
        if let Some(refusal) = self.refusal(upper) {
            replies.error(refusal);
            return Next::Command;
        }
        self.decided += u64::from(is_decision(upper));
        clerk.set_caller(self.principal.caller);
        match upper {
            b"CL.THROTTLE" => throttle::cl_throttle(clerk, self.scopes(), arguments, replies).await,
            b"THROTTLE" => throttle::throttle(clerk, arguments, replies).await,
            b"TG.CHECK" => check::check(clerk, self.scopes(), arguments, replies).await,
            b"TG.ALLOW" => allow::allow(clerk, &mut self.limit, arguments, replies).await,
            b"TG.SETTLE" => check::settle(clerk, arguments, replies).await,
            b"TG.RESET" => {
                let resets = if allow::is_reset(arguments) {
                    allow::reset(clerk, &mut self.limit, arguments, replies).await
                } else {
                    check::reset(clerk, arguments, replies).await
                };
                let log = clerk.engine().decision_log();
                audit::reset(Some(&self.access), self.principal.caller, log, &resets);
            }
            b"TG.LIMITS" => check::limits(clerk, arguments, replies),
            b"INFO" => server::info(clerk, replies).await,
            _ => return self.answer_about_connection(clerk, upper, arguments, replies),
        }
        Next::Command
    }

    /// Whether the caller has no scope that opens a command.
    pub(super) fn may_nothing(&self) -> bool {
        self.scopes() == Scopes::NONE || self.scopes() == Scopes::of(&[Scope::Metrics])
    }

    /// Returns the error for a command that the caller may not use.
    #[inline]
    fn refusal(&self, upper: &[u8]) -> Option<String> {
        if self.scopes() == Scopes::ALL {
            return None;
        }
        let needed = match upper {
            b"AUTH" | b"HELLO" | b"QUIT" | b"RESET" | b"POST" | b"HOST:" | b"PRI" => return None,
            _ if self.may_nothing() => return Some("NOAUTH Authentication required.".to_owned()),
            _ if is_decision(upper) => Scope::Check,
            b"TG.SETTLE" => Scope::Settle,
            b"TG.LIMITS" | b"TG.RESET" | b"INFO" => Scope::Admin,
            _ => return None,
        };
        let name = String::from_utf8_lossy(upper).to_lowercase();
        (!self.scopes().has(needed)).then(|| format!("NOPERM '{name}' needs the scope {needed}"))
    }

    /// Answers what every Redis answers.
    fn answer_about_connection<S: Store>(
        &mut self,
        clerk: &Clerk<S>,
        upper: &[u8],
        arguments: Arguments<'_>,
        replies: &mut Replies,
    ) -> Next {
        match upper {
            b"PING" => server::ping(arguments, replies),
            b"ECHO" => server::echo(arguments, replies),
            b"SELECT" => server::select(arguments, replies),
            b"TIME" => server::time(clerk.engine(), arguments, replies),
            b"COMMAND" => server::command(arguments, replies),
            b"CONFIG" => server::config(arguments, replies),
            b"CLUSTER" | b"READONLY" | b"READWRITE" | b"ASKING" => {
                replies.error("ERR This instance has cluster support disabled");
            }
            b"CLIENT" => self.client(arguments, replies),
            b"HELLO" => self.hello(arguments, replies),
            b"AUTH" => self.auth(arguments, replies),
            b"RESET" => {
                *self = Self::new(self.id, self.access.clone());
                replies.version = Version::Two;
                replies.status("RESET");
            }
            b"QUIT" => {
                replies.status("OK");
                return Next::Close;
            }
            // Somebody was tricked into sending a request of the web here, and what follows may be commands of theirs.
            b"POST" | b"HOST:" | b"PRI" => return Next::Drop,
            _ => unknown_command(arguments, replies),
        }
        Next::Command
    }
}

/// Whether a command, in large letters, asks for a decision.
fn is_decision(upper: &[u8]) -> bool {
    matches!(upper, b"CL.THROTTLE" | b"THROTTLE" | b"TG.CHECK" | b"TG.ALLOW")
}

fn unknown_command(arguments: Arguments<'_>, replies: &mut Replies) {
    let mut shown = String::new();
    for argument in arguments.from(1).iter() {
        if shown.len() >= 128 {
            break;
        }
        let _ = write!(shown, "'{}' ", Quoted(argument)); // a text takes everything
    }
    let name = Quoted(arguments.name());
    replies.error(format_args!("ERR unknown command '{name}', with args beginning with: {shown}"));
}

/// That a command has too few or too many arguments; its name in small letters, with that of a subcommand behind a bar.
pub(super) fn wrong_count(name: &str, replies: &mut Replies) {
    replies.error(format_args!("ERR wrong number of arguments for '{name}' command"));
}

/// A number without a sign.
pub(super) fn number(text: &[u8]) -> Option<u64> {
    let is_number = text.iter().all(u8::is_ascii_digit);
    if is_number { std::str::from_utf8(text).ok()?.parse().ok() } else { None }
}

/// Answers `HELP` as Redis does: a list of lines.
fn help(command: &str, subcommands: &[(&str, &str)], replies: &mut Replies) {
    replies.array(3 + 2 * subcommands.len());
    replies.status(&format!("{command} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    for (subcommand, text) in subcommands.iter().chain(&[("HELP", "Print this help.")]) {
        replies.status(subcommand);
        replies.status(&format!("    {text}"));
    }
}

/// That there is no such subcommand.
fn unknown_subcommand(subcommand: &[u8], of: &str, replies: &mut Replies) {
    replies.error(format_args!("ERR unknown subcommand '{}'. Try {of} HELP.", Quoted(subcommand)));
}

/// Returns `true` if the key is short enough, and replies with an error if not.
#[inline]
pub(super) fn check_key(key: &[u8], replies: &mut Replies) -> bool {
    let fits = key.len() <= MAX_KEY_BYTES;
    if !fits {
        replies
            .error(format_args!("ERR key is too long: {} bytes, the maximum is {MAX_KEY_BYTES}", key.len()));
    }
    fits
}
