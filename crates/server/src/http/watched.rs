//! A stream that notes what it waits for.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

use super::watch::Watch;
use crate::server::Stream;

/// How HTTP/2 begins, and HTTP/1 never does.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A stream that notes what it waits for. What was read to see which HTTP it is comes first.
#[derive(Debug)]
pub(super) struct Watched {
    stream: Stream,
    watch: Rc<Watch>,
    first: Vec<u8>,
    is_http2: bool,
}

impl Watched {
    pub(super) fn new(stream: Stream, watch: Rc<Watch>) -> Self {
        Self { stream, watch, first: Vec::new(), is_http2: false }
    }

    /// What comes first when it is read from again.
    pub(super) fn put_back(&mut self, first: Vec<u8>) {
        self.first = first;
    }

    /// Whether the caller speaks HTTP/2; reads no more than it takes to know.
    pub(super) async fn is_http2(&mut self) -> io::Result<bool> {
        let mut first = Vec::with_capacity(PREFACE.len());
        while PREFACE.starts_with(&first) && first.len() < PREFACE.len() {
            let room = (PREFACE.len() - first.len()) as u64;
            if (&mut *self).take(room).read_buf(&mut first).await? == 0 {
                break;
            }
        }
        self.first = first;
        self.is_http2 = self.first == PREFACE;
        Ok(self.is_http2)
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.first.is_empty() {
            let size = self.first.len().min(into.remaining());
            into.put_slice(&self.first[..size]);
            self.first.drain(..size);
            return Poll::Ready(Ok(()));
        }
        let before = into.filled().len();
        let poll = Pin::new(&mut self.stream).poll_read(context, into);
        if poll.is_pending() {
            self.watch.wants_more();
        } else if into.filled().len() > before && !self.is_http2 {
            // What HTTP/2 sends need not be a request.
            self.watch.has_read();
        }
        poll
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, from)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, from)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
