//! A store, and the limits that were opened there.

use std::sync::Arc;

use smallvec::SmallVec;
use tollgate::Decision;
use tollgate::store::{Answer, Hit, Mode, Rule, Store, StoreError};

use super::wants::{Want, Wants};

pub(crate) struct Desk<S: Store> {
    store: S,
    limits: Arc<[S::Limit]>,
}

/// What was taken; with a permit, if it is to be settled.
pub(super) type Took<S> = (Answer, Option<<S as Store>::Permit>);

impl<S: Store> Desk<S> {
    pub(crate) fn new(store: S, rules: &[Rule]) -> Self {
        let limits = rules.iter().map(|rule| store.open(rule)).collect();
        Self { store, limits }
    }

    /// A desk for all that is asked about one request: see [`Store::for_request`].
    pub(crate) fn for_request(&self) -> Self {
        Self { store: self.store.for_request(), limits: Arc::clone(&self.limits) }
    }

    pub(crate) fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.limits.iter().map(AsRef::as_ref)
    }

    pub(crate) fn rule(&self, want: &Want) -> &Rule {
        self.limits[want.limit()].as_ref()
    }

    /// Takes all, or nothing, if that can be done without waiting.
    #[inline]
    pub(crate) fn take_now(&self, wants: &Wants) -> Option<Result<Answer, StoreError>> {
        match wants.each() {
            [_] => self.store.decide_now(Mode::Take, &[self.hit(wants, 0)]),
            _ => self.store.decide_now(Mode::Take, &self.hits(wants)),
        }
    }

    /// Takes of one limit with one quota, if that can be done without waiting.
    #[inline]
    pub(crate) fn take_one_now(&self, limit: usize, key: &[u8], cost: u64) -> Option<Decision> {
        self.store.decide_one_now(Mode::Take, Hit::new(&self.limits[limit], key).costing(cost))
    }

    /// Takes all, or nothing; with a permit if what it costs will be known later.
    pub(crate) async fn take(&self, wants: &Wants, is_settled: bool) -> Result<Took<S>, StoreError> {
        let hits = self.hits(wants);
        if is_settled {
            return self.store.acquire(&hits).await;
        }
        Ok((self.store.decide(Mode::Take, &hits).await?, None))
    }

    /// Settles, and says how things stand now.
    pub(crate) async fn settle(
        &self,
        mut permit: S::Permit,
        wants: &Wants,
        actual: &[u64],
    ) -> Result<Answer, StoreError> {
        self.store.settle(&mut permit, actual).await?;
        let mut hits = self.hits(wants);
        hits.iter_mut().for_each(|hit| hit.cost = 0);
        self.store.decide(Mode::Peek, &hits).await
    }

    fn hits<'a>(&'a self, wants: &'a Wants) -> SmallVec<[Hit<'a, S::Limit>; 2]> {
        (0..wants.each().len()).map(|at| self.hit(wants, at)).collect()
    }

    #[inline]
    fn hit<'a>(&'a self, wants: &'a Wants, at: usize) -> Hit<'a, S::Limit> {
        let want = &wants.each()[at];
        Hit::new(&self.limits[want.limit()], wants.key(at)).costing(want.cost)
    }
}
