//! Serving those in line: who is due gets a turn, and who cannot have one in time is told.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use tollgate_core::{Ask, Decision, Tick};

use super::{FORGIVEN, Queue, Shared};
use crate::cell::{Cell, Held, Taken};
use crate::clock::Clock;
use crate::sync::MutexGuard;
use crate::wait::{Grant, Phase, WaitError, Waiter};

/// What a pass over the queue did: whom to wake, how much was granted, and whether somebody was turned away.
#[derive(Default)]
pub(super) struct Served {
    pub(super) wakers: Vec<Waker>,
    /// How much was granted.
    cost: u64,
    turned_away: bool,
}

impl Served {
    fn turn_away(&mut self, waiter: &Waiter, error: WaitError) {
        self.wakers.extend(waiter.resolve(Phase::Refused(error)));
        self.turned_away = true;
    }

    /// Adds what another pass did after it.
    pub(super) fn and_then(&mut self, mut later: Self) {
        self.wakers.append(&mut later.wakers);
        self.cost = self.cost.saturating_add(later.cost);
        self.turned_away |= later.turned_away;
    }
}

/// What somebody is told who cannot be served in time: how long it would have taken from the beginning.
fn too_late(waiter: &Waiter, now: Tick, wait: Duration) -> WaitError {
    WaitError::TooLate { would_take: now.since(waiter.since) + wait }
}

/// Wakes everybody, even if one of the wakers panics; then the panic goes on.
pub(crate) fn wake_all(wakers: Vec<Waker>) {
    let mut panicked = None;
    for waker in wakers {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
            panicked = Some(panic);
        }
    }
    if let Some(panic) = panicked {
        resume_unwind(panic);
    }
}

impl<A: Held, C: Clock> Shared<A, C> {
    pub(super) fn serve(self: &Arc<Self>, mut queue: MutexGuard<'_, Queue<A, C>>, now: Tick) {
        let served = self.pass(&mut queue, now);
        drop(queue);
        self.tell(served);
    }

    /// Grants whatever is due, opens the cell if nobody is left, and sets the alarm otherwise.
    pub(super) fn pass(self: &Arc<Self>, queue: &mut Queue<A, C>, now: Tick) -> Served {
        let mut served = Served::default();
        while let Some(head) = queue.line.front() {
            if !head.is_waiting() {
                queue.line.pop_front();
                continue;
            }
            let epoch = self.epoch();
            if now > head.deadline + FORGIVEN {
                let wait = self.cell.prepare(now, Ask::whenever(head.cost)).decision.delay();
                served.turn_away(head, too_late(head, now, wait));
                queue.waiting -= 1;
                continue;
            }
            queue.spare.watch(self.cell.standing(now));
            let Taken { decision, claim } = self.cell.take(now, Ask::now(head.cost));
            if !decision.is_allowed() {
                if let Some(wait) = decision.retry_after() {
                    if now + wait > head.deadline + FORGIVEN {
                        // Somebody took ahead of it unseen, or those before it were served late.
                        served.turn_away(head, too_late(head, now, wait));
                        queue.waiting -= 1;
                        queue.tail = None;
                        continue;
                    }
                    let pause = if served.cost > 0 { self.pause(&decision) } else { Duration::ZERO };
                    let since = head.since;
                    self.set_alarm(queue, since, now, wait.max(pause));
                }
                return served;
            }
            served.cost = served.cost.saturating_add(head.cost);
            queue.waiting -= 1;
            queue.tail = None; // it may have come later than projected
            if let Some(claim) = claim {
                queue.spare.took(claim, || self.clock.now());
            }
            served.wakers.extend(head.resolve(Phase::Granted(Grant { decision, claim, epoch })));
            queue.line.pop_front();
        }
        queue.tail = None;
        self.cell.open();
        served
    }

    /// How long a busy queue may rest between two rounds: what the timer likes, but not so long that the limiter would
    /// fill up meanwhile and lose what time gives.
    fn pause(&self, decision: &Decision) -> Duration {
        self.timer.granularity().min(decision.reset_after().unwrap_or_default() / 2)
    }

    /// After a change that moves everybody's turn: refuses those who can no longer be served, and serves who can be.
    pub(super) fn re_time(self: &Arc<Self>, mut queue: MutexGuard<'_, Queue<A, C>>, now: Tick) {
        let told = self.move_turns(&mut queue, now);
        drop(queue);
        self.tell(told);
    }

    /// The same while the queue is locked; whom to wake.
    pub(super) fn move_turns(self: &Arc<Self>, queue: &mut Queue<A, C>, now: Tick) -> Served {
        queue.tail = None;
        let mut told = self.refuse_hopeless(queue, now);
        told.and_then(self.pass(queue, now));
        told
    }

    /// Wakes whoever has been served or turned away; if it was turned away, gates that wait come sooner than they know.
    pub(super) fn tell(&self, served: Served) {
        wake_all(served.wakers);
        if served.turned_away {
            self.watchers.tell();
        }
    }

    /// Refuses those who can no longer be served in time, or at all.
    fn refuse_hopeless(&self, queue: &mut Queue<A, C>, now: Tick) -> Served {
        let (algorithm, mut state) = self.cell.snapshot();
        let mut refused = Served::default();
        for waiter in queue.line.iter().filter(|waiter| waiter.is_waiting()) {
            let step = algorithm.decide(&state, now, Ask::whenever(waiter.cost));
            let delay = step.decision.delay();
            let error = if step.decision.is_never() {
                // At rate zero they stay: the next change may help. Above the limit nothing will.
                let above = waiter.cost > step.decision.limit();
                (above || waiter.deadline < Tick::MAX)
                    .then_some(WaitError::Never { cost: waiter.cost, limit: step.decision.limit() })
            } else {
                (now + delay > waiter.deadline).then(|| too_late(waiter, now, delay))
            };
            match (error, step.change) {
                (Some(error), _) => {
                    queue.waiting -= 1;
                    refused.turn_away(waiter, error);
                }
                (None, Some(change)) => algorithm.apply(&mut state, change),
                (None, None) => {}
            }
        }
        queue.tidy();
        refused
    }
}
