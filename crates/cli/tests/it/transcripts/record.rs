//! The files of recorded exchanges, for people to read and to compare.
//!
//! ```text
//! serve --policy=policy.toml            the flags of the service
//!
//! = take-17 http 1                      a name, the listener, and what to wait for
//! > POST /v1/check HTTP/1.1             the request: a line and the CRLF that ends it
//! >> {"descriptor":{"user":"ann"}}      the same without a CRLF
//! < HTTP/1.1 200 OK                     the answer in the same way, masked
//! ! closed                              what became of the connection
//! ```
//!
//! A request waits for a number of answers, or `close`: for the server to close the connection, or `cut`: for the same, after its own half was closed.
//! `fresh` asks for a new connection. Bytes that cannot be printed are escaped as in Rust; `\{64 ab}` stands for 64 times `ab`.

use std::fmt::Write;

/// The exchanges of one service, in their order.
#[derive(Debug, Default)]
pub(super) struct Scene {
    pub(super) flags: Vec<String>,
    pub(super) exchanges: Vec<Exchange>,
}

#[derive(Clone, Debug)]
pub(super) struct Exchange {
    pub(super) name: String,
    pub(super) listener: Listener,
    pub(super) wait: Wait,
    pub(super) is_fresh: bool,
    pub(super) request: Vec<u8>,
    /// The lines as the file has them.
    pub(super) answer: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listener {
    Http,
    Admin,
    Grpc,
    Resp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    Answers(usize),
    Close,
    Cut,
}

const LISTENERS: [(&str, Listener); 4] = [
    ("http", Listener::Http),
    ("admin", Listener::Admin),
    ("grpc", Listener::Grpc),
    ("resp", Listener::Resp),
];

impl Scene {
    pub(super) fn parse(text: &str) -> Self {
        let mut scene = Self::default();
        for line in text.lines() {
            let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
            match (kind, scene.exchanges.last_mut()) {
                ("", _) => {}
                ("serve", None) => scene.flags = rest.split(' ').map(str::to_owned).collect(),
                ("=", _) => scene.exchanges.push(Exchange::parse(rest)),
                (">" | ">>", Some(exchange)) => {
                    exchange.request.extend(unescape(rest));
                    exchange.request.extend_from_slice(if kind == ">" { b"\r\n" } else { b"" });
                }
                (_, Some(exchange)) => exchange.answer.push(line.to_owned()),
                _ => panic!("no exchange begins before {line:?}"),
            }
        }
        scene
    }

    pub(super) fn print(&self) -> String {
        let mut text = format!("serve {}\n", self.flags.join(" "));
        for exchange in &self.exchanges {
            let _ = write!(text, "\n{}\n{}", exchange.title(), exchange.asked());
            for line in &exchange.answer {
                text = text + line + "\n";
            }
        }
        text
    }
}

impl Exchange {
    fn parse(title: &str) -> Self {
        let mut words = title.split(' ');
        let [name, listener, wait] = [(); 3].map(|()| words.next().unwrap_or_default());
        let known = LISTENERS.iter().find(|(known, _)| *known == listener);
        let wait = match wait {
            "close" => Wait::Close,
            "cut" => Wait::Cut,
            number => {
                Wait::Answers(number.parse().unwrap_or_else(|_| panic!("what does {title:?} wait for?")))
            }
        };
        let (_, listener) = *known.unwrap_or_else(|| panic!("there is no such listener: {title:?}"));
        let is_fresh = words.next() == Some("fresh");
        Self { name: name.to_owned(), listener, wait, is_fresh, request: Vec::new(), answer: Vec::new() }
    }

    pub(super) fn title(&self) -> String {
        let (listener, _) = LISTENERS.iter().find(|(_, known)| *known == self.listener).unwrap();
        let wait = match self.wait {
            Wait::Answers(number) => number.to_string(),
            Wait::Close => "close".to_owned(),
            Wait::Cut => "cut".to_owned(),
        };
        format!("= {} {listener} {wait}{}", self.name, if self.is_fresh { " fresh" } else { "" })
    }

    /// The request, as the file has it. One of Redis is a single line: most of its lines are lengths.
    pub(super) fn asked(&self) -> String {
        let lines = match (self.listener, self.request.is_empty()) {
            (Listener::Resp, false) => vec![format!(">> {}", escape(&self.request))],
            _ => lines('>', &self.request),
        };
        lines.iter().fold(String::new(), |text, line| text + line + "\n")
    }
}

/// Bytes as lines of the file.
pub(super) fn lines(sign: char, bytes: &[u8]) -> Vec<String> {
    let (mut lines, mut rest) = (Vec::new(), bytes);
    while let Some(end) = rest.windows(2).position(|two| two == b"\r\n") {
        lines.push(format!("{sign} {}", escape(&rest[..end])).trim_end().to_owned());
        rest = &rest[end + 2..];
    }
    if !rest.is_empty() {
        lines.push(format!("{sign}{sign} {}", escape(rest)));
    }
    lines
}

/// What is said at least so often in a row, and is so long in all, is written once.
const OFTEN: usize = 8;
const LONG: usize = 48;

pub(super) fn escape(bytes: &[u8]) -> String {
    let (mut text, mut rest) = (String::new(), bytes);
    while let [first, behind @ ..] = rest {
        if let Some((length, times)) = repeated(rest) {
            let unit = escape(&rest[..length]).replace('}', "\\x7d");
            let _ = write!(text, "\\{{{times} {unit}}}");
            rest = &rest[length * times..];
        } else {
            // A space at the end of a line would not be seen, and may be lost.
            let is_last_space = *first == b' ' && behind.is_empty();
            text += &if is_last_space { "\\x20".to_owned() } else { plain(*first) };
            rest = behind;
        }
    }
    text
}

fn plain(byte: u8) -> String {
    if matches!(byte, b'\'' | b'"') { char::from(byte).to_string() } else { byte.escape_ascii().to_string() }
}

/// The length of what is repeated first, and how often.
fn repeated(bytes: &[u8]) -> Option<(usize, usize)> {
    (1..=32.min(bytes.len() / OFTEN)).find_map(|length| {
        let (unit, rest) = bytes.split_at(length);
        let times = 1 + rest.chunks_exact(length).take_while(|next| *next == unit).count();
        (times >= OFTEN && times * length >= LONG).then_some((length, times))
    })
}

pub(super) fn unescape(text: &str) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), text);
    while let Some((before, escaped)) = rest.split_once('\\') {
        bytes.extend_from_slice(before.as_bytes());
        let used = match escaped.as_bytes().first() {
            Some(b'{') => {
                let (repeated, _) = escaped[1..].split_once('}').expect("the end of what is repeated");
                let (times, unit) = repeated.split_once(' ').expect("how often, and what");
                bytes.extend(unescape(unit).repeat(times.parse().expect("how often")));
                repeated.len() + 2
            }
            Some(b'x') => {
                bytes.push(u8::from_str_radix(&escaped[1..3], 16).expect("two hexadecimal digits"));
                3
            }
            Some(letter) => {
                bytes.push(match letter {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    other => *other,
                });
                1
            }
            None => panic!("nothing is escaped at the end of {text:?}"),
        };
        rest = &escaped[used..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    bytes
}

#[test]
fn bytes_are_the_same_after_they_were_written_and_read() {
    let all: Vec<u8> = (0..=255).collect();
    let long = [&b"}".repeat(50)[..], b"{\"a\":1},".repeat(9).as_slice(), b"\\ '\" \r\n \r\n\n "].concat();
    for bytes in [&all, &long, &all.repeat(2)] {
        let text = lines('>', bytes).join("\n");
        let scene = Scene::parse(&format!("= a http 1\n{text}\n"));
        assert!(scene.exchanges[0].request == *bytes, "{text}");
    }
}
