//! The bodies of answers.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

pin_project! {
    /// The body of an answer: the service's own, or that of a refusal.
    ///
    /// Nearly always it is the service's own, and most bodies take no more room in this one.
    pub struct LimitedBody<R> {
        #[pin]
        source: Source<R>,
    }
}

pin_project! {
    #[project = SourceProjection]
    enum Source<R> {
        Service { #[pin] body: R },
        // What is rare lies apart, and is one case, so that it needs no mark beside a body that has a pointer in it: an answer is moved
        // many times on its way.
        Apart { apart: Pin<Box<Apart<R>>> },
    }
}

pin_project! {
    #[project = ApartProjection]
    enum Apart<R> {
        Counted { #[pin] body: R, counter: Counter },
        Refusal { text: Option<Bytes> },
    }
}

impl<R> LimitedBody<R> {
    #[inline]
    pub(crate) fn of_service(body: R, counter: Option<Counter>) -> Self {
        match counter {
            None => Self { source: Source::Service { body } },
            Some(counter) => Self::apart(Apart::Counted { body, counter }),
        }
    }

    pub(crate) fn of_refusal(text: Bytes) -> Self {
        Self::apart(Apart::Refusal { text: Some(text).filter(|text| !text.is_empty()) })
    }

    fn apart(apart: Apart<R>) -> Self {
        Self { source: Source::Apart { apart: Box::pin(apart) } }
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
        match self.project().source.project() {
            SourceProjection::Service { body } => body.poll_frame(context),
            SourceProjection::Apart { apart } => apart.as_mut().poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Service { body } => body.is_end_stream(),
            Source::Apart { apart } => apart.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Service { body } => body.size_hint(),
            Source::Apart { apart } => apart.size_hint(),
        }
    }
}

impl<R> Body for Apart<R>
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
        let frame = match self.project() {
            ApartProjection::Counted { body, counter } => {
                let frame = std::task::ready!(body.poll_frame(context));
                if let Some(Ok(frame)) = &frame {
                    counter.count(frame.data_ref().map_or(0, Buf::remaining));
                }
                frame
            }
            ApartProjection::Refusal { text } => text.take().map(|text| Ok(Frame::data(text.into()))),
        };
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Counted { body, .. } => body.is_end_stream(),
            Self::Refusal { text } => text.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Counted { body, .. } => body.size_hint(),
            Self::Refusal { text } => SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64)),
        }
    }
}

/// The service's own body stays as it is.
#[cfg(feature = "axum")]
impl From<LimitedBody<axum::body::Body>> for axum::body::Body {
    #[inline]
    fn from(body: LimitedBody<Self>) -> Self {
        match body.source {
            Source::Service { body } => body,
            Source::Apart { apart } => Self::new(apart),
        }
    }
}

impl<R> fmt::Debug for LimitedBody<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = match &self.source {
            Source::Service { .. } => "service",
            Source::Apart { apart } => match **apart {
                Apart::Counted { .. } => "service",
                Apart::Refusal { .. } => "refusal",
            },
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

#[cfg(test)]
mod tests {
    use super::*;

    /// As axum's, tonic's and many others are.
    type Boxed = Pin<Box<dyn Body<Data = Bytes, Error = std::io::Error> + Send>>;

    #[test]
    fn a_service_s_own_body_takes_no_more_room() {
        assert_eq!(size_of::<LimitedBody<Boxed>>(), size_of::<Boxed>());
    }
}
