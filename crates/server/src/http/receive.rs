//! Receiving a body.

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};

use super::refusal::Refusal;

/// All of a body, unless it is too large.
pub(super) async fn receive(mut body: Incoming, most: usize) -> Result<Bytes, Refusal> {
    if body.size_hint().lower() > most as u64 {
        return Err(too_large(most));
    }
    let Some(first) = next(&mut body).await? else { return Ok(Bytes::new()) };
    let mut all = Parts::One(first);
    while let Some(more) = next(&mut body).await? {
        all = all.with(&more);
        if all.len() > most {
            return Err(too_large(most));
        }
    }
    if all.len() > most { Err(too_large(most)) } else { Ok(all.into_bytes()) }
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
async fn next(body: &mut Incoming) -> Result<Option<Bytes>, Refusal> {
    while let Some(frame) = body.frame().await {
        let cut_short = |_| {
            Refusal::last(
                StatusCode::BAD_REQUEST,
                "the body ended before it was complete, or was not sent as HTTP says",
            )
        };
        if let Ok(data) = frame.map_err(cut_short)?.into_data()
            && !data.is_empty()
        {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

fn too_large(most: usize) -> Refusal {
    let detail = format!("the body has more than {most} bytes; send several smaller ones");
    Refusal::last(StatusCode::PAYLOAD_TOO_LARGE, detail)
}
