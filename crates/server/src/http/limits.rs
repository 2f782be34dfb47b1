//! How much a caller may send, and how slowly.

use std::time::Duration;

use crate::server::Timeouts;
use crate::server::body::BodyBudget;

/// The largest window of HTTP/2.
const MAX_WINDOW: u32 = (1 << 31) - 1;
/// The windows of an HTTP/2 connection and of its streams before the first SETTINGS frame.
const DEFAULT_WINDOW: u32 = 65_535;
/// With less, a body would take too many round trips.
const MIN_UNREAD: u32 = 256 * 1024;

/// How much a caller may send, and how slowly. What is beyond a limit is refused with an answer that names it.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate_server::HttpLimits;
///
/// let mut limits = HttpLimits::default();
/// limits.body_bytes = 64 * 1024;
/// limits.body_timeout = Duration::from_secs(2);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HttpLimits {
    /// Bytes of a body: 1 MiB. More is answered 413.
    pub body_bytes: usize,
    /// Bytes of a request's line and header fields together: 16 KiB. More is answered 431.
    pub header_bytes: usize,
    /// Header fields of a request: 64. More are answered 431.
    pub headers: usize,
    /// Checks in one body: 1 000.
    pub checks: usize,
    /// Fields of one descriptor: 32.
    pub fields: usize,
    /// Characters of a key, of a domain, and of the name and the value of a field: 1 024 each.
    pub key_length: usize,
    /// From the first byte of a request's head to its last: 10 s. Slower is answered 408.
    pub head_timeout: Duration,
    /// For a body after its head: 10 s. Slower is answered 408.
    pub body_timeout: Duration,
    /// Without a byte from the peer: 75 s. Then the connection is closed.
    pub idle_timeout: Duration,
    /// Without the peer taking a byte of a response, and for a response as a whole: 10 s. Then the connection is closed.
    pub write_timeout: Duration,
    /// Bytes that the request bodies of an HTTP/2 connection hold together: 2 MiB. More wait until others are answered.
    pub connection_body_bytes: usize,
    /// HTTP/2: requests at once on one connection: 256.
    pub streams: u32,
    /// HTTP/2: requests that were taken back and not noticed yet, and mistakes: 64 each. More end the connection.
    pub resets: usize,
}

impl HttpLimits {
    pub(crate) const fn timeouts(&self) -> Timeouts {
        Timeouts { read: self.idle_timeout, write: self.write_timeout }
    }

    pub(crate) fn body_budget(&self) -> BodyBudget {
        BodyBudget::new(self.connection_body_bytes, self.body_timeout)
    }

    /// The window of an HTTP/2 stream: its share of what is held unread.
    pub(crate) fn stream_window(&self) -> u32 {
        (self.unread_bytes() / self.streams.max(1)).max(1)
    }

    /// The window of an HTTP/2 connection. Streams that wait for the body budget cannot fill it: it has room for the windows of all streams,
    /// and for the bytes that a client sends before it knows those windows.
    pub(crate) fn connection_window(&self) -> u32 {
        self.unread_bytes() + DEFAULT_WINDOW
    }

    /// How many bytes the streams of an HTTP/2 connection hold unread: as many as its body budget.
    fn unread_bytes(&self) -> u32 {
        let bytes = u32::try_from(self.connection_body_bytes).unwrap_or(u32::MAX);
        bytes.clamp(MIN_UNREAD, MAX_WINDOW - DEFAULT_WINDOW)
    }
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            body_bytes: 1024 * 1024,
            connection_body_bytes: 2 * 1024 * 1024,
            header_bytes: 16 * 1024,
            headers: 64,
            checks: 1_000,
            fields: 32,
            key_length: 1_024,
            head_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            write_timeout: Duration::from_secs(10),
            streams: 256,
            resets: 64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guards, item 2: streams that wait cannot fill the window of their connection, whatever the settings.
    #[test]
    fn the_window_of_a_connection_has_room_for_those_of_its_streams() {
        for (bytes, streams) in [(1, 256), (2 << 20, 256), (usize::MAX, 1), (usize::MAX, 1_000)] {
            let limits = HttpLimits { connection_body_bytes: bytes, streams, ..HttpLimits::default() };
            let (stream, connection) = (limits.stream_window(), limits.connection_window());
            assert!(stream > 0 && stream * streams + DEFAULT_WINDOW <= connection, "{limits:?}");
            assert!(connection <= MAX_WINDOW, "{limits:?}");
        }
    }
}
