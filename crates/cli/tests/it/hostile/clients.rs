//! What hostile clients do with a connection that has just been opened.

use std::time::Duration;

use super::http2::{Http2, PREFACE, SETTINGS, frame, head};
use super::way::Way;
use super::wire::{Over, Wire};

/// The largest window of HTTP/2.
const WIDE: u32 = (1 << 31) - 1;

/// Sends nothing.
pub(super) fn stay_silent(wire: &mut Wire, _: Way, _: usize) -> Result<(), Over> {
    wire.wait_for_end()
}

/// Sends half of the HTTP/2 preface, of a request line or of a command.
pub(super) fn send_half_a_preface(wire: &mut Wire, way: Way, _: usize) -> Result<(), Over> {
    wire.send(match way {
        Way::Resp => b"*2\r\n$4\r\nPING\r\n$3\r\na",
        _ if way.is_http2() => &PREFACE[..PREFACE.len() / 2],
        _ => b"GET /heal",
    })?;
    wire.wait_for_end()
}

/// The head of a request, or the beginning of a command, that takes longer to send than any test.
fn endless_head(way: Way) -> Vec<u8> {
    let rest = [b'a'; 2_000];
    match way {
        Way::Resp => [b"*2\r\n$4\r\nPING\r\n$60000\r\n", &rest[..]].concat(),
        _ if way.is_http2() => {
            let text = String::from_utf8(rest.to_vec()).unwrap();
            frame(1, 0, 1, &head(&way.small(), &[("x-endless", &text)]))
        }
        _ => [b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-endless: ", &rest[..]].concat(),
    }
}

/// Sends its first request byte by byte. Over HTTP/2, the first connection drips from the preface on, the second from the SETTINGS
/// frame on and the third from the HEADERS frame on.
pub(super) fn drip_a_head(wire: &mut Wire, way: Way, index: usize) -> Result<(), Over> {
    let settings = frame(SETTINGS, 0, 0, &[]);
    let before = [PREFACE, &settings].concat();
    let text = if way.is_http2() { [before.clone(), endless_head(way)].concat() } else { endless_head(way) };
    let (at_once, slowly) = text.split_at([0, PREFACE.len(), before.len()][index % 3]);
    wire.send(at_once)?;
    wire.drip(slowly)
}

/// Makes one request and sends the head of the next byte by byte.
pub(super) fn drip_a_second_head(wire: &mut Wire, way: Way, _: usize) -> Result<(), Over> {
    way.exchange(wire)?;
    wire.restart();
    let text = endless_head(way);
    // The second stream is the third by number.
    let text = if way.is_http2() { frame(1, 0, 3, &text[9..]) } else { text };
    wire.drip(&text)
}

/// Sends a body byte by byte: the first connection that of its first request, the others that of the second.
pub(super) fn drip_a_body(wire: &mut Wire, way: Way, index: usize) -> Result<(), Over> {
    if way.is_http2() {
        let mut client = Http2::begin(wire, WIDE)?;
        if index > 0 {
            client.exchange(&way.small())?;
        }
        let request = way.upload(0);
        let stream = client.open(&request, 0)?;
        client.restart();
        client.send_data(stream, &request.body)?;
        while !client.is_idle() {
            client.send_data(stream, b"a")?;
            client.wait()?;
        }
        return Ok(());
    }
    if index > 0 {
        way.exchange(wire)?;
        wire.restart();
    }
    wire.send(&way.upload_text(0))?;
    wire.drip(&[b'a'; 2_000])
}

/// Begins 200 requests with large bodies and ends none of them. Where requests come one after the other, only the last is unfinished.
pub(super) fn leave_streams_unfinished(wire: &mut Wire, way: Way, index: usize) -> Result<(), Over> {
    if way.is_http2() {
        let mut client = Http2::begin(wire, WIDE)?;
        client.exchange(&way.small())?;
        client.restart();
        let request = way.upload(index);
        for _ in 0..200 {
            let stream = client.open(&request, 900_000)?;
            client.send_data(stream, &request.body)?;
        }
        while !client.is_idle() {
            client.send_bodies()?;
            client.wait()?;
        }
        return Ok(());
    }
    wire.send(&way.small_text().repeat(199))?;
    wire.send(&way.upload_text(index))?;
    wire.restart();
    wire.wait_for_end()
}

/// Makes requests and takes nothing of their answers: over HTTP/2 the client reads, answers PINGs and grants no window.
pub(super) fn grant_no_window(wire: &mut Wire, way: Way, _: usize) -> Result<(), Over> {
    if way.is_http2() {
        let mut client = Http2::begin(wire, 0)?;
        client.ask(&way.small())?;
        return client.wait_for_end();
    }
    never_read(wire, way, 0)
}

/// Asks for long lists and takes nothing of them.
pub(super) fn take_no_lists(wire: &mut Wire, _: Way, _: usize) -> Result<(), Over> {
    let mut client = Http2::begin(wire, 0)?;
    for _ in 0..200 {
        client.ask(&Way::list())?;
    }
    client.wait_for_end()
}

/// Begins a streaming call as its first request, and sends the rest of it byte by byte.
pub(super) fn drip_a_streaming_call(wire: &mut Wire, _: Way, _: usize) -> Result<(), Over> {
    let mut client = Http2::begin(wire, WIDE)?;
    let request = Way::streaming_call();
    let stream = client.open(&request, 0)?;
    client.send_data(stream, &request.body)?;
    loop {
        client.send_data(stream, b"a")?;
        client.wait()?;
    }
}

/// Makes many requests and reads nothing. Over HTTP/2 the answers fill the socket; over gRPC they fill the client's window.
pub(super) fn never_read(wire: &mut Wire, way: Way, _: usize) -> Result<(), Over> {
    if way.is_http2() {
        let mut client = Http2::begin(wire, WIDE)?;
        if way != Way::Grpc {
            client.open_window()?;
        }
        for _ in 0..200 {
            client.ask(&way.large())?;
        }
        return client.never_read();
    }
    loop {
        wire.send(&way.large_text())?;
    }
}

/// Resets as fast as possible: over HTTP/2 streams, otherwise connections.
pub(super) fn flood_with_resets(wire: &mut Wire, way: Way, _: usize) -> Result<(), Over> {
    if way.is_http2() {
        let mut client = Http2::begin(wire, WIDE)?;
        client.exchange(&way.small())?;
        client.restart();
        for _ in 0..100 {
            client.ask_and_reset(&way.small(), 100)?;
        }
        return client.wait_for_end();
    }
    for _ in 0..350 {
        // Without lingering, closing sends RST.
        let reset = wire.place.socket().and_then(|socket| socket.set_linger(Some(Duration::ZERO)));
        reset.map_err(|_| Over::Closed)?;
    }
    Ok(())
}

/// Sends a head, or a line, of 64 KiB and more.
pub(super) fn send_a_long_head(wire: &mut Wire, way: Way, _: usize) -> Result<(), Over> {
    let long = "a".repeat(66_000);
    if way.is_http2() {
        return Http2::begin(wire, WIDE)?.ask_at_length(&way.small(), &[("x-long", &long)]);
    }
    let before =
        if way == Way::Resp { "PING " } else { "GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-long: " };
    wire.send(format!("{before}{long}\r\n\r\n").as_bytes())?;
    wire.wait_for_end()
}

/// Makes one request and then nothing: PINGs are not answered.
pub(super) fn ignore_pings(wire: &mut Wire, way: Way, _: usize) -> Result<(), Over> {
    idle(wire, way, false)
}

/// Makes one request and then answers PINGs.
pub(super) fn answer_pings(wire: &mut Wire, way: Way, _: usize) -> Result<(), Over> {
    idle(wire, way, true)
}

fn idle(wire: &mut Wire, way: Way, answers_pings: bool) -> Result<(), Over> {
    if way.is_http2() {
        let mut client = Http2::begin(wire, WIDE)?;
        client.exchange(&way.small())?;
        client.answers_pings = answers_pings;
        client.restart();
        return client.wait_for_end();
    }
    way.exchange(wire)?;
    wire.restart();
    wire.wait_for_end()
}
