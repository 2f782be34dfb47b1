//! What one protocol measures.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tollgate::{Clock, DefaultClock, Tick};

use super::durations::Durations;
use super::errors::{ErrorCounts, ErrorReason};
use super::limitador::Namespaces;
use crate::audit::FailedAuthentications;
use crate::engine::{CallCounts, CallOutcome};

/// Measures a protocol: its calls, how long decisions take, what it refused, and how many connections there are.
pub struct Meter {
    protocol: &'static str,
    clock: DefaultClock,
    durations: Durations,
    calls: [AtomicU64; CallOutcome::ALL.len()],
    errors: [AtomicU64; ErrorReason::ALL.len()],
    authentication: FailedAuthentications,
    refused: [AtomicU64; ConnectionRefusal::ALL.len()],
    connections: AtomicUsize,
    namespaces: Arc<Namespaces>,
}

/// Why a listener refuses a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionRefusal {
    /// The listener has as many connections as it may have.
    Listener,
    /// The client address does.
    Address,
}

impl ConnectionRefusal {
    /// All there are.
    pub(super) const ALL: [Self; 2] = [Self::Listener, Self::Address];

    /// The label in metrics: the setting that bounds the connections.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Listener => "max_connections",
            Self::Address => "max_connections_per_address",
        }
    }
}

impl Meter {
    pub(super) fn new(protocol: &'static str, namespaces: Arc<Namespaces>) -> Self {
        Self {
            protocol,
            clock: DefaultClock::default(),
            durations: Durations::default(),
            calls: Default::default(),
            errors: Default::default(),
            authentication: FailedAuthentications::default(),
            refused: Default::default(),
            connections: AtomicUsize::new(0),
            namespaces,
        }
    }

    /// The calls by namespace, which all protocols count together.
    pub(crate) fn namespaces(&self) -> &Namespaces {
        &self.namespaces
    }

    /// The protocol's name.
    pub fn protocol(&self) -> &'static str {
        self.protocol
    }

    /// The time, to measure by.
    #[inline]
    pub fn now(&self) -> Tick {
        self.clock.now()
    }

    /// Notes that so many decisions took so long together.
    #[inline]
    pub fn observe(&self, decisions: u64, elapsed: Duration) {
        self.durations.observe(decisions, elapsed);
    }

    /// Adds to the calls. Outcomes that did not occur cost nothing.
    #[inline]
    pub fn count(&self, calls: CallCounts) {
        for (outcome, count) in calls.each() {
            if count > 0 {
                self.calls[outcome as usize].fetch_add(count, Ordering::Relaxed);
            }
        }
    }

    /// How many calls ended so.
    pub fn calls(&self, outcome: CallOutcome) -> u64 {
        self.calls[outcome as usize].load(Ordering::Relaxed)
    }

    /// Counts a request that was not served.
    #[cold]
    pub(crate) fn failed(&self, reason: ErrorReason) {
        self.errors[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the requests of a batch that were not served.
    #[inline]
    pub(crate) fn failed_all(&self, errors: &mut ErrorCounts) {
        if errors.any() {
            for (reason, count) in errors.take() {
                self.errors[reason as usize].fetch_add(count, Ordering::Relaxed);
                // Without the words, which repeat what was sent: a mistyped command may have a password behind it.
                let (protocol, reason) = (self.protocol, reason.name());
                tracing::debug!(protocol, reason, count, "requests failed");
            }
        }
    }

    pub(super) fn errors(&self, reason: ErrorReason) -> u64 {
        self.errors[reason as usize].load(Ordering::Relaxed)
    }

    /// Counts an authentication that failed, and adds it to the audit log.
    #[cold]
    pub(crate) fn authentication_failed(&self, proof: &str, from: IpAddr) {
        self.authentication.note(self.protocol, proof, from);
    }

    pub(super) fn failed_authentications(&self) -> u64 {
        self.authentication.count()
    }

    /// Counts a connection that was refused.
    #[cold]
    pub(crate) fn refused(&self, why: ConnectionRefusal) {
        self.refused[why as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn refused_connections(&self, why: ConnectionRefusal) -> u64 {
        self.refused[why as usize].load(Ordering::Relaxed)
    }

    /// Notes that there is one more connection, until what is returned is dropped.
    pub fn connected(self: &Arc<Self>) -> Connected {
        self.connections.fetch_add(1, Ordering::Relaxed);
        Connected { meter: Arc::clone(self) }
    }

    /// How many connections there are.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    pub(super) fn durations(&self) -> &Durations {
        &self.durations
    }
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meter").field("protocol", &self.protocol).finish_non_exhaustive()
    }
}

/// A connection that is counted; made by [`Meter::connected`].
#[derive(Debug)]
#[must_use = "a connection is counted until this is dropped"]
pub struct Connected {
    meter: Arc<Meter>,
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.meter.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_counts_until_it_ends() {
        let meter = Arc::new(Meter::new("test", Arc::default()));
        let (one, two) = (meter.connected(), meter.connected());
        assert_eq!(meter.connections(), 2);
        drop(one);
        assert_eq!(meter.connections(), 1);
        drop(two);
        assert_eq!(meter.connections(), 0);
    }
}
