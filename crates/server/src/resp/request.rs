//! What callers send: arrays of bulk strings, or lines as people type them.
//!
//! Nothing is copied: the arguments of a command are slices of what was received, except for those of a line, where quotes and
//! escapes must go. A command that is not complete yet is looked at again from its beginning when more has come; that is cheap,
//! because bulk strings are skipped by their length.

use std::error::Error;
use std::fmt;

use super::line::{self, Unbalanced};

/// The most arguments of a command, its name included.
pub const MAX_ARGUMENTS: usize = 64;
/// The longest argument, and the longest line, in bytes.
pub const MAX_ARGUMENT_BYTES: usize = 64 * 1024;
/// The longest command, in bytes with all that frames it. Without this bound a connection could take 64 × 64 KiB.
pub const MAX_COMMAND_BYTES: usize = 256 * 1024;

/// The longest line that says how long something is: a sign, all digits there can be, and some leading ones.
const LONGEST_COUNT: usize = 32;

/// Finds commands in what was received, one after the other.
///
/// # Examples
/// ```
/// use tollgate_server::resp::{Parsed, Parser};
///
/// let received = b"*2\r\n$4\r\nPING\r\n$2\r\nhi\r\nECHO \"a b\"\r\n*1\r\n$4\r\nPI";
/// let mut parser = Parser::default();
/// assert_eq!(parser.parse(received)?, Parsed::Command(22));
/// assert_eq!(parser.arguments(received).iter().collect::<Vec<_>>(), [b"PING".as_slice(), b"hi"]);
///
/// let rest = &received[22..];
/// assert_eq!(parser.parse(rest)?, Parsed::Command(12));
/// assert_eq!(parser.arguments(rest).get(1), Some(b"a b".as_slice()));
/// assert_eq!(parser.parse(&rest[12..])?, Parsed::Incomplete);
/// # Ok::<(), tollgate_server::resp::ProtocolError>(())
/// ```
#[derive(Debug, Default)]
pub struct Parser {
    /// Where the arguments are: in what was received, or in `unquoted`.
    spans: Vec<Span>,
    unquoted: Vec<u8>,
    is_line: bool,
}

/// A part of something.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) start: usize,
    pub(super) end: usize,
}

/// What there is at the beginning of what was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// A command that takes so many bytes.
    Command(usize),
    /// So many bytes that ask for nothing.
    Nothing(usize),
    /// The beginning of something.
    Incomplete,
}

/// Why what was received is no command, so that nobody can tell where the next one begins. Reads as Redis says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProtocolError {
    /// An array does not say how many there are.
    ArrayLength,
    /// There are too many arguments.
    TooManyArguments(u64),
    /// An argument does not begin with a dollar sign, but with this.
    NoBulk(u8),
    /// An argument does not say how long it is.
    BulkLength,
    /// An argument is too long.
    BulkTooLong(u64),
    /// An argument does not end where it should.
    BulkEnd,
    /// The command as a whole is too long.
    CommandTooLong,
    /// A line is too long.
    LineTooLong,
    /// A line has a quote that does not end, or something right behind one.
    Quotes,
}

impl Parser {
    /// Looks at what was received from its beginning on.
    ///
    /// # Errors
    /// If it is no command. What comes behind it cannot be understood either.
    #[inline]
    pub fn parse(&mut self, received: &[u8]) -> Result<Parsed, ProtocolError> {
        self.spans.clear();
        match received.first() {
            None => Ok(Parsed::Incomplete),
            Some(b'*') => self.parse_array(received),
            Some(_) => self.parse_line(received),
        }
    }

    /// The arguments of the command that was found, given what it was found in.
    #[inline]
    pub fn arguments<'a>(&'a self, received: &'a [u8]) -> Arguments<'a> {
        let bytes = if self.is_line { &self.unquoted } else { received };
        Arguments { bytes, spans: &self.spans }
    }

    fn parse_array(&mut self, received: &[u8]) -> Result<Parsed, ProtocolError> {
        self.is_line = false;
        let mut cursor = Cursor { received, at: 1 };
        let Some(count) = cursor.count(ProtocolError::ArrayLength)? else { return Ok(Parsed::Incomplete) };
        if count <= 0 {
            return Ok(Parsed::Nothing(cursor.at));
        }
        if count.unsigned_abs() > MAX_ARGUMENTS as u64 {
            return Err(ProtocolError::TooManyArguments(count.unsigned_abs()));
        }
        for _ in 0..count {
            let short = cursor.short_bulk();
            let Some(span) = (if short.is_some() { short } else { cursor.bulk()? }) else {
                return Ok(Parsed::Incomplete);
            };
            self.spans.push(span);
        }
        Ok(Parsed::Command(cursor.at))
    }

    fn parse_line(&mut self, received: &[u8]) -> Result<Parsed, ProtocolError> {
        self.is_line = true;
        let Some(end) = received.iter().position(|byte| *byte == b'\n') else {
            let is_too_long = received.len() > MAX_ARGUMENT_BYTES;
            return if is_too_long { Err(ProtocolError::LineTooLong) } else { Ok(Parsed::Incomplete) };
        };
        if end > MAX_ARGUMENT_BYTES {
            return Err(ProtocolError::LineTooLong);
        }
        line::split(&received[..end], &mut self.unquoted, &mut self.spans)
            .map_err(|Unbalanced| ProtocolError::Quotes)?;
        match self.spans.len() {
            0 => Ok(Parsed::Nothing(end + 1)),
            count if count > MAX_ARGUMENTS => Err(ProtocolError::TooManyArguments(count as u64)),
            _ => Ok(Parsed::Command(end + 1)),
        }
    }
}

/// A place in what was received.
struct Cursor<'a> {
    received: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    /// A number and the end of its line. `None` if it is not there yet.
    #[inline]
    fn count(&mut self, wrong: ProtocolError) -> Result<Option<i64>, ProtocolError> {
        let rest = &self.received[self.at.min(self.received.len())..];
        let window = &rest[..rest.len().min(LONGEST_COUNT)];
        let Some(end) = window.iter().position(|byte| *byte == b'\r') else {
            return if window.len() == LONGEST_COUNT { Err(wrong) } else { Ok(None) };
        };
        let count = integer(&rest[..end]).ok_or(wrong)?;
        match rest.get(end + 1) {
            None => Ok(None),
            Some(b'\n') => {
                self.at += end + 2;
                Ok(Some(count))
            }
            Some(_) => Err(wrong),
        }
    }

    /// A bulk string of less than a hundred bytes that is there as a whole, as almost all are. `None` if it is anything else, of
    /// which [`bulk`](Self::bulk) knows more.
    #[inline]
    fn short_bulk(&mut self) -> Option<Span> {
        let (length, digits) = match self.received.get(self.at..)? {
            [b'$', one @ b'0'..=b'9', b'\r', b'\n', ..] => (one - b'0', 1),
            [b'$', ten @ b'1'..=b'9', one @ b'0'..=b'9', b'\r', b'\n', ..] => {
                ((ten - b'0') * 10 + (one - b'0'), 2)
            }
            _ => return None,
        };
        let start = self.at + 1 + digits + 2;
        let end = start + usize::from(length);
        if end > MAX_COMMAND_BYTES || self.received.get(end..end + 2)? != b"\r\n" {
            return None;
        }
        self.at = end + 2;
        Some(Span { start, end })
    }

    /// A bulk string. `None` if it is not there yet.
    #[inline]
    fn bulk(&mut self) -> Result<Option<Span>, ProtocolError> {
        match self.received.get(self.at) {
            None => return Ok(None),
            Some(b'$') => self.at += 1,
            Some(other) => return Err(ProtocolError::NoBulk(*other)),
        }
        let Some(length) = self.count(ProtocolError::BulkLength)? else { return Ok(None) };
        let length = u64::try_from(length).map_err(|_| ProtocolError::BulkLength)?;
        if length > MAX_ARGUMENT_BYTES as u64 {
            return Err(ProtocolError::BulkTooLong(length));
        }
        let span = Span { start: self.at, end: self.at + length as usize };
        if span.end > MAX_COMMAND_BYTES {
            return Err(ProtocolError::CommandTooLong);
        }
        self.at = span.end + 2;
        match self.received.get(span.end..self.at) {
            None => Ok(None),
            Some(b"\r\n") => Ok(Some(span)),
            Some(_) => Err(ProtocolError::BulkEnd),
        }
    }
}

/// A whole number as Redis writes it: no plus, no zeros in front, no spaces.
#[inline]
pub(super) fn integer(text: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits == b"0" && !is_negative {
        return Some(0);
    }
    if digits.is_empty() || digits[0] == b'0' {
        return None;
    }
    if digits.len() > LONGEST_SAFE {
        return long_integer(is_negative, digits);
    }
    let mut number = 0;
    for digit in digits {
        let digit = i64::from(digit.wrapping_sub(b'0'));
        if digit > 9 {
            return None;
        }
        number = number * 10 + digit;
    }
    Some(if is_negative { -number } else { number })
}

/// So many digits fit, whichever they are.
const LONGEST_SAFE: usize = 18;

/// An integer whose digits may be too many.
#[cold]
fn long_integer(is_negative: bool, digits: &[u8]) -> Option<i64> {
    let mut number: i64 = 0;
    for digit in digits {
        let digit = digit.is_ascii_digit().then(|| i64::from(digit - b'0'))?;
        // Negative numbers reach one further.
        number = number.checked_mul(10)?.checked_sub(digit)?;
    }
    if is_negative { Some(number) } else { number.checked_neg() }
}

/// The arguments of a command, its name first.
#[derive(Clone, Copy)]
pub struct Arguments<'a> {
    bytes: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Arguments<'a> {
    /// How many there are, the name included; one at least.
    #[allow(clippy::len_without_is_empty, reason = "a command has a name")]
    #[inline]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// The one at a place; the name is at zero.
    #[inline]
    pub fn get(&self, place: usize) -> Option<&'a [u8]> {
        self.spans.get(place).map(|span| &self.bytes[span.start..span.end])
    }

    /// The name.
    #[inline]
    pub fn name(&self) -> &'a [u8] {
        self.get(0).unwrap_or_default()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let Self { bytes, spans } = *self;
        spans.iter().map(|span| &bytes[span.start..span.end])
    }

    /// Those from a place on.
    pub(super) fn from(&self, place: usize) -> Self {
        Self { bytes: self.bytes, spans: self.spans.get(place..).unwrap_or_default() }
    }
}

impl fmt::Debug for Arguments<'_> {
    /// Without the arguments: one may be a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arguments").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Protocol error: ")?;
        match self {
            Self::ArrayLength => f.write_str("invalid multibulk length"),
            Self::TooManyArguments(count) => {
                write!(f, "invalid multibulk length: {count} arguments, at most {MAX_ARGUMENTS} are read")
            }
            // As it is if it can be shown; a line's end would end the answer.
            Self::NoBulk(other) if other.is_ascii_graphic() => {
                write!(f, "expected '$', got '{}'", char::from(*other))
            }
            Self::NoBulk(other) => write!(f, "expected '$', got byte 0x{other:02x}"),
            Self::BulkLength => f.write_str("invalid bulk length"),
            Self::BulkTooLong(length) => {
                write!(f, "invalid bulk length: {length} bytes, at most {MAX_ARGUMENT_BYTES} are read")
            }
            Self::BulkEnd => f.write_str("expected CRLF at the end of a bulk string"),
            Self::CommandTooLong => write!(f, "too big command: at most {MAX_COMMAND_BYTES} bytes are read"),
            Self::LineTooLong => f.write_str("too big inline request"),
            Self::Quotes => f.write_str("unbalanced quotes in request"),
        }
    }
}

impl Error for ProtocolError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(received: &[u8]) -> Result<Parsed, ProtocolError> {
        Parser::default().parse(received)
    }

    #[test]
    fn a_command_that_is_cut_anywhere_waits_for_the_rest() {
        let whole = b"*3\r\n$11\r\nCL.THROTTLE\r\n$0\r\n\r\n$4\r\n\r\n\xff\0\r\n";
        let mut parser = Parser::default();
        for cut in 0..whole.len() {
            assert_eq!(parser.parse(&whole[..cut]), Ok(Parsed::Incomplete), "{cut}");
        }
        assert_eq!(parser.parse(whole), Ok(Parsed::Command(whole.len())));
        let arguments = parser.arguments(whole);
        assert_eq!(arguments.iter().collect::<Vec<_>>(), [&b"CL.THROTTLE"[..], b"", b"\r\n\xff\0"]);
        assert_eq!((arguments.name(), arguments.len(), arguments.get(3)), (&b"CL.THROTTLE"[..], 3, None));
    }

    #[test]
    fn nothing_is_asked_by_empty_lines_and_arrays() {
        for (received, length) in
            [(&b"\r\n"[..], 2), (b"\n", 1), (b"  \t\r\n", 5), (b"*0\r\n", 4), (b"*-1\r\n", 5)]
        {
            assert_eq!(parse(received), Ok(Parsed::Nothing(length)), "{received:?}");
        }
        assert_eq!(parse(b"*-9223372036854775808\r\nx"), Ok(Parsed::Nothing(23)));
    }

    #[test]
    fn what_is_no_command_is_told_as_redis_tells_it() {
        for (received, told) in [
            (&b"*x\r\n"[..], "invalid multibulk length"),
            (b"*\r\n", "invalid multibulk length"),
            (b"*1 \r\n", "invalid multibulk length"),
            (b"*+1\r\n", "invalid multibulk length"),
            (b"*01\r\n", "invalid multibulk length"),
            (b"*-0\r\n", "invalid multibulk length"),
            (b"*1\rx", "invalid multibulk length"),
            (b"*9223372036854775808\r\n", "invalid multibulk length"),
            (b"*00000000000000000000000000000000000", "invalid multibulk length"),
            (b"*65\r\n", "invalid multibulk length: 65 arguments, at most 64 are read"),
            (
                b"*9223372036854775807\r\n",
                "invalid multibulk length: 9223372036854775807 arguments, at most 64 are read",
            ),
            (b"*1\r\n:1\r\n", "expected '$', got ':'"),
            (b"*1\r\n\r\n", "expected '$', got byte 0x0d"),
            (b"*1\r\n$-1\r\n", "invalid bulk length"),
            (b"*1\r\n$x\r\n", "invalid bulk length"),
            (b"*1\r\n$99999999999999999999\r\n", "invalid bulk length"),
            (b"*1\r\n$65537\r\n", "invalid bulk length: 65537 bytes, at most 65536 are read"),
            (b"*1\r\n$1\r\nab\r\n", "expected CRLF at the end of a bulk string"),
            (b"get \"a\r\n", "unbalanced quotes in request"),
        ] {
            let error = parse(received).expect_err("it is no command");
            assert_eq!(error.to_string(), format!("Protocol error: {told}"), "{received:?}");
        }
    }

    #[test]
    fn what_is_just_as_long_as_it_may_be_is_read() {
        let long = vec![b'x'; MAX_ARGUMENT_BYTES];
        let line = [&long[1..], b"\r\n"].concat();
        assert_eq!(parse(&line), Ok(Parsed::Command(line.len())));
        let line = [&long[..], b"x\n"].concat();
        assert_eq!(parse(&line), Err(ProtocolError::LineTooLong));
        assert_eq!(parse(&line[..MAX_ARGUMENT_BYTES]), Ok(Parsed::Incomplete));
        assert_eq!(parse(&line[..=MAX_ARGUMENT_BYTES]), Err(ProtocolError::LineTooLong));

        let bulk = [b"$65536\r\n", &long[..], b"\r\n"].concat();
        assert_eq!(parse(&[b"*1\r\n", &bulk[..]].concat()), Ok(Parsed::Command(4 + bulk.len())));
        let many = [b"*4\r\n", &bulk[..], &bulk, &bulk, b"$65536\r\n"].concat();
        assert_eq!(parse(&many), Err(ProtocolError::CommandTooLong), "before it has come");

        let words = "x ".repeat(MAX_ARGUMENTS) + "\r\n";
        assert_eq!(parse(words.as_bytes()), Ok(Parsed::Command(130)));
        let more = format!("x {words}");
        assert_eq!(parse(more.as_bytes()), Err(ProtocolError::TooManyArguments(65)));
    }

    #[test]
    fn arguments_of_any_length_are_found_and_must_end_where_they_say() {
        for length in [0, 1, 9, 10, 11, 99, 100, 101, 1_000, MAX_ARGUMENT_BYTES] {
            let (text, mut parser) = ("7".repeat(length), Parser::default());
            let command = format!("*2\r\n${length}\r\n{text}\r\n$2\r\nok\r\n");
            assert_eq!(parser.parse(command.as_bytes()), Ok(Parsed::Command(command.len())));
            let arguments = parser.arguments(command.as_bytes());
            assert_eq!(arguments.iter().collect::<Vec<_>>(), [text.as_bytes(), b"ok"]);
            let shorter =
                command.replacen(&format!("${length}\r\n{text}"), &format!("${length}\r\n{text}7"), 1);
            assert_eq!(parse(shorter.as_bytes()), Err(ProtocolError::BulkEnd), "{length}");
        }
    }

    #[test]
    fn numbers_reach_to_both_ends() {
        for number in [0, 1, -1, 10, i64::MAX, i64::MIN, i64::MIN + 1] {
            assert_eq!(integer(number.to_string().as_bytes()), Some(number));
        }
        for text in
            ["", "-", "-0", "00", "01", "+1", " 1", "1 ", "1x", "9223372036854775808", "-9223372036854775809"]
        {
            assert_eq!(integer(text.as_bytes()), None, "{text:?}");
        }
    }
}
