//! What the limits of a gate say, and what follows from it.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use tollgate_core::{Decision, Verdict};

use crate::name::Which;

/// The answer of a [`Gate`](crate::Gate): a [`Decision`], and which of its limits made it.
///
/// As a decision it is that of the limit which [decided](Self::decided_by): what it is limited to, what is left of it, when it
/// is fresh again. `retry_after` is the longest among the limits that refuse, and `None` if one of them never admits.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate::{Limiter, ManualClock, Quota};
///
/// let clock = ManualClock::new();
/// let second = Limiter::builder(Quota::per_second(2)).clock(clock.clone()).name("per second").build();
/// let minute = Limiter::builder(Quota::per_minute(3)).clock(clock.clone()).name("per minute").build();
/// let gate = second.and(&minute);
/// assert_eq!(gate.check().tightest().name(), "per second"); // one more, and two more
/// assert!(gate.allow());
/// assert_eq!(gate.check().decided_by().name(), "per second");
/// clock.advance(Duration::from_secs(1));
/// assert!(gate.allow());
/// let refused = gate.check();
/// assert_eq!(refused.decided_by().name(), "per minute");
/// assert_eq!(refused.retry_after(), Some(Duration::from_secs(19))); // one every 20 seconds
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a decision that is not looked at limits nothing"]
pub struct GateDecision {
    decision: Decision,
    decided_by: Which,
    tightest: Which,
}

impl GateDecision {
    /// The decision alone.
    pub fn decision(&self) -> Decision {
        self.decision
    }

    /// The limit that refused; if several did, the one that asks for the longest wait. If nobody refused,
    /// the [tightest](Self::tightest).
    pub fn decided_by(&self) -> Which {
        self.decided_by
    }

    /// The limit that has the fewest calls of this kind left.
    pub fn tightest(&self) -> Which {
        self.tightest
    }
}

impl Deref for GateDecision {
    type Target = Decision;

    fn deref(&self) -> &Decision {
        &self.decision
    }
}

impl From<GateDecision> for Decision {
    fn from(of_gate: GateDecision) -> Self {
        of_gate.decision
    }
}

/// An error that a gate denied a request: now, in time, or for ever. Nothing was charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateRefused(pub GateDecision);

impl fmt::Display for GateRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (which, limit) = (self.0.decided_by(), self.0.limit());
        match self.0.retry_after() {
            Some(Duration::ZERO) => lacks_slots(f, which, limit, self.0.remaining()),
            Some(wait) => write!(f, "denied by {which}: retry after {wait:?}"),
            None => {
                write!(f, "denied by {which}: the cost exceeds its limit of {limit}, or its rate is zero")
            }
        }
    }
}

/// Writes why a concurrency limit has too few slots.
fn lacks_slots(f: &mut fmt::Formatter<'_>, which: Which, limit: u64, free: u64) -> fmt::Result {
    match (limit, free) {
        (0, _) => write!(f, "denied by {which}: its limit is zero"),
        (_, 0) => write!(f, "denied by {which}: all {limit} slots are in use"),
        _ => write!(
            f,
            "denied by {which}: {free} of {limit} slots are free, too few or reserved for waiting requests"
        ),
    }
}

impl std::error::Error for GateRefused {}

/// What one limit says.
#[derive(Clone, Copy, Debug)]
struct Vote {
    which: Which,
    decision: Decision,
    cost: u64,
}

impl Vote {
    /// Whether it has fewer calls left than the other, this one not counted: `have / cost`, without dividing.
    #[inline]
    fn is_tighter_than(&self, other: &Self) -> bool {
        if self.cost == other.cost {
            return self.have() < other.have();
        }
        if self.cost == 0 || other.cost == 0 {
            return other.cost == 0; // of what costs nothing there are any number left
        }
        let product = |have: u64, cost: u64| u128::from(have) * u128::from(cost);
        product(self.have(), other.cost) < product(other.have(), self.cost)
    }

    /// What there is before this call.
    #[inline]
    fn have(&self) -> u64 {
        let taken = if self.decision.is_admitted() { self.cost } else { 0 };
        self.decision.remaining().saturating_add(taken)
    }
}

/// Adds up what the limits of a gate say.
#[derive(Debug, Default)]
pub struct Tally<'a> {
    /// Of those that refuse, the one with the longest wait.
    refusal: Option<Vote>,
    tightest: Option<Vote>,
    /// Where to note what each says, if somebody wants to know.
    each: Option<&'a mut Vec<(Which, Decision)>>,
}

impl<'a> Tally<'a> {
    /// One that also notes what each limit says.
    pub(crate) fn noting(each: &'a mut Vec<(Which, Decision)>) -> Self {
        each.clear();
        Self { each: Some(each), ..Self::default() }
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a gate's decisions should stay in registers as a limiter's do")]
    pub(crate) fn add(&mut self, which: Which, cost: u64, decision: Decision) {
        let vote = Vote { which, decision, cost };
        if !decision.is_admitted() && self.refusal.is_none_or(|worst| is_longer(&decision, &worst.decision)) {
            self.refusal = Some(vote);
        }
        if self.tightest.is_none_or(|tightest| vote.is_tighter_than(&tightest)) {
            self.tightest = Some(vote);
        }
        if let Some(each) = &mut self.each {
            each.push((which, decision));
        }
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a gate's decisions should stay in registers as a limiter's do")]
    pub(crate) fn admits(&self) -> bool {
        self.refusal.is_none()
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a gate's decisions should stay in registers as a limiter's do")]
    pub(crate) fn decision(&self) -> GateDecision {
        let Some(tightest) = self.tightest else {
            return NO_LIMITS;
        };
        let decider = self.refusal.unwrap_or(tightest);
        GateDecision { decision: decider.decision, decided_by: decider.which, tightest: tightest.which }
    }

    /// The decision, if all admit at once.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a gate's decisions should stay in registers as a limiter's do")]
    pub(crate) fn admission(&self) -> GateDecision {
        let decision = self.decision();
        GateDecision { decision: decision.decision.allowed(), ..decision }
    }
}

/// What a gate without limits says.
const NO_LIMITS: GateDecision = {
    let decision = Decision::new(Verdict::Allow, u64::MAX, u64::MAX, 0, 0);
    GateDecision { decision, decided_by: Which::NOBODY, tightest: Which::NOBODY }
};

impl GateDecision {
    /// The same refusal, with another time to come back, and to be fresh again after `delay` more.
    pub(crate) fn refused_for(self, wait: Duration, delay: Duration) -> Self {
        let Self { decision, decided_by, tightest } = self;
        let reset_ns = decision.reset_after().map_or(u64::MAX, |reset| nanos(reset.saturating_add(delay)));
        let (limit, remaining) = (decision.limit(), decision.remaining());
        let decision = Decision::new(Verdict::Deny, limit, remaining, nanos(wait), reset_ns);
        Self { decision, decided_by, tightest }
    }
}

/// What was decided as of `delay` from now, seen from now.
pub(crate) fn postponed(decision: Decision, delay: Duration) -> Decision {
    if !decision.is_allowed() {
        return decision;
    }
    let reset_ns = decision.reset_after().map_or(u64::MAX, |reset| nanos(reset.saturating_add(delay)));
    Decision::new(Verdict::Delay, decision.limit(), decision.remaining(), nanos(delay), reset_ns)
}

/// Whether it is a refusal to whoever has so much patience, too.
pub(crate) fn would_refuse(decision: &Decision, patience: Duration) -> bool {
    let comes_in_time = |wait: Duration| !wait.is_zero() && wait <= patience;
    !decision.is_admitted() && !decision.retry_after().is_some_and(comes_in_time)
}

fn is_longer(refusal: &Decision, other: &Decision) -> bool {
    let wait = |decision: &Decision| decision.retry_after().unwrap_or(Duration::MAX);
    wait(refusal) > wait(other)
}

/// Whole nanoseconds of a span; the longest that can be said stops short of never.
fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX).min(u64::MAX - 1)
}
