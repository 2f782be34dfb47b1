//! The Redis protocol, so that every Redis client can use the server.
//!
//! It supports RESP2 and RESP3, pipelining, and inline commands. The same [engine](crate::Engine) decides as for every other
//! protocol.
//!
//! | command | purpose |
//! | --- | --- |
//! | `CL.THROTTLE key max_burst count period [quantity]` | as redis-cell: `[limited, limit, remaining, retry_after, reset_after]` |
//! | `THROTTLE key max_burst count period [quantity]` | as throttlecrab: `[allowed, limit, remaining, reset_after, retry_after]` |
//! | `TG.CHECK [DOMAIN d] [COST n] [PEEK \| COUNT \| CHARGE \| REFUND \| HOLD duration] [FIELDS] field value …` | decide by the policy |
//! | `TG.ALLOW key limit [cost]` | decide by a limit such as `10/s`, sent with the command: 1 if allowed, 0 if not |
//! | `TG.SETTLE id n` | settle a hold at its [actual](crate::Actual) cost: 1, or 0 if the hold does not exist any more |
//! | `TG.SETTLE id FIELDS field n …` | the same, by cost fields |
//! | `TG.RESET [DOMAIN d] [FIELDS] field value …` | reset counters: the number of limits that had one |
//! | `TG.RESET ALLOW key limit` | reset the counter of a `TG.ALLOW`: 1, or 0 if there was none |
//! | `TG.LIMITS [offset [count]]` | list the limits of the policy and their counters |
//!
//! `TG.CHECK` replies with a map; in RESP2, this is a flat list of alternating names and values:
//!
//! - `allowed`;
//! - `limit` and `rate`, which decided, and `remaining`: null if no limit applies;
//! - `retry_after_ms`: 0 if allowed, -1 if never;
//! - `reset_after_ms`: -1 if never;
//! - `delay_ms`: how long to wait before an allowed request starts;
//! - `degraded`: whether a limit decided without the store;
//! - `id`, with `HOLD`: the id for `TG.SETTLE`; null if the request was denied.
//!
//! Durations are rounded up to milliseconds. Options are in capitals and come before the fields; write `FIELDS` before a field
//! that has the name of an option. The duration of a `HOLD` is whole seconds (`30`), or has a unit (`30s`, `500ms`).
//!
//! If the server requires [authentication](crate::Keys), the token is the password of `AUTH` or `HELLO … AUTH`, with any user
//! name. These scopes are required:
//!
//! - `CL.THROTTLE`, `THROTTLE`, `TG.CHECK` and `TG.ALLOW`: `check`;
//! - `HOLD`: `hold` too;
//! - `TG.SETTLE`, charges and refunds: `settle`;
//! - `TG.RESET`, `TG.LIMITS` and `INFO`: `admin`.
//!
//! A caller without any scope receives `NOAUTH`.
//!
//! `HELLO`, `AUTH`, `CLIENT`, `INFO`, `COMMAND`, `CONFIG GET`, `PING`, `ECHO`, `SELECT 0`, `TIME`, `RESET` and `QUIT` reply as
//! clients expect when they connect.
//!
//! # `CL.THROTTLE` and redis-cell
//!
//! Decisions and numbers are those of redis-cell, to the nanosecond, also if the parameters change from call to call: what is
//! kept of a key is a time. Four things end in an error there and have an answer here: keys and arguments that are not UTF-8, rates
//! above 1 000 a second, giving back more than was taken (the key is then as good as new), and parameters whose product exceeds
//! 64 bits (a burst is then at most 146 years' worth, and told so). A store that many processes share may keep a time for every
//! combination of parameters instead.
//!
//! `THROTTLE` means by a burst what throttlecrab does, one less than `CL.THROTTLE`, and rounds seconds down as it does. It does not
//! let more pass after a pause than the burst, and says -1 where no wait can help.

mod allow;
mod cell;
mod check;
mod connection;
mod line;
mod patience;
mod reply;
mod request;
mod session;
mod throttle;

use std::net::Ipv4Addr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tollgate::store::Store;

pub use check::MAX_FIELDS;
pub use request::{
    Arguments, MAX_ARGUMENT_BYTES, MAX_ARGUMENTS, MAX_COMMAND_BYTES, Parsed, Parser, ProtocolError,
};
pub use session::MAX_KEY_BYTES;

use crate::access::{Access, Keys, Scopes};
use crate::engine::Clerk;
use crate::metrics::{Meter, Metrics};
use crate::server::{Activity, Connection, Protocol, Stop, Timeouts, Vigil};
use connection::Talk;
use patience::Patience;
use session::Session;

/// The protocol of Redis. See the [module](self) for its commands.
///
/// # Examples
/// ```
/// use std::io::{Read, Write};
/// use std::net::TcpStream;
/// use std::time::Duration;
/// use tollgate::store::MemoryStore;
/// use tollgate_policy::Policy;
/// use tollgate_server::resp::Resp;
/// use tollgate_server::{Engine, Origin, Server};
///
/// let policy = Policy::parse("limits.toml", "[limit.per-ip]\nkey = \"ip\"\nrate = \"2/min\"\n")?;
/// let mut server = Server::new(Engine::new(MemoryStore::new(), policy, Origin::default())).workers(1);
/// let address = server.listen("127.0.0.1:0".parse()?, Resp::new(), None)?;
/// let running = server.start()?;
///
/// let mut caller = TcpStream::connect(address)?;
/// caller.write_all(b"CL.THROTTLE user123 15 30 60 1\r\nQUIT\r\n")?;
/// let mut answer = String::new();
/// caller.read_to_string(&mut answer)?;
/// assert_eq!(answer, "*5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:2\r\n+OK\r\n");
/// assert_eq!(running.drain(Duration::from_secs(1))?, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Resp {
    meter: Arc<Meter>,
    patience: Patience,
    scopes: Scopes,
    connections: AtomicU64,
}

/// As logs and metrics call it.
const NAME: &str = "resp";
/// How long a connection may be silent.
const IDLE: Duration = Duration::from_secs(15 * 60);
/// How long a command may take to come, and answers to be taken.
const SLOW: Duration = Duration::from_secs(10);

impl Resp {
    /// With the usual time-outs.
    pub fn new() -> Self {
        let (meter, patience) = (Metrics::new().meter(NAME), Patience { idle: IDLE, slow: SLOW });
        Self { meter, patience, scopes: Scopes::ALL, connections: AtomicU64::new(0) }
    }

    /// Only commands that need one of these scopes, and those that need none, whoever asks.
    #[must_use]
    pub fn scopes(self, scopes: Scopes) -> Self {
        Self { scopes, ..self }
    }

    /// Measures there.
    #[must_use]
    pub fn metrics(self, metrics: &Metrics) -> Self {
        Self { meter: metrics.meter(NAME), ..self }
    }

    /// Closes connections that say nothing for `span`, or up to twice that. The default is 15 minutes.
    #[must_use]
    pub fn idle_timeout(mut self, span: Duration) -> Self {
        self.patience.idle = span;
        self
    }

    /// Closes connections that have begun a command and not ended it within `span`, or up to twice that; or that have not taken
    /// their answers. The default is ten seconds.
    #[must_use]
    pub fn slow_timeout(mut self, span: Duration) -> Self {
        self.patience.slow = span;
        self
    }

    /// Serves one client over a stream in this process, until the stream or the session ends. `keys` holds the tokens that
    /// the client may authenticate with.
    ///
    /// # Panics
    /// If called outside of a tokio runtime with its time driver.
    ///
    /// # Cancel safety
    /// Tokens that were taken before the future is dropped stay taken. Replies that were not sent are lost.
    ///
    /// # Examples
    /// ```
    /// use tokio::io::{AsyncReadExt, AsyncWriteExt};
    /// use tollgate::store::MemoryStore;
    /// use tollgate_policy::Policy;
    /// use tollgate_server::resp::Resp;
    /// use tollgate_server::{Engine, Keyring, Keys, Origin};
    ///
    /// let policy = Policy::parse("limits.toml", "[limit.per-ip]\nkey = \"ip\"\nrate = \"2/min\"\n")?;
    /// let clerk = Engine::new(MemoryStore::new(), policy, Origin::default()).clerk();
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    /// # runtime.block_on(async {
    /// let (mut client, server) = tokio::io::duplex(1024);
    /// client.write_all(b"TG.ALLOW alice 1/h\r\nTG.ALLOW alice 1/h\r\nQUIT\r\n").await?;
    /// Resp::new().serve_connection(server, clerk, Keys::new(Keyring::open())).await;
    /// let mut replies = String::new();
    /// client.read_to_string(&mut replies).await?;
    /// assert_eq!(replies, ":1\r\n:0\r\n+OK\r\n");
    /// # Ok::<_, std::io::Error>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn serve_connection<T, S>(&self, stream: T, clerk: Clerk<S>, keys: Keys)
    where
        T: AsyncRead + AsyncWrite + Unpin,
        S: Store,
    {
        let session =
            self.session(Access::new(keys, None, Ipv4Addr::LOCALHOST.into(), Arc::clone(&self.meter)));
        let activity = Activity::new(self.timeouts());
        self.talk(stream, clerk, session, Vigil::default()).serve(Stop::never(), activity).await;
    }

    fn session(&self, access: Access) -> Session {
        Session::new(self.connections.fetch_add(1, Ordering::Relaxed) + 1, access.within(self.scopes))
    }

    fn talk<T, S>(&self, stream: T, clerk: Clerk<S>, session: Session, vigil: Vigil) -> Talk<T, S>
    where
        T: AsyncRead + AsyncWrite + Unpin,
        S: Store,
    {
        Talk::new(stream, clerk, session, Arc::clone(&self.meter), vigil, self.patience)
    }

    fn timeouts(&self) -> Timeouts {
        Timeouts { read: self.patience.idle, write: self.patience.slow }
    }
}

impl Default for Resp {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: Store> Protocol<S> for Resp {
    fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    fn serve(&self, connection: Connection<S>) -> Pin<Box<dyn Future<Output = ()>>> {
        let Connection { stream, access, clerk, stop, vigil, activity, .. } = connection;
        Box::pin(self.talk(stream, clerk, self.session(access), vigil).serve(stop, activity))
    }

    fn timeouts(&self) -> Timeouts {
        self.timeouts()
    }

    fn full(&self) -> &'static [u8] {
        b"-ERR max number of clients reached\r\n"
    }
}
