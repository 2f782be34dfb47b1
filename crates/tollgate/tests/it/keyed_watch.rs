//! Watching a keyed limiter: an observer is told what happened, names are right within their error, and a sweeper clears up
//! without any call.

mod names;
mod observers;
mod sweepers;

use std::cell::Cell;
use std::collections::HashMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use fastrand::Rng;
use tollgate::{
    AtCap, Clock, ConcurrencyLimit, Decision, Evicted, Gate, KeyedLimiter, KeyedWait, Limiter, ManualClock,
    MonotonicClock, Named, Observer, Quota, Sweeper, Tick, TokenBucket, WaitError,
};

type Bucket<K> = KeyedLimiter<K, TokenBucket, ManualClock>;

/// Writes down everything it is told.
#[derive(Debug, Default)]
struct Notes {
    /// How often each key was allowed and denied.
    keys: Mutex<HashMap<u64, [u64; 2]>>,
    evicted: Mutex<Evicted>,
    reports: AtomicU64,
}

impl Notes {
    fn decided(&self, key: u64, index: usize, decision: &Decision) {
        assert_eq!(decision.is_admitted(), index == 0);
        self.keys.lock().unwrap().entry(key).or_default()[index] += 1;
        self.reports.fetch_add(1, Ordering::SeqCst);
    }

    fn total(&self, index: usize) -> u64 {
        self.keys.lock().unwrap().values().map(|counts| counts[index]).sum()
    }

    fn dropped(&self) -> Evicted {
        *self.evicted.lock().unwrap()
    }
}

impl Observer<u64> for Notes {
    fn allowed(&self, key: &u64, decision: &Decision) {
        self.decided(*key, 0, decision);
    }

    fn denied(&self, key: &u64, decision: &Decision) {
        self.decided(*key, 1, decision);
    }

    fn evicted(&self, evicted: Evicted) {
        assert_ne!(evicted, Evicted::default(), "nothing to report");
        let mut all = self.evicted.lock().unwrap();
        all.idle += evicted.idle;
        all.active += evicted.active;
        self.reports.fetch_add(1, Ordering::SeqCst);
    }
}

/// The notes agree with what the limiter counted itself.
fn agrees<C: Clock>(notes: &Notes, limiter: &KeyedLimiter<u64, TokenBucket, C>) {
    let stats = limiter.stats();
    assert_eq!((notes.total(0), notes.total(1)), (stats.admitted, stats.denied));
    assert_eq!((notes.dropped().idle, notes.dropped().active), (stats.swept, stats.evicted));
}
