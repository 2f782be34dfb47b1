//! `CLIENT`: what a caller says about itself.

use super::super::reply::{Quoted, Replies};
use super::super::request::Arguments;
use super::{Session, help, unknown_subcommand, wrong_count};

/// The subcommands, each with what it does.
const HELP: [(&str, &str); 7] = [
    ("GETNAME", "Return the name of the current connection."),
    ("ID", "Return the ID of the current connection."),
    ("INFO", "Return information about the current client connection."),
    ("NO-EVICT (ON|OFF)", "Accepted, without effect."),
    ("NO-TOUCH (ON|OFF)", "Accepted, without effect."),
    ("SETINFO (LIB-NAME|LIB-VER) <value>", "Accepted, without effect."),
    ("SETNAME <name>", "Assign the name <name> to the current connection."),
];

impl Session {
    pub(super) fn client(&mut self, arguments: Arguments<'_>, replies: &mut Replies) {
        let Some(subcommand) = arguments.get(1) else { return wrong_count("client", replies) };
        let (lower, count) = (subcommand.to_ascii_lowercase(), arguments.len() - 2);
        let argument = |place: usize| arguments.get(place + 2).unwrap_or_default();
        match (&lower[..], count) {
            (b"id", 0) => replies.integer(self.id.cast_signed()),
            (b"getname", 0) if self.name.is_empty() => replies.null(),
            (b"getname", 0) => replies.bulk(&self.name),
            (b"setname", 1) => {
                if self.set_name(argument(0), replies) {
                    replies.status("OK");
                }
            }
            (b"setinfo", 2) => set_info(argument(0), argument(1), replies),
            (b"info", 0) => self.client_info(replies),
            (b"help", 0) => help("CLIENT", &HELP, replies),
            (b"no-evict" | b"no-touch", 1) => set_switch(argument(0), replies),
            (
                b"id" | b"getname" | b"setname" | b"setinfo" | b"info" | b"help" | b"no-evict" | b"no-touch",
                _,
            ) => {
                wrong_count(&format!("client|{}", String::from_utf8_lossy(&lower)), replies);
            }
            _ => unknown_subcommand(subcommand, "CLIENT", replies),
        }
    }

    fn client_info(&self, replies: &mut Replies) {
        let (id, name) = (self.id, String::from_utf8_lossy(&self.name));
        let version = replies.version.number();
        replies.bulk(format!("id={id} name={name} db=0 resp={version}\n").as_bytes());
    }

    /// Whether the name is one; says so if it is not.
    pub(super) fn set_name(&mut self, name: &[u8], replies: &mut Replies) -> bool {
        let is_name = is_word(name);
        if is_name {
            self.name = name.to_vec();
        } else {
            replies.error("ERR Client names cannot contain spaces, newlines or special characters.");
        }
        is_name
    }
}

fn set_info(attribute: &[u8], value: &[u8], replies: &mut Replies) {
    let is_known = [&b"lib-name"[..], b"lib-ver"].iter().any(|known| attribute.eq_ignore_ascii_case(known));
    if !is_known {
        replies.error(format_args!("ERR Unrecognized option '{}'", Quoted(attribute)));
    } else if !is_word(value) {
        let attribute = Quoted(attribute);
        replies.error(format_args!("ERR {attribute} cannot contain spaces, newlines or special characters."));
    } else {
        replies.status("OK"); // which nobody asks for again
    }
}

fn set_switch(switch: &[u8], replies: &mut Replies) {
    let is_known = [&b"on"[..], b"off"].iter().any(|known| switch.eq_ignore_ascii_case(known));
    if is_known { replies.status("OK") } else { replies.error("ERR syntax error") }
}

/// Whether it is made of what can be seen, and nothing else.
fn is_word(text: &[u8]) -> bool {
    text.iter().all(u8::is_ascii_graphic)
}
