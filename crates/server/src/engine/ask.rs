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
    /// The domain and the fields of the descriptor that supplies the limit, if it is not one of the policy. Statistics name the limit by
    /// them.
    pub in_place_of: Option<(&'a str, &'a [Field<'a>])>,
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
        Self { subject, cost: None, in_quota_mode: false, in_shadow_mode: false, in_place_of: None }
    }

    /// One of whatever the policy says.
    pub fn policy<'d: 'a>(descriptor: &'a Descriptor<'d>) -> Self {
        Self::new(Subject::Policy(descriptor.domain(), descriptor.fields()))
    }

    /// One of a limit that was opened for the purpose.
    pub fn limit(opened: &'a Opened<S>, key: &'a [u8]) -> Self {
        Self::new(Subject::Limit(opened, key))
    }

    /// The same, for a limit that a descriptor supplies in place of those of the policy.
    #[must_use]
    pub fn in_place_of(self, domain: &'a str, fields: &'a [Field<'a>]) -> Self {
        Self { in_place_of: Some((domain, fields)), ..self }
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

/// Why nothing was decided.
#[derive(Debug)]
#[non_exhaustive]
pub enum AskError {
    /// A limit cannot use a value, and denies such calls.
    BadValue {
        /// Which ask, counted from zero.
        ask: usize,
        /// The limit.
        limit: String,
        /// What is wrong with the value.
        why: String,
    },
    /// The store is unavailable, and what was asked changes what is counted: nothing but the store can do that.
    Unavailable {
        /// Whether the store is sure that it did nothing. Then it is safe to try again.
        is_without_effect: bool,
    },
    /// The store does not open a limit that the caller supplies: there are too many of them.
    Supplied {
        /// Why not.
        why: String,
    },
    /// Too much is held already.
    TooManyHeld {
        /// Which bound is reached.
        bound: HoldBound,
        /// How much it allows: permits, or bytes of memory.
        most: u64,
    },
}

/// A bound on what is held at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HoldBound {
    /// The permits of one caller.
    Caller,
    /// The permits of all callers.
    All,
    /// The memory of one caller's permits.
    CallerMemory,
    /// The memory of all permits.
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
            Self::BadValue { limit, why, .. } => write!(f, "limit {limit:?} denies bad values: {why}"),
            Self::Unavailable { is_without_effect: true } => {
                f.write_str("store unavailable, nothing was done: it is safe to try again")
            }
            Self::Unavailable { is_without_effect: false } => {
                f.write_str("store unavailable, this may have been done: trying again may do it twice")
            }
            Self::Supplied { why } => f.write_str(why),
            Self::TooManyHeld { bound, most } => {
                match bound {
                    HoldBound::Caller => write!(f, "you hold {most} permits, and at most {most} are allowed"),
                    HoldBound::CallerMemory => {
                        write!(f, "your permits take all of the {most} bytes that one caller may have")
                    }
                    HoldBound::All => write!(f, "{most} permits are held, the most that is allowed"),
                    HoldBound::Memory => {
                        write!(f, "permits take all of the {most} bytes that there are for them")
                    }
                }?;
                f.write_str(": settle some, or hold them for shorter")
            }
        }
    }
}

impl Error for AskError {}
