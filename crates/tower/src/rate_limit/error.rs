//! Limits that cannot be.

use std::error::Error;
use std::fmt;

use tollgate_http::NameError;

/// Why limits cannot be put in front of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitError {
    /// Callers cannot be told of a limit of this name.
    Name(NameError),
    /// Two limits have the same name, so nobody could tell them apart.
    SameName(String),
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(error) => error.fmt(f),
            Self::SameName(name) => {
                write!(f, "two limits are called {name:?}; callers could not tell them apart")
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
