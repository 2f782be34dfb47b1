//! Bytes out and bytes in, for HTTP/1.1 and the protocol of Redis.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use super::record::{Listener, Wait};

/// How long an answer may take: longer than any of the server's own time-outs.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) struct Wire {
    stream: TcpStream,
    listener: Listener,
    received: Vec<u8>,
    pub(super) is_over: bool,
}

impl Wire {
    pub(super) fn open(address: SocketAddr, listener: Listener) -> Self {
        let stream = crate::support::connect(address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, listener, received: Vec::new(), is_over: false }
    }

    /// The answers, and what became of the connection.
    pub(super) fn ask(&mut self, request: &[u8], wait: Wait) -> (Vec<Vec<u8>>, Option<&'static str>) {
        let _ = self.stream.write_all(request); // a server that has closed the connection need not read all of it
        if wait == Wait::Cut {
            let _ = self.stream.shutdown(Shutdown::Write);
        }
        let is_head = request.starts_with(b"HEAD ");
        let mut answers = Vec::new();
        loop {
            while let Some(length) = self.next(is_head) {
                answers.push(self.received.drain(..length).collect());
            }
            if matches!(wait, Wait::Answers(number) if number <= answers.len()) {
                return (answers, None);
            }
            if let Err(end) = self.receive() {
                self.is_over = true;
                if !self.received.is_empty() {
                    answers.push(std::mem::take(&mut self.received)); // what is no whole answer
                }
                return (answers, Some(end));
            }
        }
    }

    fn receive(&mut self) -> Result<(), &'static str> {
        let mut bytes = [0; 8 * 1024];
        match self.stream.read(&mut bytes) {
            Ok(0) => Err("! closed"),
            Ok(length) => {
                self.received.extend_from_slice(&bytes[..length]);
                Ok(())
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                Err("! silent")
            }
            Err(_) => Err("! closed"), // by a server that did not read everything
        }
    }

    /// The length of the next answer, if it has come.
    fn next(&self, is_head: bool) -> Option<usize> {
        if self.listener == Listener::Resp { reply(&self.received) } else { message(&self.received, is_head) }
    }
}

/// The length of a message of HTTP.
fn message(bytes: &[u8], is_head: bool) -> Option<usize> {
    let head = bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let text = String::from_utf8_lossy(&bytes[..head]).to_lowercase();
    let length =
        text.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    let length = head + length.filter(|_| !is_head).unwrap_or(0);
    (length <= bytes.len()).then_some(length)
}

/// The length of a reply of Redis.
fn reply(bytes: &[u8]) -> Option<usize> {
    let end = bytes.windows(2).position(|two| two == b"\r\n")? + 2;
    let count: usize =
        std::str::from_utf8(&bytes[1..end - 2]).ok().and_then(|count| count.parse().ok()).unwrap_or(0);
    let parts = match bytes[0] {
        b'$' if bytes[1] != b'-' => return (end + count + 2 <= bytes.len()).then_some(end + count + 2),
        b'*' => count,
        b'%' => 2 * count,
        _ => 0,
    };
    (0..parts).try_fold(end, |at, _| Some(at + reply(&bytes[at..])?))
}
