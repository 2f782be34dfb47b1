//! A connection that is driven by hand: every read and write waits for at most one step.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use tokio::time::Instant;

use crate::support::PATIENCE;
use crate::support::certificates::Caller;

/// The longest wait of one read or write, and so the pace of clients that drip.
pub(super) const STEP: Duration = Duration::from_millis(20);

/// Why a client came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// The server closed the connection.
    Closed,
    /// The server answered, but not well.
    Refused,
    /// The client gave up: the connection was still open.
    Open,
}

/// Where a client connects to, and how.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) address: SocketAddr,
    /// For TLS.
    pub(super) caller: Option<Caller>,
    /// What the client offers by ALPN.
    pub(super) alpn: &'static [&'static str],
    /// The client's own address.
    pub(super) from: IpAddr,
    /// The size of its receive and send buffers.
    pub(super) buffers: Option<usize>,
    /// How long it keeps trying.
    pub(super) limit: Duration,
}

impl Place {
    pub(super) fn new(address: SocketAddr, caller: Option<Caller>) -> Self {
        let from = IpAddr::V4(Ipv4Addr::LOCALHOST);
        Self { address, caller, alpn: &[], from, buffers: None, limit: Duration::from_secs(5) }
    }

    /// Opens a TCP connection.
    pub(super) fn socket(&self) -> io::Result<Socket> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        if let Some(bytes) = self.buffers {
            socket.set_recv_buffer_size(bytes)?;
            socket.set_send_buffer_size(bytes)?;
        }
        socket.bind(&SocketAddr::new(self.from, 0).into())?;
        socket.connect_timeout(&self.address.into(), PATIENCE)?;
        socket.set_tcp_nodelay(true)?;
        Ok(socket)
    }

    /// Opens a connection and leaves it at that: over TLS, not even the handshake begins.
    pub(super) fn open_bare(&self) -> io::Result<Wire> {
        let start = Instant::now();
        let stream = in_steps(self.socket()?.into())?;
        Ok(Wire { stream: Box::new(stream), place: self.clone(), start, received: Vec::new() })
    }

    /// Opens a connection; over TLS, up to the end of the handshake.
    pub(super) fn open(&self) -> io::Result<Wire> {
        let start = Instant::now();
        let stream = TcpStream::from(self.socket()?);
        let stream: Box<dyn Stream> = match &self.caller {
            None => Box::new(in_steps(stream)?),
            Some(caller) => {
                stream.set_read_timeout(Some(PATIENCE))?;
                let mut stream = caller.open(stream, self.alpn)?;
                stream.conn.complete_io(&mut stream.sock)?;
                stream.sock = in_steps(stream.sock)?;
                Box::new(stream)
            }
        };
        Ok(Wire { stream, place: self.clone(), start, received: Vec::new() })
    }
}

fn in_steps(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_read_timeout(Some(STEP))?;
    stream.set_write_timeout(Some(STEP))?;
    Ok(stream)
}

trait Stream: Read + Write {}
impl<S: Read + Write> Stream for S {}

/// A connection.
pub(super) struct Wire {
    stream: Box<dyn Stream>,
    pub(super) place: Place,
    /// When the time began that the server has.
    start: Instant,
    /// Everything that was read and not taken out since.
    pub(super) received: Vec<u8>,
}

impl Wire {
    /// Starts the server's time anew.
    pub(super) fn restart(&mut self) {
        self.start = Instant::now();
    }

    /// The time since the start.
    pub(super) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Waits for a step, or until there is something to read.
    pub(super) fn wait(&mut self) -> Result<(), Over> {
        let mut buffer = [0; 16 * 1024];
        let read = self.stream.read(&mut buffer);
        match self.check(read)? {
            Some(0) => Err(Over::Closed),
            read => {
                self.received.extend_from_slice(&buffer[..read.unwrap_or(0)]);
                Ok(())
            }
        }
    }

    /// Reads until the connection is over.
    pub(super) fn wait_for_end(&mut self) -> Result<(), Over> {
        loop {
            self.wait()?;
            self.received.clear();
        }
    }

    /// Sends everything. Reads nothing meanwhile.
    pub(super) fn send(&mut self, mut bytes: &[u8]) -> Result<(), Over> {
        while !bytes.is_empty() {
            let written = self.stream.write(bytes);
            bytes = &bytes[self.check(written)?.unwrap_or(0)..];
        }
        Ok(())
    }

    /// Sends byte by byte, one each step.
    pub(super) fn drip(&mut self, bytes: &[u8]) -> Result<(), Over> {
        for byte in bytes.chunks(1) {
            self.send(byte)?;
            self.wait()?;
        }
        Ok(())
    }

    /// The same without reading.
    pub(super) fn drip_blindly(&mut self, bytes: &[u8]) -> Result<(), Over> {
        let (_keep, never) = mpsc::channel::<()>();
        for byte in bytes.chunks(1) {
            self.send(byte)?;
            let _ = never.recv_timeout(STEP);
        }
        Ok(())
    }

    /// The result of a read or a write, if it was not only a pause.
    fn check(&self, result: io::Result<usize>) -> Result<Option<usize>, Over> {
        use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
        match result {
            Err(error) if !matches!(error.kind(), Interrupted | TimedOut | WouldBlock) => Err(Over::Closed),
            _ if self.elapsed() > self.place.limit => Err(Over::Open),
            result => Ok(result.ok()),
        }
    }
}
