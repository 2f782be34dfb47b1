//! The upstreams that are known, as many as there may be.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Something for each name. If there are too many, what was used longest ago goes first, but nothing that is in use: so
/// there are as many as allowed, or as are in use.
#[derive(Debug)]
pub(super) struct Hosts<T> {
    most: usize,
    known: Mutex<Known<T>>,
}

#[derive(Debug)]
struct Known<T> {
    by_name: HashMap<Arc<str>, (u64, Arc<T>)>,
    /// By when they were used last: the count of uses until then.
    by_use: BTreeMap<u64, Arc<str>>,
    uses: u64,
}

impl<T> Hosts<T> {
    pub(super) fn new(most: usize) -> Self {
        let known = Known { by_name: HashMap::new(), by_use: BTreeMap::new(), uses: 0 };
        Self { most: most.max(1), known: Mutex::new(known) }
    }

    /// What belongs to `name`, in use until it is dropped; made if need be.
    pub(super) fn of(&self, name: &str, make: impl FnOnce() -> T) -> Arc<T> {
        let mut known = self.known();
        if let Some(found) = known.find(name) {
            return found;
        }
        known.make_room(self.most - 1);
        known.add(name, Arc::new(make()))
    }

    /// All there are, those that were used last at the end.
    pub(super) fn map<U>(&self, mut each: impl FnMut(&str, &T) -> U) -> Vec<U> {
        let known = self.known();
        let known = &*known;
        let names = known.by_use.values();
        names.filter_map(|name| known.by_name.get(name).map(|(_, found)| each(name, found))).collect()
    }

    fn known(&self) -> MutexGuard<'_, Known<T>> {
        // The two maps agree again before anything in there can panic.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Known<T> {
    fn find(&mut self, name: &str) -> Option<Arc<T>> {
        let (used, found) = self.by_name.get_mut(name)?;
        self.uses += 1;
        let name = self.by_use.remove(used)?;
        *used = self.uses;
        self.by_use.insert(self.uses, name);
        Some(Arc::clone(found))
    }

    fn add(&mut self, name: &str, new: Arc<T>) -> Arc<T> {
        self.uses += 1;
        let name: Arc<str> = name.into();
        self.by_use.insert(self.uses, Arc::clone(&name));
        self.by_name.insert(name, (self.uses, Arc::clone(&new)));
        new
    }

    /// Drops what is not in use until there are no more than `most`, if that can be.
    fn make_room(&mut self, most: usize) {
        while self.by_name.len() > most {
            // Whoever uses it has a clone, and clones are only made with the lock that is held now.
            let is_idle = |name: &Arc<str>| {
                self.by_name.get(name).is_none_or(|(_, found)| Arc::strong_count(found) == 1)
            };
            let Some(oldest) = self.by_use.iter().find(|(_, name)| is_idle(name)).map(|(used, _)| *used)
            else {
                return;
            };
            if let Some(name) = self.by_use.remove(&oldest) {
                self.by_name.remove(&name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(hosts: &Hosts<u32>) -> Vec<String> {
        hosts.map(|name, _| name.to_owned())
    }

    #[test]
    fn what_was_used_longest_ago_goes_first() {
        let hosts = Hosts::new(2);
        for (name, value) in [("a", 1), ("b", 2), ("a", 3), ("c", 4)] {
            hosts.of(name, || value);
        }
        assert_eq!(names(&hosts), ["a", "c"]);
        assert_eq!(*hosts.of("a", || 9), 1);
        assert_eq!(*hosts.of("b", || 9), 9);
        assert_eq!(names(&hosts), ["a", "b"]);
    }

    #[test]
    fn what_is_in_use_stays_and_room_is_made_when_it_is_not() {
        let hosts = Hosts::new(1);
        let (a, b) = (hosts.of("a", || 1), hosts.of("b", || 2));
        assert_eq!(names(&hosts), ["a", "b"]);
        assert!(Arc::ptr_eq(&a, &hosts.of("a", || 9)));
        drop((a, b));
        hosts.of("c", || 3);
        assert_eq!(names(&hosts), ["c"]);
    }

    #[test]
    fn there_is_room_for_one_at_least() {
        let hosts = Hosts::new(0);
        hosts.of("a", || 1);
        assert_eq!(*hosts.of("a", || 2), 1);
    }
}
