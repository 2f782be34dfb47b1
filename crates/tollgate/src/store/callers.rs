//! Who asks most, and who is refused most.

use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::quality::RandomState;

use super::{Busy, Rule, Top};
use crate::keyed::{Entry, Sketch};

/// Where a key is cut, in bytes: it may be as long as a stranger likes.
const LONGEST_KEY: usize = 256;

/// The keys that came most often, over all limits: what a store needs to answer [`Store::busiest`](super::Store::busiest).
///
/// Whoever makes more than one in `capacity` of all calls is certain to be among them; likewise of all refusals. Takes up to
/// `16 * capacity` names, and a lock a call, two if it is refused.
///
/// # Examples
/// ```
/// use tollgate::Quota;
/// use tollgate::store::{Callers, Rule, Top};
///
/// let (callers, rule) = (Callers::new(100), Rule::new("api", "per user", Quota::per_second(10)));
/// callers.count(&rule, b"alice", false);
/// callers.count(&rule, b"bob", true);
/// callers.count(&rule, b"alice", false);
/// assert_eq!(&*callers.most(Top::Asked, 1)[0].key, b"alice");
/// assert_eq!(&*callers.most(Top::Denied, 10)[0].key, b"bob");
/// ```
pub struct Callers {
    asked: Sketch<Caller>,
    denied: Sketch<Caller>,
    seed: RandomState,
}

/// A key of a limit.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Caller {
    domain: Arc<str>,
    name: Arc<str>,
    key: Vec<u8>,
}

impl Caller {
    /// Takes another's place, in the same memory.
    fn become_that_of(&mut self, rule: &Rule, key: &[u8]) {
        if (&*self.domain, &*self.name) != (rule.domain(), rule.name()) {
            (self.domain, self.name) = rule.shared_names();
        }
        self.key.clear();
        self.key.extend_from_slice(&key[..key.len().min(LONGEST_KEY)]);
    }
}

impl Callers {
    /// None so far, in tables of so many entries.
    pub fn new(capacity: usize) -> Self {
        Self { asked: Sketch::new(capacity), denied: Sketch::new(capacity), seed: RandomState::default() }
    }

    /// Counts a key that was asked about, and perhaps refused.
    pub fn count(&self, rule: &Rule, key: &[u8], is_denied: bool) {
        self.count_as(self.seed.hash_one((rule.domain(), rule.name(), key)), rule, key, is_denied);
    }

    /// [`count`](Self::count), by a fingerprint of rule and key that is known already.
    pub(super) fn count_as(&self, print: u64, rule: &Rule, key: &[u8], is_denied: bool) {
        let rename = |caller: &mut Caller| caller.become_that_of(rule, key);
        self.asked.count_renaming(print, rename);
        if is_denied {
            self.denied.count_renaming(print, rename);
        }
    }

    /// The `n` keys that are at the top, largest first.
    pub fn most(&self, top: Top, n: usize) -> Vec<Busy> {
        let sketch = match top {
            Top::Asked => &self.asked,
            Top::Denied => &self.denied,
        };
        let busy = |entry: Entry<Caller>| {
            let Caller { domain, name, key } = entry.name;
            Busy { domain, name, key: key.into(), count: entry.count, error: entry.error }
        };
        sketch.most(n).into_iter().map(busy).collect()
    }
}

impl fmt::Debug for Callers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callers").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use tollgate_core::Quota;

    use super::*;

    #[test]
    fn whoever_takes_anothers_place_has_its_own_name() {
        let callers = Callers::new(1);
        let [x, y] =
            [("a", "x"), ("a", "y")].map(|(domain, name)| Rule::new(domain, name, Quota::per_second(1)));
        let long = [7; 300];
        // Fingerprints that meet in one table, which has one place.
        for (print, rule, key) in
            [(1, &x, &b"alice"[..]), (2, &y, b"bo"), (3, &y, &long), (4, &x, b""), (5, &x, b"carol")]
        {
            callers.count_as(print, rule, key, true);
            for top in [Top::Asked, Top::Denied] {
                let [busy] = &callers.most(top, 9)[..] else { panic!("there is one place") };
                assert_eq!((&*busy.domain, &*busy.name), (rule.domain(), rule.name()));
                assert_eq!(&*busy.key, &key[..key.len().min(LONGEST_KEY)]);
                assert_eq!((busy.count, busy.error), (print, print - 1));
            }
        }
    }
}
