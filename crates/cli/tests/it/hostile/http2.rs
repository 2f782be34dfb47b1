//! HTTP/2 by hand, so that a client can break every rule of it.

use std::collections::BTreeMap;

use super::way::Request;
use super::wire::{Over, Wire};

pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// The setting `SETTINGS_INITIAL_WINDOW_SIZE`.
const INITIAL_WINDOW: u16 = 4;
/// The window of a connection, and of a stream, until something else is said.
const DEFAULT_WINDOW: i64 = 65_535;
/// The largest payload of a frame, until something else is said.
const MAX_FRAME: usize = 16_384;

/// One frame.
pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A header block: literals without indexing and without Huffman coding.
fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            push_length(&mut block, text.len());
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

/// An integer with a prefix of seven bits.
fn push_length(block: &mut Vec<u8>, length: usize) {
    let Some(mut rest) = length.checked_sub(127) else { return block.push(length as u8) };
    block.push(127);
    while rest >= 128 {
        block.push(rest as u8 | 128);
        rest >>= 7;
    }
    block.push(rest as u8);
}

/// The header block of a request.
pub(super) fn head(request: &Request, more: &[(&str, &str)]) -> Vec<u8> {
    let method = if request.is_post { "POST" } else { "GET" };
    let kind = if request.is_grpc { "application/grpc" } else { "application/json" };
    let fields = [
        (":method", method),
        (":scheme", "http"),
        (":path", request.path),
        (":authority", "localhost"),
        ("content-type", kind),
        ("te", "trailers"),
    ];
    block(&[&fields, more].concat())
}

/// A request that is not over, seen from the client.
struct Stream {
    window: i64,
    /// How many bytes of its body are still to be sent.
    left: i64,
}

/// A client.
pub(super) struct Http2<'a> {
    wire: &'a mut Wire,
    next: u32,
    /// Whether the client answers PINGs.
    pub(super) answers_pings: bool,
    /// How much may be sent on the connection, and on a new stream.
    window: i64,
    initial: i64,
    streams: BTreeMap<u32, Stream>,
    /// The requests that were answered, or reset, in that order.
    pub(super) answered: Vec<u32>,
    /// How many PINGs were answered.
    pongs: usize,
    /// The payload of the last DATA frame that was received.
    pub(super) data: Vec<u8>,
}

impl<'a> Http2<'a> {
    /// Begins a connection. The server may send so many bytes of each answer.
    pub(super) fn begin(wire: &'a mut Wire, window: u32) -> Result<Self, Over> {
        let setting = [&INITIAL_WINDOW.to_be_bytes()[..], &window.to_be_bytes()].concat();
        wire.send(&[PREFACE, &frame(SETTINGS, 0, 0, &setting)].concat())?;
        let (window, initial, streams) = (DEFAULT_WINDOW, DEFAULT_WINDOW, BTreeMap::new());
        let (answered, data) = (Vec::new(), Vec::new());
        Ok(Self { wire, next: 1, answers_pings: true, window, initial, streams, answered, pongs: 0, data })
    }

    /// Starts the server's time anew.
    pub(super) fn restart(&mut self) {
        self.wire.restart();
    }

    /// Makes a request and waits for the end of its answer.
    pub(super) fn exchange(&mut self, request: &Request) -> Result<(), Over> {
        self.ask(request)?;
        self.wait_for_answers()
    }

    /// Makes a whole request.
    pub(super) fn ask(&mut self, request: &Request) -> Result<(), Over> {
        let stream = self.open(request, 0)?;
        self.send_body(stream, &request.body, END_STREAM)
    }

    /// Begins a request of whose body so many bytes are still to be sent.
    pub(super) fn open(&mut self, request: &Request, left: i64) -> Result<u32, Over> {
        let stream = self.new_stream(left);
        self.wire.send(&frame(HEADERS, END_HEADERS, stream, &head(request, &[])))?;
        Ok(stream)
    }

    fn new_stream(&mut self, left: i64) -> u32 {
        let stream = self.next;
        self.next += 2;
        self.streams.insert(stream, Stream { window: self.initial, left });
        stream
    }

    /// Makes a request whose header block is so large that it takes several frames.
    pub(super) fn ask_at_length(&mut self, request: &Request, more: &[(&str, &str)]) -> Result<(), Over> {
        let stream = self.new_stream(0);
        let block = head(request, more);
        let mut parts = block.chunks(MAX_FRAME).peekable();
        let (mut kind, mut first) = (HEADERS, END_STREAM);
        while let Some(part) = parts.next() {
            let last = if parts.peek().is_none() { END_HEADERS } else { 0 };
            self.wire.send(&frame(kind, first | last, stream, part))?;
            (kind, first) = (CONTINUATION, 0);
        }
        self.wait_for_answers()
    }

    /// Makes so many requests and takes each back at once.
    pub(super) fn ask_and_reset(&mut self, request: &Request, times: usize) -> Result<(), Over> {
        let mut frames = Vec::new();
        for _ in 0..times {
            let cancel = 8_u32.to_be_bytes();
            frames.extend(frame(HEADERS, END_HEADERS, self.next, &head(request, &[])));
            frames.extend(frame(RST_STREAM, 0, self.next, &cancel));
            self.next += 2;
        }
        self.wire.send(&frames)
    }

    /// Allows the server to send as much as HTTP/2 lets it.
    pub(super) fn open_window(&mut self) -> Result<(), Over> {
        let most = (1_u32 << 31) - 1 - DEFAULT_WINDOW as u32;
        self.wire.send(&frame(WINDOW_UPDATE, 0, 0, &most.to_be_bytes()))
    }

    /// Sends a part of a request's body, whether the server's windows allow it or not.
    pub(super) fn send_data(&mut self, stream: u32, bytes: &[u8]) -> Result<(), Over> {
        self.send_body(stream, bytes, 0)
    }

    /// Ends a request's body.
    pub(super) fn end(&mut self, stream: u32) -> Result<(), Over> {
        self.send_body(stream, &[], END_STREAM)
    }

    /// Sends a PING and waits for its answer.
    pub(super) fn ping(&mut self) -> Result<(), Over> {
        let before = self.pongs;
        self.wire.send(&frame(PING, 0, 0, &[0; 8]))?;
        while self.pongs == before {
            self.wait()?;
        }
        Ok(())
    }

    fn send_body(&mut self, stream: u32, bytes: &[u8], flags: u8) -> Result<(), Over> {
        let count = i64::try_from(bytes.len()).unwrap();
        self.window -= count;
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.window -= count;
        }
        self.wire.send(&frame(DATA, flags, stream, bytes))
    }

    /// Sends of all unfinished bodies what the server's windows allow.
    pub(super) fn send_bodies(&mut self) -> Result<(), Over> {
        const BODY: [u8; MAX_FRAME] = [b'a'; MAX_FRAME];
        for (id, stream) in &mut self.streams {
            let count = stream.window.min(stream.left).min(self.window).clamp(0, 16_384);
            if count > 0 {
                self.wire.send(&frame(DATA, 0, *id, &BODY[..count as usize]))?;
                stream.window -= count;
                stream.left -= count;
                self.window -= count;
            }
        }
        Ok(())
    }

    /// Whether every request has been answered, or reset.
    pub(super) fn is_idle(&self) -> bool {
        self.streams.is_empty()
    }

    fn wait_for_answers(&mut self) -> Result<(), Over> {
        while !self.is_idle() {
            self.wait()?;
        }
        Ok(())
    }

    pub(super) fn wait_for_end(&mut self) -> Result<(), Over> {
        loop {
            self.wait()?;
        }
    }

    /// Sends PINGs, byte by byte, and reads nothing.
    pub(super) fn never_read(&mut self) -> Result<(), Over> {
        loop {
            self.wire.drip_blindly(&frame(PING, 0, 0, &[0; 8]))?;
        }
    }

    /// Waits for a step or until there are frames, and heeds them.
    pub(super) fn wait(&mut self) -> Result<(), Over> {
        self.wire.wait()?;
        while let Some((kind, flags, stream, payload)) = self.take_frame() {
            self.heed(kind, flags, stream, payload)?;
        }
        Ok(())
    }

    fn take_frame(&mut self) -> Option<(u8, u8, u32, Vec<u8>)> {
        let received = &mut self.wire.received;
        let (header, rest) = received.split_first_chunk::<9>()?;
        let [a, b, c, kind, flags, stream @ ..] = *header;
        let payload = rest.get(..number(&[a, b, c]) as usize)?.to_vec();
        received.drain(..9 + payload.len());
        Some((kind, flags, u32::from_be_bytes(stream), payload))
    }

    fn heed(&mut self, kind: u8, flags: u8, stream: u32, payload: Vec<u8>) -> Result<(), Over> {
        match kind {
            SETTINGS if flags & ACK == 0 => {
                for setting in
                    payload.chunks(6).filter(|setting| setting[..2] == INITIAL_WINDOW.to_be_bytes())
                {
                    let initial = i64::from(number(&setting[2..]));
                    self.streams.values_mut().for_each(|stream| stream.window += initial - self.initial);
                    self.initial = initial;
                }
                return self.wire.send(&frame(SETTINGS, ACK, 0, &[]));
            }
            PING if flags & ACK == 0 && self.answers_pings => {
                return self.wire.send(&frame(PING, ACK, 0, &payload));
            }
            WINDOW_UPDATE => match self.streams.get_mut(&stream) {
                Some(stream) => stream.window += i64::from(number(&payload)),
                None if stream == 0 => self.window += i64::from(number(&payload)),
                None => {}
            },
            PING if flags & ACK != 0 => self.pongs += 1,
            DATA => self.data = payload,
            _ => {}
        }
        if kind == RST_STREAM || matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0 {
            self.streams.remove(&stream);
            self.answered.push(stream);
        }
        Ok(())
    }
}

fn number(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte))
}
