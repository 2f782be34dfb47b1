//! The short way that most calls go: one limit, and nothing else to be looked at.

use std::sync::Arc;

use tollgate::Decision;
use tollgate::store::{Answer, Store};

use super::judge::{Judged, Pass};
use super::rules::{Asked, Plan, Rules};
use crate::head::Head;
use crate::observe::{Outcome, Watch};

impl<S: Store> Plan<S> {
    /// Whether there is one limit, enforced on everybody, at a price that does not change afterwards.
    pub(super) fn is_plain(&self) -> bool {
        let [limit] = &self.limits[..] else { return false };
        !limit.is_shadow && limit.cost.settle.is_none() && self.options.allowed.is_empty()
    }
}

impl<S: Store> Rules<S> {
    /// Decides about a call. What passes at once, of one limit that is all there is to ask about, comes back by itself, and is not
    /// moved any more.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "what passes goes into the call's future from here")]
    pub(super) fn judge_call(self: &Arc<Self>, head: &Head<'_>) -> Result<Pass<S>, Judged<S>> {
        let Some(limit) = self.plan.limits.first().filter(|limit| self.is_alone && limit.applies_to(head))
        else {
            return Err(self.judge_read(head));
        };
        let watch = Watch::start();
        let key = limit.key.value(head, &self.plan.options.clients);
        let Some(key) = key.as_deref() else { return Err(self.judge_read(head)) };
        let cost = limit.cost.first(head);
        match self.desk.take_one_now(0, key, cost) {
            Some(decision) if decision.is_allowed() => {
                self.plan.observer.decided(&watch);
                Ok(self.pass(0, &decision))
            }
            decision => Err(self.judge_at_length(Asked::one(watch, cost, key), decision)),
        }
    }

    /// Decides about any call.
    #[inline(never)]
    fn judge_read(self: &Arc<Self>, head: &Head<'_>) -> Judged<S> {
        self.judge(self.read(head))
    }

    #[inline(never)]
    fn judge_at_length(self: &Arc<Self>, asked: Asked, decision: Option<Decision>) -> Judged<S> {
        match decision {
            Some(decision) => {
                let cost = asked.enforced.each()[0].cost;
                self.judge_answered(asked, Some(Ok(Answer::one(cost, decision))))
            }
            None => self.judge(asked),
        }
    }

    /// A call that one quota of one limit admits, of which nothing will be settled. Tells whoever watches.
    #[inline]
    pub(super) fn pass(&self, limit: usize, decision: &Decision) -> Pass<S> {
        let name = self.name(limit);
        self.plan.observer.count(name, Outcome::Allowed);
        self.plan.observer.count_near(name, [decision]);
        if self.plan.options.writer.is_silent() {
            return Pass::Free;
        }
        Pass::One { limit: limit as u32, decision: *decision }
    }
}

impl Asked {
    /// What a call wants of the only limit.
    fn one(watch: Watch, cost: u64, key: &[u8]) -> Self {
        let mut asked = Self { watch, ..Self::default() };
        asked.enforced.push(0, cost, key);
        asked
    }
}
