//! Where the state of named limits lives, behind one door: in this process, or in one that many share.
//!
//! A [`Rule`] says which limit it is. A [`Store`] opens it and then decides about [`Hit`]s on it: so much of that limit for
//! that key. Several hits are admitted together or not at all. Whoever decides for others (a middleware, a server) is
//! written once, for any store.
//!
//! Programs that limit themselves want a [`Limiter`], or a [`Gate`] of several limits:
//!
//! ```
//! use tollgate::Quota;
//! use tollgate::store::{Limiter, MemoryStore, Rule, StoreError};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), StoreError> {
//! let per_user = Limiter::new(&MemoryStore::new(), &Rule::new("api", "per user", Quota::per_second(10)));
//! assert!(per_user.allow("alice").await?);
//! # Ok(()) }
//! ```
//!
//! What is behind them:
//!
//! ```
//! use tollgate::Quota;
//! use tollgate::store::{Hit, MemoryStore, Mode, Rule, Store, StoreError};
//!
//! async fn may_call<S: Store>(store: &S, user: &S::Limit, everybody: &S::Limit, name: &str) -> Result<bool, StoreError> {
//!     let hits = [Hit::new(user, name.as_bytes()), Hit::new(everybody, b"")];
//!     Ok(store.decide(Mode::Take, &hits).await?.is_admitted())
//! }
//!
//! let store = MemoryStore::new();
//! let user = store.open(&Rule::new("api", "per user", Quota::per_second(10)).with_quota(Quota::per_hour(1_000)));
//! let everybody = store.open(&Rule::new("api", "everybody", Quota::per_second(100)));
//! # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
//! assert!(runtime.block_on(may_call(&store, &user, &everybody, "alice"))?);
//! # Ok::<(), StoreError>(())
//! ```

mod answer;
mod callers;
mod error;
mod gate;
mod limiter;
mod memory;
mod rule;
mod usage;

use std::fmt;
use std::future::Future;

use tollgate_core::Decision;

pub use answer::{Answer, Said};
pub use callers::Callers;
pub use error::StoreError;
pub use gate::{Denied, Gate, Permit};
pub use limiter::Limiter;
pub use memory::{MemoryLimit, MemoryPermit, MemoryStore, MemoryStoreBuilder, Restored};
pub use rule::{Judgement, Rule};
pub use usage::{Busy, Health, OnLease, Top, Usage};

/// Where the state of limits lives.
///
/// Clones share one state. Keys are bytes; a store may keep a fingerprint in their place. What is decided in process is there
/// at once (its futures are [`std::future::Ready`]); other stores may take a round trip, and may fail to decide: a
/// refusal is an [`Answer`], a [`StoreError`] is not.
///
/// # Cancel safety
/// Dropping a future of a store keeps what it took, if it had taken something by then.
///
/// # Examples
/// See [`MemoryStore`].
pub trait Store: Clone + Send + Sync + 'static {
    /// A limit that was opened: cheap to clone, and sure of its rule.
    type Limit: AsRef<Rule> + Clone + fmt::Debug + Send + Sync + 'static;
    /// Something taken whose real cost will be known later. Dropping it keeps what was taken.
    type Permit: fmt::Debug + Send + 'static;

    /// The limit of a rule. Opening an equal rule again, from whatever policy, gives the same state; that of another rule
    /// starts afresh. Nothing need be closed.
    fn open(&self, rule: &Rule) -> Self::Limit;

    /// Decides about some hits, and does with them what `mode` says.
    ///
    /// # Errors
    /// If the store cannot tell.
    fn decide(
        &self,
        mode: Mode,
        hits: &[Hit<'_, Self::Limit>],
    ) -> impl Future<Output = Result<Answer, StoreError>> + Send;

    /// What [`decide`](Self::decide) would answer, if that is to be had without waiting: for whoever would otherwise have to
    /// keep a future for the few cases that take a while. `None` says nothing and did nothing, which is all that most stores
    /// can say; one in this process always answers.
    fn decide_now(&self, mode: Mode, hits: &[Hit<'_, Self::Limit>]) -> Option<Result<Answer, StoreError>> {
        _ = (mode, hits);
        None
    }

    /// [`decide_now`](Self::decide_now) about one hit on a limit with one quota, for whoever wants no more than its decision.
    /// `None` says nothing and did nothing: it cannot be told without waiting or not by one decision, or not at all.
    fn decide_one_now(&self, mode: Mode, hit: Hit<'_, Self::Limit>) -> Option<Decision> {
        let &[_] = hit.limit.as_ref().quotas() else { return None };
        let answer = self.decide_now(mode, &[hit])?.ok()?;
        let &[said] = answer.each() else { return None };
        Some(said.decision)
    }

    /// Tells that a hit will be decided about soon, so that what it takes may be under way by then. It changes nothing; most
    /// stores do nothing.
    fn prepare(&self, hit: &Hit<'_, Self::Limit>) {
        _ = hit;
    }

    /// Decides as [`Mode::Take`] does; what was admitted can be [settled](Self::settle) with what it really cost.
    ///
    /// # Errors
    /// If the store cannot tell.
    fn acquire(
        &self,
        hits: &[Hit<'_, Self::Limit>],
    ) -> impl Future<Output = Result<(Answer, Option<Self::Permit>), StoreError>> + Send;

    /// Says what each hit really cost, in the order in which they were asked for: what was taken too much comes back, as far
    /// as time has not restored it already; what was taken too little is charged, and those who come later wait for it. Hits
    /// without a number cost what was asked. A permit that was settled is worth nothing any more.
    ///
    /// # Errors
    /// If the store cannot be reached. The permit can be settled again if the error is [without effect](StoreError::is_without_effect);
    /// otherwise it may have been settled, and settling it again may charge twice.
    fn settle(
        &self,
        permit: &mut Self::Permit,
        actual: &[u64],
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Forgets what a key has used of a limit, and that anything can be given back to it. Whether it was known.
    ///
    /// # Errors
    /// If the store cannot be reached.
    fn reset(&self, limit: &Self::Limit, key: &[u8])
    -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// How much the store holds, and what it had to forget.
    ///
    /// # Errors
    /// If the store cannot be reached.
    fn usage(&self) -> impl Future<Output = Result<Usage, StoreError>> + Send;

    /// The `n` keys that are at the top, largest first; none if the store does not keep names.
    ///
    /// # Errors
    /// If the store cannot be reached.
    fn busiest(&self, top: Top, n: usize) -> impl Future<Output = Result<Vec<Busy>, StoreError>> + Send;

    /// A handle for all that is asked about one request: what a store that limits the time of a call allows for one call, it
    /// allows for all calls through this handle together, from now on. Others have nothing to limit, and give a clone.
    #[must_use]
    fn for_request(&self) -> Self {
        self.clone()
    }

    /// How many processes shared this store when it was last seen, this one included: while it is away, each may decide alone
    /// by its [share](Rule::share).
    fn nodes(&self) -> u32 {
        1
    }

    /// How the store has been, if it is guarded against its failures. Others have nothing to tell.
    fn health(&self) -> Option<Health> {
        None
    }
}

/// What [`Store::decide`] does with the hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// Takes all of them together, or nothing of any.
    Take,
    /// Takes nothing: says what [`Take`](Self::Take) would.
    Peek,
    /// Takes each that fits, whether the others do or not; one that does not fit uses up what is left of its limit. Nothing is owed
    /// when the window ends. A limit that counts beyond its quota is a [counter](Rule::counting).
    Count,
    /// Takes all of them whether they fit or not: they have happened. Those who come later wait until that is paid off. The
    /// answer refuses nothing, and says how things stand afterwards.
    Charge,
    /// Gives back what the hits cost, without a [permit](Store::acquire) to show for it. The answer refuses nothing, and says
    /// how things stand afterwards.
    ///
    /// Nobody can tell then what it was taken by, so the caller is believed, within bounds. What comes back is what time
    /// would restore first, and at most what counts now: no key becomes better than one that was never seen. In any
    /// span, what is admitted stays within the limit's own bound plus what came back in that span. To keep what was
    /// *used* within the bound too, give back only what was taken and not used, before time has restored it, and not what
    /// has a permit: that would come back twice where counts are kept by window. Where this cannot be promised,
    /// [settle](Store::settle), which knows. Nothing comes back to a
    /// [leaky queue](crate::Kind::LeakyQueue), where others were given their times on top of it.
    Refund,
}

/// So much of one limit for one key.
///
/// # Examples
/// ```
/// use tollgate::Quota;
/// use tollgate::store::{Hit, MemoryStore, Rule, Store};
///
/// let bytes = MemoryStore::new().open(&Rule::new("files", "bytes per user", Quota::per_minute(1_000_000)));
/// let upload = Hit::new(&bytes, b"alice").costing(4_096);
/// assert_eq!((upload.key, upload.cost), (&b"alice"[..], 4_096));
/// ```
pub struct Hit<'a, L> {
    /// Of which limit.
    pub limit: &'a L,
    /// For whom.
    pub key: &'a [u8],
    /// How much. Nothing is always admitted, and tells what is left.
    pub cost: u64,
}

impl<'a, L> Hit<'a, L> {
    /// One of `limit` for `key`.
    #[inline]
    pub fn new(limit: &'a L, key: &'a [u8]) -> Self {
        Self { limit, key, cost: 1 }
    }

    /// The same at another cost.
    #[inline]
    #[must_use]
    pub fn costing(self, cost: u64) -> Self {
        Self { cost, ..self }
    }
}

impl<L> Clone for Hit<'_, L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<L> Copy for Hit<'_, L> {}

impl<L: AsRef<Rule>> fmt::Debug for Hit<'_, L> {
    /// Without the key, which may be somebody's secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rule = self.limit.as_ref();
        f.debug_struct("Hit")
            .field("rule", &rule.to_string())
            .field("cost", &self.cost)
            .finish_non_exhaustive()
    }
}
