//! One message in, one message out, as gRPC frames them.
//!
//! Of all that gRPC can do a decision needs little: a message that comes in one piece, and an answer that is known at once. What
//! serves every kind of call takes twice as long for this one.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Response};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use prost::Message;
use tonic::Status;

use crate::http::receive::{Unreceived, receive};

/// A flag and a length stand before every message.
const FRAME: usize = 5;
/// Most answers are no longer than this, in bytes.
const USUAL: usize = 256;

/// Reads the one message of a call.
///
/// # Errors
/// If there is none, or more than one, or it is compressed, has more than `most` bytes or is something else.
pub(super) async fn read<M: Message + Default>(body: Incoming, most: usize) -> Result<M, Status> {
    let mut framed = receive(body, most + FRAME).await.map_err(|why| match why {
        Unreceived::TooLarge => too_large(most),
        Unreceived::CutShort => Status::cancelled("the call ended before its message did"),
    })?;
    let Some(&[flag, a, b, c, d]) = framed.first_chunk::<FRAME>() else {
        return Err(Status::invalid_argument("there is no message, or only some of one"));
    };
    framed.advance(FRAME);
    if flag != 0 {
        return Err(Status::unimplemented("a compressed message cannot be read: send it as it is"));
    }
    let length = u32::from_be_bytes([a, b, c, d]);
    if length as usize > most {
        return Err(too_large(most));
    }
    if framed.len() != length as usize {
        return Err(Status::invalid_argument(format!(
            "there are {} bytes where one message of {length} should be",
            framed.len()
        )));
    }
    // What is bytes in the message is then part of these, and not copied.
    M::decode(framed)
        .map_err(|error| Status::invalid_argument(format!("the message cannot be read: {error}")))
}

fn too_large(most: usize) -> Status {
    Status::out_of_range(format!("the message is too large: at most {most} bytes are read"))
}

/// The answer to a call that went well.
pub(super) fn answer(message: &impl Message) -> Response<Said> {
    let mut framed = Vec::with_capacity(USUAL); // into which single bytes are written faster than into anything else
    framed.resize(FRAME, 0);
    message.encode_raw(&mut framed);
    let length = u32::try_from(framed.len() - FRAME).unwrap_or(u32::MAX); // nobody has room for more
    framed[1..FRAME].copy_from_slice(&length.to_be_bytes()); // known only now: to ask before is to go through all of it twice
    let mut response = Response::new(Said::Message(Some(framed.into())));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

/// What is answered.
#[derive(Debug)]
pub(super) enum Said {
    /// A message, if it was not sent yet, and that all went well.
    Message(Option<Bytes>),
    /// Whatever another service says.
    Other(tonic::body::Body),
    /// Nothing more.
    Nothing,
}

impl Said {
    /// What another service answers.
    pub(super) fn other(response: Response<tonic::body::Body>) -> Response<Self> {
        response.map(Self::Other)
    }
}

impl Body for Said {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = match &mut *self {
            Self::Other(body) => return Pin::new(body).poll_frame(context),
            Self::Nothing => return Poll::Ready(None),
            Self::Message(message) => message.take().map(Frame::data),
        };
        let frame = frame.unwrap_or_else(|| {
            *self = Self::Nothing;
            Frame::trailers(went_well())
        });
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Message(_) => false,
            Self::Other(body) => body.is_end_stream(),
            Self::Nothing => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Message(message) => {
                SizeHint::with_exact(message.as_ref().map_or(0, |message| message.len() as u64))
            }
            Self::Other(body) => body.size_hint(),
            Self::Nothing => SizeHint::with_exact(0),
        }
    }
}

fn went_well() -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    trailers
}
