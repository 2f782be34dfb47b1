//! What a call wants of which limits.

use smallvec::SmallVec;

use crate::key::KeyBytes;

/// What a call wants of one limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Want {
    limit: u32,
    /// Where its key ends; it begins where that of the one before ends.
    key_end: u32,
    pub(crate) cost: u64,
}

/// What a call wants of all limits that apply. Mostly there are one or two, with short keys, and nothing of it needs the heap.
#[derive(Debug, Default)]
pub(crate) struct Wants {
    each: SmallVec<[Want; 2]>,
    /// All keys, one after the other.
    keys: KeyBytes,
}

impl Want {
    /// Which limit.
    #[inline]
    pub(crate) fn limit(&self) -> usize {
        self.limit as usize
    }
}

impl Wants {
    /// One more, with that key.
    pub(crate) fn push(&mut self, limit: usize, cost: u64, key: &[u8]) {
        self.keys.extend_from_slice(key);
        // A request's head has no four billion bytes, and nobody has as many limits.
        self.each.push(Want { limit: limit as u32, key_end: self.keys.len() as u32, cost });
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.each.is_empty()
    }

    #[inline]
    pub(crate) fn each(&self) -> &[Want] {
        &self.each
    }

    /// Whose share of its limit one of them is.
    #[inline]
    pub(crate) fn key(&self, at: usize) -> &[u8] {
        let start = at.checked_sub(1).map_or(0, |before| self.each[before].key_end);
        &self.keys[start as usize..self.each[at].key_end as usize]
    }

    /// Only some of them.
    pub(crate) fn only(&self, stays: impl Fn(&Want) -> bool) -> Self {
        let mut wants = Self::default();
        for (at, want) in self.each.iter().enumerate().filter(|(_, want)| stays(want)) {
            wants.push(want.limit(), want.cost, self.key(at));
        }
        wants
    }
}
