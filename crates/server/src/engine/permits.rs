//! Holds that are not settled yet.

use std::collections::{BTreeSet, HashMap};
use std::error::Error;
use std::fmt;
use std::str::FromStr;
use std::sync::Mutex;
use std::time::Duration;

use foldhash::fast::RandomState;
use tollgate::Tick;
use tollgate::store::Store;
use tollgate_flow::Time;

use super::ask::{AskError, HoldBound};
use super::settle::{Costs, HitCosts, SettleError};
use super::{LONGEST_HOLD, lock};
use crate::access::Caller;

/// Maximum number of open holds.
const MOST: usize = 1_000_000;
/// One caller can use this fraction of the memory for holds: a quarter.
const CALLERS: u64 = 4;

/// The id of a hold. It cannot be guessed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PermitId(u128);

/// An error returned when a text is not the id of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PermitIdError;

/// The open holds.
pub(super) struct Permits<S: Store> {
    time: Time,
    most_bytes: u64,
    most_of_caller: usize,
    inner: Mutex<Inner<S>>,
}

struct Inner<S: Store> {
    held: HashMap<PermitId, Entry<S>, RandomState>,
    /// The same by the time it ends.
    ends: BTreeSet<(Tick, PermitId)>,
    /// Open and reserved holds, by caller and in total.
    of_caller: HashMap<Caller, Load, RandomState>,
    of_all: Load,
}

pub(super) struct Entry<S: Store> {
    end: Tick,
    pub(super) held: Held<S>,
    caller: Caller,
    bytes: u64,
}

/// How much is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Load {
    permits: usize,
    bytes: u64,
}

/// A reservation for one hold, released when it is dropped.
pub(super) struct Reserved<'a, S: Store> {
    permits: &'a Permits<S>,
    caller: Caller,
    /// Zero once it is filled.
    bytes: u64,
}

/// A cost that is held.
pub(super) struct Held<S: Store> {
    /// `None` if it took nothing that can be refunded.
    pub(super) permit: Option<S::Permit>,
    pub(super) costs: Costs,
}

impl<S: Store> Permits<S> {
    /// Creates a table with a maximum of memory, and a maximum of holds for each caller.
    pub(super) fn new(time: Time, most_bytes: u64, most_of_caller: usize) -> Self {
        let (held, of_caller) = (HashMap::default(), HashMap::default());
        let inner = Inner { held, ends: BTreeSet::new(), of_caller, of_all: Load::default() };
        Self { time, most_bytes, most_of_caller, inner: Mutex::new(inner) }
    }

    /// Reserves memory for a hold of `hits` limits.
    ///
    /// # Errors
    /// If a bound on the open holds is reached.
    pub(super) fn reserve(&self, caller: Caller, hits: usize) -> Result<Reserved<'_, S>, AskError> {
        let mut inner = lock(&self.inner);
        inner.end(self.time.now());
        let bytes = bytes_of::<S>(hits);
        let of_caller = inner.of_caller.get(&caller).copied().unwrap_or_default();
        let refused = |bound, most| Err(AskError::TooManyHeld { bound, most });
        if of_caller.permits >= self.most_of_caller {
            return refused(HoldBound::Caller, self.most_of_caller as u64);
        }
        if inner.of_all.permits >= MOST {
            return refused(HoldBound::All, MOST as u64);
        }
        if of_caller.bytes + bytes > self.most_bytes / CALLERS {
            return refused(HoldBound::CallerMemory, self.most_bytes / CALLERS);
        }
        if inner.of_all.bytes + bytes > self.most_bytes {
            return refused(HoldBound::Memory, self.most_bytes);
        }
        inner.add(caller, bytes);
        Ok(Reserved { permits: self, caller, bytes })
    }

    /// Returns the number of open holds.
    pub(super) fn len(&self) -> usize {
        let mut inner = lock(&self.inner);
        inner.end(self.time.now());
        inner.held.len()
    }

    /// Returns the approximate memory of the open holds, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        let mut inner = lock(&self.inner);
        inner.end(self.time.now());
        inner.of_all.bytes
    }

    /// Removes a hold, and returns it with the actual cost of each hit; `None` if the id is unknown.
    ///
    /// # Errors
    /// If `costs` returns an error. The hold then stays open.
    pub(super) fn remove(
        &self,
        id: PermitId,
        costs: impl FnOnce(&Costs) -> Result<HitCosts, SettleError>,
    ) -> Result<Option<(Entry<S>, HitCosts)>, SettleError> {
        let mut inner = lock(&self.inner);
        inner.end(self.time.now());
        let Some(entry) = inner.held.get(&id) else { return Ok(None) };
        let costs = costs(&entry.held.costs)?;
        let entry = inner.remove(id);
        Ok(entry.map(|entry| (entry, costs)))
    }

    /// Reopens a hold that was removed.
    pub(super) fn put_back(&self, id: PermitId, entry: Entry<S>) {
        let mut inner = lock(&self.inner);
        inner.add(entry.caller, entry.bytes);
        inner.insert(id, entry);
    }
}

impl<S: Store> Reserved<'_, S> {
    /// Holds something in it.
    pub(super) fn fill(mut self, held: Held<S>, span: Duration) -> PermitId {
        let Permits { time, inner, .. } = self.permits;
        let (id, end) = (PermitId::random(), time.now() + span.min(LONGEST_HOLD));
        let (caller, bytes) = (self.caller, std::mem::take(&mut self.bytes));
        let mut inner = lock(inner);
        inner.insert(id, Entry { end, held, caller, bytes });
        id
    }
}

impl<S: Store> Drop for Reserved<'_, S> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            lock(&self.permits.inner).subtract(self.caller, self.bytes);
        }
    }
}

impl<S: Store> Inner<S> {
    /// Removes the holds that have expired. Their estimates stay charged.
    fn end(&mut self, now: Tick) {
        while let Some(&(_, id)) = self.ends.first().filter(|(end, _)| *end <= now) {
            self.remove(id);
        }
    }

    fn insert(&mut self, id: PermitId, entry: Entry<S>) {
        self.ends.insert((entry.end, id));
        self.held.insert(id, entry);
    }

    fn remove(&mut self, id: PermitId) -> Option<Entry<S>> {
        let entry = self.held.remove(&id)?;
        self.ends.remove(&(entry.end, id));
        self.subtract(entry.caller, entry.bytes);
        Some(entry)
    }

    fn add(&mut self, caller: Caller, bytes: u64) {
        for load in [&mut self.of_all, self.of_caller.entry(caller).or_default()] {
            load.permits += 1;
            load.bytes += bytes;
        }
    }

    fn subtract(&mut self, caller: Caller, bytes: u64) {
        let of_caller = self.of_caller.entry(caller).or_default();
        for load in [&mut self.of_all, &mut *of_caller] {
            load.permits -= 1;
            load.bytes -= bytes;
        }
        if of_caller.permits == 0 {
            self.of_caller.remove(&caller);
        }
    }
}

/// Returns the approximate memory of a hold of `hits` limits: its entries in two tables that are half full, and the memory of
/// the store for each limit.
fn bytes_of<S: Store>(hits: usize) -> u64 {
    const OF_HIT: usize = 384;
    let entry = size_of::<(PermitId, Entry<S>)>() + size_of::<(Tick, PermitId)>();
    (2 * entry + hits * OF_HIT) as u64
}

impl PermitId {
    fn random() -> Self {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).expect("the system has random numbers");
        Self(u128::from_le_bytes(bytes))
    }
}

impl fmt::Display for PermitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for PermitId {
    /// Omits the id itself, because a caller that knows it can settle the hold.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PermitId(..)")
    }
}

impl FromStr for PermitId {
    type Err = PermitIdError;

    fn from_str(text: &str) -> Result<Self, PermitIdError> {
        let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = if is_hex { u128::from_str_radix(text, 16).ok() } else { None };
        number.map(Self).ok_or(PermitIdError)
    }
}

impl fmt::Display for PermitIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a hold id has 32 hexadecimal digits")
    }
}

impl Error for PermitIdError {}
