//! The bodies of answers.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

pin_project! {
    /// The body of an answer: the service's own, or that of a refusal.
    pub struct LimitedBody<R> {
        #[pin]
        source: Source<R>,
        // Counts what was sent, if somebody wants to know.
        counter: Option<Counter>,
    }
}

pin_project! {
    #[project = SourceProjection]
    enum Source<R> {
        Service { #[pin] body: R },
        Refusal { text: Option<Bytes> },
    }
}

impl<R> LimitedBody<R> {
    pub(crate) fn of_service(body: R, counter: Option<Counter>) -> Self {
        Self { source: Source::Service { body }, counter }
    }

    pub(crate) fn of_refusal(text: Bytes) -> Self {
        Self { source: Source::Refusal { text: Some(text).filter(|text| !text.is_empty()) }, counter: None }
    }
}

impl<R> Body for LimitedBody<R>
where
    R: Body,
    R::Data: From<Bytes>,
{
    type Data = R::Data;
    type Error = R::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<R::Data>, R::Error>>> {
        let this = self.project();
        let frame = match this.source.project() {
            SourceProjection::Service { body } => std::task::ready!(body.poll_frame(context)),
            SourceProjection::Refusal { text } => text.take().map(|text| Ok(Frame::data(text.into()))),
        };
        if let (Some(counter), Some(Ok(frame))) = (this.counter, &frame) {
            counter.count(frame.data_ref().map_or(0, Buf::remaining));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Service { body } => body.is_end_stream(),
            Source::Refusal { text } => text.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Service { body } => body.size_hint(),
            Source::Refusal { text } => {
                SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64))
            }
        }
    }
}

impl<R> fmt::Debug for LimitedBody<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = match self.source {
            Source::Service { .. } => "service",
            Source::Refusal { .. } => "refusal",
        };
        f.debug_struct("LimitedBody").field("of", &of).finish_non_exhaustive()
    }
}

/// Counts bytes, and tells how many there were when it is dropped: at the end, or when the caller went away.
pub(crate) struct Counter {
    bytes: u64,
    tell: Option<Box<dyn FnOnce(u64) + Send>>,
}

impl Counter {
    pub(crate) fn new(tell: impl FnOnce(u64) + Send + 'static) -> Self {
        Self { bytes: 0, tell: Some(Box::new(tell)) }
    }

    fn count(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes as u64);
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        if let Some(tell) = self.tell.take() {
            tell(self.bytes);
        }
    }
}
