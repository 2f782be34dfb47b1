//! Accepting connections.

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tollgate::store::Store;
use tollgate_flow::{Sleep, Time};

use super::Endpoint;
use super::admission::Admission;
use super::worker::{Accepted, Spoken, Workers};
use crate::metrics::ConnectionRefusal;

/// How long to wait when the system has no room for another connection.
const PAUSE: Duration = Duration::from_millis(50);
/// How often refused connections are logged at the most.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// Accepts connections on every listener until it is stopped.
pub(super) async fn accept_all<S: Store>(
    endpoints: Vec<Endpoint<S>>,
    workers: Workers<S>,
    stop: CancellationToken,
) -> io::Result<()> {
    let workers = Arc::new(workers);
    let mut tasks = JoinSet::new();
    for Endpoint { listener, protocol, tls, limits } in endpoints {
        let address = listener.local_addr()?;
        let acceptor = Acceptor {
            listener: TcpListener::from_std(listener)?,
            admission: Admission::new(limits),
            refusals: Refusals { address, count: 0, pause: None },
            spoken: Spoken { protocol, tls, first_request_timeout: limits.first_request_timeout },
            workers: Arc::clone(&workers),
        };
        tasks.spawn(acceptor.run());
    }
    stop.cancelled().await;
    Ok(())
}

/// Accepts the connections of one listener.
struct Acceptor<S: Store> {
    listener: TcpListener,
    admission: Admission,
    refusals: Refusals,
    spoken: Spoken<S>,
    workers: Arc<Workers<S>>,
}

impl<S: Store> Acceptor<S> {
    async fn run(mut self) {
        loop {
            tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, peer)) => self.admit(stream, peer),
                    Err(error) if is_peers_fault(&error) => {}
                    Err(error) => {
                        self.refusals.note(&error);
                        Time::tokio().sleep(PAUSE).await;
                    }
                },
                () = self.refusals.due() => self.refusals.report(),
            }
        }
    }

    fn admit(&mut self, stream: TcpStream, peer: SocketAddr) {
        let place = match self.admission.admit(peer.ip()) {
            Ok(place) => place,
            Err(refused) => {
                self.spoken.protocol.meter().refused(refused);
                self.refusals.note(&format_args!("{} ({peer})", reason(refused)));
                if self.spoken.tls.is_none() {
                    let _ = stream.try_write(self.spoken.protocol.full()); // the buffer of a new connection has room for a line
                }
                return;
            }
        };
        let _ = stream.set_nodelay(true); // fails only if the peer has gone
        if let Ok(stream) = stream.into_std() {
            self.workers.send(Accepted { stream, peer, spoken: self.spoken.clone(), place });
        }
    }
}

/// Logs refused connections: the first one at once, then their number every ten seconds.
struct Refusals {
    address: SocketAddr,
    count: u64,
    pause: Option<Sleep>,
}

impl Refusals {
    fn note(&mut self, reason: &impl std::fmt::Display) {
        if self.pause.is_some() {
            self.count += 1;
        } else {
            tracing::warn!(listener = %self.address, %reason, "connection refused");
            self.pause = Some(Time::tokio().sleep(LOG_EVERY));
        }
    }

    /// Waits until the next line may be logged.
    async fn due(&mut self) {
        match &mut self.pause {
            Some(pause) => pause.await,
            None => pending().await,
        }
    }

    fn report(&mut self) {
        self.pause = (self.count > 0).then(|| Time::tokio().sleep(LOG_EVERY));
        if self.count > 0 {
            let (listener, refused) = (self.address, std::mem::take(&mut self.count));
            tracing::warn!(%listener, refused, "refused more connections in the last 10 s");
        }
    }
}

fn reason(refused: ConnectionRefusal) -> &'static str {
    match refused {
        ConnectionRefusal::Listener => "the listener reached max_connections",
        ConnectionRefusal::Address => "the client address reached max_connections_per_address",
    }
}

/// Whether only this one connection is lost.
fn is_peers_fault(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted)
}
