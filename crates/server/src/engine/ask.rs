//! Requests to the engine.

use std::error::Error;
use std::fmt;

use tollgate::store::Store;
use tollgate_policy::{BadValue, Descriptor, Field};

use super::loaded::Opened;

/// A request to decide: the limits it concerns, and its cost.
#[derive(Debug)]
pub struct Ask<'a, S: Store> {
    /// The limits.
    pub subject: Subject<'a, S>,
    /// The cost for limits without a cost field; `None` counts as 1. A cost of 0 is always allowed and only reads the counters.
    pub cost: Option<u64>,
    /// Whether the request is denied only if all of its limits deny it.
    pub in_quota_mode: bool,
    /// Whether limits decide in shadow mode: they count, and never deny.
    pub in_shadow_mode: bool,
    /// Whether nothing is asked for but whether limits are exceeded: a counter is if it counted more than its quota, any other
    /// limit if it would deny a cost of one. It is asked with [`Mode::Peek`](tollgate::store::Mode::Peek) at a cost of one.
    pub is_probe: bool,
    /// The domain and the fields of the descriptor that supplies the limit, if it is not one of the policy. Statistics name the limit by
    /// them.
    pub in_place_of: Option<(&'a str, &'a [Field<'a>])>,
}

/// The limits that a request concerns.
#[derive(Debug)]
pub enum Subject<'a, S: Store> {
    /// The limits of the policy that apply to these fields in this domain.
    Policy(&'a str, &'a [Field<'a>]),
    /// No limit of this domain.
    Nothing(&'a str),
    /// A limit that the caller [supplied](super::Clerk::open), for a key.
    Limit(&'a Opened<S>, &'a [u8]),
}

impl<S: Store> Subject<'_, S> {
    /// Returns the domain of the policy; `None` for a limit that the caller supplied.
    pub(super) fn domain(&self) -> Option<&str> {
        match self {
            Self::Policy(domain, _) | Self::Nothing(domain) => Some(domain),
            Self::Limit(..) => None,
        }
    }
}

impl<'a, S: Store> Ask<'a, S> {
    /// Creates a request with a cost of 1.
    pub fn new(subject: Subject<'a, S>) -> Self {
        let (in_quota_mode, in_shadow_mode) = (false, false);
        Self { subject, cost: None, in_quota_mode, in_shadow_mode, is_probe: false, in_place_of: None }
    }

    /// Creates a request for the limits of the policy.
    pub fn policy<'d: 'a>(descriptor: &'a Descriptor<'d>) -> Self {
        Self::new(Subject::Policy(descriptor.domain(), descriptor.fields()))
    }

    /// Creates a request for a limit that the caller supplied.
    pub fn limit(opened: &'a Opened<S>, key: &'a [u8]) -> Self {
        Self::new(Subject::Limit(opened, key))
    }

    /// Sets the descriptor that supplies the limit in place of those of the policy.
    #[must_use]
    pub fn in_place_of(self, domain: &'a str, fields: &'a [Field<'a>]) -> Self {
        Self { in_place_of: Some((domain, fields)), ..self }
    }

    /// Sets the cost.
    #[must_use]
    pub fn costing(self, cost: u64) -> Self {
        Self { cost: Some(cost), ..self }
    }

    /// Sets whether the request is denied only if all of its limits deny it.
    #[must_use]
    pub fn in_quota_mode(self, in_quota_mode: bool) -> Self {
        Self { in_quota_mode, ..self }
    }

    /// Sets whether the request only asks whether limits are exceeded.
    #[must_use]
    pub fn probing(self, is_probe: bool) -> Self {
        Self { is_probe, ..self }
    }

    /// Sets whether limits decide in shadow mode.
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
