//! `HELLO` and `AUTH`: which language, and who.

use super::super::reply::{Quoted, Replies, Version};
use super::super::request::{Arguments, integer};
use super::server::REDIS_VERSION;
use super::{Session, wrong_count};

/// Whoever gives no name.
const NOBODY: &[u8] = b"default";
const WRONG: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const FIRST: &str = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH \
                     <user> <pass> option can be used to authenticate the client and select the RESP protocol version at \
                     the same time";
const NO_PASSWORD: &str = "ERR AUTH <password> called without any password configured for the default user. Are you sure \
                           your configuration is correct?";

impl Session {
    /// `HELLO [2|3 [AUTH user password] [SETNAME name]]`.
    pub(super) fn hello(&mut self, arguments: Arguments<'_>, replies: &mut Replies) {
        let version = match arguments.get(1).map(integer) {
            None => replies.version,
            Some(None) => return replies.error("ERR Protocol version is not an integer or out of range"),
            Some(Some(2)) => Version::Two,
            Some(Some(3)) => Version::Three,
            Some(Some(_)) => return replies.error("NOPROTO unsupported protocol version"),
        };
        if !self.read_options(arguments, replies) {
            return;
        }
        if self.may_nothing() {
            return replies.error(FIRST);
        }
        replies.version = version;
        self.introduce(replies);
    }

    /// Whether the options make sense; says so if they do not.
    fn read_options(&mut self, arguments: Arguments<'_>, replies: &mut Replies) -> bool {
        let mut place = 2;
        while let Some(option) = arguments.get(place) {
            let (first, second) = (arguments.get(place + 1), arguments.get(place + 2));
            match (first, second) {
                (Some(user), Some(password)) if option.eq_ignore_ascii_case(b"auth") => {
                    if !self.introduced(user, password) {
                        replies.error(WRONG);
                        return false;
                    }
                    place += 3;
                }
                (Some(name), _) if option.eq_ignore_ascii_case(b"setname") => {
                    if !self.set_name(name, replies) {
                        return false;
                    }
                    place += 2;
                }
                _ => {
                    replies.error(format_args!("ERR Syntax error in HELLO option '{}'", Quoted(option)));
                    return false;
                }
            }
        }
        true
    }

    fn introduce(&self, replies: &mut Replies) {
        replies.map(7);
        for (name, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
            replies.bulk(name.as_bytes());
            replies.bulk(value.as_bytes());
        }
        replies.bulk(b"proto");
        replies.integer(replies.version.number());
        replies.bulk(b"id");
        replies.integer(self.id.cast_signed());
        for (name, value) in [("mode", "standalone"), ("role", "master")] {
            replies.bulk(name.as_bytes());
            replies.bulk(value.as_bytes());
        }
        replies.bulk(b"modules");
        replies.array(0);
    }

    /// `AUTH [user] password`.
    pub(super) fn auth(&mut self, arguments: Arguments<'_>, replies: &mut Replies) {
        let (user, password) = match (arguments.len(), arguments.get(1), arguments.get(2)) {
            (2, Some(_), None) if self.access.is_open() => return replies.error(NO_PASSWORD),
            (2, Some(password), None) => (NOBODY, password),
            (3, Some(user), Some(password)) => (user, password),
            _ => return wrong_count("auth", replies),
        };
        if self.introduced(user, password) { replies.status("OK") } else { replies.error(WRONG) }
    }

    /// Whether somebody by that name has that password; then they may do what goes with it. Where everybody may do everything,
    /// the default user has any password, as in Redis.
    fn introduced(&mut self, user: &[u8], password: &[u8]) -> bool {
        if self.access.is_open() {
            return user == NOBODY;
        }
        let known = self.access.authenticate(password);
        if let Some(principal) = known {
            (self.principal, self.token) = (principal, Some(password.into()));
        }
        known.is_some()
    }
}
