//! How large leases may be, and how long they last.

use std::time::Duration;

/// How long a lease lasts unless [`lasting`](Leases::lasting) says otherwise.
const TIME: Duration = Duration::from_secs(4);
/// Shorter ones would end before they are used; longer ones would be taken for those of a clock that was put back.
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(30);

/// How much a node may have on lease: see [`Leased`](super::Leased).
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate_redis::Leases;
///
/// let leases = Leases::up_to(100).lasting(Duration::from_secs(2));
/// assert_eq!((leases.most(), leases.time()), (100, Duration::from_secs(2)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leases {
    most: u64,
    time: Duration,
}

impl Leases {
    /// Up to so many tokens of each state on each node. With none, or one, everything is decided by Redis.
    pub const fn up_to(most: u64) -> Self {
        Self { most, time: TIME }
    }

    /// What a node has not spent or given back by then counts as spent: so long does it take until what a node that crashed had
    /// on lease is refilled. Without this it is 4 s; from 100 ms to 30 s, and others are taken as the nearest of these.
    ///
    /// A lease that nobody asks for is given back after a quarter of it.
    #[must_use]
    pub fn lasting(self, time: Duration) -> Self {
        Self { time: time.clamp(SHORTEST, LONGEST), ..self }
    }

    /// The largest lease.
    pub const fn most(&self) -> u64 {
        self.most
    }

    /// How long a lease lasts.
    pub const fn time(&self) -> Duration {
        self.time
    }

    /// How long it is spent here: a little less, so that clocks that do not run alike make no difference.
    pub(super) fn spendable(&self) -> Duration {
        self.time / 16 * 15
    }

    /// A lease is meant to last so long.
    pub(super) fn horizon(&self) -> Duration {
        self.time / 4
    }

    /// What nobody has asked for in this time is given back.
    pub(super) fn idle(&self) -> Duration {
        self.time / 4
    }

    /// How often somebody looks after them.
    pub(super) fn pause(&self) -> Duration {
        self.time / 8
    }
}
