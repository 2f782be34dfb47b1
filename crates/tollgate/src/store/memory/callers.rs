//! Who asks most, and who is refused most.

use std::sync::Arc;

use super::MemoryLimit;
use crate::clock::Clock;
use crate::keyed::Sketch;
use crate::store::{Busy, Top};

/// Where a key is cut, in bytes: it may be as long as a stranger likes.
const LONGEST_KEY: usize = 256;

/// The keys that came most often, over all limits.
pub(super) struct Callers {
    asked: Sketch<Caller>,
    denied: Sketch<Caller>,
}

/// A key of a limit.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Caller {
    domain: Arc<str>,
    name: Arc<str>,
    key: Box<[u8]>,
}

impl Callers {
    pub(super) fn new(capacity: usize) -> Self {
        Self { asked: Sketch::new(capacity), denied: Sketch::new(capacity) }
    }

    pub(super) fn count<C: Clock>(&self, limit: &MemoryLimit<C>, key: &[u8], is_denied: bool) {
        let opened = &*limit.opened;
        let Some(tier) = opened.tiers.first() else { return };
        let caller = || {
            let (domain, name) = opened.rule.shared_names();
            Caller { domain, name, key: key[..key.len().min(LONGEST_KEY)].into() }
        };
        let print = opened.table.fingerprint(&(tier.salt, key));
        self.asked.count(print, caller);
        if is_denied {
            self.denied.count(print, caller);
        }
    }

    pub(super) fn most(&self, top: Top, n: usize) -> Vec<Busy> {
        let sketch = match top {
            Top::Asked => &self.asked,
            Top::Denied => &self.denied,
        };
        let busy = |entry: crate::keyed::Entry<Caller>| {
            let Caller { domain, name, key } = entry.name;
            Busy { domain, name, key, count: entry.count, error: entry.error }
        };
        sketch.most(n).into_iter().map(busy).collect()
    }
}
