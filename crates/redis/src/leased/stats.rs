//! What has been lent, and what became of it.

use tollgate::store::OnLease;

/// What a [`Leased`](super::Leased) store has on lease, and what became of what it had.
///
/// Everything that was lent was spent, returned or lost, or is still out: `lent = spent + returned + lost + out`, but for what is
/// [under way](Self::under_way).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseStats {
    /// The most that this node has of one state.
    pub lease: u64,
    /// How many nodes share the store, as it was last seen.
    pub nodes: u32,
    /// Tokens that are out on lease here, to be spent or given back.
    pub out: u64,
    /// Of how many states.
    pub states: u64,
    /// Tokens that Redis has lent to this node.
    pub lent: u64,
    /// Of these, spent without asking again.
    pub spent: u64,
    /// Of these, given back in time.
    pub returned: u64,
    /// Of these, neither spent nor given back in time, or not as far as is known: they count as spent.
    pub lost: u64,
    /// Decisions that were made without asking Redis.
    pub here: u64,
    /// Of these, those that repeated a refusal.
    pub refused_here: u64,
    /// States about which a call is under way.
    pub under_way: u64,
    /// Calls that borrowed, reported or gave back.
    pub calls: u64,
    /// Of these, those that failed.
    pub failed: u64,
}

impl LeaseStats {
    /// By how much less than the limit may be admitted of one state because it is out on lease: `nodes × lease` at most.
    pub fn shortfall(&self) -> u64 {
        self.lease.saturating_mul(self.nodes.into())
    }
}

impl From<LeaseStats> for OnLease {
    fn from(stats: LeaseStats) -> Self {
        let mut leases = Self::default();
        leases.out = stats.out;
        leases.shortfall = stats.shortfall();
        leases.spent = stats.spent;
        leases.returned = stats.returned;
        leases.lost = stats.lost;
        leases
    }
}
