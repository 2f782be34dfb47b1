//! What was taken and can still be settled.

use std::collections::{BTreeSet, HashMap};
use std::error::Error;
use std::fmt;
use std::str::FromStr;
use std::sync::Mutex;
use std::time::Duration;

use foldhash::fast::RandomState;
use smallvec::SmallVec;
use tollgate::Tick;
use tollgate::store::{Store, StoreError};
use tollgate_flow::Time;

use super::ask::AskError;
use super::{LONGEST_HOLD, lock};

/// How many can be held at once.
const MOST: usize = 1_000_000;

/// The name of something held. It cannot be guessed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PermitId(u128);

/// Why a text is not the name of something held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PermitIdError;

/// Everything held.
pub(super) struct Permits<S: Store> {
    time: Time,
    inner: Mutex<Inner<S>>,
}

struct Inner<S: Store> {
    held: HashMap<PermitId, (Tick, Held<S>), RandomState>,
    /// The same by the time it ends.
    ends: BTreeSet<(Tick, PermitId)>,
}

/// Something taken.
pub(super) struct Held<S: Store> {
    permit: Option<S::Permit>,
    /// For each hit, which ask it comes from and what was taken.
    hits: SmallVec<[(usize, u64); 4]>,
}

impl<S: Store> Held<S> {
    pub(super) fn new(permit: Option<S::Permit>, hits: SmallVec<[(usize, u64); 4]>) -> Self {
        Self { permit, hits }
    }

    /// What was allowed and took nothing that could come back.
    pub(super) fn nothing() -> Self {
        Self { permit: None, hits: SmallVec::new() }
    }

    pub(super) async fn settle(self, store: &S, actual: &[u64]) -> Result<(), StoreError> {
        let Some(permit) = self.permit else { return Ok(()) };
        let cost = |&(ask, taken): &(usize, u64)| actual.get(ask).copied().unwrap_or(taken);
        let costs: SmallVec<[u64; 4]> = self.hits.iter().map(cost).collect();
        store.settle(permit, &costs).await
    }
}

impl<S: Store> Permits<S> {
    pub(super) fn new(time: Time) -> Self {
        let inner = Inner { held: HashMap::default(), ends: BTreeSet::new() };
        Self { time, inner: Mutex::new(inner) }
    }

    pub(super) fn has_room(&self) -> Result<(), AskError> {
        if self.len() < MOST { Ok(()) } else { Err(AskError::TooManyHeld { most: MOST }) }
    }

    /// How many are held.
    pub(super) fn len(&self) -> usize {
        let mut inner = lock(&self.inner);
        inner.end(self.time.now());
        inner.held.len()
    }

    pub(super) fn insert(&self, held: Held<S>, span: Duration) -> PermitId {
        let now = self.time.now();
        let id = PermitId::random();
        let end = now + span.min(LONGEST_HOLD);
        let mut inner = lock(&self.inner);
        inner.end(now);
        inner.held.insert(id, (end, held));
        inner.ends.insert((end, id));
        id
    }

    pub(super) fn remove(&self, id: PermitId) -> Option<Held<S>> {
        let mut inner = lock(&self.inner);
        inner.end(self.time.now());
        let (end, held) = inner.held.remove(&id)?;
        inner.ends.remove(&(end, id));
        Some(held)
    }
}

impl<S: Store> Inner<S> {
    /// Drops what has ended: it stays as it was taken.
    fn end(&mut self, now: Tick) {
        while let Some(&(end, id)) = self.ends.first().filter(|(end, _)| *end <= now) {
            self.ends.remove(&(end, id));
            self.held.remove(&id);
        }
    }
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
    /// Without the name itself: whoever knows it can settle.
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
        f.write_str(
            "the name of something held is 32 hexadecimal digits, as the check that holds it answered",
        )
    }
}

impl Error for PermitIdError {}
