//! How a store in this process is set up.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::{Callers, Kept, MemoryStore, Restored, Shared, Table, saved};
use crate::clock::Clock;
use crate::keyed::{AtCap, Pool};
use crate::sync::Mutex;

/// Builds a [`MemoryStore`].
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate::AtCap;
/// use tollgate::store::MemoryStore;
///
/// let store = MemoryStore::builder()
///     .max_keys(1_000_000)
///     .at_cap(AtCap::Refuse)
///     .names(100)
///     .sweep_every(Duration::from_secs(60))
///     .build();
/// assert!(format!("{store:?}").contains("keys: Some(0)"));
/// ```
#[derive(Debug)]
#[must_use = "a builder builds nothing until build() is called"]
pub struct MemoryStoreBuilder<C> {
    clock: C,
    options: Options,
}

/// What does not depend on the clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    pub(super) max_keys: Option<u64>,
    pub(super) max_bytes: Option<u64>,
    pub(super) max_quotas: u32,
    pub(super) at_cap: AtCap,
    pub(super) names: Option<usize>,
    pub(super) sweep_every: Option<Duration>,
}

/// Some ten megabytes of them.
const MAX_QUOTAS: u32 = 65_536;

impl<C: Clock> MemoryStoreBuilder<C> {
    pub(super) fn new(clock: C) -> Self {
        let options = Options {
            max_keys: None,
            max_bytes: None,
            max_quotas: MAX_QUOTAS,
            at_cap: AtCap::default(),
            names: None,
            sweep_every: None,
        };
        Self { clock, options }
    }

    /// Uses `clock`.
    pub fn clock<D: Clock>(self, clock: D) -> MemoryStoreBuilder<D> {
        MemoryStoreBuilder { clock, options: self.options }
    }

    fn with(mut self, set: impl FnOnce(&mut Options)) -> Self {
        set(&mut self.options);
        self
    }

    /// Remembers at most about so many keys, each quota of a limit for itself.
    ///
    /// All limits share this. Where several algorithms are in use, none of them is kept from its even share: when one is
    /// new to a full store, those that have more give way to it as their own next keys come, and until they have, there may
    /// be more.
    pub fn max_keys(self, keys: usize) -> Self {
        self.with(|options| options.max_keys = Some(keys as u64))
    }

    /// Takes at most about so many bytes of memory, shared as [`max_keys`](Self::max_keys) are. What a sliding log or sub-windows
    /// keep for each key comes on top, and so do [`names`](Self::names).
    pub fn max_bytes(self, bytes: usize) -> Self {
        self.with(|options| options.max_bytes = Some(bytes as u64))
    }

    /// Opens limits with at most so many different quotas for each algorithm; hits on further ones are errors. A quota is
    /// remembered for good, in less than two hundred bytes. The default is 65 536.
    ///
    /// Quotas that callers [supply](super::Rule::brought) are counted apart: there can be half as many, of which
    /// [one caller](super::Rule::brought_by) can have an eighth. Such a quota is remembered while a limit is open with it, and
    /// on while a key that has used some of it is.
    pub fn max_quotas(self, quotas: u32) -> Self {
        self.with(|options| options.max_quotas = quotas)
    }

    /// What happens to new keys when there is no room for them. A state for all of them ([`AtCap::Share`]) makes no sense for
    /// several limits: they are refused then, as in a [`Gate`](crate::Gate).
    pub fn at_cap(self, at_cap: AtCap) -> Self {
        let at_cap = if at_cap == AtCap::Share { AtCap::Refuse } else { at_cap };
        self.with(|options| options.at_cap = at_cap)
    }

    /// Remembers by name who asks most and who is refused most, over all limits. Whoever makes more than one in `capacity`
    /// of all hits is certain to be among them. It takes up to `16 * capacity` names, and a lock or two for every hit.
    pub fn names(self, capacity: usize) -> Self {
        self.with(|options| options.names = Some(capacity))
    }

    /// Goes over the whole store about once per `every` of real time, in a thread for each algorithm in use, and drops what is
    /// idle by the store's clock. Calls do that too, by the way; this is for a store that may have grown large before the
    /// calls cease. The threads end with the store.
    pub fn sweep_every(self, every: Duration) -> Self {
        self.with(|options| options.sweep_every = Some(every))
    }

    /// The store.
    pub fn build(self) -> MemoryStore<C> {
        let Self { clock, options } = self;
        let bound = |most: Option<u64>| most.unwrap_or(u64::MAX);
        let is_bounded = options.max_keys.or(options.max_bytes).is_some();
        let pool = is_bounded.then(|| Arc::new(Pool::new(bound(options.max_keys), bound(options.max_bytes))));
        let callers = options.names.map(Callers::new);
        MemoryStore { shared: Arc::new(Shared { clock, options, pool, tables: Mutex::default(), callers }) }
    }

    /// The store, with what another one [saved](MemoryStore::save) in this folder, as far as it can be read; there is a store in
    /// any case.
    ///
    /// Every key goes on where it was, as if the store had been there all along: the time that has passed by
    /// [the time of the day](Clock::unix) counts. Limits are known by their [rule](crate::store::Rule), so those whose rule has
    /// changed meanwhile start afresh.
    pub fn restore(self, folder: impl AsRef<Path>) -> (MemoryStore<C>, Restored) {
        let store = self.build();
        let restored = saved::restore(&store, folder.as_ref());
        (store, restored)
    }
}

impl<C: Clock> Kept<C> {
    pub(super) fn new(options: &Options, table: Table<C>) -> Self {
        Self { _sweeper: options.sweep_every.map(|every| table.sweeper(every)), table }
    }
}
