//! How many connections a listener has, in all and from each client address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::fast::RandomState;

use crate::metrics::ConnectionRefusal;

/// How many connections a listener admits, and how long each may take to make its first request.
///
/// # Examples
/// ```
/// use tollgate_server::ConnectionLimits;
///
/// let mut limits = ConnectionLimits::default();
/// limits.per_address = 50;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionLimits {
    /// Connections at once: 10 000.
    pub total: usize,
    /// Connections at once from one client address: 2 500. An IPv6 client is known by its /64 network.
    pub per_address: usize,
    /// From the moment a connection is accepted until its first request is complete: 10 s. Then it is closed.
    pub first_request_timeout: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self { total: 10_000, per_address: 2_500, first_request_timeout: Duration::from_secs(10) }
    }
}

/// Counts the connections of one listener.
#[derive(Debug)]
pub(super) struct Admission {
    limits: ConnectionLimits,
    counts: Arc<Mutex<Counts>>,
}

#[derive(Debug, Default)]
struct Counts {
    total: usize,
    by_network: HashMap<IpAddr, usize, RandomState>,
}

impl Admission {
    pub(super) fn new(limits: ConnectionLimits) -> Self {
        Self { limits, counts: Arc::default() }
    }

    /// Admits a connection, unless that would be too many. It counts until the place is dropped.
    pub(super) fn admit(&self, address: IpAddr) -> Result<Place, ConnectionRefusal> {
        let network = network(address);
        let mut counts = lock(&self.counts);
        if counts.total >= self.limits.total {
            return Err(ConnectionRefusal::Listener);
        }
        let of_network = counts.by_network.entry(network).or_default();
        if *of_network >= self.limits.per_address {
            return Err(ConnectionRefusal::Address);
        }
        *of_network += 1;
        counts.total += 1;
        Ok(Place { network, counts: Arc::clone(&self.counts) })
    }
}

/// The place of an admitted connection.
#[derive(Debug)]
pub(super) struct Place {
    network: IpAddr,
    counts: Arc<Mutex<Counts>>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = lock(&self.counts);
        counts.total -= 1;
        if let Some(count) = counts.by_network.get_mut(&self.network) {
            *count -= 1;
            if *count == 0 {
                counts.by_network.remove(&self.network);
            }
        }
    }
}

/// The addresses that one client can choose from freely: an IPv4 address, or the /64 of an IPv6 address.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        v4 @ IpAddr::V4(_) => v4,
    }
}

fn lock(counts: &Mutex<Counts>) -> MutexGuard<'_, Counts> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission(total: usize, per_address: usize) -> Admission {
        Admission::new(ConnectionLimits { total, per_address, ..ConnectionLimits::default() })
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// Guards, item 1.
    #[test]
    fn admit_refuses_more_than_the_total_until_a_place_is_dropped() {
        let admission = admission(2, 2);
        let first = admission.admit(ip("192.0.2.1")).unwrap();
        let _second = admission.admit(ip("192.0.2.2")).unwrap();
        assert_eq!(admission.admit(ip("192.0.2.3")).unwrap_err(), ConnectionRefusal::Listener);
        drop(first);
        assert!(admission.admit(ip("192.0.2.3")).is_ok());
    }

    /// Guards, item 1.
    #[test]
    fn admit_counts_each_address_by_itself_and_an_ipv6_client_by_its_64() {
        let admission = admission(10, 2);
        let kept: Vec<_> = ["2001:db8::1", "2001:db8::ffff:2", "192.0.2.1", "::ffff:192.0.2.1"]
            .map(|address| admission.admit(ip(address)).unwrap())
            .into();
        for full in ["2001:db8::3", "192.0.2.1"] {
            assert_eq!(admission.admit(ip(full)).unwrap_err(), ConnectionRefusal::Address, "{full}");
        }
        for free in ["2001:db8:0:1::1", "192.0.2.2"] {
            assert!(admission.admit(ip(free)).is_ok(), "{free}");
        }
        drop(kept);
        assert!(lock(&admission.counts).by_network.is_empty(), "what is not connected takes no memory");
    }
}
