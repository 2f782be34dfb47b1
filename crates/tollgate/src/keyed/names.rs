//! The names of those who ask most, and of those who are denied most.
//!
//! The store has no keys, only fingerprints, and there may be millions of them. Two sketches remember the few that matter
//! (space-saving, after Metwally, Agrawal and El Abbadi, 2005): a table of so many entries, each with a count. Who is in it
//! counts one more. Who is not takes the place of the least, and its count too, as the error of the new one: it cannot have
//! been there more often unseen. So counts are never too low, and the least count is at most the number of calls divided by
//! the number of entries: who came more often than that cannot have been displaced.
//!
//! A sketch is a few such tables, each behind a lock of its own, for the fingerprints that begin with its number. Each has the
//! full number of entries, and sees only a part of the calls, so what holds for one table and its part holds for the whole.

use std::hash::Hash;

use foldhash::{HashMap, HashMapExt};
use tollgate_core::Decision;

use super::{KeyedBuilder, KeyedLimiter};
use crate::cell::Held;
use crate::clock::Clock;
use crate::sync::{Mutex, lock};

/// How many tables a sketch has, as a power of two.
const TABLE_BITS: u32 = 3;
/// Where a name is cut, in bytes: keys may be as long as a stranger likes.
const LONGEST_NAME: usize = 256;

/// A key by name, and how often it came.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Named {
    /// What the function given to [`KeyedBuilder::names`] called it.
    pub name: String,
    /// How often it came: never too low, and too high by at most `error`.
    pub count: u64,
    /// How much of the count may be somebody else's.
    pub error: u64,
}

/// Both sketches of a limiter.
pub(crate) struct Names<K: ?Sized> {
    name_of: Box<dyn Fn(&K) -> String + Send + Sync>,
    calls: Sketch<String>,
    denials: Sketch<String>,
}

impl<K: ?Sized> Names<K> {
    fn new(capacity: usize, name_of: Box<dyn Fn(&K) -> String + Send + Sync>) -> Self {
        Self { name_of, calls: Sketch::new(capacity), denials: Sketch::new(capacity) }
    }

    pub(crate) fn decided(&self, key: &K, print: u64, decision: &Decision) {
        let name = || cut((self.name_of)(key));
        self.calls.count(print, name);
        if !decision.is_admitted() {
            self.denials.count(print, name);
        }
    }
}

/// The first part of a name that is too long, with a mark where it was cut.
fn cut(mut name: String) -> String {
    const MARK: char = '…';
    if name.len() > LONGEST_NAME {
        let mut end = LONGEST_NAME - MARK.len_utf8();
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        name.truncate(end);
        name.push(MARK);
        name.shrink_to_fit();
    }
    name
}

/// Remembers who came most often.
pub(crate) struct Sketch<N> {
    tables: [Mutex<Table<N>>; 1 << TABLE_BITS],
}

impl<N: Clone + Default + Ord> Sketch<N> {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { tables: std::array::from_fn(|_| Mutex::new(Table::new(capacity))) }
    }

    /// Counts one more; `name` is called if it is not in the table, and not under the lock.
    pub(crate) fn count(&self, print: u64, name: impl FnOnce() -> N) {
        let table = &self.tables[(print >> (u64::BITS - TABLE_BITS)) as usize];
        let is_known = lock(table).count_known(print);
        if !is_known {
            let name = name();
            lock(table).count(print, name);
        }
    }

    /// The same for names that are quickly made: if it is not in the table, `rename` makes its name of the one that was in its
    /// place, under the lock. With many who come seldom that is what most calls do, and no memory is asked for then.
    pub(crate) fn count_renaming(&self, print: u64, rename: impl FnOnce(&mut N)) {
        let mut table = lock(&self.tables[(print >> (u64::BITS - TABLE_BITS)) as usize]);
        if !table.count_known(print) {
            table.count_new(print, rename);
        }
    }

    /// The first `n`, largest first.
    pub(crate) fn most(&self, n: usize) -> Vec<Entry<N>> {
        let mut all = Vec::new();
        for table in &self.tables {
            all.extend(lock(table).entries.iter().take(n).cloned());
        }
        all.sort_by(|one: &Entry<N>, other| {
            other.count.cmp(&one.count).then_with(|| one.name.cmp(&other.name))
        });
        all.truncate(n);
        all
    }
}

/// Entries, largest first, and where each fingerprint's is.
struct Table<N> {
    entries: Vec<Entry<N>>,
    places: HashMap<u64, usize>,
    capacity: usize,
}

/// Somebody who came often, as in [`Named`].
#[derive(Clone)]
pub(crate) struct Entry<N> {
    print: u64,
    pub(crate) count: u64,
    pub(crate) error: u64,
    pub(crate) name: N,
}

impl From<Entry<String>> for Named {
    fn from(Entry { name, count, error, .. }: Entry<String>) -> Self {
        Self { name, count, error }
    }
}

impl<N: Default> Table<N> {
    fn new(capacity: usize) -> Self {
        Self { entries: Vec::new(), places: HashMap::new(), capacity: capacity.max(1) }
    }

    /// Counts one more of somebody who is in it; whether it is.
    fn count_known(&mut self, print: u64) -> bool {
        let place = self.places.get(&print).copied();
        if let Some(place) = place {
            self.raise(place);
        }
        place.is_some()
    }

    /// Counts one more, putting it in if it is not there.
    fn count(&mut self, print: u64, name: N) {
        if self.count_known(print) {
            return; // somebody else put it in meanwhile
        }
        self.count_new(print, |known| *known = name);
    }

    /// Puts in somebody who is not there, and counts one more.
    fn count_new(&mut self, print: u64, rename: impl FnOnce(&mut N)) {
        if self.entries.len() < self.capacity {
            self.entries.push(Entry { print, count: 0, error: 0, name: N::default() });
        } else if let Some(least) = self.entries.last_mut() {
            self.places.remove(&least.print);
            (least.print, least.error) = (print, least.count);
        }
        let last = self.entries.len() - 1;
        rename(&mut self.entries[last].name);
        self.places.insert(print, last);
        self.raise(last);
    }

    /// Adds one to an entry. It changes places with the first of those that were equal: then all are in order again.
    fn raise(&mut self, place: usize) {
        let count = self.entries[place].count;
        let first = self.entries.partition_point(|entry| entry.count > count);
        self.entries[place].count += 1;
        if place != first {
            self.entries.swap(place, first);
            for place in [place, first] {
                self.places.insert(self.entries[place].print, place);
            }
        }
    }
}

fn named(sketch: &Sketch<String>, n: usize) -> Vec<Named> {
    sketch.most(n).into_iter().map(Named::from).collect()
}

impl<K: ?Sized, A, C> KeyedBuilder<K, A, C> {
    /// Remembers by name who asks most and who is denied most: see [`busiest`](KeyedLimiter::busiest) and
    /// [`most_denied`](KeyedLimiter::most_denied).
    ///
    /// Whoever makes more than one in `capacity` of all calls is certain to be among them; likewise of all denials. Every
    /// call counts as one, whatever it asks for. `name_of` is called when a key was not among them, with no lock held; if
    /// it panics, so does the call. A name longer than 256 bytes is cut there.
    ///
    /// This takes up to `16 * capacity` names, on top of [`max_bytes`](Self::max_bytes), and one or two locks a call.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{KeyedLimiter, Quota};
    ///
    /// let limiter = KeyedLimiter::<str>::builder(Quota::per_hour(3)).names(100, |user: &str| user.to_owned()).build();
    /// for user in ["alice", "bob", "alice", "alice", "alice", "bob", "alice"] {
    ///     let _ = limiter.allow(user);
    /// }
    /// let busiest = limiter.busiest(1);
    /// assert_eq!((busiest[0].name.as_str(), busiest[0].count, busiest[0].error), ("alice", 5, 0));
    /// let denied = limiter.most_denied(10);
    /// assert_eq!((denied.len(), denied[0].name.as_str(), denied[0].count), (1, "alice", 2));
    /// ```
    pub fn names(mut self, capacity: usize, name_of: impl Fn(&K) -> String + Send + Sync + 'static) -> Self {
        self.watch().names = Some(Names::new(capacity, Box::new(name_of)));
        self
    }
}

impl<K: Hash + ?Sized, A: Held, C: Clock> KeyedLimiter<K, A, C> {
    /// The `n` keys that were asked about most often since the limiter was made, largest first; empty without
    /// [`names`](KeyedBuilder::names). While others ask, not all counts are of the same moment.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{KeyedLimiter, Quota};
    ///
    /// let limiter = KeyedLimiter::<u64>::builder(Quota::per_hour(1)).names(10, u64::to_string).build();
    /// let passed = [7, 7, 8].map(|key| limiter.allow(&key));
    /// assert_eq!(passed, [true, false, true]);
    /// let names: Vec<String> = limiter.busiest(10).into_iter().map(|named| named.name).collect();
    /// assert_eq!(names, ["7", "8"]);
    /// ```
    pub fn busiest(&self, n: usize) -> Vec<Named> {
        self.names().map_or_else(Vec::new, |names| named(&names.calls, n))
    }

    /// The `n` keys that were denied most often since the limiter was made, largest first; empty without
    /// [`names`](KeyedBuilder::names). While others ask, not all counts are of the same moment.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{KeyedLimiter, Quota};
    ///
    /// let limiter = KeyedLimiter::<u64>::builder(Quota::per_hour(1)).names(10, u64::to_string).build();
    /// let passed = [7, 7, 8].map(|key| limiter.allow(&key));
    /// assert_eq!(passed, [true, false, true]);
    /// let denied = limiter.most_denied(10);
    /// assert_eq!((denied.len(), denied[0].name.as_str(), denied[0].count), (1, "7", 1));
    /// ```
    pub fn most_denied(&self, n: usize) -> Vec<Named> {
        self.names().map_or_else(Vec::new, |names| named(&names.denials, n))
    }

    fn names(&self) -> Option<&Names<K>> {
        self.store.watch.as_ref()?.names.as_ref()
    }
}
