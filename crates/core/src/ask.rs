//! What a caller wants.

use core::time::Duration;

use crate::tick::nanos_of;

/// What a caller wants: how much, and how long it is ready to wait for it.
///
/// # Examples
/// ```
/// use core::time::Duration;
/// use tollgate_core::Ask;
///
/// let now_or_not = Ask::now(1);
/// assert_eq!(now_or_not.cost(), 1);
/// assert_eq!(Ask::within(3, Duration::from_secs(2)).patience(), Duration::from_secs(2));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ask {
    pub(crate) cost: u64,
    pub(crate) patience_ns: u64,
}

impl Ask {
    /// `cost` units at once, or not at all.
    #[inline]
    pub const fn now(cost: u64) -> Self {
        Self { cost, patience_ns: 0 }
    }

    /// `cost` units, no later than `patience` from now.
    #[inline]
    pub const fn within(cost: u64, patience: Duration) -> Self {
        Self { cost, patience_ns: nanos_of(patience) }
    }

    /// `cost` units, whenever they can be had.
    #[inline]
    pub const fn whenever(cost: u64) -> Self {
        Self { cost, patience_ns: u64::MAX }
    }

    /// The same, but no later than `patience` from now.
    #[inline]
    #[must_use]
    pub const fn with_patience(self, patience: Duration) -> Self {
        Self::within(self.cost, patience)
    }

    /// How much is wanted.
    #[inline]
    pub const fn cost(&self) -> u64 {
        self.cost
    }

    /// The longest acceptable wait.
    #[inline]
    pub const fn patience(&self) -> Duration {
        Duration::from_nanos(self.patience_ns)
    }
}
