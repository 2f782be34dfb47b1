//! Limits whose quota every caller brings along.
//!
//! Where a quota is one every so many nanoseconds, the level of a token bucket counts nanoseconds: it is the time at which the
//! bucket will be full, the *theoretical arrival time* of GCRA. Such levels mean the same whatever the quota, so one table
//! serves all quotas and remembers none of them.

use std::time::Duration;

use tollgate_core::{Algorithm, Ask, Decision, Quota, Step, Tick, TokenBucket};

use super::table::{NOBODYS, Owner};
use crate::clock::Clock;
use crate::keyed::KeyedLimiter;

/// The times of all keys, and the bucket of one quota that reads them.
pub(super) struct Times<C: Clock> {
    states: KeyedLimiter<Owner, TokenBucket, C>,
    bucket: TokenBucket,
}

impl<C: Clock> Times<C> {
    pub(super) fn new(states: KeyedLimiter<Owner, TokenBucket, C>) -> Self {
        Self { states, bucket: TokenBucket::new(NOBODYS) }
    }

    pub(super) fn with_quota(self, quota: Quota) -> Self {
        Self { bucket: TokenBucket::new(timed(quota)), ..self }
    }

    pub(super) fn states(&self) -> &KeyedLimiter<Owner, TokenBucket, C> {
        &self.states
    }

    #[inline]
    pub(super) fn check_n_at(&self, owner: &Owner, cost: u64, now: Tick) -> Decision {
        self.states.step_at(owner, now, |time, now| self.bucket.decide(time, now, Ask::now(cost)))
    }

    pub(super) fn peek_within_at(&self, owner: &Owner, cost: u64, patience: Duration, now: Tick) -> Decision {
        let ask = Ask::within(cost, patience);
        self.states
            .step_at(owner, now, |time, now| Step { change: None, ..self.bucket.decide(time, now, ask) })
    }

    /// Whether it is remembered.
    pub(super) fn charge_at(&self, owner: &Owner, cost: u64, now: Tick) -> bool {
        let step = |time: &u64, now| self.after(self.bucket.charge(time, cost, now), now);
        self.states.step_at(owner, now, step).is_admitted()
    }

    pub(super) fn refund(&self, owner: &Owner, cost: u64) {
        let step = |time: &u64, now| self.after(self.bucket.refund(time, cost, now), now);
        let _ = self.states.step_down(owner, step);
    }

    /// A change that nobody is asked about.
    fn after(&self, change: Option<u64>, now: Tick) -> Step<u64> {
        let decision = self.bucket.decide(&change.unwrap_or(0), now, Ask::now(0)).decision;
        Step { change, decision }
    }
}

/// A quota whose levels are times: one every so many whole nanoseconds, never more than `quota`, with a bucket that is full in less
/// than a century.
fn timed(quota: Quota) -> Quota {
    const LONGEST_NS: u64 = 1 << 61;
    if quota.is_unlimited() || quota.count() == 0 {
        return quota;
    }
    let interval = quota.period().as_nanos().div_ceil(quota.count().into());
    let interval = u64::try_from(interval).map_or(LONGEST_NS, |interval| interval.min(LONGEST_NS));
    Quota::every(Duration::from_nanos(interval)).burst(quota.burst_size().min(LONGEST_NS / interval))
}

impl<C: Clock> Clone for Times<C> {
    /// Another handle on the same times.
    fn clone(&self) -> Self {
        Self { states: self.states.clone(), bucket: self.bucket }
    }
}
