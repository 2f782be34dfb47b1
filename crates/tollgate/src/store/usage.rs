//! What a store says about itself.

use std::fmt;
use std::sync::Arc;

/// How much a store holds, and what it had to forget since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// How many states it remembers: one for each quota of each key. `None` if that is not known.
    pub keys: Option<u64>,
    /// How much memory they take. `None` if that is not known.
    pub bytes: Option<u64>,
    /// States that were forgotten although they still counted, because the store was full.
    pub evicted: u64,
    /// New keys that were refused because the store was full.
    pub refused: u64,
    /// What this process has borrowed, if it borrows.
    pub leases: Option<OnLease>,
}

/// What a process has borrowed of what it shares with others, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OnLease {
    /// What it has now.
    pub out: u64,
    /// By how much less than the limit may be admitted of one state, because all processes together may have so much of it.
    pub shortfall: u64,
    /// What it has spent.
    pub spent: u64,
    /// What it gave back.
    pub returned: u64,
    /// What it could neither spend nor give back in time, and counts as spent.
    pub lost: u64,
}

/// How a store has been that is guarded against its failures, since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// Whether all calls are tried.
    pub is_up: bool,
    /// How many calls it answered.
    pub answered: u64,
    /// How many it failed at in time.
    pub failed: u64,
    /// How many it did not answer in time.
    pub late: u64,
    /// How many were not even tried, because others had just failed.
    pub untried: u64,
}

/// Which keys are at the top.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Top {
    /// Those that were asked about most often.
    Asked,
    /// Those that were refused most often.
    Denied,
}

/// A key that came often.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Busy {
    /// The domain of the limit.
    pub domain: Arc<str>,
    /// The name of the limit.
    pub name: Arc<str>,
    /// The key, cut after 256 bytes.
    pub key: Box<[u8]>,
    /// How often it came: never too low, and too high by at most `error`.
    pub count: u64,
    /// How much of the count may be somebody else's.
    pub error: u64,
}

impl Busy {
    /// A key of a limit that came `count` times, `error` of which may have been others.
    pub fn new(
        domain: impl Into<Arc<str>>,
        name: impl Into<Arc<str>>,
        key: impl Into<Box<[u8]>>,
        count: u64,
        error: u64,
    ) -> Self {
        Self { domain: domain.into(), name: name.into(), key: key.into(), count, error }
    }
}

impl fmt::Debug for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Busy")
            .field("limit", &format_args!("{}/{}", self.domain, self.name))
            .field("key", &format_args!("{}", self.key.escape_ascii()))
            .field("count", &self.count)
            .field("error", &self.error)
            .finish()
    }
}
