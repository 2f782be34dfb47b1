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
        self.of_peer(head, |peer| self.address.resolve(peer, head.headers))
    }

    /// What `make` makes of the network that stands for the caller.
    #[inline]
    pub(crate) fn of_network<T>(&self, head: &Head<'_>, make: impl Fn(IpNet) -> T) -> Option<T> {
        self.of_peer(head, |peer| make(self.address.key(peer, head.headers)))
    }

    /// What `make` makes of the connection's other end. It is told wherever that is found, so that no address is put together only
    /// to be taken apart again.
    #[inline]
    fn of_peer<T>(&self, head: &Head<'_>, make: impl Fn(IpAddr) -> T) -> Option<T> {
        if let Some(peer) = &self.peer {
            return peer(head).map(make);
        }
        #[cfg(feature = "axum")]
        if let Some(info) = head.extensions.get::<axum::extract::ConnectInfo<SocketAddr>>() {
            return Some(make(info.0.ip()));
        }
        if let Some(socket) = head.extensions.get::<SocketAddr>() {
            return Some(make(socket.ip()));
        }
        head.extensions.get::<IpAddr>().map(|address| make(*address))
    }
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clients").field("address", &self.address).finish_non_exhaustive()
    }
}
