//! Which requests are plain.

use http::StatusCode;

use super::super::api::is_json;
use super::super::limits::HttpLimits;
use super::super::refusal::Refusal;

pub(super) const PATH: &str = "/v1/check";

/// A request with more header fields than that is not plain.
const MOST_HEADERS: usize = 32;

/// What there is at the beginning of what was received.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found<'a> {
    Nothing,
    /// A check that can be answered at once.
    Plain(Plain<'a>),
    /// The beginning of something that may be one.
    Part {
        /// Whether only some of the body is missing.
        is_body: bool,
    },
    /// Anything else.
    Unusual,
    /// What is no request, or too large for one.
    Wrong(Wrong),
}

/// Why something is not taken for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// It is not as HTTP says.
    Malformed(httparse::Error),
    /// Its line and its fields have too many bytes.
    TooLarge,
    /// It has too many fields.
    TooManyFields,
    /// Its body has no single length.
    Length,
}

impl Wrong {
    pub(super) fn refusal(self, limits: &HttpLimits) -> Refusal {
        match self {
            Self::Malformed(why) => {
                Refusal::last(StatusCode::BAD_REQUEST, format!("malformed HTTP/1.1 request: {why}"))
            }
            Self::TooLarge => Refusal::large_head(limits),
            Self::TooManyFields => Refusal::many_fields(limits),
            Self::Length => Refusal::last(StatusCode::BAD_REQUEST, "content-length must be one whole number"),
        }
    }
}

/// A check that can be answered at once.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plain<'a> {
    pub(super) host: &'a [u8],
    pub(super) authorization: Option<&'a [u8]>,
    pub(super) body: &'a [u8],
    /// How many bytes all of it has.
    pub(super) length: usize,
}

/// What a head says that matters.
#[derive(Default)]
struct Head<'a> {
    host: Option<&'a [u8]>,
    has_json: bool,
    authorization: Option<&'a [u8]>,
    body_length: Option<usize>,
}

pub(super) fn find<'a>(received: &'a [u8], limits: &HttpLimits) -> Found<'a> {
    if received.is_empty() {
        return Found::Nothing;
    }
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let size = match request.parse(received) {
        Ok(httparse::Status::Complete(size)) => size,
        // One that is too long is not waited for.
        Ok(httparse::Status::Partial) if received.len() <= limits.header_bytes => {
            return Found::Part { is_body: false };
        }
        Ok(httparse::Status::Partial) => return Found::Wrong(Wrong::TooLarge),
        Err(httparse::Error::TooManyHeaders) => return many_fields(received, limits),
        Err(why) => return Found::Wrong(Wrong::Malformed(why)),
    };
    let is_check = request.method == Some("POST") && request.path == Some(PATH) && request.version == Some(1);
    let head = if is_check && size <= limits.header_bytes { read(request.headers, limits) } else { None };
    let Some(Head { host: Some(host), has_json: true, authorization, body_length: Some(body_length) }) = head
    else {
        let has_length = has_one_length(request.headers);
        return if has_length { Found::Unusual } else { Found::Wrong(Wrong::Length) };
    };
    match received.get(size..size + body_length) {
        None => Found::Part { is_body: true },
        Some(body) => Found::Plain(Plain { host, authorization, body, length: size + body_length }),
    }
}

/// More fields than a plain request has: perhaps more than any may have, perhaps something else is wrong behind them.
#[cold]
fn many_fields<'a>(received: &[u8], limits: &HttpLimits) -> Found<'a> {
    let mut headers = vec![httparse::EMPTY_HEADER; limits.headers];
    match httparse::Request::new(&mut headers).parse(received) {
        Err(httparse::Error::TooManyHeaders) => Found::Wrong(Wrong::TooManyFields),
        Err(why) => Found::Wrong(Wrong::Malformed(why)),
        Ok(httparse::Status::Partial) if received.len() <= limits.header_bytes => {
            Found::Part { is_body: false }
        }
        Ok(httparse::Status::Partial) => Found::Wrong(Wrong::TooLarge),
        Ok(httparse::Status::Complete(_)) => Found::Unusual,
    }
}

/// What the fields of a head say, if nothing is unusual about them.
fn read<'a>(headers: &[httparse::Header<'a>], limits: &HttpLimits) -> Option<Head<'a>> {
    let mut head = Head::default();
    if headers.len() > limits.headers {
        return None;
    }
    for httparse::Header { name, value } in headers {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        match name.len() {
            2 if is("te") => return None,
            4 if is("host") => set(&mut head.host, value)?,
            6 if is("expect") || is("origin") => return None,
            7 if is("upgrade") => return None,
            10 if is("connection") && !value.eq_ignore_ascii_case(b"keep-alive") => return None,
            12 if is("content-type") && (head.has_json || !is_json(value)) => return None,
            12 if is("content-type") => head.has_json = true,
            13 if is("authorization") => set(&mut head.authorization, value)?,
            14 if is("content-length") => set(&mut head.body_length, body_length(value, limits)?)?,
            17 if is("transfer-encoding") => return None,
            _ => {}
        }
    }
    Some(head)
}

/// Whether all that is said of the body's length is one number, or nothing.
fn has_one_length(headers: &[httparse::Header<'_>]) -> bool {
    let fields = headers.iter().filter(|field| field.name.eq_ignore_ascii_case("content-length"));
    let lengths = fields.flat_map(|field| field.value.split(|byte| *byte == b',')).map(|length| {
        let digits = Some(length.trim_ascii()).filter(|text| text.iter().all(u8::is_ascii_digit));
        digits.and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<u64>().ok())
    });
    let mut first = None;
    lengths.into_iter().all(|length| length.is_some() && *first.get_or_insert(length) == length)
}

/// Sets what must not be there twice.
fn set<T>(slot: &mut Option<T>, value: T) -> Option<()> {
    slot.replace(value).is_none().then_some(())
}

fn body_length(value: &[u8], limits: &HttpLimits) -> Option<usize> {
    if !(1..=9).contains(&value.len()) || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let length = value.iter().fold(0, |sum, digit| sum * 10 + usize::from(digit - b'0'));
    (length <= limits.body_bytes).then_some(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(received: &str) -> Found<'_> {
        find(received.as_bytes(), &HttpLimits::default())
    }

    fn with(fields: &str) -> String {
        format!("POST /v1/check HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n{fields}\r\n")
    }

    #[test]
    fn a_plain_check_is_found_whatever_follows() {
        let request = with("Authorization: Bearer x\r\nCONTENT-LENGTH: 2\r\nx-other: y\r\n") + "{}";
        let plain =
            Plain { host: b"h", authorization: Some(b"Bearer x"), body: b"{}", length: request.len() };
        assert_eq!(found(&(request + "POST")), Found::Plain(plain));
        assert_eq!(found(""), Found::Nothing);
    }

    #[test]
    fn what_is_not_there_yet_is_waited_for() {
        let request = with("content-length: 2\r\n") + "{}";
        let head = request.len() - 2;
        for cut in 1..request.len() {
            assert_eq!(found(&request[..cut]), Found::Part { is_body: cut >= head }, "{cut}");
        }
    }

    #[test]
    fn whatever_could_mean_something_else_is_not_plain() {
        let plain = "content-length: 2\r\n";
        for fields in [
            "",
            "content-length: 2\r\ncontent-length: 2\r\n",
            "content-length: 2, 2\r\n",
            "content-length: 1048577\r\n", // a byte more than is read
            &format!("{plain}transfer-encoding: chunked\r\n"),
            &format!("{plain}Transfer-Encoding: identity\r\n"),
            &format!("{plain}connection: close\r\n"),
            &format!("{plain}connection: keep-alive, upgrade\r\n"),
            &format!("{plain}upgrade: h2c\r\n"),
            &format!("{plain}expect: 100-continue\r\n"),
            &format!("{plain}te: trailers\r\n"),
            &format!("{plain}content-type: text/plain\r\n"),
            &format!("{plain}authorization: a\r\nauthorization: b\r\n"),
            &format!("{plain}{}", "x: y\r\n".repeat(MOST_HEADERS)),
            &format!("{plain}x: {}\r\n", "y".repeat(16 * 1024)),
        ] {
            assert_eq!(found(&(with(fields) + "{}")), Found::Unusual, "{fields}");
        }
        let request = with(plain) + "{}";
        for (from, to) in [
            ("POST", "PUT"),
            ("POST", "post"),
            ("/check", "/check?x=1"),
            ("/check", "/settle"),
            ("1.1", "1.0"),
        ] {
            assert_eq!(found(&request.replace(from, to)), Found::Unusual, "{to}");
        }
    }

    #[test]
    fn a_body_has_one_length() {
        for fields in [
            "content-length: 2\r\ncontent-length: 3\r\n",
            "content-length: 2, 3\r\n",
            "content-length: +2\r\n",
            "content-length: -1\r\n",
            "content-length: 0x2\r\n",
            "content-length: \r\n",
            "content-length: 99999999999999999999\r\n",
        ] {
            assert_eq!(found(&(with(fields) + "{}")), Found::Wrong(Wrong::Length), "{fields}");
        }
    }

    #[test]
    fn what_no_request_looks_like_is_told_apart() {
        for (received, why) in [
            ("*1\r\n", Wrong::Malformed(httparse::Error::Token)),
            ("GET / HTTP/9.9\r\n\r\n", Wrong::Malformed(httparse::Error::Version)),
            (&with("name with spaces: x\r\n"), Wrong::Malformed(httparse::Error::HeaderName)),
            (&with(&"x: y\r\n".repeat(64)), Wrong::TooManyFields),
            (&with(&("x: y\r\n".repeat(40) + "x y: z\r\n")), Wrong::Malformed(httparse::Error::HeaderName)),
        ] {
            assert_eq!(found(received), Found::Wrong(why), "{received}");
        }
        let just = with(&"x: y\r\n".repeat(62));
        assert_eq!(found(&just), Found::Unusual);
        assert_eq!(found(&just[..just.len() - 1]), Found::Part { is_body: false });
    }

    #[test]
    fn a_head_without_end_is_not_waited_for() {
        assert_eq!(found(&format!("POST /{}", "x".repeat(16 * 1024))), Found::Wrong(Wrong::TooLarge));
    }
}
