//! The store.

mod info;
mod spread;

use std::fmt;
use std::sync::Arc;

use redis::Value;
use tollgate::store::{Answer, Busy, Callers, Hit, Mode, Rule, Store, StoreError, Top, Usage};

use crate::builder::RedisStoreBuilder;
use crate::call::{Caller, Line, Todo, unexpected, views};
use crate::draft::{Draft, Tier};
use crate::error;
use crate::keys::Keys;
use crate::limit::RedisLimit;
use crate::permit::{Change, RedisPermit};
use crate::twin::View;

/// Limits that any number of processes share, in Redis 7 or later, or in Valkey.
///
/// One round trip decides all limits of a request, all or nothing, by the server's clock; the arithmetic is that of
/// [`tollgate::Algorithm`], in a script, held to it by shared test vectors. Times are counted in microseconds and rounded up.
///
/// # Addresses
/// `redis://[user:password@]host[:port][/database]` for one server; `redis+sentinel://…@host:26379,host:26379/service[/database]`
/// for whichever is the primary; `redis+cluster://…@host:7000,host:7001` for a cluster. With the feature `tls`, `rediss` in place of
/// `redis` speaks TLS to all of them, and trusts whom the system trusts, or the file that `SSL_CERT_FILE` names.
///
/// # Consistency
/// - One server, and in a cluster all limits of one key (or [tag](RedisStoreBuilder::tag)): exact. All processes together
///   are admitted what the limit says, and never more.
/// - In a cluster, limits of several keys may lie on several servers. Those on one server are decided together; the servers are asked
///   one after the other, the one with the smallest limit first. If one refuses, what the others before it took is given back. So
///   nothing is admitted beyond any limit, but for a moment somebody else may be refused because of what is on its
///   way back; and what is interrupted in between stays taken.
/// - When a replica takes over, what was admitted during the last moments may be forgotten, as replication is asynchronous. A
///   key then gets at most what it had used in those moments, and at most its limit, once more.
/// - If Redis loses its data or evicts a key, the key gets at most its limit once more. With `maxmemory-policy noeviction` nothing is evicted:
///   a call that has to write fails while Redis is full. `volatile-ttl` evicts the keys that are nearest to being as good as
///   new, and the list of those who [share](Store::nodes) the store. All other policies evict keys whose limits are used up.
///
/// # Errors
/// All are [transient](StoreError::is_transient) but for those that somebody must mend; each says whether something may have
/// been taken. Nothing is sent twice unless the server has said that it did nothing. This store waits up to a second for an
/// answer, and fails at once while there is no connection.
///
/// # Cancel safety
/// Dropping a future may leave what it asked for taken, but never more than that.
///
/// # Examples
/// ```no_run
/// use tollgate::Quota;
/// use tollgate::store::{Hit, Mode, Rule, Store, StoreError};
/// use tollgate_redis::RedisStore;
///
/// # async fn example() -> Result<(), StoreError> {
/// let store = RedisStore::new("redis://127.0.0.1:6379")?;
/// let per_user = store.open(&Rule::new("api", "per user", Quota::per_second(10)).with_quota(Quota::per_hour(1_000)));
/// let answer = store.decide(Mode::Take, &[Hit::new(&per_user, b"alice")]).await?;
/// if !answer.is_admitted() {
///     println!("come back in {:?}", answer.retry_after());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RedisStore {
    caller: Caller,
    keys: Keys,
    callers: Option<Arc<Callers>>,
}

impl RedisStore {
    /// A store at this address. It connects when it is first used: this needs no server to be there.
    ///
    /// # Errors
    /// If the address cannot be read.
    pub fn new(url: &str) -> Result<Self, StoreError> {
        Self::builder(url).build()
    }

    /// A store at this address, with more to be said about it.
    pub fn builder(url: &str) -> RedisStoreBuilder {
        RedisStoreBuilder::new(url)
    }

    /// Asks the server whether it is there.
    ///
    /// # Errors
    /// If it is not.
    pub async fn ping(&self) -> Result<(), StoreError> {
        self.caller.link().send(&redis::cmd("PING")).await?.map(drop).map_err(error::of_call)
    }

    pub(crate) fn assemble(caller: Caller, keys: Keys, callers: Option<Callers>) -> Self {
        Self { caller, keys, callers: callers.map(Arc::new) }
    }

    pub(crate) fn caller(&self) -> &Caller {
        &self.caller
    }

    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }

    /// The parts of a draft that can be decided together: all of it, but for a cluster.
    fn groups(&self, draft: &Draft) -> Vec<Vec<usize>> {
        if draft.tiers.is_empty() {
            Vec::new()
        } else if self.caller.link().is_cluster() {
            draft.by_place()
        } else {
            vec![(0..draft.tiers.len()).collect()]
        }
    }

    /// Does the same to all tiers, which are in one place.
    async fn run(&self, todo: Todo, tiers: &[&Tier], patient: bool) -> Result<Vec<View>, StoreError> {
        let lines: Vec<Line<'_>> = tiers.iter().map(|tier| tier.line(patient)).collect();
        views(&self.caller.run(todo, &lines).await?, tiers.len())
    }

    /// Does the same to all tiers, wherever they are.
    async fn run_each(&self, todo: Todo, draft: &Draft, patient: bool) -> Result<Vec<View>, StoreError> {
        let mut seen = vec![None; draft.tiers.len()];
        for (place, group) in self.groups(draft).into_iter().enumerate() {
            let tiers: Vec<&Tier> = group.iter().map(|index| &draft.tiers[*index]).collect();
            let views = self.run(todo, &tiers, patient).await;
            let views = views.map_err(|error| if place == 0 { error } else { error.after_effect() })?;
            for (index, view) in group.iter().zip(views) {
                seen[*index] = Some(view);
            }
        }
        seen.into_iter().collect::<Option<_>>().ok_or_else(unexpected)
    }

    /// Takes of all tiers or of none.
    pub(crate) async fn take(&self, draft: &Draft) -> Result<Vec<View>, StoreError> {
        let groups = self.groups(draft);
        if groups.len() <= 1 {
            return self.run_each(Todo::Take, draft, draft.is_alone).await;
        }
        self.take_spread(draft, &groups).await
    }

    async fn decide_now(&self, mode: Mode, hits: &[Hit<'_, RedisLimit>]) -> Result<Answer, StoreError> {
        // What counts by itself is not added up with others first.
        let draft = Draft::of(&self.keys, hits, mode != Mode::Count)?;
        let answer = match mode {
            Mode::Take => draft.decided(&self.take(&draft).await?, draft.is_alone),
            Mode::Peek => {
                draft.decided(&self.run_each(Todo::Peek, &draft, draft.is_alone).await?, draft.is_alone)
            }
            Mode::Count => {
                draft.decided(&self.run_each(Todo::Count, &draft, draft.is_alone).await?, draft.is_alone)
            }
            Mode::Charge => draft.standing(&self.run_each(Todo::Charge, &draft, false).await?),
            Mode::Refund => draft.standing(&self.run_each(Todo::Refund, &draft, false).await?),
            other => {
                return Err(StoreError::permanent(format!("a Redis store does not support {other:?}")));
            }
        };
        if matches!(mode, Mode::Take | Mode::Count) {
            self.note(mode, hits, &answer);
        }
        Ok(answer)
    }

    async fn acquire_now(
        &self,
        hits: &[Hit<'_, RedisLimit>],
    ) -> Result<(Answer, Option<RedisPermit>), StoreError> {
        let draft = Draft::of(&self.keys, hits, true)?;
        let views = self.take(&draft).await?;
        let answer = draft.decided(&views, draft.is_alone);
        self.note(Mode::Take, hits, &answer);
        let permit = answer.is_admitted().then(|| RedisPermit::new(draft, &views));
        Ok((answer, permit))
    }

    /// Charges and gives back, wherever that is.
    async fn settle_all(&self, changes: &[Change<'_>]) -> Result<(), StoreError> {
        let (mut left, all): (Vec<&Change<'_>>, _) = (changes.iter().collect(), changes.len());
        while let Some(first) = left.first().map(|change| change.taken().tier.tag) {
            let is_here =
                |change: &&Change<'_>| change.taken().tier.tag == first || !self.caller.link().is_cluster();
            let (here, elsewhere): (Vec<_>, Vec<_>) = left.into_iter().partition(is_here);
            let lines: Vec<Line<'_>> = here.iter().map(|change| change.line()).collect();
            let is_first = here.len() + elsewhere.len() == all;
            let settled = self.caller.run(Todo::Settle, &lines).await;
            settled.map_err(|error| if is_first { error } else { error.after_effect() })?;
            left = elsewhere;
        }
        Ok(())
    }

    async fn reset_now(&self, limit: &RedisLimit, key: &[u8]) -> Result<bool, StoreError> {
        let draft = Draft::of(&self.keys, &[Hit::new(limit, key)], true)?;
        let lines: Vec<Line<'_>> = draft.tiers.iter().map(|tier| tier.line(false)).collect();
        if lines.is_empty() {
            return Ok(false);
        }
        match self.caller.run(Todo::Reset, &lines).await? {
            Value::Int(counted) => Ok(counted > 0),
            _ => Err(unexpected()),
        }
    }

    async fn usage_now(&self) -> Result<Usage, StoreError> {
        let ask = async |words: &[&str]| {
            let mut command = redis::Cmd::new();
            command.arg(words);
            self.caller.link().send(&command).await?.map_err(error::of_call)
        };
        let (size, info) = (ask(&["DBSIZE"]).await?, ask(&["INFO"]).await?);
        let mut usage = Usage::default();
        usage.keys = match size {
            Value::Int(keys) => u64::try_from(keys).ok(),
            _ => None,
        };
        usage.bytes = info::sum(&info, "used_memory");
        usage.evicted = info::sum(&info, "evicted_keys").unwrap_or(0);
        Ok(usage)
    }

    /// Remembers who asked, if names are kept.
    pub(crate) fn note(&self, mode: Mode, hits: &[Hit<'_, RedisLimit>], answer: &Answer) {
        if let Some(callers) = &self.callers {
            for (index, hit) in hits.iter().enumerate() {
                let rule = hit.limit.as_ref();
                callers.count(rule, hit.key, rule.is_denied(mode, answer.of_hit(index)));
            }
        }
    }
}

impl Store for RedisStore {
    type Limit = RedisLimit;
    type Permit = RedisPermit;

    fn open(&self, rule: &Rule) -> RedisLimit {
        RedisLimit::new(rule)
    }

    async fn decide(&self, mode: Mode, hits: &[Hit<'_, RedisLimit>]) -> Result<Answer, StoreError> {
        self.decide_now(mode, hits).await
    }

    async fn acquire(
        &self,
        hits: &[Hit<'_, RedisLimit>],
    ) -> Result<(Answer, Option<RedisPermit>), StoreError> {
        self.acquire_now(hits).await
    }

    async fn settle(&self, permit: &mut RedisPermit, actual: &[u64]) -> Result<(), StoreError> {
        self.settle_all(&permit.changes(actual)).await?;
        permit.spend();
        Ok(())
    }

    async fn reset(&self, limit: &RedisLimit, key: &[u8]) -> Result<bool, StoreError> {
        self.reset_now(limit, key).await
    }

    /// Keys, memory and evictions of the whole database or cluster, which had better be tollgate's alone.
    async fn usage(&self) -> Result<Usage, StoreError> {
        self.usage_now().await
    }

    /// Of this process; none without [`names`](RedisStoreBuilder::names).
    async fn busiest(&self, top: Top, n: usize) -> Result<Vec<Busy>, StoreError> {
        Ok(self.callers.as_ref().map_or_else(Vec::new, |callers| callers.most(top, n)))
    }

    /// How many stores with this prefix were on the same Redis when it was last seen. Each says twice a second that it is there; one
    /// that ended is not counted any more after some seconds.
    fn nodes(&self) -> u32 {
        self.caller.link().nodes()
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("link", self.caller.link())
            .field("keys", &self.keys)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tollgate::Quota;
    use tollgate_testkit::Redis;

    use super::*;

    /// A fleet half of which was upgraded to a version that keeps its states differently.
    #[tokio::test]
    async fn two_versions_side_by_side_do_not_disturb_each_other() {
        let redis = Redis::start();
        let store = |layout| RedisStore::builder(&redis.url()).layout(layout).build().unwrap();
        let rule = Rule::new("d", "n", Quota::per_second(0).burst(10));
        let fleet = [1, 1, 2, 2].map(store);
        let mut admitted = [0; 4];
        for _ in 0..20 {
            for (store, admitted) in fleet.iter().zip(&mut admitted) {
                let limit = store.open(&rule);
                let answer = store.decide(Mode::Take, &[Hit::new(&limit, b"k")]).await.expect("no error");
                *admitted += u32::from(answer.is_admitted());
            }
        }
        // Each version keeps the limit, so both together admit at most twice as much.
        assert_eq!((admitted[0] + admitted[1], admitted[2] + admitted[3]), (10, 10));
        let (old, new) = (fleet[0].open(&rule), fleet[2].open(&rule));
        assert!(fleet[0].reset(&old, b"k").await.unwrap());
        assert!(!fleet[2].decide(Mode::Take, &[Hit::new(&new, b"k")]).await.unwrap().is_admitted());
    }
}
