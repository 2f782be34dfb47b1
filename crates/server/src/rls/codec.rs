//! How messages are encoded and decoded.

use std::fmt;
use std::marker::PhantomData;

use prost::Message;
use tonic::codec::{self, BufferSettings};
use tonic_prost::{ProstDecoder, ProstEncoder};

/// tonic's codec for protobuf, with buffers of the size that most messages here have: those of tonic's own are 8 KiB each.
pub(super) struct Codec<Encoded, Decoded>(PhantomData<fn(Encoded) -> Decoded>);

const BUFFER: usize = 512;
/// Larger messages than that are written in several pieces.
const YIELD: usize = 32 * 1024;

impl<Encoded, Decoded> Default for Codec<Encoded, Decoded> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<Encoded, Decoded> fmt::Debug for Codec<Encoded, Decoded> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Codec")
    }
}

impl<Encoded, Decoded> codec::Codec for Codec<Encoded, Decoded>
where
    Encoded: Message + 'static,
    Decoded: Message + Default + 'static,
{
    type Encode = Encoded;
    type Decode = Decoded;
    type Encoder = ProstEncoder<Encoded>;
    type Decoder = ProstDecoder<Decoded>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::new(BufferSettings::new(BUFFER, YIELD))
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstDecoder::new(BufferSettings::new(BUFFER, YIELD))
    }
}
