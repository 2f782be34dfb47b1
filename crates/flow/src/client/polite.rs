//! The state of a client with manners.

use std::fmt;
use std::sync::Arc;

use super::call::Call;
use super::errand::Errand;
use super::host::{Host, Upstream};
use super::hosts::Hosts;
use super::manners::Manners;
use super::wire::Wire;

/// Makes an ordinary HTTP client a polite one. It is made by [`Manners`], which tells how such a client behaves.
///
/// With the feature `tower` it is a `Layer`, for any service of HTTP requests that can be cloned and whose bodies can be. With the
/// feature `reqwest` it is a `Middleware` of `reqwest-middleware`. An example of each is with that implementation.
///
/// Clones share one state, and so do all clients that are wrapped by them: they line up for the same turns and learn from
/// each other's answers.
///
/// # Cancel safety
/// Dropping a call at any moment gives back its slot, its place in line, and its turn if nothing was sent yet; and drops every
/// attempt that is on its way.
#[derive(Clone)]
pub struct Polite {
    shared: Arc<Shared>,
}

struct Shared {
    manners: Manners,
    hosts: Hosts<Host>,
}

impl Polite {
    pub(super) fn new(manners: Manners) -> Self {
        let hosts = Hosts::new(manners.most_upstreams.unwrap_or(1));
        Self { shared: Arc::new(Shared { manners, hosts }) }
    }

    /// How the upstreams do that are known now, those that were called last at the end.
    pub fn upstreams(&self) -> Vec<Upstream> {
        self.shared.hosts.map(|name, host| host.describe(name))
    }

    /// A call that is about to be made.
    pub(super) fn call<W: Wire>(&self, mut errand: Errand, wire: W) -> Call<W> {
        let Shared { manners, hosts } = &*self.shared;
        if manners.most_upstreams.is_none() {
            errand.upstream = String::new();
        }
        let host = hosts.of(&errand.upstream, || Host::new(manners));
        Call::new(manners, host, errand, wire)
    }
}

impl fmt::Debug for Polite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Polite").field("upstreams", &self.upstreams()).finish_non_exhaustive()
    }
}
