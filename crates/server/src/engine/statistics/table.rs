//! Counters by name, with a bound on the names that callers choose.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use foldhash::fast::RandomState;

/// The bound on names that callers choose.
const MOST_CALLER_NAMES: usize = 10_000;
/// The longest name that callers choose, in bytes.
const LONGEST_NAME: usize = 512;

/// Counters by name. None is ever removed.
#[derive(Debug, Default)]
pub(super) struct Table<T>(RwLock<Names<T>>);

#[derive(Debug, Default)]
struct Names<T> {
    all: HashMap<String, Arc<T>, RandomState>,
    of_callers: usize,
}

impl<T: Default> Table<T> {
    /// Returns the counters under a name of the policy.
    pub(super) fn of_policy(&self, name: String) -> Arc<T> {
        Arc::clone(self.write().all.entry(name).or_default())
    }

    /// Returns the counters under a name that callers choose; beyond the bound, those under `beyond`.
    pub(super) fn of_caller(&self, name: String, beyond: impl FnOnce() -> String) -> Arc<T> {
        if let Some(known) = self.read().all.get(&name) {
            return Arc::clone(known);
        }
        let mut names = self.write();
        let is_known = names.all.contains_key(&name); // another thread may have added it by now
        let fits = names.of_callers < MOST_CALLER_NAMES && name.len() <= LONGEST_NAME;
        names.of_callers += usize::from(!is_known && fits);
        let name = if is_known || fits { name } else { beyond() };
        Arc::clone(names.all.entry(name).or_default())
    }

    /// Returns what `read` finds in the counters of each name, sorted by name.
    pub(super) fn each<R>(&self, read: impl Fn(&T) -> R) -> BTreeMap<String, R> {
        self.read().all.iter().map(|(name, counters)| (name.clone(), read(counters))).collect()
    }

    fn read(&self) -> RwLockReadGuard<'_, Names<T>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Names<T>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Item 26.2: callers cannot make more than a bounded number of names.
    #[test]
    fn of_caller_is_bounded_in_the_number_and_the_length_of_names() {
        let table: Table<()> = Table::default();
        let own = table.of_policy("own".to_owned());
        let beyond = || "beyond".to_owned();
        assert!(
            Arc::ptr_eq(&own, &table.of_caller("own".to_owned(), beyond)),
            "a name of the policy is no other"
        );
        let long = table.of_caller("x".repeat(LONGEST_NAME + 1), beyond);
        let names: Vec<Arc<()>> =
            (0..MOST_CALLER_NAMES).map(|name| table.of_caller(name.to_string(), beyond)).collect();
        let one_more = table.of_caller("one more".to_owned(), beyond);
        assert!(Arc::ptr_eq(&long, &one_more));
        assert!(Arc::ptr_eq(&names[7], &table.of_caller("7".to_owned(), beyond)));
        assert_eq!(table.each(|()| ()).len(), MOST_CALLER_NAMES + 2);
    }
}
