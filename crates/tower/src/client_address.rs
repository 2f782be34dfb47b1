//! Who is at the other end.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use tollgate_http::{ClientAddress, IpNet};

use crate::head::Head;

type PeerOf = dyn Fn(&Head<'_>) -> Option<IpAddr> + Send + Sync;

/// Whose address a call came from.
#[derive(Clone, Default)]
pub(crate) struct Clients {
    pub(crate) address: ClientAddress,
    pub(crate) peer: Option<Arc<PeerOf>>,
}

impl Clients {
    /// The caller's own address.
    #[inline]
    pub(crate) fn address(&self, head: &Head<'_>) -> Option<IpAddr> {
        Some(self.address.resolve(self.peer(head)?, head.headers))
    }

    /// The network that stands for the caller.
    #[inline]
    pub(crate) fn network(&self, head: &Head<'_>) -> Option<IpNet> {
        Some(self.address.key(self.peer(head)?, head.headers))
    }

    /// The other end of the connection.
    #[inline]
    fn peer(&self, head: &Head<'_>) -> Option<IpAddr> {
        match &self.peer {
            None => known_peer(head),
            Some(peer) => peer(head),
        }
    }
}

/// What the server said of the connection's other end.
#[inline]
fn known_peer(head: &Head<'_>) -> Option<IpAddr> {
    #[cfg(feature = "axum")]
    if let Some(info) = head.extensions.get::<axum::extract::ConnectInfo<SocketAddr>>() {
        return Some(info.0.ip());
    }
    let socket = head.extensions.get::<SocketAddr>().map(SocketAddr::ip);
    socket.or_else(|| head.extensions.get::<IpAddr>().copied())
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clients").field("address", &self.address).finish_non_exhaustive()
    }
}
