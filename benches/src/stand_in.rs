//! Stands in for the parts of tollgate that are still being written; same names, none of the merits.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::marker::PhantomData;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tollgate::{Builder, Decision, Limiter, Quota};

/// A limiter of many keys.
#[derive(Debug)]
pub struct KeyedLimiter<K: ?Sized> {
    hasher: RandomState,
    levels: Arc<Mutex<HashMap<u64, Instant>>>,
    limiter: Limiter,
    per_token: Duration,
    key: PhantomData<fn(&K)>,
}

impl<K: ?Sized + Hash> KeyedLimiter<K> {
    /// With a quota.
    pub fn new(quota: Quota) -> Self {
        let limiter = Limiter::new(Quota::UNLIMITED);
        let per_token = quota.period();
        Self { hasher: RandomState::new(), levels: Arc::default(), limiter, per_token, key: PhantomData }
    }

    /// One.
    pub fn allow(&self, key: &K) -> bool {
        self.check(key).is_allowed()
    }

    /// One.
    pub fn check(&self, key: &K) -> Decision {
        let now = Instant::now();
        let hash = self.hasher.hash_one(key);
        let mut levels = self.levels.lock().expect("nobody panics");
        let level = levels.entry(hash).or_insert(now);
        *level = (*level).max(now) + self.per_token;
        if hash.is_multiple_of(100_000) {
            levels.retain(|_, idle| *idle > now);
            levels.shrink_to_fit();
        }
        self.limiter.check()
    }

    /// Many.
    pub fn check_many(&self, keys: &[&K], mut each: impl FnMut(usize, Decision)) {
        for (index, key) in keys.iter().enumerate() {
            each(index, self.check(key));
        }
    }

    /// Keys.
    pub fn len(&self) -> usize {
        self.levels.lock().expect("nobody panics").len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes.
    pub fn bytes(&self) -> usize {
        self.levels.lock().expect("nobody panics").capacity() * 25
    }

    /// Sweeps.
    pub fn sweeper(&self, interval: Duration) -> impl Drop + use<K> {
        struct Guard(Arc<std::sync::atomic::AtomicBool>);
        impl Drop for Guard {
            fn drop(&mut self) {
                self.0.store(true, std::sync::atomic::Ordering::Relaxed);
            }
        }
        let guard = Guard(Arc::default());
        let (stop, levels) = (Arc::clone(&guard.0), Arc::clone(&self.levels));
        std::thread::spawn(move || {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                std::thread::sleep(interval);
                let now = Instant::now();
                let mut levels = levels.lock().expect("nobody panics");
                levels.retain(|_, idle| *idle > now);
                levels.shrink_to_fit();
            }
        });
        guard
    }
}

/// Several limiters.
#[derive(Debug)]
pub struct Gate<'a>(Vec<&'a Limiter>);

impl<'a> Gate<'a> {
    /// One more.
    #[must_use]
    pub fn and(mut self, limiter: &'a Limiter) -> Self {
        self.0.push(limiter);
        self
    }

    /// All or the first that refuses.
    pub fn check(&self) -> Decision {
        let decisions = self.0.iter().map(|limiter| limiter.check());
        decisions.reduce(|sum, decision| if sum.is_allowed() { decision } else { sum }).expect("tiers")
    }
}

/// What a limiter will be able to do.
pub trait And {
    /// Both.
    fn and<'a>(&'a self, other: &'a Limiter) -> Gate<'a>;
}

impl And for Limiter {
    fn and<'a>(&'a self, other: &'a Limiter) -> Gate<'a> {
        Gate(vec![self, other])
    }
}

/// What a builder will be able to do.
pub trait Sharded {
    /// The same in shards.
    #[must_use]
    fn sharded(self) -> Self;
}

impl<A, C> Sharded for Builder<A, C> {
    fn sharded(self) -> Self {
        self
    }
}
