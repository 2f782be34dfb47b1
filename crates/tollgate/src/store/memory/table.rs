//! All keys of all limits with one algorithm.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{AnyAlgorithm, AnyLevel, Decision, Kind, Quota, SubWindows, Tick, TokenBucket};

use super::builder::Options;
use super::permit::Taken;
use super::times::Times;
use crate::cell::Held;
use crate::clock::Clock;
use crate::gate::{Costing, OneOf};
use crate::keyed::{
    KeyOf, KeyedBuilder, KeyedLimiter, NoPlan, OwnedKeyOf, Pool, Seed, SnapshotError, Stats, Supply, Sweeper,
};
use crate::reservation::Refused;
use crate::store::Rule;

/// What a table calls a key: a fingerprint of the rule, the number of the quota and the caller's key; and that quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) print: u64,
    pub(super) quota: Quota,
}

impl Hash for Owner {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.print.hash(state); // which stands for the quota too
    }
}

/// Which table: an algorithm, for sub-windows how many parts they have, and whether quotas are the callers'. Limits that callers
/// supply are apart from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Sort {
    kind: Kind,
    parts: u32,
    is_floating: bool,
    is_supplied: bool,
}

/// All floating limits are in one table.
const FLOATING: Sort = Sort { kind: Kind::TokenBucket, parts: 0, is_floating: true, is_supplied: false };
const FLOATING_NAME: &str = "floating";
/// How the names of tables with limits that callers supply begin.
const SUPPLIED: &str = "supplied-";

impl Sort {
    pub(super) fn of(rule: &Rule) -> Self {
        if rule.is_floating() {
            return FLOATING;
        }
        let is_supplied = rule.is_brought();
        Self { kind: rule.kind(), parts: rule.parts(), is_floating: false, is_supplied }
    }

    /// The one that [`Display`](fmt::Display) wrote.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if text == FLOATING_NAME {
            return Some(FLOATING);
        }
        let (text, is_supplied) = match text.strip_prefix(SUPPLIED) {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        let prefix = format!("{}-", Kind::SubWindows);
        if let Some(parts) = text.strip_prefix(&prefix) {
            let parts = parts.parse().ok().filter(|parts| (1..=1_000).contains(parts))?;
            return Some(Self { kind: Kind::SubWindows, parts, is_floating: false, is_supplied });
        }
        let kind = text.parse().ok().filter(|kind| *kind != Kind::SubWindows)?;
        Some(Self { kind, parts: 0, is_floating: false, is_supplied })
    }

    /// The algorithm of a quota. Its windows, if it has any, begin when those of the wall clock do.
    fn any(self, quota: Quota, age: Duration) -> AnyAlgorithm {
        let quota = self.in_micros(quota);
        let algorithm = match self.kind {
            Kind::SubWindows => AnyAlgorithm::SubWindows(SubWindows::new(quota).parts(self.parts)),
            kind => AnyAlgorithm::new(kind, quota),
        };
        algorithm.aligned(age)
    }

    /// The quota whose windows, or the parts of them, last whole microseconds, rounded up: the unit in which all stores count
    /// windows, so that they begin at the same moments in each.
    fn in_micros(self, quota: Quota) -> Quota {
        const MICROSECOND: u128 = 1_000;
        if matches!(self.kind, Kind::TokenBucket | Kind::LeakyBucket | Kind::LeakyQueue) {
            return quota;
        }
        let parts = u128::from(self.parts.max(1));
        let nanos = quota.period().as_nanos().next_multiple_of(MICROSECOND * parts);
        let period = u64::try_from(nanos).map_or(quota.period(), Duration::from_nanos);
        Quota::per(quota.count(), period).burst(quota.burst_size())
    }
}

impl fmt::Display for Sort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_floating {
            return f.write_str(FLOATING_NAME);
        }
        let prefix = if self.is_supplied { SUPPLIED } else { "" };
        write!(f, "{prefix}{}", self.kind)?;
        if self.parts > 0 { write!(f, "-{}", self.parts) } else { Ok(()) }
    }
}

/// All keys of all limits with one algorithm: those whose state is one word, and the others.
pub(super) enum Table<C: Clock> {
    Levels(KeyedLimiter<Owner, AnyLevel, C>),
    Others(KeyedLimiter<Owner, AnyAlgorithm, C>),
    /// Those whose quotas are the callers'.
    Times(Times<C>),
}

/// An owner as a member of a gate, of whichever table.
pub(super) type Member<'a, C> =
    OneOf<Costing<KeyOf<'a, Owner, AnyLevel, C>>, Costing<KeyOf<'a, Owner, AnyAlgorithm, C>>>;
/// The same, borrowing nothing.
pub(super) type OwnedMember<C> = OneOf<Costing<OwnedKey<AnyLevel, C>>, Costing<OwnedKey<AnyAlgorithm, C>>>;
type OwnedKey<A, C> = OwnedKeyOf<Owner, Owner, A, C>;

macro_rules! each {
    ($self:expr, $limiter:ident => $body:expr) => {
        match $self {
            Table::Levels($limiter) => $body,
            Table::Others($limiter) => $body,
            Table::Times(times) => {
                let $limiter = times.states();
                $body
            }
        }
    };
}

/// As above, where a floating limit has an answer of its own.
macro_rules! each_or_times {
    ($self:expr, $limiter:ident => $body:expr) => {
        match $self {
            Table::Levels($limiter) => $body,
            Table::Others($limiter) => $body,
            Table::Times($limiter) => $body,
        }
    };
}

impl<C: Clock> Table<C> {
    pub(super) fn new(sort: Sort, options: &Options, pool: Option<&Arc<Pool>>, clock: &C) -> Self {
        if sort.is_floating {
            return Self::Times(Times::new(
                one_quota(|quota, _| TokenBucket::new(quota), options, pool, clock).build(),
            ));
        }
        match level_of(sort) {
            Some(make) => Self::Levels(builder(sort, make, options, pool, clock).build()),
            None => Self::Others(
                builder(sort, move |quota, age| sort.any(quota, age), options, pool, clock).build(),
            ),
        }
    }

    /// The table that was saved in a file; an empty one, and why, if it cannot be read.
    pub(super) fn restore(
        sort: Sort,
        options: &Options,
        pool: Option<&Arc<Pool>>,
        clock: &C,
        path: &Path,
    ) -> (Self, Result<usize, SnapshotError>) {
        if sort.is_floating {
            let (states, restored) =
                one_quota(|quota, _| TokenBucket::new(quota), options, pool, clock).restore(path);
            return (Self::Times(Times::new(states)), restored);
        }
        if let Some(make) = level_of(sort) {
            let (limiter, restored) = builder(sort, make, options, pool, clock).restore(path);
            return (Self::Levels(limiter), restored);
        }
        let (limiter, restored) =
            builder(sort, move |quota, age| sort.any(quota, age), options, pool, clock).restore(path);
        (Self::Others(limiter), restored)
    }

    pub(super) fn seed(&self) -> &Seed {
        each!(self, limiter => limiter.seed())
    }

    pub(super) fn may_have(&self, quota: Quota, most: u32) -> bool {
        match self {
            Self::Times(_) => true, // none is remembered
            _ => each!(self, limiter => limiter.may_have(quota, most)),
        }
    }

    /// Opens a limit with a quota that was supplied.
    pub(super) fn open_quota(&self, quota: Quota, supply: Supply) -> Result<(), NoPlan> {
        each!(self, limiter => limiter.open_quota(quota, supply))
    }

    /// Closes a limit that was [opened](Self::open_quota).
    pub(super) fn close_quota(&self, quota: Quota) {
        each!(self, limiter => limiter.close_quota(quota));
    }

    /// The table as a limit with this quota uses it.
    pub(super) fn with_quota(self, quota: Quota) -> Self {
        if let Self::Times(times) = self { Self::Times(times.with_quota(quota)) } else { self }
    }

    #[inline]
    pub(super) fn prepare(&self, owner: &Owner) {
        each!(self, limiter => limiter.prepare(owner));
    }

    /// The algorithm of a quota, where its state is one word.
    pub(super) fn level_of(&self, quota: Quota) -> Option<AnyLevel> {
        if let Self::Levels(limiter) = self { Some(limiter.algorithm_of(quota)) } else { None }
    }

    /// Checks, by the owner's [algorithm](Self::level_of) if that is known.
    #[inline]
    pub(super) fn check_at(&self, level: Option<&AnyLevel>, owner: &Owner, cost: u64, now: Tick) -> Decision {
        match (self, level) {
            (Self::Levels(limiter), Some(level)) => limiter.check_by_at(level, owner, cost, now),
            (Self::Times(times), _) => times.check_n_at(owner, cost, now),
            _ => self.check_apart(owner, cost, now),
        }
    }

    #[inline(never)]
    fn check_apart(&self, owner: &Owner, cost: u64, now: Tick) -> Decision {
        each_or_times!(self, limiter => limiter.check_n_at(owner, cost, now))
    }

    pub(super) fn peek_at(&self, owner: &Owner, cost: u64, patience: Duration, now: Tick) -> Decision {
        each_or_times!(self, limiter => limiter.peek_within_at(owner, cost, patience, now))
    }

    /// Whether it is remembered.
    pub(super) fn charge_at(&self, owner: &Owner, cost: u64, now: Tick) -> bool {
        each_or_times!(self, limiter => limiter.charge_at(owner, cost, now))
    }

    pub(super) fn refund(&self, owner: &Owner, cost: u64) {
        each_or_times!(self, limiter => limiter.refund(owner, cost));
    }

    pub(super) fn reset(&self, owner: &Owner) -> bool {
        each!(self, limiter => limiter.reset(owner))
    }

    /// Takes `cost`, to be settled later.
    pub(super) fn reserve(&self, owner: &Owner, cost: u64, patience: Duration) -> Result<Taken<C>, Refused> {
        Ok(match self {
            Self::Levels(limiter) => Taken::Level(limiter.reserve_within(owner, cost, patience)?),
            Self::Others(limiter) => Taken::Other(limiter.reserve_within(owner, cost, patience)?),
            Self::Times(_) => unreachable!("{ALONE}"),
        })
    }

    /// An owner as a member of a gate.
    pub(super) fn member<'a>(&'a self, owner: &'a Owner, cost: u64) -> Member<'a, C> {
        match self {
            Self::Levels(limiter) => OneOf::Left(limiter.key(owner).costing(cost)),
            Self::Others(limiter) => OneOf::Right(limiter.key(owner).costing(cost)),
            Self::Times(_) => unreachable!("{ALONE}"),
        }
    }

    /// An owner as a member of a gate whose permit goes its own way.
    pub(super) fn owned_member(&self, owner: Owner, cost: u64) -> OwnedMember<C> {
        match self {
            Self::Levels(limiter) => OneOf::Left(limiter.owned_key(owner).costing(cost)),
            Self::Others(limiter) => OneOf::Right(limiter.owned_key(owner).costing(cost)),
            Self::Times(_) => unreachable!("{ALONE}"),
        }
    }

    /// Keys, bytes and what was counted.
    pub(super) fn numbers(&self) -> (usize, usize, Stats) {
        each!(self, limiter => (limiter.len(), limiter.bytes(), limiter.stats()))
    }

    pub(super) fn sweep(&self) {
        each!(self, limiter => limiter.sweep());
    }

    pub(super) fn sweeper(&self, every: Duration) -> Sweeper {
        each!(self, limiter => limiter.sweeper(every))
    }

    pub(super) fn save(&self, path: &Path) -> io::Result<usize> {
        each!(self, limiter => limiter.save(path))
    }
}

impl<C: Clock> Clone for Table<C> {
    /// Another handle on the same keys.
    fn clone(&self) -> Self {
        match self {
            Self::Levels(limiter) => Self::Levels(limiter.clone()),
            Self::Others(limiter) => Self::Others(limiter.clone()),
            Self::Times(times) => Self::Times(times.clone()),
        }
    }
}

/// Makes the algorithm of a quota, if its state is one word. Its windows, if it has any, begin when those of the wall clock do.
fn level_of(sort: Sort) -> Option<impl Fn(Quota, Duration) -> AnyLevel + Send + Sync + 'static> {
    AnyLevel::new(sort.kind, NOBODYS)?;
    Some(move |quota, age| {
        let level =
            AnyLevel::new(sort.kind, sort.in_micros(quota)).expect("it is one word, whatever the quota");
        level.aligned(age)
    })
}

/// A table has a quota for keys that have none of their own. There are no such keys; where quotas float, it says what is idle.
pub(super) const NOBODYS: Quota = Quota::per_second(1);

/// Whoever decides about such a limit sees to it.
const ALONE: &str = "a floating limit is hit alone";

fn builder<A: Held, C: Clock>(
    sort: Sort,
    make: impl Fn(Quota, Duration) -> A + Send + Sync + 'static,
    options: &Options,
    pool: Option<&Arc<Pool>>,
    clock: &C,
) -> KeyedBuilder<Owner, A, C> {
    let builder = one_quota(make, options, pool, clock).quota_of(|owner: &Owner| owner.quota);
    if sort.is_supplied { builder.reusing_plans() } else { builder }
}

/// A table whose keys have no quotas of their own.
fn one_quota<A: Held, C: Clock>(
    make: impl Fn(Quota, Duration) -> A + Send + Sync + 'static,
    options: &Options,
    pool: Option<&Arc<Pool>>,
    clock: &C,
) -> KeyedBuilder<Owner, A, C> {
    let builder = KeyedLimiter::<Owner>::builder(NOBODYS)
        .aligned_algorithm(make)
        .clock(clock.clone())
        .at_cap(options.at_cap);
    match pool {
        Some(pool) => builder.pool(Arc::clone(pool)),
        None => builder,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_is_called_says_which_table_it_is() {
        let rule = Rule::new("d", "n", Quota::per_second(1));
        for kind in Kind::ALL {
            let sort = Sort::of(&rule.clone().with_kind(kind));
            assert_eq!(Sort::parse(&sort.to_string()), Some(sort));
        }
        let floating = Sort::of(&Rule::floating("d", "n", Quota::per_second(1)));
        assert_eq!((Sort::parse("floating"), floating.to_string()), (Some(floating), "floating".to_owned()));
        assert_ne!(floating, Sort::of(&rule));
        let supplied = Sort::of(&rule.clone().with_sub_windows(60).brought());
        assert_eq!(supplied.to_string(), "supplied-sub-windows-60");
        assert_eq!(Sort::parse("supplied-sub-windows-60"), Some(supplied));
        assert_eq!(Sort::of(&rule.clone().with_sub_windows(60)).to_string(), "sub-windows-60");
        assert_eq!(Sort::of(&rule).to_string(), "token-bucket");
        for text in [
            "",
            "token",
            "sub-windows",
            "sub-windows-",
            "sub-windows-0",
            "sub-windows-1001",
            "notes",
            "supplied-",
            "supplied-floating",
        ] {
            assert_eq!(Sort::parse(text), None, "{text:?}");
        }
    }
}
