//! Threads that serve connections.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpStream as StdStream};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::{LocalSet, spawn_local};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tollgate::store::Store;
use tollgate::{Clock, DefaultClock};
use tollgate_flow::fault::catch;

use super::activity::Activity;
use super::admission::Place;
use super::stream::Carrier;
use super::{Connection, Protocol, Stop, Stream, Vigil};
use crate::access::{Access, Keys};
use crate::engine::Engine;
use crate::tls::{Tls, client_names, is_unproven};

/// An accepted connection on its way to a worker.
pub(super) struct Accepted<S: Store> {
    pub(super) stream: StdStream,
    pub(super) peer: SocketAddr,
    pub(super) spoken: Spoken<S>,
    pub(super) place: Place,
}

/// What is spoken on a listener's connections.
pub(super) struct Spoken<S: Store> {
    pub(super) protocol: Arc<dyn Protocol<S>>,
    pub(super) tls: Option<Arc<Tls>>,
    pub(super) first_request_timeout: Duration,
}

impl<S: Store> Clone for Spoken<S> {
    fn clone(&self) -> Self {
        let Self { protocol, tls, first_request_timeout } = self;
        Self {
            protocol: Arc::clone(protocol),
            tls: tls.clone(),
            first_request_timeout: *first_request_timeout,
        }
    }
}

/// The channels to the workers.
pub(super) struct Workers<S: Store>(Vec<Channel<S>>);

/// The channel to one worker. When it is closed, the worker ends with its last connection.
struct Channel<S: Store> {
    accepted: UnboundedSender<Accepted<S>>,
    load: Arc<AtomicUsize>,
}

impl<S: Store> Workers<S> {
    /// Hands a connection to the worker that has the fewest.
    pub(super) fn send(&self, accepted: Accepted<S>) {
        let fewest = self.0.iter().min_by_key(|channel| channel.load.load(Ordering::Relaxed));
        let channel = fewest.expect("there is a worker");
        channel.load.fetch_add(1, Ordering::Relaxed);
        let _ = channel.accepted.send(accepted); // fails if the worker panicked: the connection is closed
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
        stop: &Stop,
    ) -> io::Result<(Workers<S>, Self)> {
        let (alive, end) = channel();
        let cut = CancellationToken::new();
        let mut crew = Self { threads: Vec::new(), loads: Vec::new(), end, cut: cut.clone() };
        let mut channels = Vec::new();
        for number in 0..count {
            let (accepted, receiver) = unbounded_channel();
            let load = Arc::new(AtomicUsize::new(0));
            let worker = Worker {
                engine: engine.clone(),
                keys: keys.clone(),
                stop: stop.clone(),
                cut: cut.clone(),
                load: Arc::clone(&load),
                alive: alive.clone(),
            };
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let name = format!("tollgate-{number}");
            crew.threads
                .push(thread::Builder::new().name(name).spawn(move || worker.run(&runtime, receiver))?);
            crew.loads.push(Arc::clone(&load));
            channels.push(Channel { accepted, load });
        }
        Ok((Workers(channels), crew))
    }

    /// How many connections there are.
    pub(super) fn connections(&self) -> usize {
        self.loads.iter().map(|load| load.load(Ordering::Relaxed)).sum()
    }

    /// Waits until the workers have ended, whose [channels](Workers) are closed, and cuts off connections that are left. Returns their number.
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
    fn run(self, runtime: &Runtime, accepted: UnboundedReceiver<Accepted<S>>) {
        let tasks = LocalSet::new();
        let cut = self.cut.clone();
        tasks.block_on(runtime, async {
            tokio::select! {
                () = self.serve_all(accepted) => {}
                () = cut.cancelled() => {}
            }
        });
        drop(self.alive);
    }

    async fn serve_all(&self, mut accepted: UnboundedReceiver<Accepted<S>>) {
        let (connections, vigil, clock) = (TaskTracker::new(), Vigil::default(), DefaultClock::default());
        spawn_local(vigil.clone().keep(move || clock.now()));
        while let Some(accepted) = accepted.recv().await {
            self.serve(accepted, vigil.clone(), &connections);
        }
        connections.close();
        connections.wait().await;
    }

    /// Serves one connection until it ends or has stalled. That is watched from a task of its own, so that its timers cost nothing
    /// where requests are served.
    fn serve(&self, accepted: Accepted<S>, vigil: Vigil, connections: &TaskTracker) {
        let (protocol, peer) = (accepted.spoken.protocol.meter().protocol(), accepted.peer);
        let first_request = accepted.spoken.first_request_timeout;
        let activity = Activity::new(accepted.spoken.protocol.timeouts());
        let stop = Stop { token: self.stop.token.child_token(), leaving: self.stop.leaving.clone() };
        let connection = self.connection(accepted, Rc::clone(&activity), stop.clone(), vigil);
        let (end, ended) = oneshot::channel::<()>();
        let serving = connections.spawn_local(async move {
            let _end = end;
            connection.await;
        });
        spawn_local(async move {
            tokio::select! {
                reason = activity.stalled(first_request, || stop.token.cancel()) => {
                    tracing::debug!(protocol, %peer, %reason, "connection closed");
                    serving.abort();
                }
                _ = ended => {}
            }
        });
    }

    /// Serves one connection. A panic ends this connection and no other.
    fn connection(
        &self,
        accepted: Accepted<S>,
        activity: Rc<Activity>,
        stop: Stop,
        vigil: Vigil,
    ) -> impl Future<Output = ()> + use<S> {
        let Accepted { stream, peer, spoken: Spoken { protocol, tls, .. }, place } = accepted;
        let place = (place, Loaded(Arc::clone(&self.load)));
        let (keys, mut clerk) = (self.keys.clone(), self.engine.clerk());
        async move {
            let _place = place;
            let (carrier, certificate) = match open(stream, tls).await {
                Ok(opened) => opened,
                Err(error) => {
                    if is_unproven(&error) {
                        protocol.meter().authentication_failed("certificate", peer.ip());
                    }
                    return tracing::debug!(%peer, %error, "TLS handshake failed");
                }
            };
            let stream = Stream::new(carrier, Rc::clone(&activity));
            let access = Access::new(keys, certificate, peer.ip(), Arc::clone(protocol.meter()));
            clerk.set_caller(access.principal().caller);
            let connection = Connection { stream, peer, access, clerk, stop, activity, vigil };
            if let Err(fault) = catch(protocol.serve(connection)).await {
                fault.with("protocol", protocol.meter().protocol()).report();
            }
        }
    }
}

/// The stream that carries a connection, and the names on the client's certificate.
async fn open(stream: StdStream, tls: Option<Arc<Tls>>) -> io::Result<(Carrier, Option<Vec<String>>)> {
    let stream = TcpStream::from_std(stream)?;
    let Some(tls) = tls else { return Ok((Carrier::Plain(stream), None)) };
    let stream = tls.accept(stream).await?;
    let certificate = client_names(&stream);
    Ok((Carrier::Tls(Box::new(stream)), certificate))
}

/// One of the connections of a worker, until it is dropped.
struct Loaded(Arc<AtomicUsize>);

impl Drop for Loaded {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
