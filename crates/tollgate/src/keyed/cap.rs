//! How much a store may hold, and what happens to a key that comes when it is full.

use crate::sync::{AtomicU64, Ordering};

/// What becomes of a new key when the store is full and nothing in it is idle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AtCap {
    /// The key that has used the least of its quota is forgotten, one that has used all of it last. An abuser is
    /// remembered; somebody else may start afresh once. Every such eviction is [counted](super::Stats::evicted).
    #[default]
    Evict,
    /// New keys are refused until others are idle.
    Refuse,
    /// New keys share one state, with the quota the limiter was made with.
    Share,
}

/// What a store holds, and what it may.
#[derive(Debug)]
pub(crate) struct Room {
    keys: AtomicU64,
    bytes: AtomicU64,
    most_keys: u64,
    most_bytes: u64,
}

/// A part of what a store may hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    pub(crate) keys: u64,
    pub(crate) bytes: u64,
}

impl Room {
    pub(crate) fn new(most_keys: u64, most_bytes: u64) -> Self {
        Self { keys: AtomicU64::new(0), bytes: AtomicU64::new(0), most_keys, most_bytes }
    }

    pub(crate) fn is_bounded(&self) -> bool {
        self.most_keys < u64::MAX || self.most_bytes < u64::MAX
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
        let (shards, left) = (shards as u64, self.most_bytes.saturating_sub(self.bytes()));
        let is_too_much = bytes > self.most_bytes;
        Share {
            keys: self.most_keys.div_ceil(shards),
            bytes: if is_too_much { left / shards } else { u64::MAX },
        }
    }

    /// Whether one more key may come.
    pub(crate) fn has_key(&self) -> bool {
        self.keys() < self.most_keys
    }

    /// Whether `more` bytes may be used.
    pub(crate) fn has_bytes(&self, more: usize) -> bool {
        self.bytes() + more as u64 <= self.most_bytes
    }

    pub(crate) fn added(&self) {
        self.keys.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn removed(&self) {
        self.keys.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn grown(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn shrunk(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn resized(&self, before: usize, after: usize) {
        self.grown(after);
        self.shrunk(before);
    }
}
