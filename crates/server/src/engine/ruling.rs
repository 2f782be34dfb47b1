//! What was decided.

use std::time::Duration;

use smallvec::SmallVec;
use tollgate::Decision;
use tollgate::store::{Answer, Hit, Judgement, Mode, Rule, Said};

use super::loaded::Told;
use super::tally::Outcome;

/// What all limits together say of a call.
pub(super) type Findings<'a> = SmallVec<[Finding<'a>; 2]>;

/// What was decided about everything that was asked together.
#[derive(Debug)]
pub struct Ruling<'a> {
    findings: Findings<'a>,
    is_allowed: bool,
}

/// What one quota of one limit says of one ask.
#[derive(Clone, Copy, Debug)]
pub struct Finding<'a> {
    /// Which ask, counted from zero.
    pub ask: usize,
    /// The limit.
    pub limit: &'a Told,
    /// Which of its quotas, counted from zero.
    pub quota: usize,
    /// What the ask costs here.
    pub cost: u64,
    /// What it says.
    pub decision: Decision,
    /// When the limit would be as fresh as new if the ask were taken, though it may not be: for a window its end, by the clock of the
    /// store. `None` for never, or if nobody looked.
    pub reset_if_taken: Option<Duration>,
    /// What was to be done.
    pub mode: Mode,
    /// Whether it only tells.
    pub is_shadow: bool,
    /// Whether it refuses the call only together with all others like it.
    pub is_quota: bool,
    /// How much of the cost exceeds the limit, where a [counter](tollgate::store::Rule::counting) knows it.
    pub over: u64,
    /// Where the decision comes from.
    pub basis: Basis,
}

/// Where a decision comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// The store.
    Store,
    /// This process alone, because the store is unavailable.
    Local,
    /// The store is unavailable, and the limit has `on_store_failure = "allow"`.
    Open,
    /// The store is unavailable, and the limit has `on_store_failure = "deny"`.
    Closed,
}

impl Basis {
    /// Returns the name that answers use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Local => "local",
            Self::Open => "allow",
            Self::Closed => "deny",
        }
    }
}

impl<'a> Ruling<'a> {
    /// The decision that follows from what limits said. With a free quota, the call has a quota that no limit bounds.
    pub(super) fn new(findings: Findings<'a>, has_free_quota: bool) -> Self {
        let is_allowed = !is_refused(findings.iter(), has_free_quota);
        Self { findings, is_allowed }
    }

    /// That a call is denied because no limit applies to it.
    pub(super) fn unmatched() -> Self {
        Self { findings: Findings::new(), is_allowed: false }
    }

    /// Whether it is denied because no limit applies to it.
    pub fn is_unmatched_denial(&self) -> bool {
        !self.is_allowed && self.findings.is_empty()
    }

    pub(super) fn into_findings(self) -> Findings<'a> {
        self.findings
    }

    /// Whether all of it is allowed. If not, nothing was taken of what takes all or nothing.
    pub fn is_allowed(&self) -> bool {
        self.is_allowed
    }

    /// What every quota of every limit said, in the order of the asks, the most important limit first; those in shadow come
    /// after the others.
    pub fn findings(&self) -> &[Finding<'a>] {
        &self.findings
    }

    /// The one that decided: of those that refuse, the one that lasts longest; of those that allow, the one closest to its
    /// end. None if no limit applies.
    pub fn decided_by(&self) -> Option<&Finding<'a>> {
        let enforced = self.findings.iter().filter(|finding| !finding.is_shadow);
        if self.is_allowed {
            return enforced.min_by_key(|finding| finding.decision.remaining());
        }
        // One that never passes has no time to come back at.
        enforced
            .filter(|finding| finding.is_refusal())
            .max_by_key(|finding| finding.decision.retry_after().unwrap_or(Duration::MAX))
    }

    /// Returns how long an allowed request must wait before it starts, as a queue demands.
    pub fn delay(&self) -> Duration {
        let enforced = self.findings.iter().filter(|finding| !finding.is_shadow);
        enforced.map(|finding| finding.decision.delay()).max().unwrap_or_default()
    }

    /// Returns the time until a retry can succeed; `None` if the request is allowed, or never will be.
    pub fn retry_after(&self) -> Option<Duration> {
        if self.is_allowed { None } else { self.decided_by()?.decision.retry_after() }
    }

    /// Returns `true` if the call is denied only because the store is unavailable.
    pub(crate) fn is_denied_without_store(&self) -> bool {
        let refuses = |finding: &&Finding<'_>| !finding.is_shadow && finding.is_refusal();
        !self.is_allowed
            && !self.is_unmatched_denial()
            && self.findings.iter().filter(refuses).all(|finding| finding.basis == Basis::Closed)
    }

    /// Returns `true` if a limit decided without the store.
    pub fn is_degraded(&self) -> bool {
        self.findings.iter().any(|finding| finding.basis != Basis::Store)
    }
}

impl Finding<'_> {
    /// Whether it refuses.
    pub fn is_refusal(&self) -> bool {
        !self.decision.is_admitted()
    }

    /// Whether less than a fifth is left.
    pub fn is_near(&self) -> bool {
        is_near(&self.decision)
    }

    /// What became of the call here, if it all ended so.
    pub(super) fn outcome(&self, is_allowed: bool) -> Option<Outcome> {
        let refuses = self.is_refusal();
        if !is_allowed && !refuses && self.mode != Mode::Count {
            return None; // it would have let pass what others refused, and took nothing
        }
        Some(match self.basis {
            Basis::Store if is_allowed && refuses => Outcome::ShadowDenied,
            Basis::Store if refuses => Outcome::Denied,
            Basis::Store => Outcome::Allowed,
            Basis::Local if refuses => Outcome::ErrorLocalDenied,
            Basis::Local => Outcome::ErrorLocalAllowed,
            Basis::Open => Outcome::ErrorOpen,
            Basis::Closed => Outcome::ErrorClosed,
        })
    }
}

impl Ruling<'_> {
    /// Adds it to what is counted of every limit.
    pub(super) fn count(&self) {
        count(&self.findings, self.is_allowed);
    }
}

/// Whether something is asked for: looking, charging and giving back are no calls.
#[inline]
pub(crate) fn is_counted(mode: Mode) -> bool {
    matches!(mode, Mode::Take | Mode::Count)
}

/// Adds to what is counted of every limit: a limit with several quotas once. Only calls count.
pub(super) fn count(findings: &[Finding<'_>], is_allowed: bool) {
    for of_limit in findings.chunk_by(|a, b| a.ask == b.ask && std::ptr::eq(a.limit, b.limit)) {
        let finding = of_limit.iter().find(|finding| finding.is_refusal()).unwrap_or(&of_limit[0]);
        if let Some(outcome) = finding.outcome(is_allowed).filter(|_| is_counted(finding.mode)) {
            let is_near = outcome == Outcome::Allowed && of_limit.iter().any(Finding::is_near);
            finding.limit.tally.count(outcome, finding.cost, is_near);
        }
    }
}

/// Adds to what is counted of a limit what it said of a call that concerns no other.
#[inline]
pub(super) fn count_alone(limit: &Told, cost: u64, decision: &Decision) {
    if decision.is_admitted() {
        limit.tally.count(Outcome::Allowed, cost, is_near(decision));
    } else {
        limit.tally.count(Outcome::Denied, cost, false);
    }
}

#[inline]
fn is_near(decision: &Decision) -> bool {
    let (left, limit) = (decision.remaining(), decision.limit());
    limit != u64::MAX && left < limit.div_ceil(5)
}

/// What there is to tell of a hit, besides what was said.
#[derive(Clone, Copy, Debug)]
pub(super) struct About<'a> {
    pub(super) ask: usize,
    pub(super) limit: &'a Told,
    /// What was to be done.
    pub(super) mode: Mode,
    pub(super) is_shadow: bool,
    pub(super) is_quota: bool,
    /// Whether it asks only if the limit is exceeded.
    pub(super) is_probe: bool,
}

impl<'a> About<'a> {
    pub(super) fn finding(self, quota: usize, cost: u64, decision: Decision, basis: Basis) -> Finding<'a> {
        let Self { ask, limit, mode, is_shadow, is_quota, .. } = self;
        let reset_if_taken = decision.reset_after();
        Finding {
            ask,
            limit,
            quota,
            cost,
            decision,
            reset_if_taken,
            mode,
            is_shadow,
            is_quota,
            over: 0,
            basis,
        }
    }

    /// What the count of a counter comes to.
    fn judged(self, rule: &Rule, said: &Said, basis: Basis) -> Finding<'a> {
        let (cost, Judgement { decision, over }) =
            if self.is_probe { (0, rule.probe(said)) } else { (said.cost, rule.judge(self.mode, said)) };
        Finding { over, ..self.finding(said.quota as usize, cost, decision, basis) }
    }
}

/// What a store said of some hits, each with its place among the asks. Of those that were to be taken and were not, since
/// something else refused, what they say is as if they had not been asked.
pub(super) fn findings<'a, L: AsRef<Rule>>(
    answer: &Answer,
    mode: Mode,
    basis: Basis,
    hits: &[Hit<'_, L>],
    of: impl Fn(usize) -> About<'a>,
) -> impl Iterator<Item = Finding<'a>> {
    let is_taken = mode != Mode::Peek && answer.is_admitted();
    answer.each().iter().map(move |said| {
        let about = of(said.hit as usize);
        if about.limit.rule.is_counter() {
            return about.judged(hits[said.hit as usize].limit.as_ref(), said, basis);
        }
        let is_untaken = about.mode == Mode::Take && !is_taken;
        let decision = if is_untaken { said.untaken(&about.limit.rule) } else { said.decision };
        let finding = about.finding(said.quota as usize, said.cost, decision, basis);
        Finding { reset_if_taken: said.decision.reset_after(), ..finding }
    })
}

/// Whether a call is refused: if a limit that is enforced refuses, or if there are quotas and none is left or free.
pub(super) fn is_refused<'f, 'a: 'f>(
    findings: impl Iterator<Item = &'f Finding<'a>> + Clone,
    has_free_quota: bool,
) -> bool {
    let enforced = findings.filter(|finding| !finding.is_shadow);
    if enforced.clone().any(|finding| !finding.is_quota && finding.is_refusal()) {
        return true;
    }
    let quotas = enforced.filter(|finding| finding.is_quota);
    let is_over = |quota: &Finding<'_>| {
        quotas.clone().any(|other| {
            other.is_refusal() && other.ask == quota.ask && std::ptr::eq(other.limit, quota.limit)
        })
    };
    !has_free_quota && quotas.clone().next().is_some() && quotas.clone().all(is_over)
}
