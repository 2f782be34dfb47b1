//! What the limits said.

use std::fmt;
use std::slice;
use std::time::Duration;

use tollgate_core::{Decision, Kind, Quota, Verdict};

use super::Rule;
use crate::gate::Tally;
use crate::name::Which;

/// What one quota of one hit said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said {
    /// Which of the hits, counted from zero.
    pub hit: u32,
    /// Which of its limit's quotas, counted from zero.
    pub quota: u32,
    /// What the hit cost.
    pub cost: u64,
    /// What was said. What admits tells what is left after all of the hits, if they are admitted.
    pub decision: Decision,
}

impl Said {
    /// How the limit stands after a refusal. What refused has said so already; what would have admitted was not taken of, since
    /// others refused: so much more is left, and it will be fresh so much sooner. `rule` is that of the limit.
    ///
    /// [`reset_after`](Decision::reset_after) is at most a nanosecond too long; it is `None` where it cannot be told from what
    /// was said, which is so for all but token buckets, leaky buckets and fixed windows. It is for one hit on this key of the limit.
    ///
    /// # Examples
    /// ```
    /// use tollgate::store::{Hit, MemoryStore, Mode, Rule, Store};
    /// use tollgate::{ManualClock, Quota};
    /// use std::time::Duration;
    ///
    /// let store = MemoryStore::builder().clock(ManualClock::new()).build();
    /// let (many, none) = (Rule::new("api", "many", Quota::per_second(10)), Rule::new("api", "none", Quota::per_second(0)));
    /// let (opened, closed) = (store.open(&many), store.open(&none));
    /// let refused = store.decide(Mode::Take, &[Hit::new(&opened, b""), Hit::new(&closed, b"")]).into_inner()?;
    /// let said = refused.each()[0];
    /// assert_eq!((said.decision.remaining(), said.untaken(&many).remaining()), (9, 10));
    /// assert_eq!(said.untaken(&many).reset_after(), Some(Duration::ZERO));
    /// # Ok::<(), tollgate::store::StoreError>(())
    /// ```
    pub fn untaken(&self, rule: &Rule) -> Decision {
        let Self { cost, decision, .. } = *self;
        let (limit, left) = (decision.limit(), decision.remaining().saturating_add(cost));
        if !decision.is_admitted() {
            return decision;
        }
        // What is spaced evenly, one at a time, only admits where nothing was before.
        let is_spaced = matches!(rule.kind(), Kind::LeakyBucket | Kind::LeakyQueue);
        if is_spaced || left >= limit {
            return Decision::new(Verdict::Allow, limit, limit, 0, 0);
        }
        let quota = rule.quotas().get(self.quota as usize);
        let reset = decision
            .reset_after()
            .zip(quota)
            .and_then(|(reset, quota)| sooner(rule.kind(), quota, reset, cost));
        let reset_ns = reset.map_or(u64::MAX, |span| span.as_nanos() as u64); // as which it was kept
        Decision::new(Verdict::Allow, limit, left, 0, reset_ns)
    }
}

/// The time until a limit that is not fresh is, if so much was not taken; `None` if it cannot be told.
fn sooner(kind: Kind, quota: &Quota, reset: Duration, cost: u64) -> Option<Duration> {
    match kind {
        Kind::TokenBucket => {
            let refill = u128::from(cost) * quota.period().as_nanos() / u128::from(quota.count().max(1));
            Some(reset.saturating_sub(Duration::from_nanos(u64::try_from(refill).unwrap_or(u64::MAX))))
        }
        Kind::FixedWindow => Some(reset),
        _ => None,
    }
}

/// The answer of a [`Store`](super::Store) about some hits: whether they are admitted, and what every limit said.
///
/// # Examples
/// ```
/// use tollgate::store::{Hit, MemoryStore, Mode, Rule, Store};
/// use tollgate::{ManualClock, Quota};
/// use std::time::Duration;
///
/// let store = MemoryStore::builder().clock(ManualClock::new()).build();
/// let limit = store.open(&Rule::new("api", "per user", Quota::per_second(2)).with_quota(Quota::per_minute(3)));
/// let hits = [Hit::new(&limit, b"alice").costing(2)];
/// let answer = store.decide(Mode::Take, &hits).into_inner()?;
/// assert!(answer.is_admitted());
/// let left: Vec<u64> = answer.each().iter().map(|said| said.decision.remaining()).collect();
/// assert_eq!(left, [0, 1]);
///
/// let refused = store.decide(Mode::Take, &hits).into_inner()?;
/// assert_eq!(refused.decided_by().unwrap().quota, 1); // three a minute: one more every twenty seconds
/// assert_eq!(refused.retry_after(), Some(Duration::from_secs(20)));
/// # Ok::<(), tollgate::store::StoreError>(())
/// ```
#[derive(Clone)]
#[must_use = "an answer that is not looked at limits nothing"]
pub struct Answer {
    each: Each,
    /// Where the one that decided is among them.
    decider: usize,
}

/// Mostly there is one, and it needs no room of its own.
#[derive(Clone)]
enum Each {
    One(Said),
    Many(Box<[Said]>),
}

impl Answer {
    /// The answer that follows from what each quota of each hit said, in order.
    pub fn new(each: Vec<Said>) -> Self {
        let mut tally = Tally::default();
        for (place, said) in each.iter().enumerate() {
            tally.add(Which::new(None, place), said.cost, said.decision);
        }
        let decider = tally.decision().decided_by().position();
        Self { each: Each::Many(each.into()), decider }
    }

    /// The answer to one hit on one quota.
    #[inline]
    pub fn one(cost: u64, decision: Decision) -> Self {
        Self { each: Each::One(Said { hit: 0, quota: 0, cost, decision }), decider: 0 }
    }

    /// What every quota of every hit said, in order: the first quota of the first hit, its second, and so on.
    #[inline]
    pub fn each(&self) -> &[Said] {
        match &self.each {
            Each::One(said) => slice::from_ref(said),
            Each::Many(each) => each,
        }
    }

    /// What was said to one of the hits, by each of its quotas.
    pub fn of_hit(&self, hit: usize) -> &[Said] {
        let each = self.each();
        let end = |hit: usize| each.partition_point(|said| (said.hit as usize) < hit);
        &each[end(hit)..end(hit.saturating_add(1))]
    }

    /// The one that decided: the refusal that asks for the longest wait; if nobody refused, the one with the fewest hits of
    /// this kind left. `None` if nothing was asked.
    #[inline]
    pub fn decided_by(&self) -> Option<&Said> {
        self.each().get(self.decider)
    }

    /// The decision that counts.
    #[inline]
    pub fn decision(&self) -> Decision {
        self.decided_by().map_or(NOTHING_ASKED, |said| said.decision)
    }

    /// Whether all may go ahead, at once or after [`delay`](Self::delay).
    #[inline]
    pub fn is_admitted(&self) -> bool {
        self.decision().is_admitted()
    }

    /// How long to wait before going ahead. Not zero only for one hit on one [leaky queue](crate::Kind::LeakyQueue).
    #[inline]
    pub fn delay(&self) -> Duration {
        self.decision().delay()
    }

    /// When to come back: zero if admitted, `None` if no wait can help. The longest of all that refused.
    pub fn retry_after(&self) -> Option<Duration> {
        self.decision().retry_after()
    }
}

/// What nobody limits.
const NOTHING_ASKED: Decision = Decision::new(Verdict::Allow, u64::MAX, u64::MAX, 0, 0);

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").field("each", &self.each()).field("decider", &self.decider).finish()
    }
}
