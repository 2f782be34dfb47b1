//! tollgate's keyed limiter as a contender. All calls of it are here.

#![allow(clippy::inline_always, reason = "else it is chance whose check becomes part of the loop")]

use std::any::Any;
use std::hash::Hash;
use std::time::Duration;

use tollgate::{Clock, CoarseClock, DefaultClock, KeyedLimiter, Quota, TokenBucket};

use crate::contenders::{Keyed, Terms};

pub(crate) struct Ours<K: ?Sized, C: Clock = DefaultClock> {
    limiter: KeyedLimiter<K, TokenBucket, C>,
    /// Kept, not used: it sweeps until it is dropped.
    _sweeper: Option<Box<dyn Any + Send + Sync>>,
}

impl<K: ?Sized + Hash + 'static> Ours<K> {
    pub(crate) fn new(terms: Terms) -> Self {
        Self { limiter: KeyedLimiter::new(quota(terms)), _sweeper: None }
    }

    /// With a thread that sweeps.
    pub(crate) fn swept(terms: Terms, every: Duration) -> Self {
        let ours = Self::new(terms);
        let sweeper = ours.limiter.sweeper(every);
        Self { _sweeper: Some(Box::new(sweeper)), ..ours }
    }

    #[inline]
    pub(crate) fn check(&self, key: &K) -> bool {
        self.limiter.check(key).is_allowed()
    }

    /// How many of them are allowed.
    #[inline]
    pub(crate) fn check_many(&self, keys: &[&K]) -> u64 {
        let mut allowed = 0;
        self.limiter.check_many(keys, |_, decision| allowed += u64::from(decision.is_allowed()));
        allowed
    }
}

impl<K: ?Sized + Hash + 'static> Ours<K, CoarseClock> {
    /// With a clock that is refreshed once a millisecond.
    pub(crate) fn coarse(terms: Terms) -> Self {
        let clock = CoarseClock::new(Duration::from_millis(1));
        Self { limiter: KeyedLimiter::builder(quota(terms)).clock(clock).build(), _sweeper: None }
    }
}

fn quota(terms: Terms) -> Quota {
    Quota::every(terms.per_token).burst(u64::from(terms.burst))
}

impl<C: Clock> Keyed<u64> for Ours<u64, C> {
    #[inline(always)]
    fn allow(&self, key: &u64) -> bool {
        self.limiter.allow(key)
    }

    fn keys(&self) -> Option<usize> {
        Some(self.limiter.len())
    }

    fn own_bytes(&self) -> Option<usize> {
        Some(self.limiter.bytes())
    }
}

impl<C: Clock> Keyed<String> for Ours<str, C> {
    #[inline(always)]
    fn allow(&self, key: &String) -> bool {
        self.limiter.allow(key)
    }

    fn keys(&self) -> Option<usize> {
        Some(self.limiter.len())
    }

    fn own_bytes(&self) -> Option<usize> {
        Some(self.limiter.bytes())
    }
}
