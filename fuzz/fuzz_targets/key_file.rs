//! Reads arbitrary text as a file of keys. Neither a message nor the keyring shows a secret.
//!
//! Every `@` of the input stands for a secret.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate_server::Keyring;
use toml::de::{DeTable, DeValue};

const SECRET: &str = "hunter2hunter2hunter2";
/// What no message may contain: part of a secret is too much.
const PART: &str = "hunter2";

fuzz_target!(|input: &[u8]| {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let (lines, has_secret) = (text.split('\n').count(), text.contains('@'));
    if text.contains("hunter") {
        return;
    }
    let text = text.replace('@', SECRET);
    let is_named = DeTable::parse(&text).is_ok_and(|file| is_name(file.get_ref()));
    let shown = match Keyring::parse(&text) {
        Ok(keyring) => format!("{keyring:?}"),
        Err(error) => {
            let message = error.to_string();
            message.lines().for_each(|line| check_place(line, lines));
            assert!(!message.chars().any(|c| c.is_control() && c != '\n'), "{message:?}");
            format!("{message} {error:?}")
        }
    };
    assert!(!has_secret || is_named || !shown.contains(PART), "{shown}\nis said of\n{text}");
});

/// Whether the secret is part of a name. The names of tokens and of certificates are no secrets.
fn is_name(table: &DeTable<'_>) -> bool {
    table.iter().any(|(name, value)| {
        let is_name_itself =
            |value: &DeValue<'_>| name.get_ref() == "dns" && value.as_str().is_some_and(has_part);
        let is_inside = |value: &DeValue<'_>| value.as_table().is_some_and(is_name);
        has_part(name.get_ref()) || is_name_itself(value.get_ref()) || is_inside(value.get_ref())
    })
}

fn has_part(text: &str) -> bool {
    text.to_ascii_lowercase().contains(PART)
}

/// Every mistake begins with its line and its column.
fn check_place(mistake: &str, lines: usize) {
    let mut parts = mistake.splitn(3, ':');
    let mut number = || parts.next().and_then(|part| part.parse::<usize>().ok());
    let (line, column) = (number(), number());
    assert!(line.is_some_and(|line| (1..=lines).contains(&line)) && column >= Some(1), "{mistake:?}");
    assert!(parts.next().is_some_and(|message| !message.trim().is_empty()), "{mistake:?}");
}
