//! What a caller asks.

use std::error::Error;
use std::fmt;

use tollgate::store::Store;
use tollgate_policy::{BadValue, Descriptor, Field};

use super::loaded::Opened;

/// What a caller wants, and how much of it.
#[derive(Debug)]
pub struct Ask<'a, S: Store> {
    /// Of which limits.
    pub subject: Subject<'a, S>,
    /// How much, unless a limit has a field that says so; one if the caller does not say. Nothing is always allowed, and tells
    /// what is left.
    pub cost: Option<u64>,
    /// Whether limits refuse it only if all that are asked together do, as those of a policy do that say so themselves.
    pub in_quota_mode: bool,
    /// Whether limits only tell what they would say, as those of a policy do that are in shadow.
    pub in_shadow_mode: bool,
}

/// Which limits are asked.
#[derive(Debug)]
pub enum Subject<'a, S: Store> {
    /// Those of the policy that apply to a domain and some fields.
    Policy(&'a str, &'a [Field<'a>]),
    /// None of a domain.
    Nothing(&'a str),
    /// One that the caller [opened](super::Clerk::open), for a key.
    Limit(&'a Opened<S>, &'a [u8]),
}

impl<S: Store> Subject<'_, S> {
    /// The domain of the policy; none of a limit that the caller opened.
    pub(super) fn domain(&self) -> Option<&str> {
        match self {
            Self::Policy(domain, _) | Self::Nothing(domain) => Some(domain),
            Self::Limit(..) => None,
        }
    }
}

impl<'a, S: Store> Ask<'a, S> {
    /// One of these.
    pub fn new(subject: Subject<'a, S>) -> Self {
        Self { subject, cost: None, in_quota_mode: false, in_shadow_mode: false }
    }

    /// One of whatever the policy says.
    pub fn policy<'d: 'a>(descriptor: &'a Descriptor<'d>) -> Self {
        Self::new(Subject::Policy(descriptor.domain(), descriptor.fields()))
    }

    /// One of a limit that was opened for the purpose.
    pub fn limit(opened: &'a Opened<S>, key: &'a [u8]) -> Self {
        Self::new(Subject::Limit(opened, key))
    }

    /// The same at another cost.
    #[must_use]
    pub fn costing(self, cost: u64) -> Self {
        Self { cost: Some(cost), ..self }
    }

    /// The same, refused only if all that are asked together are.
    #[must_use]
    pub fn in_quota_mode(self, in_quota_mode: bool) -> Self {
        Self { in_quota_mode, ..self }
    }

    /// The same, never refused, only told.
    #[must_use]
    pub fn in_shadow_mode(self, in_shadow_mode: bool) -> Self {
        Self { in_shadow_mode, ..self }
    }
}

/// An error that leaves a request undecided.
#[derive(Debug)]
#[non_exhaustive]
pub enum AskError {
    /// A limit cannot use a value, and has `on_bad_value = "deny"`.
    BadValue {
        /// The index of the ask, from zero.
        ask: usize,
        /// The limit.
        limit: String,
        /// What is wrong with the value.
        why: String,
    },
    /// The store is unavailable, and the operation needs it.
    Unavailable {
        /// Whether the store certainly applied no cost. Then a retry is safe.
        is_without_effect: bool,
    },
    /// The caller supplies too many limits.
    Supplied {
        /// The reason of the store.
        why: String,
    },
    /// Too many holds are open.
    TooManyHeld {
        /// The bound that is reached.
        bound: HoldBound,
        /// The maximum: holds, or bytes of memory.
        most: u64,
    },
}

/// A bound on the open holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HoldBound {
    /// The holds of one caller.
    Caller,
    /// The holds of all callers.
    All,
    /// The memory of the holds of one caller.
    CallerMemory,
    /// The memory of all holds.
    Memory,
}

impl AskError {
    pub(super) fn bad_value(ask: usize, bad: &BadValue<'_>) -> Self {
        Self::BadValue { ask, limit: bad.limit().name().to_owned(), why: bad.why().to_owned() }
    }
}

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadValue { limit, why, .. } => write!(f, "limit {limit:?}: {why}"),
            Self::Unavailable { is_without_effect: true } => {
                f.write_str("store unavailable, no cost was applied; a retry is safe")
            }
            Self::Unavailable { is_without_effect: false } => {
                f.write_str("store unavailable, the cost may have been applied; a retry may apply it twice")
            }
            Self::Supplied { why } => f.write_str(why),
            Self::TooManyHeld { bound, most } => {
                match bound {
                    HoldBound::Caller => write!(f, "{most} holds of this client are open, the maximum"),
                    HoldBound::CallerMemory => {
                        write!(f, "the holds of this client use {most} bytes, the maximum")
                    }
                    HoldBound::All => write!(f, "{most} holds are open, the maximum"),
                    HoldBound::Memory => write!(f, "the holds of all clients use {most} bytes, the maximum"),
                }?;
                f.write_str("; settle some or use a shorter hold")
            }
        }
    }
}

impl Error for AskError {}
