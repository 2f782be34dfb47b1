//! What callers are answered, in either version of the protocol.

use std::fmt::{self, Write};

use crate::engine::AskError;
use crate::metrics::{ErrorCounts, ErrorReason};

/// Which version of the protocol a caller speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Version {
    #[default]
    Two,
    Three,
}

impl Version {
    pub(super) const fn number(self) -> i64 {
        match self {
            Self::Two => 2,
            Self::Three => 3,
        }
    }
}

/// Answers, one behind the other, until they are sent.
#[derive(Debug, Default)]
pub(super) struct Replies {
    pub(super) bytes: Vec<u8>,
    pub(super) version: Version,
    /// The errors among them that were not counted yet.
    pub(super) errors: ErrorCounts,
}

impl Replies {
    /// A few words that go well.
    pub(super) fn status(&mut self, words: &str) {
        self.text(b'+', words);
    }

    /// Something went wrong. What callers said may be part of the words: line ends become spaces.
    pub(super) fn error(&mut self, words: impl fmt::Display) {
        let start = self.bytes.len();
        self.push_error(words);
        let reason = ErrorReason::of_error(&self.bytes[start + 1..]);
        self.errors.note(reason);
    }

    /// A call was not decided.
    pub(super) fn ask_error(&mut self, error: &AskError) {
        self.ask_error_as("ERR", error);
    }

    /// [`ask_error`](Self::ask_error) with other words in front.
    pub(super) fn ask_error_as(&mut self, prefix: &str, error: &AskError) {
        self.push_error(format_args!("{prefix} {error}"));
        self.errors.note(match error {
            AskError::Unavailable { .. } | AskError::TooManyHeld { .. } | AskError::Supplied { .. } => {
                ErrorReason::Unavailable
            }
            AskError::BadValue { .. } => ErrorReason::BadRequest,
        });
    }

    /// Something cannot be done now.
    pub(super) fn unavailable(&mut self, error: &impl fmt::Display) {
        self.push_error(format_args!("ERR {error}"));
        self.errors.note(ErrorReason::Unavailable);
    }

    fn push_error(&mut self, words: impl fmt::Display) {
        self.bytes.push(b'-');
        let start = self.bytes.len();
        let _ = write!(Appender(&mut self.bytes), "{words}"); // a vector takes everything
        for byte in &mut self.bytes[start..] {
            if matches!(byte, b'\r' | b'\n') {
                *byte = b' ';
            }
        }
        self.end();
    }

    #[inline]
    pub(super) fn integer(&mut self, number: i64) {
        self.head(b':', number);
    }

    pub(super) fn bulk(&mut self, bytes: &[u8]) {
        self.length(b'$', bytes.len());
        self.bytes.extend_from_slice(bytes);
        self.end();
    }

    /// So many answers that belong together follow.
    #[inline]
    pub(super) fn array(&mut self, length: usize) {
        self.length(b'*', length);
    }

    /// So many pairs follow.
    pub(super) fn map(&mut self, pairs: usize) {
        match self.version {
            Version::Two => self.array(pairs * 2),
            Version::Three => self.length(b'%', pairs),
        }
    }

    pub(super) fn null(&mut self) {
        self.bytes.extend_from_slice(match self.version {
            Version::Two => b"$-1\r\n",
            Version::Three => b"_\r\n",
        });
    }

    pub(super) fn boolean(&mut self, is_true: bool) {
        match self.version {
            Version::Two => self.integer(i64::from(is_true)),
            Version::Three => self.bytes.extend_from_slice(if is_true { b"#t\r\n" } else { b"#f\r\n" }),
        }
    }

    fn text(&mut self, kind: u8, words: &str) {
        self.bytes.push(kind);
        self.bytes.extend_from_slice(words.as_bytes());
        self.end();
    }

    #[inline]
    fn end(&mut self) {
        self.bytes.extend_from_slice(b"\r\n");
    }

    #[inline]
    fn length(&mut self, kind: u8, length: usize) {
        self.head(kind, (length as u64).cast_signed()); // nothing is half as long as that
    }

    /// A line with a number. Most have one digit or two, or are minus one, and need nobody who copies.
    #[inline]
    fn head(&mut self, kind: u8, number: i64) {
        match number {
            0..=9 => self.bytes.extend_from_slice(&[kind, b'0' + number as u8, b'\r', b'\n']),
            10..=99 => {
                let digits = [b'0' + (number / 10) as u8, b'0' + (number % 10) as u8];
                self.bytes.extend_from_slice(&[kind, digits[0], digits[1], b'\r', b'\n']);
            }
            -1 => self.bytes.extend_from_slice(&[kind, b'-', b'1', b'\r', b'\n']),
            _ => self.long_head(kind, number),
        }
    }

    fn long_head(&mut self, kind: u8, number: i64) {
        let mut line = [0; 24];
        let mut at = line.len() - 2;
        line[at..].copy_from_slice(b"\r\n");
        let mut rest = number.unsigned_abs();
        while rest > 0 {
            at -= 1;
            line[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        if number < 0 {
            at -= 1;
            line[at] = b'-';
        }
        at -= 1;
        line[at] = kind;
        self.bytes.extend_from_slice(&line[at..]);
    }
}

struct Appender<'a>(&'a mut Vec<u8>);

impl Write for Appender<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

/// Bytes from outside as part of an answer: as Redis does it, at most 128 of them, and none from a zero on.
pub(super) struct Quoted<'a>(pub(super) &'a [u8]);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.0.split(|byte| *byte == 0).next().unwrap_or_default();
        let shown = &shown[..shown.len().min(128)];
        for chunk in shown.utf8_chunks() {
            f.write_str(chunk.valid())?;
            if !chunk.invalid().is_empty() {
                f.write_char(char::REPLACEMENT_CHARACTER)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(version: Version, say: impl FnOnce(&mut Replies)) -> String {
        let mut replies = Replies { version, ..Replies::default() };
        say(&mut replies);
        String::from_utf8(replies.bytes).expect("text")
    }

    #[test]
    fn numbers_of_all_lengths() {
        for number in [0, 9, 10, 42, 99, 100, -1, -2, i64::MAX, i64::MIN] {
            assert_eq!(said(Version::Two, |replies| replies.integer(number)), format!(":{number}\r\n"));
        }
    }

    #[test]
    fn the_third_version_has_more_to_say() {
        let say = |replies: &mut Replies| {
            replies.map(1);
            replies.boolean(true);
            replies.null();
        };
        assert_eq!(said(Version::Two, say), "*2\r\n:1\r\n$-1\r\n");
        assert_eq!(said(Version::Three, say), "%1\r\n#t\r\n_\r\n");
    }

    #[test]
    fn nobody_can_end_our_line() {
        let quoted = Quoted(b"a\r\n+OK\xff\xff");
        assert_eq!(said(Version::Two, |replies| replies.error(quoted)), "-a  +OK\u{fffd}\u{fffd}\r\n");
        assert_eq!(Quoted(&[b'x'; 1_000]).to_string().len(), 128);
        assert_eq!(Quoted(b"ab\0c").to_string(), "ab");
    }
}
