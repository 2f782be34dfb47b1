//! Text that cannot break out of its line.

use std::fmt::{self, Write};

/// Writes `text` on one line: a message may quote what somebody else sent, and a line break or a terminal's escape
/// sequence in it must not forge a line of the log.
pub(super) struct OneLine<'a>(pub(super) &'a str);

impl fmt::Display for OneLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .chars()
            .try_for_each(|c| if breaks(c) { write!(f, "{}", c.escape_default()) } else { f.write_char(c) })
    }
}

/// Writes a value as it is if it is one word, else in quotation marks.
pub(super) struct Value<'a>(pub(super) &'a str);

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_word = |c: char| !breaks(c) && !c.is_whitespace() && !matches!(c, '"' | '=' | '\\');
        if !self.0.is_empty() && self.0.chars().all(is_word) {
            return f.write_str(self.0);
        }
        f.write_char('"')?;
        self.0.chars().try_for_each(|c| match c {
            '"' | '\\' => write!(f, "\\{c}"),
            c if breaks(c) => write!(f, "{}", c.escape_default()),
            c => f.write_char(c),
        })?;
        f.write_char('"')
    }
}

/// Control characters, the line and paragraph separators, and what turns the direction of writing.
fn breaks(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_stays_on_its_line() {
        let forged = "no such user: x\n2026-01-01 ERROR all is lost\r\u{1b}[31m\u{2028}\u{202e}";
        let line = OneLine(forged).to_string();
        assert_eq!(line, "no such user: x\\n2026-01-01 ERROR all is lost\\r\\u{1b}[31m\\u{2028}\\u{202e}");
        assert_eq!(OneLine("für 5 €: 日本").to_string(), "für 5 €: 日本");
    }

    #[test]
    fn a_value_is_quoted_if_it_is_not_one_word() {
        for (value, written) in [
            ("7", "7"),
            ("a/b:c", "a/b:c"),
            ("", r#""""#),
            ("a b", r#""a b""#),
            ("x user=root", r#""x user=root""#),
            (r#"a"b\"#, r#""a\"b\\""#),
            ("a\nb", r#""a\nb""#),
        ] {
            assert_eq!(Value(value).to_string(), written);
        }
    }
}
