//! Limits that cannot be.

use std::error::Error;
use std::fmt;

use tollgate_http::NameError;

/// Why limits cannot be put in front of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitError {
    /// There is none, so that all calls would pass.
    NoLimits,
    /// Callers cannot be told of a limit of this name.
    Name(NameError),
    /// Two limits have the same name, so nobody could tell them apart.
    SameName(String),
    /// A policy has limits, but none in the layer's [domain](crate::RateLimitBuilder::domain).
    #[cfg(feature = "policy")]
    NoSuchDomain {
        /// The layer's.
        domain: String,
        /// Those that the policy has limits in.
        there: Vec<String>,
    },
    /// A policy looks at a field that nobody has said [what it is](crate::RateLimitBuilder::field).
    #[cfg(feature = "policy")]
    NoSuchField {
        /// The field.
        name: String,
        /// Those that are known.
        known: Vec<String>,
    },
}

#[cfg(feature = "policy")]
const NO_LIMITS: &str = "no limit: add one with RateLimitBuilder::limit or RateLimitBuilder::policy";
#[cfg(not(feature = "policy"))]
const NO_LIMITS: &str = "no limit: add one with RateLimitBuilder::limit";

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLimits => write!(f, "{NO_LIMITS}"),
            Self::Name(error) => error.fmt(f),
            Self::SameName(name) => {
                write!(f, "duplicate limit name {name:?}")
            }
            #[cfg(feature = "policy")]
            Self::NoSuchDomain { domain, there } => {
                let there = there.join(", ");
                write!(f, "unknown domain {domain:?}; the policy has {there}: see RateLimitBuilder::domain")
            }
            #[cfg(feature = "policy")]
            Self::NoSuchField { name, known } => {
                let known = known.join(", ");
                write!(
                    f,
                    "unknown field {name:?} in the policy; known fields are {known}: see RateLimitBuilder::field"
                )
            }
        }
    }
}

impl Error for LimitError {}

impl From<NameError> for LimitError {
    fn from(error: NameError) -> Self {
        Self::Name(error)
    }
}
