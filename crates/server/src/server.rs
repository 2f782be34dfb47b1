//! Listening, and handing connections to workers.
//!
//! Every worker is a thread with a runtime of its own: on few cores this takes half the processor time that one runtime over
//! several threads takes. One more thread accepts connections and gives each to the worker that has the fewest.

mod accept;
mod activity;
mod admission;
pub(crate) mod body;
mod stream;
mod vigil;
mod worker;

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::Builder;
use tokio_util::sync::CancellationToken;
use tollgate::store::Store;

pub use activity::{Activity, ResponseGuard, Timeouts};
pub use admission::ConnectionLimits;
pub use stream::Stream;
pub use vigil::Vigil;

use crate::access::{Access, Keyring, Keys};
use crate::engine::{Clerk, Engine};
use crate::metrics::Meter;
use crate::tls::Tls;
use accept::accept_all;
use worker::Crew;

/// A way of speaking with callers.
pub trait Protocol<S: Store>: Send + Sync + 'static {
    /// What measures it. Its name is the protocol's in logs and metrics.
    fn meter(&self) -> &Arc<Meter>;

    /// Serves a connection to its end. When it is told to [stop](Stop), it finishes what was asked and ends.
    fn serve(&self, connection: Connection<S>) -> Pin<Box<dyn Future<Output = ()>>>;

    /// How long its connections may make no progress.
    fn timeouts(&self) -> Timeouts;

    /// What is said to a caller for whom there is no room, before the connection is closed.
    fn full(&self) -> &'static [u8];
}

/// A caller, and who decides for them.
#[derive(Debug)]
pub struct Connection<S: Store> {
    /// What is said on both sides.
    pub stream: Stream,
    /// The other end.
    pub peer: SocketAddr,
    /// What the caller may do.
    pub access: Access,
    /// Who decides.
    pub clerk: Clerk<S>,
    /// When to end.
    pub stop: Stop,
    /// Counts what the connection does.
    pub activity: Rc<Activity>,
    /// Keeps the worker awake.
    pub vigil: Vigil,
}

/// Tells connections when to end.
#[derive(Clone, Debug)]
pub struct Stop {
    token: CancellationToken,
    /// Cancelled when the server is about to stop, which may be some time before it does.
    leaving: CancellationToken,
}

impl Stop {
    /// Tells when a test says so.
    #[cfg(test)]
    pub(crate) fn by(token: CancellationToken) -> Self {
        Self { leaving: token.clone(), token }
    }

    /// Never tells anything.
    pub(crate) fn never() -> Self {
        Self { token: CancellationToken::new(), leaving: CancellationToken::new() }
    }

    /// Waits until the server is about to stop: from then on it is not ready for more clients, but still serves them.
    pub async fn wait_leaving(&self) {
        self.leaving.cancelled().await;
    }

    /// Whether the server is about to stop.
    pub fn is_leaving(&self) -> bool {
        self.leaving.is_cancelled()
    }

    /// Waits until no more should be begun.
    pub async fn wait(&self) {
        self.token.cancelled().await;
    }

    /// Whether no more should be begun.
    pub fn is_due(&self) -> bool {
        self.token.is_cancelled()
    }
}

/// What listens, before it does.
///
/// # Examples
/// See the `tollgate` command: `serve`.
pub struct Server<S: Store> {
    engine: Engine<S>,
    endpoints: Vec<Endpoint<S>>,
    workers: usize,
    keys: Keys,
}

/// A protocol, and where it is spoken.
struct Endpoint<S: Store> {
    listener: TcpListener,
    protocol: Arc<dyn Protocol<S>>,
    tls: Option<Arc<Tls>>,
    limits: ConnectionLimits,
}

impl<S: Store> Server<S> {
    /// A server that listens nowhere yet, with a worker for each core.
    pub fn new(engine: Engine<S>) -> Self {
        let workers = thread::available_parallelism().map_or(1, usize::from);
        Self { engine, endpoints: Vec::new(), workers, keys: Keys::new(Keyring::open()) }
    }

    /// With so many workers; at least one.
    #[must_use]
    pub fn workers(self, workers: usize) -> Self {
        Self { workers: workers.max(1), ..self }
    }

    /// Where callers may do only what these say; without it, everybody may do everything.
    #[must_use]
    pub fn keys(self, keys: Keys) -> Self {
        Self { keys, ..self }
    }

    /// Speaks a protocol on an address, over TLS if there is any, with the default [`ConnectionLimits`]. Returns the address,
    /// which port 0 leaves to the system.
    ///
    /// # Errors
    /// If the address cannot be listened on.
    pub fn listen(
        &mut self,
        address: SocketAddr,
        protocol: impl Protocol<S>,
        tls: Option<Arc<Tls>>,
    ) -> io::Result<SocketAddr> {
        self.listen_with(ConnectionLimits::default(), address, protocol, tls)
    }

    /// [`listen`](Self::listen), with these limits.
    ///
    /// # Errors
    /// If the address cannot be listened on.
    pub fn listen_with(
        &mut self,
        limits: ConnectionLimits,
        address: SocketAddr,
        protocol: impl Protocol<S>,
        tls: Option<Arc<Tls>>,
    ) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        self.endpoints.push(Endpoint { listener, protocol: Arc::new(protocol), tls, limits });
        Ok(address)
    }

    /// Lets callers in.
    ///
    /// # Errors
    /// If there can be no more threads.
    pub fn start(self) -> io::Result<Running> {
        let stop = Stop::never();
        let (workers, crew) = Crew::start(self.workers, &self.engine, &self.keys, &stop)?;
        let accept = accept_all(self.endpoints, workers, stop.token.clone());
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let front = move || runtime.block_on(accept);
        let front = thread::Builder::new().name("tollgate-accept".to_owned()).spawn(front)?;
        Ok(Running { stop, front, crew })
    }
}

/// A server at work, until it is [drained](Self::drain).
#[derive(Debug)]
pub struct Running {
    stop: Stop,
    front: JoinHandle<io::Result<()>>,
    crew: Crew,
}

impl Running {
    /// How many connections there are.
    pub fn connections(&self) -> usize {
        self.crew.connections()
    }

    /// Says from now on, where clients ask whether the server is ready, that it is about to stop. It still serves them.
    pub fn leave(&self) {
        self.stop.leaving.cancel();
    }

    /// Lets nobody in any more, and waits at most `patience` for connections to end by themselves. How many had to be cut off.
    ///
    /// # Errors
    /// If a thread could not do its work.
    pub fn drain(self, patience: Duration) -> io::Result<usize> {
        self.leave();
        self.stop.token.cancel();
        let front = self.front.join();
        let left = self.crew.drain(patience);
        front.map_err(|_| io::Error::other("the accepting thread panicked"))??;
        Ok(left)
    }
}

impl<S: Store> fmt::Debug for Server<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |endpoint: &Endpoint<S>| endpoint.protocol.meter().protocol();
        let protocols: Vec<_> = self.endpoints.iter().map(name).collect();
        f.debug_struct("Server")
            .field("protocols", &protocols)
            .field("workers", &self.workers)
            .finish_non_exhaustive()
    }
}
