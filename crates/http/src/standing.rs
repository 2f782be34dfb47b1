//! How a limit stands.

use std::time::Duration;

use tollgate_core::{Decision, Quota, Verdict};

use crate::limit::Limit;

/// How a limit stands after a decision, for [`Writer`](crate::Writer) to tell. Made by [`Limit::after`].
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate_core::{Algorithm, Ask, Kind, Quota, Tick, TokenBucket};
/// use tollgate_http::Limit;
///
/// let quota = Quota::per_minute(60).burst(2);
/// let limit = Limit::new("burst", Kind::TokenBucket, quota)?;
/// let (bucket, mut state) = (TokenBucket::new(quota), Default::default());
/// let mut ask = || limit.after(bucket.step(&mut state, Tick::ZERO, Ask::now(1)));
///
/// let first = ask();
/// assert_eq!((first.available(), first.effective_window()), (1, Some(Duration::from_secs(1)))); // until it is full
/// let second = ask();
/// assert_eq!((second.available(), second.effective_window()), (0, Some(Duration::from_secs(1)))); // until the next one
/// assert!(ask().is_refusal());
/// # Ok::<(), tollgate_http::NameError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Standing<'a> {
    limit: &'a Limit,
    decision: Decision,
    partition_key: Option<&'a [u8]>,
}

impl<'a> Standing<'a> {
    #[inline]
    pub(crate) fn new(limit: &'a Limit, decision: Decision) -> Self {
        Self { limit, decision, partition_key: None }
    }

    /// Tells the caller whose share of the limit this is. The caller will see the key: it must not be a secret, nor of
    /// somebody else.
    #[must_use]
    pub fn partition_key(self, key: &'a [u8]) -> Self {
        Self { partition_key: Some(key), ..self }
    }

    /// The limit.
    pub fn limit(&self) -> &'a Limit {
        self.limit
    }

    /// Whether this limit refused.
    pub fn is_refusal(&self) -> bool {
        self.decision.verdict() == Verdict::Deny
    }

    /// What is left: whole units that could be had right now.
    pub fn available(&self) -> u64 {
        self.decision.remaining()
    }

    /// How long nobody should use more than what is [available](Self::available).
    ///
    /// After a refusal it is the time after which the same call is admitted. Otherwise it is the time until the limit is as
    /// fresh as new; but if nothing is left, only until there is something again, where that can be told (for a token
    /// bucket). None if no time can be told: for a limit on how many at once, or if nothing will ever come back.
    #[inline]
    pub fn effective_window(&self) -> Option<Duration> {
        if !self.limit.is_about_time() || self.decision.limit() == 0 {
            return None;
        }
        if self.is_refusal() && !self.decision.is_never() {
            return self.decision.retry_after();
        }
        let full_in = self.decision.reset_after()?;
        match self.limit.refilled_steadily() {
            Some(quota) if self.available() == 0 => Some(full_in.saturating_sub(self.all_but_one(quota))),
            _ => Some(full_in),
        }
    }

    /// When the same call is admitted: none if it was, or if it never will be.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        self.decision.retry_after().filter(|_| self.is_refusal())
    }

    pub(crate) fn key(&self) -> Option<&'a [u8]> {
        self.partition_key
    }

    /// How long the rest takes to come back after the first one did, rounded down.
    fn all_but_one(&self, quota: Quota) -> Duration {
        let rest = u128::from(self.decision.limit() - 1);
        // At most 2^64 units of 2^64 ns.
        let nanos = rest * quota.period().as_nanos() / u128::from(quota.count().max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}
