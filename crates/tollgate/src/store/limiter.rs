//! One limit of a store.

use std::time::Duration;

use super::{Answer, Denied, Gate, Permit, Rule, Store, StoreError};
use crate::clock::{Clock, DefaultClock};

/// One limit of a store, for any number of keys: what a [`KeyedLimiter`](crate::KeyedLimiter) is in this process, wherever the
/// store keeps it. For several limits at once there is a [`Gate`].
///
/// # Examples
/// ```
/// use tollgate::Quota;
/// use tollgate::store::{Limiter, MemoryStore, Rule, StoreError};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), StoreError> {
/// let store = MemoryStore::new(); // or one that many machines share
/// let logins = Limiter::new(&store, &Rule::new("site", "logins", Quota::per_minute(3)));
/// for _ in 0..3 {
///     assert!(logins.allow("alice").await?);
/// }
/// assert!(!logins.allow("alice").await? && logins.allow("bob").await?);
/// assert!(logins.reset("alice").await?);
/// assert!(logins.allow("alice").await?);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Limiter<S: Store, C: Clock = DefaultClock> {
    gate: Gate<S, 1, C>,
}

impl<S: Store> Limiter<S> {
    /// Opens the limit of a rule.
    pub fn new(store: &S, rule: &Rule) -> Self {
        Self { gate: Gate::new(store, [rule]) }
    }
}

impl<S: Store, C: Clock> Limiter<S, C> {
    /// The same, by whose clock those who [wait](Self::wait) do so. The store has its own to decide by.
    pub fn clock<D: Clock>(self, clock: D) -> Limiter<S, D> {
        Limiter { gate: self.gate.clock(clock) }
    }

    /// Whether one may happen. See [`Gate::allow`].
    ///
    /// # Errors
    /// If the store cannot tell.
    pub async fn allow(&self, key: impl AsRef<[u8]>) -> Result<bool, StoreError> {
        self.gate.allow([key]).await
    }

    /// Whether one may happen, and everything a caller may want to know with that.
    ///
    /// # Errors
    /// If the store cannot tell.
    pub async fn check(&self, key: impl AsRef<[u8]>) -> Result<Answer, StoreError> {
        self.gate.check([key]).await
    }

    /// Whether `n` may happen, all of them or none.
    ///
    /// # Errors
    /// If the store cannot tell.
    pub async fn check_n(&self, key: impl AsRef<[u8]>, n: u64) -> Result<Answer, StoreError> {
        self.gate.check_n([(key, n)]).await
    }

    /// What [`check`](Self::check) would say, without taking anything.
    ///
    /// # Errors
    /// If the store cannot tell.
    pub async fn peek(&self, key: impl AsRef<[u8]>) -> Result<Answer, StoreError> {
        self.gate.peek([key]).await
    }

    /// Takes what has happened already, whether it fits or not: see [`Mode::Charge`](super::Mode::Charge).
    ///
    /// # Errors
    /// If the store cannot be reached.
    pub async fn charge(&self, key: impl AsRef<[u8]>, n: u64) -> Result<Answer, StoreError> {
        self.gate.charge_n([(key, n)]).await
    }

    /// Gives back what was taken and not used: see [`Mode::Refund`](super::Mode::Refund). Where it can be, settle a
    /// [permit](Self::acquire) instead.
    ///
    /// # Errors
    /// If the store cannot be reached.
    pub async fn refund(&self, key: impl AsRef<[u8]>, n: u64) -> Result<Answer, StoreError> {
        self.gate.refund_n([(key, n)]).await
    }

    /// Takes `n` that can be settled with their real cost later.
    ///
    /// # Errors
    /// If the limit refuses, or the store cannot tell.
    pub async fn acquire(&self, key: impl AsRef<[u8]>, n: u64) -> Result<Permit<S, 1>, Denied> {
        self.gate.acquire_n([(key, n)]).await
    }

    /// Waits until one may happen, for so long at most. There is no line: see [`Gate::wait`].
    ///
    /// # Errors
    /// If it would take longer, or forever, which is said at once; or the store cannot tell.
    ///
    /// # Cancel safety
    /// That of the store: what it was asked for last may have been taken.
    pub async fn wait(&self, key: impl AsRef<[u8]>, at_most: Duration) -> Result<Answer, Denied> {
        self.gate.wait([key], at_most).await
    }

    /// The same for `n`.
    ///
    /// # Errors
    /// If it would take longer, or forever, which is said at once; or the store cannot tell.
    pub async fn wait_n(&self, key: impl AsRef<[u8]>, n: u64, at_most: Duration) -> Result<Answer, Denied> {
        self.gate.wait_n([(key, n)], at_most).await
    }

    /// Forgets what a key has used. Whether it was known.
    ///
    /// # Errors
    /// If the store cannot be reached.
    pub async fn reset(&self, key: impl AsRef<[u8]>) -> Result<bool, StoreError> {
        self.gate.reset([key]).await.map(|[known]| known)
    }
}
