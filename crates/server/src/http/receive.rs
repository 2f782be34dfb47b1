//! Receiving a body.

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Body;

use crate::server::body::BodyError;

/// Why there is no body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreceived {
    TooLarge,
    /// It was not complete in time.
    TimedOut,
    /// It ended before it was complete, or was not sent as HTTP says.
    CutShort,
}

impl From<hyper::Error> for Unreceived {
    fn from(_: hyper::Error) -> Self {
        Self::CutShort
    }
}

impl From<BodyError> for Unreceived {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::TimedOut => Self::TimedOut,
            BodyError::Failed(_) => Self::CutShort,
        }
    }
}

/// All of a body, unless it has more than `most` bytes.
pub(crate) async fn receive<B>(mut body: B, most: usize) -> Result<Bytes, Unreceived>
where
    B: Body<Data = Bytes, Error: Into<Unreceived>> + Unpin,
{
    if body.size_hint().lower() > most as u64 {
        return Err(Unreceived::TooLarge);
    }
    let Some(first) = next(&mut body).await? else { return Ok(Bytes::new()) };
    let mut all = Parts::One(first);
    while !body.is_end_stream()
        && let Some(more) = next(&mut body).await?
    {
        all = all.with(&more);
        if all.len() > most {
            return Err(Unreceived::TooLarge);
        }
    }
    if all.len() > most { Err(Unreceived::TooLarge) } else { Ok(all.into_bytes()) }
}

/// Reads a body that nobody looks at, up to `most` bytes. Over HTTP/2 a caller who is answered before all of it was read is told to
/// stop sending, upon which some forget the answer.
pub(crate) async fn discard<B>(mut body: B, most: usize)
where
    B: Body<Data = Bytes, Error: Into<Unreceived>> + Unpin,
{
    let mut left = most;
    while !body.is_end_stream()
        && let Ok(Some(data)) = next(&mut body).await
        && let Some(less) = left.checked_sub(data.len())
    {
        left = less;
    }
}

/// What came so far: most bodies come in one piece, which is not copied.
enum Parts {
    One(Bytes),
    Several(BytesMut),
}

impl Parts {
    fn with(self, more: &[u8]) -> Self {
        let mut all = match self {
            Self::One(first) => BytesMut::from(&first[..]),
            Self::Several(all) => all,
        };
        all.extend_from_slice(more);
        Self::Several(all)
    }

    fn len(&self) -> usize {
        match self {
            Self::One(bytes) => bytes.len(),
            Self::Several(bytes) => bytes.len(),
        }
    }

    fn into_bytes(self) -> Bytes {
        match self {
            Self::One(bytes) => bytes,
            Self::Several(bytes) => bytes.freeze(),
        }
    }
}

/// The next piece that has something in it.
async fn next<B>(body: &mut B) -> Result<Option<Bytes>, Unreceived>
where
    B: Body<Data = Bytes, Error: Into<Unreceived>> + Unpin,
{
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.map_err(Into::into)?.into_data()
            && !data.is_empty()
        {
            return Ok(Some(data));
        }
    }
    Ok(None)
}
