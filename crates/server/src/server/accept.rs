//! Letting callers in.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tollgate::store::Store;
use tollgate_flow::Time;

use super::Door;
use super::worker::{Arrival, Lines, Way};

/// How long to wait when the system lets nobody in: it has no room for more, and may have soon.
const PAUSE: Duration = Duration::from_millis(50);

/// Lets callers in at every door.
pub(super) struct Acceptor<S: Store> {
    doors: Vec<Door<S>>,
    hall: Arc<Hall<S>>,
    stop: CancellationToken,
}

/// What the doors share.
struct Hall<S: Store> {
    lines: Lines<S>,
    places: Arc<Semaphore>,
}

impl<S: Store> Acceptor<S> {
    pub(super) fn new(doors: Vec<Door<S>>, lines: Lines<S>, most: usize, stop: CancellationToken) -> Self {
        let places = Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)));
        Self { doors, hall: Arc::new(Hall { lines, places }), stop }
    }

    /// Until it is told to stop.
    pub(super) async fn run(self) -> io::Result<()> {
        let mut doors = JoinSet::new();
        for Door { listener, protocol, tls } in self.doors {
            let listener = TcpListener::from_std(listener)?;
            doors.spawn(Arc::clone(&self.hall).attend(listener, Way { protocol, tls }));
        }
        self.stop.cancelled().await;
        Ok(())
    }
}

impl<S: Store> Hall<S> {
    async fn attend(self: Arc<Self>, listener: TcpListener, way: Way<S>) {
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => self.admit(stream, peer, &way),
                Err(error) if is_callers_fault(&error) => {}
                Err(error) => {
                    tracing::warn!(protocol = way.protocol.name(), %error, "no connection can be accepted now");
                    Time::tokio().sleep(PAUSE).await;
                }
            }
        }
    }

    fn admit(&self, stream: TcpStream, peer: SocketAddr, way: &Way<S>) {
        let protocol = &way.protocol;
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            tracing::warn!(protocol = protocol.name(), %peer, "there are too many connections: one is refused");
            if way.tls.is_none() {
                let _ = stream.try_write(protocol.full()); // there is room for a line, if the caller is still there
            }
            return;
        };
        let _ = stream.set_nodelay(true); // which only a caller that is gone can keep from us
        if let Ok(stream) = stream.into_std() {
            self.lines.send(Arrival { stream, peer, way: way.clone(), place });
        }
    }
}

/// Whether the one connection is lost and others are not.
fn is_callers_fault(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted)
}
