//! Ports nobody uses.

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::ops::Range;
use std::process;
use std::sync::{Mutex, PoisonError};

/// Where they are looked for: below those that systems give to whoever asks for any port, such as every outgoing connection, so
/// that none of these takes one before the server that it was found for does.
const RANGE: Range<u16> = 10_000..32_000;

/// What keeps other tests, in this process and in others, from the ports that were found here: the datagram port of the same
/// number, held until the process ends.
static HELD: Mutex<Vec<UdpSocket>> = Mutex::new(Vec::new());

/// A port on loopback that is free, and that nobody else gets from here while this process runs.
pub fn free_port() -> u16 {
    let offset = RandomState::new().hash_one(process::id()) as usize % RANGE.len();
    let mut candidates = RANGE.cycle().skip(offset).take(RANGE.len());
    candidates.find(|port| reserve(*port)).expect("loopback has a free port")
}

/// Reserves a port, and says whether nobody had it.
fn reserve(port: u16) -> bool {
    let Ok(socket) = UdpSocket::bind((Ipv4Addr::LOCALHOST, port)) else { return false };
    let is_free = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    if is_free {
        HELD.lock().unwrap_or_else(PoisonError::into_inner).push(socket);
    }
    is_free
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_given_once() {
        let port = free_port();
        assert!(RANGE.contains(&port));
        assert!(TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok(), "its server can have it");
        assert!(!reserve(port), "nobody else gets it");
    }

    #[test]
    fn a_port_that_somebody_listens_on_is_not_given() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("any port");
        assert!(!reserve(taken.local_addr().expect("bound").port()));
    }
}
