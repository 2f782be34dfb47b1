//! Getting into line and out of it.

use std::sync::Arc;

use tollgate_core::{Ask, Claim, Tick};

use super::serve::Served;
use super::{Epoch, FORGIVEN, Queue, Shared};
use crate::cell::{Cell, Held};
use crate::clock::Clock;
use crate::sync::{MutexGuard, lock};
use crate::wait::{Grant, Phase, WaitError, Waiter};

impl<A: Held, C: Clock> Shared<A, C> {
    /// Lines up, or says why not. `place` has the waiter as soon as it is in line, also if something panics after that.
    pub(crate) fn line_up(
        self: &Arc<Self>,
        waiter: Waiter,
        place: &mut Option<Arc<Waiter>>,
        now: Tick,
    ) -> Result<(), WaitError> {
        let mut queue = lock(&self.queue);
        let mut served = Served::default();
        if self.must_pass_first(&queue, &waiter, now) {
            served = self.pass(&mut queue, now);
        }
        let may_line_up = self.may_line_up(&mut queue, &waiter, now);
        if may_line_up.is_ok() {
            queue.line.push_back(Arc::clone(place.insert(Arc::new(waiter))));
            queue.waiting += 1;
            if queue.waiting == 1 {
                self.cell.shut();
                served.and_then(self.pass(&mut queue, now));
            }
        } else if queue.waiting == 0 {
            queue.tail = None; // with nobody in line the state changes without the lock
        }
        drop(queue);
        self.tell(served);
        may_line_up
    }

    /// Whether whoever is due must be served before somebody lines up, because the alarm is late and it makes a difference. Where it
    /// makes none that is the alarm's business: several who wake others at a time wake them out of order.
    fn must_pass_first(&self, queue: &Queue<A, C>, waiter: &Waiter, now: Tick) -> bool {
        let Some((_, due)) = queue.alarms.last() else { return false };
        let matters = waiter.deadline < Tick::MAX || queue.waiting >= self.longest_queue;
        queue.waiting > 0 && *due <= now && (matters || *due + FORGIVEN <= now)
    }

    fn may_line_up(&self, queue: &mut Queue<A, C>, waiter: &Waiter, now: Tick) -> Result<(), WaitError> {
        if self.is_closed() {
            return Err(WaitError::Closed);
        }
        let fresh = self.cell.algorithm().decide(&A::State::default(), now, Ask::now(waiter.cost)).decision;
        if fresh.is_never() {
            return Err(WaitError::Never { cost: waiter.cost, limit: fresh.limit() });
        }
        if queue.waiting >= self.longest_queue {
            return Err(WaitError::Full { waiting: queue.waiting });
        }
        // Without a deadline the rest need not be known, unless nobody is in line: then it may be that nothing ever comes.
        if waiter.deadline < Tick::MAX || queue.tail.is_some() || queue.waiting == 0 {
            let algorithm = self.project(queue, now);
            let is_first = queue.waiting == 0;
            let tail = queue.tail.as_mut().expect("just projected");
            let step = algorithm.decide(&tail.state, now, Ask::whenever(waiter.cost));
            if step.decision.is_never() {
                return Err(WaitError::Never { cost: waiter.cost, limit: step.decision.limit() });
            }
            let delay = step.decision.delay();
            if now + delay > waiter.deadline {
                return Err(WaitError::TooLate { would_take: delay });
            }
            if let Some(change) = step.change {
                algorithm.apply(&mut tail.state, change);
            }
            if is_first {
                tail.until = now + delay;
            }
        }
        Ok(())
    }

    /// Leaves the line, or hands on a grant that nobody will use.
    pub(crate) fn leave(self: &Arc<Self>, waiter: &Waiter) {
        let now = self.clock.now();
        let mut queue = lock(&self.queue);
        match waiter.take_phase() {
            Phase::Waiting(_) => {
                queue.waiting -= 1;
                queue.tail = None;
                queue.tidy();
                self.serve(queue, now);
            }
            Phase::Granted(grant) => self.hand_on(queue, grant, now),
            Phase::Refused(_) | Phase::Gone => drop(queue), // whoever is told may ask
        }
        self.watchers.tell();
    }

    /// Lets the next in line have a grant that nobody picked up; if that cannot be, gives it back.
    fn hand_on(self: &Arc<Self>, mut queue: MutexGuard<'_, Queue<A, C>>, grant: Grant, now: Tick) {
        let Some(claim) = grant.claim else {
            return; // nothing is counted where nothing is limited
        };
        while queue.line.front().is_some_and(|waiter| !waiter.is_waiting()) {
            queue.line.pop_front();
        }
        let fits = queue.line.front().is_some_and(|next| next.cost == claim.cost);
        if !fits || !self.may_hand_on(&mut queue, claim, grant.epoch, now) {
            return self.take_back(queue, claim, claim.cost, grant.epoch, None);
        }
        let next = queue.line.pop_front().expect("somebody is there whom it fits");
        let grant = Grant { claim: Some(Claim { act: now, ..claim }), ..grant };
        let mut served = Served::default();
        served.wakers.extend(next.resolve(Phase::Granted(grant)));
        queue.waiting -= 1;
        queue.tail = None;
        // Whoever is the head now may cost less, and be due before the alarm that was set.
        served.and_then(self.pass(&mut queue, now));
        drop(queue);
        self.tell(served);
    }

    fn may_hand_on(&self, queue: &mut Queue<A, C>, claim: Claim, epoch: Epoch, now: Tick) -> bool {
        if self.ahead() > now {
            return false; // something stands on a floor that is not known here
        }
        let standing = self.cell.standing(now);
        // Of a claim from before a change of quota, time may have restored a part by then.
        let Some(worth) = self.worth(queue, claim, epoch).filter(|worth| worth.cost == claim.cost) else {
            return false;
        };
        let holds_all = self.cell.holds_all(worth, now);
        if holds_all && standing.is_some_and(|standing| standing.would_keep_distance(worth)) {
            return true;
        }
        if queue.spare.use_for(claim, standing, now) {
            return true;
        }
        if queue.spare.bars(worth) {
            return false;
        }
        queue.spare.forget();
        holds_all
    }
}
