//! How much a store may hold, and what happens to a key that comes when it is full.

use std::sync::Arc;

use crate::sync::{AtomicU64, Ordering};

/// What becomes of a new key when the store is full and nothing in it is idle.
///
/// A key that somebody [waits](super::KeyedLimiter::wait) for counts like any other, and is never forgotten. So a new key is refused
/// by [`Evict`](Self::Evict) too where all that there is room for are waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AtCap {
    /// The key that has used the least of its quota is forgotten, one that has used all of it last. An abuser is
    /// remembered; somebody else may start afresh once. Every such eviction is [counted](super::Stats::evicted). Who goes is chosen
    /// among the keys that lie in the same part of the table, some hundred: all of them, in a store for less than 256.
    #[default]
    Evict,
    /// New keys are refused until others are idle. They are told the first moment at which one of those in the same part of the table
    /// may be: where that one was asked for since it was last looked at, they are told a later one then. To refuse them costs
    /// little more than any other question, however many come.
    Refuse,
    /// New keys share one state, with the quota the limiter was made with. If that refuses, they are told when it will not; that others are
    /// idle before then, and there is room for them, they are not told.
    Share,
}

/// What a store holds, and what it may.
#[derive(Debug)]
pub(crate) struct Room {
    keys: AtomicU64,
    /// How many of the keys are in line, with a limiter of their own.
    in_line: AtomicU64,
    bytes: AtomicU64,
    most_keys: u64,
    most_bytes: u64,
    /// What it shares with others.
    pool: Option<Arc<Pool>>,
}

/// What several stores may hold together. None of them is kept from its even share; what the others leave free of theirs
/// is for whoever comes first, until they need it.
#[derive(Debug)]
pub(crate) struct Pool {
    stores: AtomicU64,
    keys: AtomicU64,
    bytes: AtomicU64,
    most_keys: u64,
    most_bytes: u64,
}

impl Pool {
    pub(crate) fn new(most_keys: u64, most_bytes: u64) -> Self {
        let [stores, keys, bytes] = [0; 3].map(AtomicU64::new);
        Self { stores, keys, bytes, most_keys, most_bytes }
    }

    pub(crate) fn most_keys(&self) -> u64 {
        self.most_keys
    }

    pub(crate) fn most_bytes(&self) -> u64 {
        self.most_bytes
    }

    /// The even share of a store: keys and bytes.
    fn share(&self) -> (u64, u64) {
        let stores = self.stores.load(Ordering::Relaxed).max(1);
        (self.most_keys / stores, self.most_bytes / stores)
    }
}

/// A part of what a store may hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    pub(crate) keys: u64,
    pub(crate) bytes: u64,
}

impl Room {
    pub(crate) fn new(most_keys: u64, most_bytes: u64) -> Self {
        let [keys, in_line, bytes] = [0; 3].map(AtomicU64::new);
        Self { keys, in_line, bytes, most_keys, most_bytes, pool: None }
    }

    /// One that also keeps to what it shares with others.
    pub(crate) fn within(mut self, pool: Option<Arc<Pool>>) -> Self {
        if let Some(pool) = &pool {
            pool.stores.fetch_add(1, Ordering::Relaxed);
        }
        self.pool = pool;
        self
    }

    pub(crate) fn is_bounded(&self) -> bool {
        let is_bounded = |keys, bytes| keys < u64::MAX || bytes < u64::MAX;
        is_bounded(self.most_keys, self.most_bytes)
            || self.pool.as_ref().is_some_and(|pool| is_bounded(pool.most_keys, pool.most_bytes))
    }

    pub(crate) fn keys(&self) -> u64 {
        self.keys.load(Ordering::Relaxed)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// What each of so many shards may take of what is left, where `bytes` are to come at least. If those may fit, each may
    /// take what it needs.
    pub(crate) fn share(&self, shards: usize, bytes: u64) -> Share {
        let (keys, most_bytes) = self.pool.as_ref().map_or((u64::MAX, u64::MAX), |pool| pool.share());
        let (most_keys, most_bytes) = (self.most_keys.min(keys), self.most_bytes.min(most_bytes));
        let (shards, left) = (shards as u64, most_bytes.saturating_sub(self.bytes()));
        let is_too_much = bytes > most_bytes;
        Share { keys: most_keys.div_ceil(shards), bytes: if is_too_much { left / shards } else { u64::MAX } }
    }

    /// Whether one more key may come.
    pub(crate) fn has_key(&self) -> bool {
        let keys = self.keys();
        keys < self.most_keys
            && self.pool.as_ref().is_none_or(|pool| {
                pool.keys.load(Ordering::Relaxed) < pool.most_keys || keys < pool.share().0
            })
    }

    /// Whether keys in line, none of which can be forgotten, are all that there is room for.
    pub(crate) fn is_full_of_lines(&self) -> bool {
        let share = self.pool.as_ref().map_or(u64::MAX, |pool| pool.share().0);
        self.in_line.load(Ordering::Relaxed) >= self.most_keys.min(share).max(1)
    }

    /// Whether `more` bytes may be used.
    pub(crate) fn has_bytes(&self, more: usize) -> bool {
        let (bytes, more) = (self.bytes(), more as u64);
        bytes + more <= self.most_bytes
            && self.pool.as_ref().is_none_or(|pool| {
                let all = pool.bytes.load(Ordering::Relaxed) + more;
                all <= pool.most_bytes || bytes + more <= pool.share().1
            })
    }

    /// Whether there are more keys than there should be, because others needed their share of them, and it is for this one to
    /// give way.
    pub(crate) fn is_over(&self) -> bool {
        self.pool.as_ref().is_some_and(|pool| {
            pool.keys.load(Ordering::Relaxed) > pool.most_keys && self.keys() > pool.share().0
        })
    }

    pub(crate) fn added(&self) {
        self.keys.fetch_add(1, Ordering::Relaxed);
        if let Some(pool) = &self.pool {
            pool.keys.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn removed(&self) {
        self.keys.fetch_sub(1, Ordering::Relaxed);
        if let Some(pool) = &self.pool {
            pool.keys.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// A key came to have a limiter of its own, which takes so many bytes. It is not in the table, but counts like one that is.
    pub(crate) fn line_opened(&self, bytes: usize) {
        self.added();
        self.grown(bytes);
        self.in_line.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn line_closed(&self, bytes: usize) {
        self.removed();
        self.shrunk(bytes);
        self.in_line.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn grown(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        if let Some(pool) = &self.pool {
            pool.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }

    pub(crate) fn shrunk(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
        if let Some(pool) = &self.pool {
            pool.bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
        }
    }

    pub(crate) fn resized(&self, before: usize, after: usize) {
        self.grown(after);
        self.shrunk(before);
    }
}

impl Drop for Room {
    /// What it held is free for the others.
    fn drop(&mut self) {
        if let Some(pool) = &self.pool {
            pool.stores.fetch_sub(1, Ordering::Relaxed);
            pool.keys.fetch_sub(self.keys(), Ordering::Relaxed);
            pool.bytes.fetch_sub(self.bytes(), Ordering::Relaxed);
        }
    }
}
