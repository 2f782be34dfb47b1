//! The other end: written anew, so that a mistake in our reader is not made twice.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use tokio::net::TcpSocket;
use tokio::runtime::Builder;

/// How long an answer may take before a test fails.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Caller {
    stream: BufReader<TcpStream>,
}

/// Sends only.
pub(crate) struct Writer(TcpStream);

impl Writer {
    pub(crate) fn send_all(mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("it listens");
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Status(String),
    Error(String),
    Integer(i64),
    Bulk(Vec<u8>),
    Null,
    Boolean(bool),
    Array(Vec<Reply>),
    Map(Vec<(Reply, Reply)>),
    /// The connection ended.
    End,
}

impl Caller {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self::of(TcpStream::connect(address).expect("it listens"))
    }

    /// Connects from another address of this machine.
    pub(crate) fn from(source: Ipv4Addr, address: SocketAddr) -> Self {
        let runtime = Builder::new_current_thread().enable_io().build().expect("a runtime");
        let stream = runtime.block_on(async {
            let socket = TcpSocket::new_v4()?;
            socket.bind((source, 0).into())?;
            socket.connect(address).await?.into_std()
        });
        let stream = stream.expect("it listens");
        stream.set_nonblocking(false).expect("a socket");
        Self::of(stream)
    }

    fn of(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        stream.set_nodelay(true).expect("a socket");
        Self { stream: BufReader::new(stream) }
    }

    /// Sends bytes as they are. Whether the other end still took them.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.get_mut().write_all(bytes).is_ok()
    }

    /// Another handle to send by, while answers are heard.
    pub(crate) fn writer(&self) -> Writer {
        Writer(self.stream.get_ref().try_clone().expect("a socket"))
    }

    /// Says that nothing more will come.
    pub(crate) fn end(&mut self) {
        let _ = self.stream.get_ref().shutdown(Shutdown::Write);
    }

    pub(crate) fn ask(&mut self, arguments: &[&[u8]]) -> Reply {
        self.send(&command(arguments));
        self.hear()
    }

    /// Asks by a line, words split at spaces.
    pub(crate) fn say(&mut self, line: &str) -> Reply {
        self.ask(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>())
    }

    /// Everything until the other end closes, as it is.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        let _ = self.stream.read_to_end(&mut rest); // a connection that was reset has ended too
        rest
    }

    /// One answer.
    pub(crate) fn hear(&mut self) -> Reply {
        let mut line = Vec::new();
        let read = self.stream.read_until(b'\n', &mut line).expect("an answer in time");
        if read == 0 {
            return Reply::End;
        }
        let text = line.strip_suffix(b"\r\n").expect("a whole line");
        let (kind, text) = text.split_first().expect("a kind");
        let text = String::from_utf8_lossy(text).into_owned();
        let count = || text.parse::<usize>().expect("a length");
        match kind {
            b'+' => Reply::Status(text),
            b'-' => Reply::Error(text),
            b':' => Reply::Integer(text.parse().expect("a number")),
            b'$' | b'*' if text == "-1" => Reply::Null,
            b'_' => Reply::Null,
            b'#' => Reply::Boolean(text == "t"),
            b'$' => {
                let mut bytes = vec![0; count() + 2];
                self.stream.read_exact(&mut bytes).expect("all of it");
                assert_eq!(bytes.split_off(bytes.len() - 2), b"\r\n");
                Reply::Bulk(bytes)
            }
            b'*' => Reply::Array((0..count()).map(|_| self.hear()).collect()),
            b'%' => Reply::Map((0..count()).map(|_| (self.hear(), self.hear())).collect()),
            other => panic!("an answer of an unknown kind: {}", char::from(*other)),
        }
    }
}

impl Reply {
    pub(crate) fn text(words: &str) -> Self {
        Self::Bulk(words.as_bytes().to_vec())
    }

    pub(crate) fn error(words: &str) -> Self {
        Self::Error(words.to_owned())
    }

    pub(crate) fn numbers<const N: usize>(numbers: [i64; N]) -> Self {
        Self::Array(numbers.map(Self::Integer).to_vec())
    }

    /// The value of a name, in a map or in names and values by turns.
    pub(crate) fn field(&self, name: &str) -> &Self {
        let name = Self::text(name);
        let found = match self {
            Self::Map(pairs) => pairs.iter().find(|pair| pair.0 == name).map(|pair| &pair.1),
            Self::Array(all) => all.chunks(2).find(|pair| pair[0] == name).map(|pair| &pair[1]),
            _ => None,
        };
        found.unwrap_or_else(|| panic!("{self:?} has no {name:?}"))
    }
}

/// A command as clients send it.
pub(crate) fn command(arguments: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}
