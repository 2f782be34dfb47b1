//! Calls to Redis that report, decide and borrow in one.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tollgate::store::StoreError;
use tollgate::{Decision, Tick};

use super::account::{Lent, Report, Seen, Why};
use super::desk::Desk;
use crate::call::{Line, Todo, lent};
use crate::draft::{Draft, Tier};
use crate::store::RedisStore;
use crate::twin::View;

/// A call that is about to be made. If it is dropped before it has ended, nothing was admitted by it, and what it was to borrow
/// is as good as lost.
pub(super) struct Call {
    desk: Arc<Desk>,
    store: RedisStore,
    sent: Tick,
    items: Vec<Item>,
    is_over: bool,
}

/// What is asked of one state, and how it is paid for.
struct Item {
    tier: Tier,
    pay: Pay,
}

#[derive(Clone, Copy)]
enum Pay {
    /// By what is here, which is held so long.
    Here { losses: u64, decision: Decision },
    /// By Redis, which also lends some.
    Borrow(Report),
    /// By Redis.
    Ask,
}

impl Call {
    /// Asks for all of these: what is here is held, and the rest is up to Redis.
    pub(super) fn of(desk: &Arc<Desk>, store: &RedisStore, tiers: Vec<Tier>) -> Self {
        let sent = desk.now();
        let hold = |tier: Tier| Item { pay: hold(desk, &tier, sent), tier };
        let items: Vec<Item> = tiers.into_iter().map(hold).collect();
        let mut call = Self { desk: Arc::clone(desk), store: store.clone(), sent, items, is_over: false };
        if !call.is_spread() {
            call.borrow();
        }
        call
    }

    /// Reports, at no cost, states whose accounts have begun a call at `sent`.
    pub(super) fn about(
        desk: &Arc<Desk>,
        store: &RedisStore,
        sent: Tick,
        reports: Vec<(Tier, Report)>,
    ) -> Self {
        let items = reports.into_iter().map(|(tier, report)| Item { tier, pay: Pay::Borrow(report) });
        Self { desk: Arc::clone(desk), store: store.clone(), sent, items: items.collect(), is_over: false }
    }

    /// Whether Redis is asked about states that are not in one place.
    fn is_spread(&self) -> bool {
        let mut tags = self.asked().map(|item| item.tier.tag);
        let first = tags.next();
        self.store.caller().link().is_cluster() && tags.any(|tag| Some(tag) != first)
    }

    /// Begins a call for each state that some can be borrowed of.
    fn borrow(&mut self) {
        for item in &mut self.items {
            if matches!(item.pay, Pay::Ask)
                && item.tier.cost > 0
                && item.tier.twin.is_leasable()
                && let Some(report) = self.desk.begin(&item.tier, Why::Short, self.sent)
            {
                item.pay = Pay::Borrow(report);
            }
        }
    }

    /// Whether some of it is to be lent to this node.
    pub(super) fn borrows(&self) -> bool {
        self.items.iter().any(|item| matches!(item.pay, Pay::Borrow(_)))
    }

    fn asked(&self) -> impl Iterator<Item = &Item> {
        self.items.iter().filter(|item| !matches!(item.pay, Pay::Here { .. }))
    }

    /// Makes the call, and tells what was decided about each.
    ///
    /// # Cancel safety
    /// What was asked may be taken although nobody hears of it.
    pub(super) async fn run(mut self) -> Result<Vec<Decision>, StoreError> {
        let answers = self.ask().await?;
        let is_admitted = answers.iter().all(|(view, ..)| view.fits);
        let mut answers = answers.into_iter();
        self.is_over = true;
        let mut decisions = Vec::with_capacity(self.items.len());
        for item in &self.items {
            decisions.push(match &item.pay {
                Pay::Here { losses, decision } => {
                    self.let_go(&item.tier, *losses, is_admitted);
                    *decision
                }
                pay => {
                    // There is one for each that was asked about.
                    let Some((view, lent, had)) = answers.next() else { continue };
                    self.end(&item.tier, pay, &view, lent, had)
                }
            });
        }
        Ok(decisions)
    }

    /// What Redis says about those that it is asked about.
    async fn ask(&self) -> Result<Vec<(View, f64, bool)>, StoreError> {
        let tiers: Vec<&Tier> = self.asked().map(|item| &item.tier).collect();
        if tiers.is_empty() {
            return Ok(Vec::new());
        }
        if !self.borrows() {
            let tiers = tiers.into_iter().cloned().collect();
            let draft = Draft { tiers, places: Vec::new(), is_alone: false };
            let views = self.store.take(&draft).await?;
            return Ok(views.into_iter().map(|view| (view, 0.0, false)).collect());
        }
        self.desk.calls.fetch_add(1, Ordering::Relaxed);
        let lines: Vec<Line<'_>> = self.asked().map(|item| self.line(item)).collect();
        let answer = self.store.caller().run(Todo::Lease, &lines).await?;
        lent(&answer, lines.len())
    }

    #[allow(clippy::cast_precision_loss, reason = "all are below 2^53, but for costs that never fit anyway")]
    fn line<'a>(&self, item: &'a Item) -> Line<'a> {
        let Pay::Borrow(report) = item.pay else { return item.tier.line_with([0.0; 6]) };
        let units = |count: u64| item.tier.twin.size(count) as f64;
        let time = self.desk.leases.time().as_micros() as f64;
        item.tier.line_with([
            self.desk.node,
            report.number as f64,
            units(report.left),
            units(report.keep),
            units(report.want),
            time,
        ])
    }

    /// What follows for the account of a state that Redis was asked about, and for whoever asked.
    fn end(&self, tier: &Tier, pay: &Pay, view: &View, lent: f64, had: bool) -> Decision {
        let decision = tier.twin.decision(view, tier.cost, false);
        let more = tier.twin.count(lent);
        let told = self.desk.account(tier, |account, tally| {
            if let Pay::Borrow(report) = pay {
                let reset_ns = decision.reset_after().map_or(u64::MAX, |span| span.as_nanos() as u64);
                let remaining = decision.remaining().saturating_sub(more);
                let seen = Seen { limit: decision.limit(), remaining, reset_ns };
                account.end(report, self.sent, Some(Lent { more, had, seen }), &self.desk.leases, tally);
            }
            if view.fits {
                return decision;
            }
            let now = self.desk.now();
            account.refused(tier.cost, now, decision, self.spare(tier));
            account.refusal(tier.cost, now).unwrap_or(decision)
        });
        self.desk.tell(tier);
        told.unwrap_or(decision)
    }

    /// How long what is restored may lie there although somebody wants it: until it is as much as a lease, so that no more is missing
    /// than if it were out; and until the bucket is half full, so that nothing runs over.
    fn spare(&self, tier: &Tier) -> Duration {
        tier.twin.restored(self.desk.leases.most().min(tier.twin.limit / 2))
    }

    fn let_go(&self, tier: &Tier, losses: u64, is_spent: bool) {
        self.desk.account(tier, |account, tally| {
            account.let_go(tier.cost, losses, is_spent, tally);
        });
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        if self.borrows() {
            self.desk.rest(self.sent);
        }
        for Item { tier, pay } in &self.items {
            match pay {
                Pay::Here { losses, .. } => self.let_go(tier, *losses, false),
                Pay::Borrow(report) => {
                    self.desk.account(tier, |account, tally| {
                        account.end(report, self.sent, None, &self.desk.leases, tally);
                    });
                    self.desk.tell(tier);
                }
                Pay::Ask => {}
            }
        }
    }
}

/// Holds what is asked of one state, if it is here.
fn hold(desk: &Desk, tier: &Tier, now: Tick) -> Pay {
    let held = desk.account(tier, |account, tally| {
        account.expire(now, tally);
        account.note(tier.cost, now);
        let losses = if tier.cost > 0 { account.hold(tier.cost) } else { None };
        losses.map(|losses| Pay::Here { losses, decision: account.decision() })
    });
    held.flatten().unwrap_or(Pay::Ask)
}

#[cfg(test)]
mod tests {
    use tollgate::store::{Hit, Mode, Rule, Store};
    use tollgate::{ManualClock, Quota};
    use tollgate_testkit::Redis;

    use super::*;
    use crate::leased::Leases;

    /// A call that got lost on its way, and arrives when a later one has been answered.
    #[tokio::test]
    async fn a_call_that_was_overtaken_neither_reports_nor_borrows() {
        let (redis, clock) = (Redis::start(), ManualClock::new());
        let store = RedisStore::builder(&redis.url()).clock(clock.clone()).build().unwrap();
        let desk = Arc::new(Desk::new(Leases::up_to(10), Some(&clock)));
        let limit = store.open(&Rule::new("d", "n", Quota::per_second(0).burst(100)));
        let hits = [Hit::new(&limit, b"k").costing(0)];
        let call = |number| {
            let tier = Draft::of(store.keys(), &hits, true).unwrap().tiers.remove(0);
            let report = Report { number, left: 0, keep: 0, want: 4, pace: 0 };
            Call::about(&desk, &store, desk.now(), vec![(tier, report)]).run()
        };
        let left = async || {
            let answer = store.decide(Mode::Peek, &hits).await.unwrap();
            answer.decision().remaining()
        };
        call(2).await.unwrap();
        assert_eq!(left().await, 96);
        call(1).await.unwrap();
        assert_eq!(left().await, 96);
        call(3).await.unwrap(); // which has nothing left of the four, and gets four more
        assert_eq!(left().await, 92);
    }
}
