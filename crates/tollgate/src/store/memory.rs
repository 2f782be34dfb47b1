//! The store in this process.
//!
//! All limits with the same algorithm share one keyed limiter, the *table*. What a table calls a key is an [`Owner`]: a
//! fingerprint of the rule, the number of one of its quotas, and the caller's key. So a limit takes no memory before somebody
//! hits it, ten thousand of them cost no more than ten, one bound on memory serves all, and there is no list of limits that
//! could disagree with the rules: the rule is part of the key.
//!
//! One hit on one quota is a plain check of its table. Several go through a gate.

mod builder;
mod draft;
mod permit;
mod saved;
mod table;
mod times;

use std::collections::HashMap;
use std::fmt;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{AnyLevel, Decision, Quota};

use super::{Answer, Busy, Callers, Hit, Mode, Rule, Said, Store, StoreError, Top, Usage};
use crate::clock::{Clock, DefaultClock};
use crate::keyed::{NoPlan, Pool, Seed, Supply, Sweeper};
use crate::sync::{Mutex, lock};
pub use builder::MemoryStoreBuilder;
use builder::Options;
use draft::{Asked, Draft};
pub use permit::MemoryPermit;
pub use saved::Restored;
use table::{Owner, Sort, Table};

/// The [`Store`] in this process: every key in some thirty bytes, whatever its length and however many limits there are.
///
/// A single hit on a limit with one quota costs little more than [`KeyedLimiter::check`](crate::KeyedLimiter::check).
/// Clones share one state. All its futures are [`Ready`]: outside of async code, take what is
/// [inside](Ready::into_inner).
///
/// A [leaky queue](crate::Kind::LeakyQueue) delays a hit that comes alone on a limit with one quota; together with others it
/// decides as a meter does, as in a [`Gate`](crate::Gate).
///
/// Windows of every kind, and the parts of [sub-windows](crate::Kind::SubWindows), begin when those of the wall clock do: at
/// multiples of their length since 1970, in UTC. So an hour begins on the hour, as with other stores and in every process.
/// They last whole microseconds, rounded up. [The time of the day](Clock::unix) is looked at once, when a limit of that algorithm is
/// first opened; from then on, and after [`restore`](MemoryStoreBuilder::restore), windows go on by the store's clock, whatever is done to the other.
///
/// # Examples
/// ```
/// use tollgate::Quota;
/// use tollgate::store::{Hit, MemoryStore, Mode, Rule, Store, StoreError};
///
/// let store = MemoryStore::new();
/// let tokens = store.open(&Rule::new("llm", "tokens", Quota::per_hour(3_600).burst(1_000)));
/// let requests = store.open(&Rule::new("llm", "requests", Quota::per_hour(60)));
///
/// let hits = [Hit::new(&requests, b"alice"), Hit::new(&tokens, b"alice").costing(800)];
/// let (answer, permit) = store.acquire(&hits).into_inner()?;
/// assert!(answer.is_admitted());
/// assert!(!store.decide(Mode::Take, &hits).into_inner()?.is_admitted()); // not enough tokens: no request is counted
///
/// // It used 300 of them:
/// store.settle(&mut permit.unwrap(), &[1, 300]).into_inner()?;
/// let left = store.decide(Mode::Peek, &[hits[0].costing(0), hits[1].costing(0)]).into_inner()?;
/// assert_eq!(left.each().iter().map(|said| said.decision.remaining()).collect::<Vec<_>>(), [59, 700]);
/// # Ok::<(), StoreError>(())
/// ```
pub struct MemoryStore<C: Clock = DefaultClock> {
    shared: Arc<Shared<C>>,
}

/// What all clones share.
struct Shared<C: Clock> {
    clock: C,
    options: Options,
    pool: Option<Arc<Pool>>,
    tables: Mutex<HashMap<Sort, Kept<C>>>,
    callers: Option<Callers>,
}

/// A table, and the thread that sweeps it.
struct Kept<C: Clock> {
    table: Table<C>,
    _sweeper: Option<Sweeper>,
}

/// A limit that a [`MemoryStore`] opened.
pub struct MemoryLimit<C: Clock = DefaultClock> {
    opened: Arc<Opened<C>>,
}

struct Opened<C: Clock> {
    rule: Rule,
    table: Table<C>,
    /// The table's.
    seed: Seed,
    /// One for each quota; none if the store cannot keep this limit.
    tiers: Box<[Tier]>,
    /// Why it cannot.
    problem: Option<StoreError>,
}

/// One quota of a limit.
#[derive(Clone, Copy)]
struct Tier {
    /// Tells its keys from those of others.
    salt: u64,
    quota: Quota,
    /// Its algorithm, where its state is one word.
    level: Option<AnyLevel>,
    /// How long a hit that comes alone may be delayed.
    patience: Duration,
}

/// What part of the quotas that callers supply one of them can have: an eighth.
const SUPPLIERS: u32 = 8;

/// Keeps the quotas of a rule in their table, if that is possible and there is room for them.
fn open_quotas<C: Clock>(table: &Table<C>, rule: &Rule, max_quotas: u32) -> Result<(), StoreError> {
    rule.check()?;
    if !is_supplied(rule) {
        let has_room = rule.quotas().iter().all(|quota| table.may_have(*quota, max_quotas));
        return if has_room { Ok(()) } else { Err(too_many_quotas(rule, NoPlan::OfAll(max_quotas))) };
    }
    let most = max_quotas / 2;
    let supply = Supply { supplier: rule.supplier(), most_of_one: (most / SUPPLIERS).max(1), most };
    for (opened, quota) in rule.quotas().iter().enumerate() {
        if let Err(no_plan) = table.open_quota(*quota, supply) {
            rule.quotas()[..opened].iter().for_each(|quota| table.close_quota(*quota));
            return Err(too_many_quotas(rule, no_plan));
        }
    }
    Ok(())
}

fn too_many_quotas(rule: &Rule, no_plan: NoPlan) -> StoreError {
    const HELP: &str = "use fewer, or wait until some have been idle for a while";
    StoreError::permanent(match no_plan {
        NoPlan::OfOne(most) => {
            format!("you supply limits with {most} different rates, and at most {most} are allowed: {HELP}")
        }
        NoPlan::OfAll(most) if rule.is_brought() => {
            format!(
                "callers supply limits with {most} different rates, and at most {most} are allowed: {HELP}"
            )
        }
        NoPlan::OfAll(_) => format!(
            "the store has seen too many different quotas to open {rule}: raise max_quotas, or use fewer of them"
        ),
    })
}

/// Whether a rule's quotas are those of a caller, and remembered only as long as they are used.
fn is_supplied(rule: &Rule) -> bool {
    rule.is_brought() && !rule.is_floating()
}

impl<C: Clock> Drop for Opened<C> {
    fn drop(&mut self) {
        if is_supplied(&self.rule) {
            self.tiers.iter().for_each(|tier| self.table.close_quota(tier.quota)); // none if it was not opened
        }
    }
}

impl<C: Clock> Opened<C> {
    /// What the table calls a key.
    #[inline]
    fn owner(&self, tier: &Tier, key: &[u8]) -> Owner {
        Owner { print: self.seed.print(&(tier.salt, key)), quota: tier.quota }
    }
}

impl MemoryStore {
    /// A store without bounds, on the default clock.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// A store with other than the usual clock, or with bounds.
    pub fn builder() -> MemoryStoreBuilder<DefaultClock> {
        MemoryStoreBuilder::new(DefaultClock::new())
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl<C: Clock> MemoryStore<C> {
    /// The clock.
    pub fn clock(&self) -> &C {
        &self.shared.clock
    }

    /// Creates an empty store with the settings and the clock of this one. Both together keep to its bounds.
    ///
    /// # Examples
    /// ```
    /// use tollgate::Quota;
    /// use tollgate::store::{Hit, MemoryStore, Mode, Rule, Store};
    ///
    /// let store = MemoryStore::builder().max_bytes(1 << 20).build();
    /// let rule = Rule::new("api", "per user", Quota::per_hour(1));
    /// for store in [&store, &store.sibling()] {
    ///     let answer = store.decide(Mode::Take, &[Hit::new(&store.open(&rule), b"alice")]).into_inner()?;
    ///     assert!(answer.is_admitted(), "each has a state of its own");
    /// }
    /// # Ok::<(), tollgate::store::StoreError>(())
    /// ```
    #[must_use]
    pub fn sibling(&self) -> Self {
        let Shared { clock, options, pool, .. } = &*self.shared;
        let callers = options.names.map(Callers::new);
        let (clock, pool) = (clock.clone(), pool.clone());
        Self {
            shared: Arc::new(Shared { clock, options: *options, pool, tables: Mutex::default(), callers }),
        }
    }

    /// Drops what is idle, all at once but holding nothing for long. Not needed: calls do it by the way, and
    /// [a thread](MemoryStoreBuilder::sweep_every) if there is one.
    pub fn sweep(&self) {
        for (_, table) in self.tables() {
            table.sweep();
        }
    }

    /// All tables there are.
    fn tables(&self) -> Vec<(Sort, Table<C>)> {
        lock(&self.shared.tables).iter().map(|(sort, kept)| (*sort, kept.table.clone())).collect()
    }

    /// The table of an algorithm, made when it is first needed.
    fn table(&self, sort: Sort) -> Table<C> {
        let Shared { clock, options, pool, tables, .. } = &*self.shared;
        let mut tables = lock(tables);
        tables
            .entry(sort)
            .or_insert_with(|| Kept::new(options, Table::new(sort, options, pool.as_ref(), clock)))
            .table
            .clone()
    }

    /// Remembers who asked, if names are kept.
    #[inline]
    fn note(&self, mode: Mode, hits: &[Hit<'_, MemoryLimit<C>>], answer: &Answer) {
        if let Some(callers) = &self.shared.callers {
            for (index, hit) in hits.iter().enumerate() {
                let opened = &*hit.limit.opened;
                let is_denied = opened.rule.is_denied(mode, answer.of_hit(index));
                if let Some(tier) = opened.tiers.first() {
                    callers.count_as(opened.owner(tier, hit.key).print, &opened.rule, hit.key, is_denied);
                }
            }
        }
    }

    #[inline]
    fn answer(&self, mode: Mode, hits: &[Hit<'_, MemoryLimit<C>>]) -> Result<Answer, StoreError> {
        let answer = match Asked::alone(hits) {
            Some(asked) => Answer::one(asked.cost, asked.act(mode, self.clock().now(), true)),
            None => self.decide_several(mode, hits)?,
        };
        if matches!(mode, Mode::Take | Mode::Count) {
            self.note(mode, hits, &answer);
        }
        Ok(answer)
    }

    #[inline(never)]
    fn decide_several(&self, mode: Mode, hits: &[Hit<'_, MemoryLimit<C>>]) -> Result<Answer, StoreError> {
        // What counts by itself is not added up with others first.
        let draft = Draft::of(hits, mode != Mode::Count)?;
        if mode == Mode::Take {
            return Ok(draft.take());
        }
        let now = self.clock().now();
        let decisions: Vec<Decision> = draft.tiers.iter().map(|asked| asked.act(mode, now, false)).collect();
        Ok(draft.answer(|tier| decisions[tier]))
    }

    fn acquire_now(
        &self,
        hits: &[Hit<'_, MemoryLimit<C>>],
    ) -> Result<(Answer, Option<MemoryPermit<C>>), StoreError> {
        let (answer, permit) = match Asked::alone(hits).filter(Asked::can_be_held) {
            Some(asked) => asked.acquire(),
            None => Draft::of(hits, true)?.acquire(), // where what cost nothing can be settled, too
        };
        self.note(Mode::Take, hits, &answer);
        Ok((answer, permit.map(|permit| permit.keeping(hits))))
    }

    fn usage_now(&self) -> Usage {
        let mut usage = Usage { keys: Some(0), bytes: Some(0), ..Usage::default() };
        for (_, table) in self.tables() {
            let (keys, bytes, stats) = table.numbers();
            usage.keys = usage.keys.map(|sum| sum + keys as u64);
            usage.bytes = usage.bytes.map(|sum| sum + bytes as u64);
            usage.evicted += stats.evicted;
            usage.refused += stats.refused;
        }
        usage
    }
}

#[allow(refining_impl_trait_reachable, reason = "whoever knows that it is in process need not await")]
impl<C: Clock> Store for MemoryStore<C> {
    type Limit = MemoryLimit<C>;
    type Permit = MemoryPermit<C>;

    fn open(&self, rule: &Rule) -> MemoryLimit<C> {
        let kept = rule.kept();
        let table = self.table(Sort::of(&kept));
        let problem = open_quotas(&table, &kept, self.shared.options.max_quotas).err();
        let quotas = if problem.is_none() { kept.quotas() } else { &[] };
        let seed = table.seed().clone();
        let tier = |(index, quota): (usize, &Quota)| Tier {
            salt: seed.print(&kept.identity(index)),
            quota: *quota,
            level: table.level_of(*quota),
            patience: kept.patience(*quota),
        };
        let tiers = quotas.iter().enumerate().map(tier).collect();
        let table = table.with_quota(kept.quotas()[0]);
        MemoryLimit { opened: Arc::new(Opened { rule: rule.clone(), table, seed, tiers, problem }) }
    }

    #[inline]
    fn decide(&self, mode: Mode, hits: &[Hit<'_, MemoryLimit<C>>]) -> Ready<Result<Answer, StoreError>> {
        ready(self.answer(mode, hits))
    }

    #[inline]
    fn decide_now(&self, mode: Mode, hits: &[Hit<'_, MemoryLimit<C>>]) -> Option<Result<Answer, StoreError>> {
        Some(self.answer(mode, hits))
    }

    #[inline]
    fn decide_one_now(&self, mode: Mode, hit: Hit<'_, MemoryLimit<C>>) -> Option<Decision> {
        let asked = Asked::alone(&[hit])?;
        let decision = asked.act(mode, self.clock().now(), true);
        if let (Some(callers), Mode::Take | Mode::Count) = (&self.shared.callers, mode) {
            let (rule, said) = (&hit.limit.opened.rule, Said { hit: 0, quota: 0, cost: hit.cost, decision });
            callers.count_as(asked.print(), rule, hit.key, rule.is_denied(mode, &[said]));
        }
        Some(decision)
    }

    /// Has the key's line come from memory.
    #[inline]
    fn prepare(&self, hit: &Hit<'_, MemoryLimit<C>>) {
        let opened = &*hit.limit.opened;
        if let Some(tier) = opened.tiers.first() {
            opened.table.prepare(&opened.owner(tier, hit.key));
        }
    }

    fn acquire(
        &self,
        hits: &[Hit<'_, MemoryLimit<C>>],
    ) -> Ready<Result<(Answer, Option<MemoryPermit<C>>), StoreError>> {
        ready(self.acquire_now(hits))
    }

    fn settle(&self, permit: &mut MemoryPermit<C>, actual: &[u64]) -> Ready<Result<(), StoreError>> {
        permit.settle(actual);
        ready(Ok(()))
    }

    fn reset(&self, limit: &MemoryLimit<C>, key: &[u8]) -> Ready<Result<bool, StoreError>> {
        let opened = &*limit.opened;
        let mut was_known = false;
        for tier in &opened.tiers {
            was_known |= opened.table.reset(&opened.owner(tier, key));
        }
        ready(Ok(was_known))
    }

    fn usage(&self) -> Ready<Result<Usage, StoreError>> {
        ready(Ok(self.usage_now()))
    }

    fn busiest(&self, top: Top, n: usize) -> Ready<Result<Vec<Busy>, StoreError>> {
        ready(Ok(self.shared.callers.as_ref().map_or_else(Vec::new, |callers| callers.most(top, n))))
    }
}

impl<C: Clock> AsRef<Rule> for MemoryLimit<C> {
    fn as_ref(&self) -> &Rule {
        &self.opened.rule
    }
}

impl<C: Clock> Clone for MemoryLimit<C> {
    fn clone(&self) -> Self {
        Self { opened: Arc::clone(&self.opened) }
    }
}

impl<C: Clock> fmt::Debug for MemoryLimit<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MemoryLimit").field(&self.opened.rule).finish()
    }
}

impl<C: Clock> Clone for MemoryStore<C> {
    /// Another handle on the same state.
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<C: Clock> fmt::Debug for MemoryStore<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("usage", &self.usage_now()).finish_non_exhaustive()
    }
}
