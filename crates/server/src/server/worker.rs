//! Threads that serve connections.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpStream as StdStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{LocalSet, spawn_local};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tollgate::store::Store;
use tollgate::{Clock, DefaultClock};
use tollgate_flow::Time;
use tollgate_flow::fault::catch;

use super::{Connection, Protocol, Stop, Stream, Vigil};
use crate::access::{Access, Keys};
use crate::engine::Engine;
use crate::tls::{Tls, client_names};

/// A connection on its way to a worker.
pub(super) struct Arrival<S: Store> {
    pub(super) stream: StdStream,
    pub(super) peer: SocketAddr,
    pub(super) way: Way<S>,
    /// Its place among all connections, until it ends.
    pub(super) place: OwnedSemaphorePermit,
}

/// What is spoken on a connection, and over what.
pub(super) struct Way<S: Store> {
    pub(super) protocol: Arc<dyn Protocol<S>>,
    pub(super) tls: Option<Arc<Tls>>,
}

impl<S: Store> Clone for Way<S> {
    fn clone(&self) -> Self {
        Self { protocol: Arc::clone(&self.protocol), tls: self.tls.clone() }
    }
}

/// The ways to the workers.
pub(super) struct Lines<S: Store>(Vec<Line<S>>);

/// The way to one worker. When it is gone, the worker ends with its last connection.
struct Line<S: Store> {
    arrivals: UnboundedSender<Arrival<S>>,
    load: Arc<AtomicUsize>,
}

impl<S: Store> Lines<S> {
    /// Hands a connection to the worker that has the fewest.
    pub(super) fn send(&self, arrival: Arrival<S>) {
        let line =
            self.0.iter().min_by_key(|line| line.load.load(Ordering::Relaxed)).expect("there is a worker");
        line.load.fetch_add(1, Ordering::Relaxed);
        let _ = line.arrivals.send(arrival); // whose worker is gone, if it panicked: the connection is closed
    }
}

/// The workers' threads.
pub(super) struct Crew {
    threads: Vec<JoinHandle<()>>,
    loads: Vec<Arc<AtomicUsize>>,
    /// Hears nothing, and ends with the last of the threads.
    end: Receiver<()>,
    cut: CancellationToken,
}

impl Crew {
    pub(super) fn start<S: Store>(
        count: usize,
        engine: &Engine<S>,
        keys: &Keys,
        stop: &CancellationToken,
    ) -> io::Result<(Lines<S>, Self)> {
        let (alive, end) = channel();
        let cut = CancellationToken::new();
        let mut crew = Self { threads: Vec::new(), loads: Vec::new(), end, cut: cut.clone() };
        let mut lines = Vec::new();
        for number in 0..count {
            let (sender, arrivals) = unbounded_channel();
            let load = Arc::new(AtomicUsize::new(0));
            let worker = Worker {
                engine: engine.clone(),
                keys: keys.clone(),
                stop: Stop { token: stop.clone() },
                cut: cut.clone(),
                load: Arc::clone(&load),
                alive: alive.clone(),
            };
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let name = format!("tollgate-{number}");
            crew.threads
                .push(thread::Builder::new().name(name).spawn(move || worker.run(&runtime, arrivals))?);
            crew.loads.push(Arc::clone(&load));
            lines.push(Line { arrivals: sender, load });
        }
        Ok((Lines(lines), crew))
    }

    /// How many connections there are.
    pub(super) fn connections(&self) -> usize {
        self.loads.iter().map(|load| load.load(Ordering::Relaxed)).sum()
    }

    /// Waits for the workers, whose [lines](Lines) are gone, and then cuts off what is left. How many that were.
    pub(super) fn drain(self, patience: Duration) -> usize {
        let is_late = self.end.recv_timeout(patience) == Err(RecvTimeoutError::Timeout);
        let left = if is_late { self.connections() } else { 0 };
        self.cut.cancel();
        for thread in self.threads {
            let _ = thread.join(); // a panic was told where it happened
        }
        left
    }
}

impl fmt::Debug for Crew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (workers, connections) = (self.threads.len(), self.connections());
        f.debug_struct("Crew")
            .field("workers", &workers)
            .field("connections", &connections)
            .finish_non_exhaustive()
    }
}

/// What a worker knows.
struct Worker<S: Store> {
    engine: Engine<S>,
    keys: Keys,
    stop: Stop,
    cut: CancellationToken,
    load: Arc<AtomicUsize>,
    alive: Sender<()>,
}

impl<S: Store> Worker<S> {
    fn run(self, runtime: &Runtime, arrivals: UnboundedReceiver<Arrival<S>>) {
        let tasks = LocalSet::new();
        let cut = self.cut.clone();
        tasks.block_on(runtime, async {
            tokio::select! {
                () = self.serve_all(arrivals) => {}
                () = cut.cancelled() => {}
            }
        });
        drop(self.alive);
    }

    async fn serve_all(&self, mut arrivals: UnboundedReceiver<Arrival<S>>) {
        let (connections, vigil, clock) = (TaskTracker::new(), Vigil::default(), DefaultClock::default());
        spawn_local(vigil.clone().keep(move || clock.now()));
        while let Some(arrival) = arrivals.recv().await {
            connections.spawn_local(self.serve(arrival, vigil.clone()));
        }
        connections.close();
        connections.wait().await;
    }

    /// Serves one connection. A mistake of ours ends this connection and no other.
    fn serve(&self, arrival: Arrival<S>, vigil: Vigil) -> impl Future<Output = ()> + use<S> {
        let Arrival { stream, peer, way, place } = arrival;
        let place = Place { load: Arc::clone(&self.load), _among_all: place };
        let (keys, mut clerk, stop) = (self.keys.clone(), self.engine.clerk(), self.stop.clone());
        async move {
            let _place = place;
            let (stream, certificate) = match open(stream, way.tls).await {
                Ok(opened) => opened,
                Err(error) => return tracing::debug!(%peer, %error, "a connection could not begin"),
            };
            let access = Access::new(keys, certificate, peer.ip());
            clerk.set_caller(access.principal().caller);
            let connection = Connection { stream, peer, access, clerk, stop, vigil };
            if let Err(fault) = catch(way.protocol.serve(connection)).await {
                fault.with("protocol", way.protocol.name()).report();
            }
        }
    }
}

/// How long a caller may take to shake hands.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// What is said on the connection, and the names on the certificate that the caller showed.
async fn open(stream: StdStream, tls: Option<Arc<Tls>>) -> io::Result<(Stream, Option<Vec<String>>)> {
    let stream = TcpStream::from_std(stream)?;
    let Some(tls) = tls else { return Ok((Stream::Plain(stream), None)) };
    let stream = Time::tokio().timeout(HANDSHAKE, tls.accept(stream)).await.map_err(io::Error::other)??;
    let certificate = client_names(&stream);
    Ok((Stream::Tls(Box::new(stream)), certificate))
}

/// A connection's place, which it leaves when it ends.
struct Place {
    load: Arc<AtomicUsize>,
    _among_all: OwnedSemaphorePermit,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.load.fetch_sub(1, Ordering::Relaxed);
    }
}
