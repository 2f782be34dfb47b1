//! Ports nobody uses.

use std::net::{Ipv4Addr, TcpListener};

/// A port on loopback that was free a moment ago.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has a free port");
    listener.local_addr().expect("a bound socket has an address").port()
}
