//! The answer to an [`Ask`](crate::Ask).

use core::time::Duration;

use crate::tick::nanos_of;
use crate::{Ask, Tick};

/// The three possible answers.
// A whole word, so that a decision has no gaps. With gaps it is copied in pieces, and whoever then reads a word of it waits for
// several writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u64)]
pub enum Verdict {
    /// Go ahead now.
    Allow,
    /// Go ahead, but only after [`Decision::delay`]; the slot is taken.
    Delay,
    /// Not admitted; nothing was taken.
    Deny,
}

/// An answer, with the facts a caller may want to pass on.
///
/// All times are spans from the moment the question was asked. They are right to the nanosecond: after a refusal, the
/// same question asked [`retry_after`](Self::retry_after) later is admitted, and asked one nanosecond sooner
/// is not, if nobody else took anything in between.
///
/// # Examples
/// ```
/// use core::time::Duration;
/// use tollgate_core::{Algorithm, Ask, Quota, Tick, TokenBucket};
///
/// let bucket = TokenBucket::new(Quota::per_second(10).burst(1));
/// let mut state = Default::default();
/// let first = bucket.step(&mut state, Tick::ZERO, Ask::now(1));
/// assert!(first.is_allowed());
/// let second = bucket.step(&mut state, Tick::ZERO, Ask::now(1));
/// assert_eq!(second.retry_after(), Some(Duration::from_millis(100)));
/// assert_eq!(second.limit(), 1);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "a decision that is not looked at limits nothing"]
pub struct Decision {
    verdict: Verdict,
    limit: u64,
    remaining: u64,
    wait_ns: u64,
    reset_ns: u64,
}

/// Stands for "no wait will help" in a wait counted in nanoseconds.
pub(crate) const NEVER: u64 = u64::MAX;

impl Decision {
    /// An answer made by hand, for limits that no algorithm decides. The last two are in nanoseconds; `u64::MAX` stands for
    /// never.
    ///
    /// # Examples
    /// ```
    /// use tollgate_core::{Decision, Verdict};
    ///
    /// let full = Decision::new(Verdict::Deny, 8, 0, u64::MAX, 0);
    /// assert!(full.is_never());
    /// ```
    #[inline]
    pub const fn new(verdict: Verdict, limit: u64, remaining: u64, wait_ns: u64, reset_ns: u64) -> Self {
        Self { verdict, limit, remaining, wait_ns, reset_ns }
    }

    /// The same facts as an admission at once: for whoever has several that all admit and tells the tightest. Which that is need
    /// not be found out for a caller who only asks whether it is allowed.
    #[inline]
    pub const fn allowed(self) -> Self {
        Self { verdict: Verdict::Allow, wait_ns: 0, ..self }
    }

    /// The same, told `by` before the moment that it was decided for: whoever reads a time from before then waits so much longer.
    ///
    /// # Examples
    /// ```
    /// use core::time::Duration;
    /// use tollgate_core::{Decision, Verdict};
    ///
    /// let decision = Decision::new(Verdict::Deny, 8, 0, 5, 7).told_before(Duration::from_nanos(3));
    /// assert_eq!(decision.retry_after(), Some(Duration::from_nanos(8)));
    /// assert_eq!(decision.reset_after(), Some(Duration::from_nanos(10)));
    /// ```
    pub const fn told_before(self, by: Duration) -> Self {
        let by = nanos_of(by);
        let wait_ns = match self.verdict {
            Verdict::Allow => self.wait_ns,
            Verdict::Delay | Verdict::Deny => self.wait_ns.saturating_add(by),
        };
        Self { wait_ns, reset_ns: self.reset_ns.saturating_add(by), ..self }
    }

    /// A refusal for a reason of the store's own, such as having no room for another key. `None` as `retry_after` means
    /// that no wait can help.
    pub const fn refusal(limit: u64, retry_after: Option<Duration>) -> Self {
        let wait_ns = match retry_after {
            Some(wait) => nanos_of(wait),
            None => NEVER,
        };
        Self::new(Verdict::Deny, limit, 0, wait_ns, wait_ns)
    }

    /// The same with `more` left.
    #[inline]
    pub(crate) const fn with_more(self, more: u64) -> Self {
        Self { remaining: self.remaining.saturating_add(more), ..self }
    }

    /// What was decided.
    #[inline]
    pub const fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// Whether the caller may go ahead at once.
    #[inline]
    pub const fn is_allowed(&self) -> bool {
        matches!(self.verdict, Verdict::Allow)
    }

    /// Whether the caller may go ahead, at once or after [`delay`](Self::delay).
    #[inline]
    pub const fn is_admitted(&self) -> bool {
        !matches!(self.verdict, Verdict::Deny)
    }

    /// The most that can ever be had at once: the burst, or the size of the window. `u64::MAX` if unlimited.
    #[inline]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// What is left for others at this moment, this decision already counted.
    #[inline]
    pub const fn remaining(&self) -> u64 {
        self.remaining
    }

    /// How long an admitted caller must wait before it acts; zero unless the verdict is [`Verdict::Delay`].
    #[inline]
    pub const fn delay(&self) -> Duration {
        match self.verdict {
            Verdict::Delay => Duration::from_nanos(self.wait_ns),
            Verdict::Allow | Verdict::Deny => Duration::ZERO,
        }
    }

    /// When to come back: zero if admitted, `None` if no wait can help (the cost is above the limit, or the rate is
    /// zero).
    #[inline]
    pub const fn retry_after(&self) -> Option<Duration> {
        match self.verdict {
            Verdict::Deny if self.wait_ns == NEVER => None,
            Verdict::Deny => Some(Duration::from_nanos(self.wait_ns)),
            Verdict::Allow | Verdict::Delay => Some(Duration::ZERO),
        }
    }

    /// Whether no wait can ever help: the cost is above the limit, or the rate is zero.
    #[inline]
    pub const fn is_never(&self) -> bool {
        self.retry_after().is_none()
    }

    /// How long until the limit is as fresh as new, if nobody takes anything more; `None` if it never will be (the rate
    /// is zero). Where a bucket's rate is rounded (101/s; see [`TokenBucket`](crate::TokenBucket)) it may be a unit of refill off, less
    /// than two nanoseconds but for bursts that take a century to refill.
    #[inline]
    pub const fn reset_after(&self) -> Option<Duration> {
        if self.reset_ns == NEVER { None } else { Some(Duration::from_nanos(self.reset_ns)) }
    }
}

/// What a transition yields: the decision, and what to write if it admits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the change must be applied, or the decision was only a peek"]
pub struct Step<C> {
    /// What to write. `None` on a refusal: a refusal writes nothing.
    pub change: Option<C>,
    /// The answer.
    pub decision: Decision,
}

impl<C> Step<C> {
    /// What an unlimited quota answers.
    pub(crate) const UNLIMITED: Self =
        Self { change: None, decision: Decision::new(Verdict::Allow, u64::MAX, u64::MAX, 0, 0) };

    /// A refusal that no wait can mend.
    pub(crate) const fn never(limit: u64, remaining: u64, reset_ns: u64) -> Self {
        Self { change: None, decision: Decision::new(Verdict::Deny, limit, remaining, NEVER, reset_ns) }
    }

    /// The answer to a cost of nothing.
    pub(crate) const fn nothing(limit: u64, facts: Facts) -> Self {
        let decision = Decision::new(Verdict::Allow, limit, facts.remaining, 0, facts.reset_ns);
        Self { change: None, decision }
    }

    /// Admits at `at` if that is within the caller's patience. `change` makes the change and
    /// says how things stand after it; `before` says how they stand without.
    pub(crate) fn at(
        at: Tick,
        now: Tick,
        ask: Ask,
        limit: u64,
        change: impl FnOnce() -> (C, Facts),
        before: Facts,
    ) -> Self {
        let wait = at.as_nanos().saturating_sub(now.as_nanos());
        if wait > ask.patience_ns {
            let wait = wait - ask.patience_ns;
            let decision = Decision::new(Verdict::Deny, limit, before.remaining, wait, before.reset_ns);
            return Self { change: None, decision };
        }
        let verdict = if wait == 0 { Verdict::Allow } else { Verdict::Delay };
        let (change, after) = change();
        Self {
            change: Some(change),
            decision: Decision::new(verdict, limit, after.remaining, wait, after.reset_ns),
        }
    }
}

/// What a state says of itself at one moment.
#[derive(Clone, Copy)]
pub(crate) struct Facts {
    pub(crate) remaining: u64,
    pub(crate) reset_ns: u64,
}
