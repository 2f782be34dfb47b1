//! A store that decides most things without asking.

mod account;
mod book;
mod call;
mod desk;
mod leases;
mod stats;
mod upkeep;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::runtime::Handle;
use tollgate::Decision;
use tollgate::store::{Answer, Busy, Hit, Mode, Rule, Said, Store, StoreError, Top, Usage};

use account::{Account, Why};
use book::{Sum, Want};
use call::Call;
use desk::Desk;
pub use leases::Leases;
pub use stats::LeaseStats;

use crate::draft::{Draft, Tier};
use crate::keys::Label;
use crate::limit::RedisLimit;
use crate::permit::RedisPermit;
use crate::store::RedisStore;

/// A [`RedisStore`] that decides most things without asking: this node borrows some tokens of a state at a time, a *lease*, and
/// spends them here.
///
/// **Guarantee**: all nodes together are never admitted more than the limit says, over any span of time, as without leases; and
/// less by at most `nodes × lease` for each state. Other processes may use the same limits without leases, at the same time.
///
/// Token buckets and fixed windows are lent; all other algorithms, which space calls or remember each of them, are asked each time.
///
/// # How it works
/// A call that finds nothing here asks Redis, which decides about it and lends some more in the same round trip. How much
/// follows demand: what is expected to be used within a quarter of the time that a lease [lasts](Leases::lasting), at most
/// twice what it was before and at most [`up_to`](Leases::up_to); but no more than half of what is free, divided by the nodes that
/// have a lease. So near the limit leases shrink until there are none, and every call is decided by Redis. What is used fast
/// is asked for before it runs out. What nobody has asked for in a quarter of its time goes back, and [`close`](Self::close) gives
/// back everything. What a node that crashed had on lease counts as spent when its time is over.
///
/// What Redis refuses is not asked again until it said that it would admit it, and until as much as a lease (and at most half of the
/// burst) has been restored; but for 20 ms at most. Who comes sooner is refused here, and all are told to come when it is asked again.
///
/// # Why it is never more than the limit
/// Redis keeps what is *owed* (what was admitted, less what time has paid off) and what is *out* on lease. It admits
/// and lends only as long as both together stay within the burst. A lease makes nothing owed; what was spent of it does, from the
/// moment that the node reports it with its next call, or from the end of its time. Now take any span of length T. Whatever was
/// admitted in it was reported in it, or is out at its end. What was reported made as much owed, of which time has paid off at most
/// `rate · T`; the rest is still owed at the end. So it is at most `owed + out + rate · T ≤ burst + rate · T`. In a fixed window
/// nothing is paid off before it ends, and by the same argument it admits its count. Reports come late rather than early, and are
/// numbered, so that each counts once.
///
/// It is at most `nodes × lease` less because that is the most that can be out: Redis refuses only if what is owed, what is out and
/// the cost exceed the burst; and a node that refuses by itself has nothing on lease, in place of which as much may lie in Redis.
/// ([`stats`](Self::stats) tells both numbers.)
///
/// By how much the clock of Redis's machine leaps forward, leases end too early: this costs `rate` times as much, as it does
/// without leases. If Redis loses its data, what is out at that moment may be spent in addition.
///
/// # What else can be asked
/// [`Mode::Take`] and [`Mode::Peek`] are answered here if they can be. What is left and when it is fresh is then as Redis last said,
/// less what was spent here since; what other nodes have on lease counts as used. Everything else is asked of Redis:
/// [`Mode::Count`], [`Mode::Charge`], [`Mode::Refund`]; [`acquire`](Store::acquire), because only Redis can give a receipt to settle by;
/// and hits that cost nothing. A [reset](Store::reset) gives back what is here first; what other nodes have on lease stays out. All or
/// nothing holds for several limits, wherever each of them is paid from. (Those that lie on several servers of a cluster
/// are decided as by [`RedisStore`], without leases.)
///
/// # Without Redis
/// What is here is spent until its time is over; what is not fails. In a [`Guarded`](crate::Guarded) store this holds while the
/// store is left alone, too.
///
/// # Cancel safety
/// That of [`RedisStore`]: what was asked for may have been taken. What is borrowed is not lost.
///
/// # Examples
/// ```no_run
/// use tollgate::Quota;
/// use tollgate::store::{Hit, Mode, Rule, Store, StoreError};
/// use tollgate_redis::{Guarded, Leased, Leases, RedisStore};
///
/// # async fn example() -> Result<(), StoreError> {
/// let leased = Leased::new(RedisStore::new("redis://127.0.0.1:6379")?, Leases::up_to(100));
/// let store = Guarded::new(leased.clone());
/// let limit = store.open(&Rule::new("api", "everybody", Quota::per_second(10_000)));
/// assert!(store.decide(Mode::Take, &[Hit::new(&limit, b"")]).await?.is_admitted());
/// leased.close().await?; // at the end, so that nobody has to wait for what is left
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Leased {
    store: RedisStore,
    desk: Arc<Desk>,
}

/// How long somebody waits for what others are borrowing, which may be used up when it comes, before it asks by itself.
const PATIENCE: Duration = Duration::from_millis(5);

impl Leased {
    /// Lends out what is in `store`.
    pub fn new(store: RedisStore, leases: Leases) -> Self {
        let desk = Arc::new(Desk::new(leases, store.caller().clock()));
        Self { store, desk }
    }

    /// The store behind it, which asks each time.
    pub fn inner(&self) -> &RedisStore {
        &self.store
    }

    /// What is on lease here, and what became of what was.
    pub fn stats(&self) -> LeaseStats {
        let desk = &self.desk;
        let Sum { out, states, under_way, tally } = desk.book.sum();
        LeaseStats {
            lease: desk.leases.most(),
            nodes: self.store.nodes(),
            out,
            states,
            under_way,
            lent: tally.lent,
            spent: tally.spent,
            returned: tally.returned,
            lost: tally.lost,
            here: desk.here.load(Ordering::Relaxed),
            refused_here: desk.refused_here.load(Ordering::Relaxed),
            calls: desk.calls.load(Ordering::Relaxed),
            failed: desk.failed.load(Ordering::Relaxed),
        }
    }

    /// Gives back what nobody has asked for in a while, and has what is in use for longer. This happens by itself, several times
    /// while a lease lasts, unless the store goes by a [clock](crate::RedisStoreBuilder::clock) of its own.
    ///
    /// # Errors
    /// If Redis cannot be reached. What was to be given back then counts as spent when its time is over.
    ///
    /// # Cancel safety
    /// What was to be given back then counts as spent when its time is over.
    pub async fn tend(&self) -> Result<(), StoreError> {
        upkeep::tend(&self.desk, &self.store).await
    }

    /// Gives back everything, once calls under way have ended. From then on, Redis is asked each time.
    ///
    /// # Errors
    /// If Redis cannot be reached. What is left then counts as spent when its time is over.
    ///
    /// # Cancel safety
    /// It can be called again, and gives back what is still here.
    pub async fn close(&self) -> Result<(), StoreError> {
        upkeep::close(&self.desk, &self.store).await
    }

    /// What can be said here.
    fn decide_here(&self, mode: Mode, hits: &[Hit<'_, RedisLimit>]) -> Option<Answer> {
        let takes = mode == Mode::Take;
        if !self.desk.is_open() || !(takes || mode == Mode::Peek) {
            return None;
        }
        let answer = match hits {
            [hit] if hit.limit.quotas().len() == 1 => self.decide_one(hit, takes),
            _ => self.decide_all(hits, takes),
        }?;
        self.desk.here.fetch_add(1, Ordering::Relaxed);
        if !answer.is_admitted() {
            self.desk.refused_here.fetch_add(1, Ordering::Relaxed);
        }
        if takes {
            self.store.note(Mode::Take, hits, &answer);
        }
        Some(answer)
    }

    fn decide_one(&self, hit: &Hit<'_, RedisLimit>, takes: bool) -> Option<Answer> {
        let want = self.wants(hit).next()??;
        let said = self.desk.book.try_one(&want, takes, self.desk.now());
        Some(Answer::one(hit.cost, self.heard(&want, &said)?))
    }

    fn decide_all(&self, hits: &[Hit<'_, RedisLimit>], takes: bool) -> Option<Answer> {
        let wants: Vec<Want> = hits.iter().flat_map(|hit| self.wants(hit)).collect::<Option<_>>()?;
        let said = self.desk.book.try_all(&wants, takes, self.desk.now())?;
        let mut decisions = wants.iter().zip(&said).filter_map(|(want, said)| self.heard(want, said));
        let mut each = Vec::with_capacity(said.len());
        for (number, hit) in hits.iter().enumerate() {
            for quota in 0..hit.limit.quotas().len() {
                // Nobody has four billion of them.
                let decision = decisions.next()?;
                each.push(Said { hit: number as u32, quota: quota as u32, cost: hit.cost, decision });
            }
        }
        Some(Answer::new(each))
    }

    /// What a hit asks of each of its quotas; `None` for those that cannot be paid for here.
    fn wants<'a>(&'a self, hit: &'a Hit<'_, RedisLimit>) -> impl Iterator<Item = Option<Want>> + 'a {
        hit.limit.quotas().iter().map(|quota| {
            let can_be_here = hit.cost > 0 && quota.twin.is_some_and(|twin| twin.is_leasable());
            can_be_here.then(|| self.desk.book.want(Label::of(&quota.name, hit.key), hit.cost))
        })
    }

    /// The decision that was made here; asks for more if it is time for that.
    fn heard(&self, want: &Want, said: &book::Said) -> Option<Decision> {
        match said {
            book::Said::Paid(decision, is_low) => {
                if *is_low {
                    self.refill(want);
                }
                Some(*decision)
            }
            book::Said::Refused(decision) => Some(*decision),
            book::Said::Unknown => None,
        }
    }

    /// Asks for more, in the background.
    fn refill(&self, want: &Want) {
        let now = self.desk.now();
        let Ok(runtime) = Handle::try_current() else { return };
        if self.desk.is_resting(now) {
            return;
        }
        let (shard, hash) = self.desk.book.shard(want.label());
        let begun = shard.lock().find(hash, want.label()).and_then(|(entry, tally)| {
            let report = self.desk.begin_for(&mut entry.account, Why::More, now, tally)?;
            Some((entry.tier.clone(), report))
        });
        if let Some(begun) = begun {
            runtime.spawn(Call::about(&self.desk, &self.store, now, vec![begun]).run());
        }
    }

    /// What could not be said here.
    async fn take(&self, hits: &[Hit<'_, RedisLimit>]) -> Result<Answer, StoreError> {
        let mut draft = Draft::of(self.store.keys(), hits, true)?;
        if !draft.tiers.iter().any(|tier| tier.twin.is_leasable()) {
            return self.store.decide(Mode::Take, hits).await;
        }
        let start = self.desk.now();
        while self.desk.now().since(start) < PATIENCE && self.wait(&draft.tiers, Account::is_telling).await {
            if let Some(answer) = self.decide_here(Mode::Take, hits) {
                return Ok(answer);
            }
        }
        self.desk.keep(&self.store);
        let call = Call::of(&self.desk, &self.store, std::mem::take(&mut draft.tiers));
        let decisions = if call.borrows() { self.run_apart(call).await? } else { call.run().await? };
        let answer = draft.answer(|tier| decisions[tier]);
        self.store.note(Mode::Take, hits, &answer);
        Ok(answer)
    }

    /// Runs a call to its end whether anybody waits for it or not, so that what it borrows is not lost.
    async fn run_apart(&self, call: Call) -> Result<Vec<Decision>, StoreError> {
        let Ok(runtime) = Handle::try_current() else { return call.run().await };
        let task = runtime.spawn(call.run());
        task.await.unwrap_or_else(|error| {
            Err(StoreError::transient("the runtime ended before Redis responded").caused_by(error))
        })
    }

    /// Waits for a call about one of these states; whether there was one.
    async fn wait(&self, tiers: &[Tier], is_awaited: fn(&Account) -> bool) -> bool {
        for tier in tiers.iter().filter(|tier| tier.twin.is_leasable()) {
            let (shard, _) = self.desk.book.shard(tier.label.as_bytes());
            let ended = shard.ended.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            let is_awaited = self.desk.account(tier, |account, _| is_awaited(account));
            if is_awaited == Some(true) {
                ended.await;
                return true;
            }
        }
        false
    }

    /// Gives back what is here of a key.
    async fn give_back(&self, limit: &RedisLimit, key: &[u8]) -> Result<(), StoreError> {
        let draft = Draft::of(self.store.keys(), &[Hit::new(limit, key).costing(0)], true)?;
        self.wait(&draft.tiers, Account::is_calling).await;
        let now = self.desk.now();
        let begin = |tier: Tier| Some((tier.clone(), self.desk.begin(&tier, Why::Return, now)?));
        let begun: Vec<_> = draft.tiers.into_iter().filter_map(begin).collect();
        if begun.is_empty() {
            return Ok(());
        }
        self.run_apart(Call::about(&self.desk, &self.store, now, begun)).await.map(drop)
    }
}

impl Store for Leased {
    type Limit = RedisLimit;
    type Permit = RedisPermit;

    fn open(&self, rule: &Rule) -> RedisLimit {
        self.store.open(rule)
    }

    async fn decide(&self, mode: Mode, hits: &[Hit<'_, RedisLimit>]) -> Result<Answer, StoreError> {
        // Whoever asks again and again without ever having to wait lets others have their turn: the calls for more, say.
        tokio::task::consume_budget().await;
        if let Some(answer) = self.decide_here(mode, hits) {
            return Ok(answer);
        }
        if mode == Mode::Take && self.desk.is_open() {
            return self.take(hits).await;
        }
        self.store.decide(mode, hits).await
    }

    fn decide_now(&self, mode: Mode, hits: &[Hit<'_, RedisLimit>]) -> Option<Result<Answer, StoreError>> {
        self.decide_here(mode, hits).map(Ok)
    }

    async fn acquire(
        &self,
        hits: &[Hit<'_, RedisLimit>],
    ) -> Result<(Answer, Option<RedisPermit>), StoreError> {
        self.store.acquire(hits).await
    }

    async fn settle(&self, permit: &mut RedisPermit, actual: &[u64]) -> Result<(), StoreError> {
        self.store.settle(permit, actual).await
    }

    async fn reset(&self, limit: &RedisLimit, key: &[u8]) -> Result<bool, StoreError> {
        self.give_back(limit, key).await?;
        self.store.reset(limit, key).await
    }

    async fn usage(&self) -> Result<Usage, StoreError> {
        let mut usage = self.store.usage().await?;
        usage.leases = Some(self.stats().into());
        Ok(usage)
    }

    async fn busiest(&self, top: Top, n: usize) -> Result<Vec<Busy>, StoreError> {
        self.store.busiest(top, n).await
    }

    fn nodes(&self) -> u32 {
        self.store.nodes()
    }
}

impl fmt::Debug for Leased {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leased")
            .field("store", &self.store)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
