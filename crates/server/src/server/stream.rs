//! What a connection is carried by.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::activity::Activity;

/// A TCP or TLS stream that counts its reads and writes in an [`Activity`].
#[derive(Debug)]
pub struct Stream {
    carrier: Carrier,
    activity: Rc<Activity>,
}

/// A TCP stream, encrypted or not.
#[derive(Debug)]
pub(super) enum Carrier {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Calls a method of whatever carries the stream.
macro_rules! carried {
    ($stream:expr, $method:ident($($argument:expr),*)) => {
        match &mut $stream.carrier {
            Carrier::Plain(stream) => Pin::new(stream).$method($($argument),*),
            Carrier::Tls(stream) => Pin::new(stream).$method($($argument),*),
        }
    };
}

impl Stream {
    pub(super) fn new(carrier: Carrier, activity: Rc<Activity>) -> Self {
        Self { carrier, activity }
    }
}

impl AsyncRead for Stream {
    #[inline]
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let poll = carried!(self, poll_read(context, into));
        if into.filled().len() > before {
            self.activity.has_read();
        }
        poll
    }
}

impl AsyncWrite for Stream {
    #[inline]
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        let poll = carried!(self, poll_write(context, from));
        self.activity.wrote(poll.is_pending());
        poll
    }

    #[inline]
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let poll = carried!(self, poll_write_vectored(context, from));
        self.activity.wrote(poll.is_pending());
        poll
    }

    fn is_write_vectored(&self) -> bool {
        match &self.carrier {
            Carrier::Plain(stream) => stream.is_write_vectored(),
            Carrier::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = carried!(self, poll_flush(context));
        self.activity.flushed(poll.is_pending());
        poll
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = carried!(self, poll_shutdown(context));
        self.activity.flushed(poll.is_pending());
        poll
    }
}
