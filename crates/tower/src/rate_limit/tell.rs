//! What callers are told.

use bytes::Bytes;
use http::{HeaderMap, Response};
use smallvec::SmallVec;
use tollgate::Decision;
use tollgate::store::{Answer, Said, Store};
use tollgate_http::Standing;

use super::denial::Denial;
use super::judge::{Refusal, Taken};
use super::rules::Rules;
use super::wants::Wants;
use crate::head::Head;

impl<S: Store> Rules<S> {
    /// Writes how the caller stands.
    pub(super) fn write(&self, taken: &Taken<S>, headers: &mut HeaderMap) {
        self.plan.options.writer.write(&self.standings(&taken.wants, &taken.answer), headers);
        self.mark(taken.is_degraded, headers);
    }

    /// The same for one limit with one quota.
    pub(super) fn write_one(&self, limit: usize, decision: Decision, headers: &mut HeaderMap) {
        if let Some(told) = self.told(limit).first() {
            self.plan.options.writer.write(&[told.after(decision)], headers);
        }
    }

    fn standings(&self, wants: &Wants, answer: &Answer) -> SmallVec<[Standing<'_>; 4]> {
        let is_refused = !answer.is_admitted();
        let standing = |said: &Said| {
            let want = wants.each().get(said.hit as usize)?;
            let decision = if is_refused { said.untaken(self.desk.rule(want)) } else { said.decision };
            Some(self.told(want.limit()).get(said.quota as usize)?.after(decision))
        };
        answer.each().iter().filter_map(standing).collect()
    }

    /// The answer to a call that is refused.
    pub(super) fn refuse(&self, head: Head<'_>, refusal: &Refusal) -> Response<Bytes> {
        let Refusal { reason, wants, answer, by, is_degraded } = refusal;
        let standings = answer.as_ref().map(|answer| self.standings(wants, answer)).unwrap_or_default();
        let by = by.map(|limit| &**self.name(limit));
        let is_degraded = *is_degraded;
        let denial = Denial { head, reason: *reason, standings: &standings, by, is_degraded };
        let mut response = (self.plan.options.on_denial)(&denial);
        self.plan.options.writer.write(&standings, response.headers_mut());
        self.mark(is_degraded, response.headers_mut());
        response
    }

    /// Marks what was decided without the store.
    fn mark(&self, is_degraded: bool, headers: &mut HeaderMap) {
        if is_degraded {
            self.plan.options.writer.mark_degraded(headers);
        }
    }
}
