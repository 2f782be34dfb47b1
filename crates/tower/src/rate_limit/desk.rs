//! A store, and the limits that were opened there.

use smallvec::SmallVec;
use tollgate::store::{Answer, Hit, Mode, Store, StoreError};

use crate::key::KeyBytes;

/// What a call wants of one limit.
pub(crate) struct Want {
    /// Which one.
    pub(crate) limit: usize,
    pub(crate) key: KeyBytes,
    pub(crate) cost: u64,
}

/// What a call wants of all limits that apply.
pub(crate) type Wants = SmallVec<[Want; 2]>;

pub(crate) struct Desk<S: Store> {
    store: S,
    limits: Vec<S::Limit>,
}

impl<S: Store> Desk<S> {
    pub(crate) fn new(store: S, limits: Vec<S::Limit>) -> Self {
        Self { store, limits }
    }

    /// Takes all, or nothing; with a permit if what it costs will be known later.
    pub(crate) async fn take(
        &self,
        wants: &[Want],
        is_settled: bool,
    ) -> Result<(Answer, Option<S::Permit>), StoreError> {
        let hits = self.hits(wants);
        if is_settled {
            return self.store.acquire(&hits).await;
        }
        Ok((self.store.decide(Mode::Take, &hits).await?, None))
    }

    /// Settles, and says how things stand now.
    pub(crate) async fn settle(
        &self,
        permit: S::Permit,
        wants: &[Want],
        actual: &[u64],
    ) -> Result<Answer, StoreError> {
        self.store.settle(permit, actual).await?;
        let mut hits = self.hits(wants);
        hits.iter_mut().for_each(|hit| hit.cost = 0);
        self.store.decide(Mode::Peek, &hits).await
    }

    fn hits<'a>(&'a self, wants: &'a [Want]) -> SmallVec<[Hit<'a, S::Limit>; 2]> {
        let hit = |want: &'a Want| Hit::new(&self.limits[want.limit], &want.key).costing(want.cost);
        wants.iter().map(hit).collect()
    }
}
