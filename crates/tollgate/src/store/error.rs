//! Why a store could not decide.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;

/// Why a [`Store`](super::Store) could not decide, and whether trying again can help. A refusal is not an error.
///
/// # Examples
/// ```
/// use tollgate::store::StoreError;
///
/// let error = StoreError::transient("redis did not answer within 25 ms").caused_by(std::io::Error::other("timed out"));
/// assert!(error.is_transient());
/// assert_eq!(error.to_string(), "redis did not answer within 25 ms");
/// assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "timed out");
/// ```
#[derive(Debug)]
pub struct StoreError {
    what: Cow<'static, str>,
    is_transient: bool,
    is_without_effect: bool,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl StoreError {
    /// It may work if it is tried again.
    pub fn transient(what: impl Into<Cow<'static, str>>) -> Self {
        Self { what: what.into(), is_transient: true, is_without_effect: false, source: None }
    }

    /// It will not work until somebody changes something.
    pub fn permanent(what: impl Into<Cow<'static, str>>) -> Self {
        Self { is_transient: false, ..Self::transient(what) }
    }

    /// The same, with what led to it.
    #[must_use]
    pub fn caused_by(self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { source: Some(source.into()), ..self }
    }

    /// The same, from a store that is sure that it did nothing of what it was asked.
    #[must_use]
    pub fn without_effect(self) -> Self {
        Self { is_without_effect: true, ..self }
    }

    /// The same, but something was done before.
    #[must_use]
    pub fn after_effect(self) -> Self {
        Self { is_without_effect: false, ..self }
    }

    /// Whether the store is sure that it did nothing of what it was asked. Then trying again does nothing twice.
    ///
    /// # Examples
    /// ```
    /// use tollgate::store::StoreError;
    ///
    /// assert!(StoreError::transient("there is no connection").without_effect().is_without_effect());
    /// assert!(!StoreError::transient("the answer was lost").is_without_effect());
    /// ```
    pub fn is_without_effect(&self) -> bool {
        self.is_without_effect
    }

    /// Whether trying again can help.
    pub fn is_transient(&self) -> bool {
        self.is_transient
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| &**source as _)
    }
}
