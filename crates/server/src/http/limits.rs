//! How much a caller may send, and how slowly.

use std::time::Duration;

use crate::server::Timeouts;
use crate::server::body::BodyBudget;

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
