//! The queue of those who wait: first come, first served, with one alarm for all of them.
//!
//! A timer forgets nothing, so for a turn that is far off the alarm rings several times on the way: what nobody needs any more
//! stays with the timer for no longer than somebody had waited by then, or a second.
//!
//! Nobody who waits has been promised a time. The head of the queue is admitted when the state admits it; whoever gives
//! up just leaves the line; a new quota changes when the head is due and nothing else. While anybody waits the cell
//! is shut, so that those who do not wait cannot slip past. Only a reservation can: it is made from what is not promised
//! yet, and those who wait have been promised nothing.
//!
//! Grants are made under the queue's lock, by whoever finds them due: the timer, a waiter that has just lined up, or
//! somebody who gives something back. The wakers are called after the lock is released.

mod look;
mod returns;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};
use std::time::Duration;

use tollgate_core::{Ask, Claim, Decision, Quota, Tick};

use crate::cell::{Cell, Held, Prepared, Taken};
use crate::clock::Clock;
use crate::name::Name;
use crate::spare::Spare;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, lock};
use crate::timer::Timer;
use crate::wait::{Grant, Phase, WaitError, Waiter};
use crate::watch::Watchers;
use returns::Change;
pub(crate) use returns::Epoch;

/// A limiter's state with everything around it; what all clones of a limiter share.
#[derive(Debug)]
pub(crate) struct Shared<A: Held, C> {
    pub(crate) clock: C,
    pub(crate) cell: A::Cell,
    /// How far returns have taken the state down, all together.
    fallen: AtomicU64,
    /// How often the quota changed.
    generation: AtomicU64,
    /// Not zero once the limiter is closed.
    closed: AtomicU64,
    /// The latest moment as of which a gate took something, in nanoseconds.
    ahead: AtomicU64,
    pub(crate) timer: Arc<dyn Timer>,
    pub(crate) name: Option<Name>,
    /// The gates that wait for something to come back.
    pub(crate) watchers: Arc<Watchers>,
    longest_queue: usize,
    queue: Mutex<Queue<A, C>>,
}

#[derive(Debug)]
struct Queue<A: Held, C> {
    quota: Quota,
    /// In order of arrival. Those who gave up stay until they reach the head or are too many.
    line: VecDeque<Arc<Waiter>>,
    /// How many of them still wait.
    waiting: usize,
    /// The state as it will be when everybody in line has been served, if somebody asked.
    tail: Option<Tail<A::State>>,
    /// The alarms that are set, and when they ring, the next one last: more than one only if an earlier one was needed later on.
    alarms: Vec<(Arc<Alarm<A, C>>, Tick)>,
    /// The latest changes of quota, so that older claims can still be given back.
    changes: VecDeque<Change<A>>,
    /// What may go to turns that lay unseen for long.
    spare: Spare,
}

/// What comes after everybody in line, as it is known from `at` until the head is due.
#[derive(Clone, Debug)]
struct Tail<S> {
    state: S,
    at: Tick,
    until: Tick,
}

impl<A: Held, C> Queue<A, C> {
    /// Forgets those who gave up or were turned away, if they are too many.
    fn tidy(&mut self) {
        if self.line.len() > 2 * self.waiting + 64 {
            self.line.retain(|other| other.is_waiting());
        }
    }
}

/// How late a timer may ring for a turn to count as in time. Later than that, whoever set a deadline has given up.
pub(crate) const FORGIVEN: Duration = Duration::from_millis(5);

/// How many may wait unless told otherwise.
pub(crate) const LONGEST_QUEUE: usize = 65_536;

/// How many a line has places for when the first one comes.
const FIRST_PLACES: usize = 4;

/// An alarm that is not further off than this need not ring on the way.
const SOON: Duration = Duration::from_secs(1);

/// How many alarms there is room for when the first one is set.
const FIRST_ALARMS: usize = 4;

/// How many changes of quota a claim may outlive.
const CHANGES_KEPT: usize = 8;

/// What a pass over the queue did: whom to wake, how much was granted, and whether somebody was turned away.
#[derive(Default)]
struct Served {
    wakers: Vec<Waker>,
    cost: u64,
    turned_away: bool,
}

impl Served {
    fn turn_away(&mut self, waiter: &Waiter, error: WaitError) {
        self.wakers.extend(waiter.resolve(Phase::Refused(error)));
        self.turned_away = true;
    }
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
    /// What it takes in memory while one waits, with the counts of all that is shared: about, since a state may keep more elsewhere.
    pub(crate) const BYTES: usize = size_of::<Self>()
        + size_of::<Waiter>()
        + size_of::<Alarm<A, C>>()
        + FIRST_PLACES * size_of::<Arc<Waiter>>()
        + FIRST_ALARMS * size_of::<(Arc<Alarm<A, C>>, Tick)>()
        + 3 * size_of::<[usize; 2]>();

    pub(crate) fn new(
        algorithm: A,
        quota: Quota,
        clock: C,
        timer: Arc<dyn Timer>,
        longest: usize,
        name: Option<Name>,
    ) -> Self {
        let queue = Queue {
            quota,
            line: VecDeque::new(),
            waiting: 0,
            tail: None,
            alarms: Vec::new(),
            changes: VecDeque::new(),
            spare: Spare::default(),
        };
        let (fallen, generation, closed) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let (cell, queue) = (A::Cell::new(algorithm), Mutex::new(queue));
        let watchers = Arc::new(Watchers::default());
        let ahead = AtomicU64::new(0);
        Self {
            clock,
            cell,
            fallen,
            generation,
            closed,
            ahead,
            timer,
            name,
            watchers,
            longest_queue: longest,
            queue,
        }
    }

    pub(crate) fn quota(&self) -> Quota {
        lock(&self.queue).quota
    }

    /// The latest moment as of which a gate took something.
    pub(crate) fn ahead(&self) -> Tick {
        Tick::from_nanos(self.ahead.load(Ordering::Acquire))
    }

    /// Remembers that a gate takes something as of that moment.
    pub(crate) fn take_ahead(&self, moment: Tick) {
        self.ahead.fetch_max(moment.as_nanos(), Ordering::AcqRel);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire) != 0
    }

    pub(crate) fn waiting(&self) -> usize {
        lock(&self.queue).waiting
    }

    /// Starts afresh.
    pub(crate) fn reset(self: &Arc<Self>, now: Tick) {
        self.restart(lock(&self.queue), A::State::default(), now);
    }

    /// Starts afresh, from where `algorithm` begins.
    pub(crate) fn reset_to(self: &Arc<Self>, (algorithm, state): &(A, A::State), now: Tick) {
        let queue = lock(&self.queue);
        let state = algorithm.moved(state, now, queue.quota, &self.cell.algorithm());
        self.restart(queue, state, now);
    }

    /// Goes on from another state. What was taken before cannot be given back any more.
    fn restart(self: &Arc<Self>, mut queue: MutexGuard<'_, Queue<A, C>>, state: A::State, now: Tick) {
        self.cell.put(state);
        // Only now: whoever finds the new generation takes from the new state, and so may give that back.
        self.generation.fetch_add(1, Ordering::AcqRel);
        queue.changes.clear();
        queue.spare = Spare::default();
        queue.tail = None;
        self.serve(queue, now);
        self.watchers.tell();
    }

    /// What the quick path could not answer: somebody waits, or the quota is just changing.
    #[cold]
    pub(crate) fn slow_take(self: &Arc<Self>, now: Tick, ask: Ask) -> Taken {
        let mut queue = lock(&self.queue);
        // The alarm may be late: whoever is due goes first, and only then it is known whether anybody waits.
        let served = self.pass(&mut queue, now);
        let may_take = queue.waiting == 0 || ask.patience() > Duration::ZERO;
        let taken = if may_take {
            // A promise is made from what is not promised yet, and does not queue.
            self.cell.take(now, ask)
        } else {
            Taken { decision: self.behind_the_line(&mut queue, now, ask), claim: None }
        };
        if queue.waiting > 0 && taken.claim.is_some() {
            self.re_time(queue, now);
        } else {
            drop(queue);
        }
        self.tell(served);
        taken
    }

    /// What a gate would take. A promise is made ahead of those who wait, anything else behind them.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a gate's decisions should stay in registers as a limiter's do")]
    pub(crate) fn prepare(
        self: &Arc<Self>,
        present: Tick,
        then: Tick,
        ask: Ask,
        is_promise: bool,
    ) -> Prepared<<A::Cell as Cell<A>>::Plan> {
        match self.cell.quick_prepare(then, ask) {
            Some(prepared) => prepared,
            None => self.slow_prepare(present, then, ask, is_promise),
        }
    }

    #[cold]
    fn slow_prepare(
        self: &Arc<Self>,
        present: Tick,
        then: Tick,
        ask: Ask,
        is_promise: bool,
    ) -> Prepared<<A::Cell as Cell<A>>::Plan> {
        let mut queue = lock(&self.queue);
        let served = self.pass(&mut queue, present);
        let prepared = if queue.waiting == 0 || is_promise {
            self.cell.prepare(then, ask)
        } else {
            Prepared { decision: self.behind_the_line(&mut queue, then, ask), taking: None }
        };
        drop(queue);
        self.tell(served);
        prepared
    }

    /// After a gate made a promise ahead of those who wait: they are re-timed.
    pub(crate) fn promised(self: &Arc<Self>, now: Tick) {
        let queue = lock(&self.queue);
        if queue.waiting > 0 {
            self.re_time(queue, now);
        }
    }

    #[inline(never)]
    pub(crate) fn allow_the_long_way(self: &Arc<Self>, now: Tick) -> bool {
        let ask = Ask::now(1);
        if let Some(taken) = self.cell.quick_take(now, ask) {
            return taken.decision.is_allowed();
        }
        let mut queue = lock(&self.queue);
        let served = self.pass(&mut queue, now);
        let allowed = queue.waiting == 0 && self.cell.take(now, ask).decision.is_allowed();
        drop(queue);
        self.tell(served);
        allowed
    }

    #[inline(never)]
    pub(crate) fn check_the_long_way(self: &Arc<Self>, now: Tick, cost: u64) -> Decision {
        if let Some(decision) = self.cell.quick_check(now, cost) {
            return decision;
        }
        let mut queue = lock(&self.queue);
        let served = self.pass(&mut queue, now);
        let decision = if queue.waiting == 0 {
            let patience = self.cell.algorithm().patience();
            self.cell.take(now, Ask::within(cost, patience)).decision
        } else {
            self.behind_the_line(&mut queue, now, Ask::now(cost))
        };
        drop(queue);
        self.tell(served);
        decision
    }

    /// Lines up, or says why not. `place` has the waiter as soon as it is in line, also if something panics after that.
    pub(crate) fn line_up(
        self: &Arc<Self>,
        waiter: Waiter,
        place: &mut Option<Arc<Waiter>>,
        now: Tick,
    ) -> Result<(), WaitError> {
        let mut queue = lock(&self.queue);
        let served = if self.must_pass_first(&queue, &waiter, now) {
            self.pass(&mut queue, now)
        } else {
            Served::default()
        };
        let may_line_up = self.may_line_up(&mut queue, &waiter, now);
        if may_line_up.is_err() && queue.waiting == 0 {
            queue.tail = None; // with nobody in line the state changes without the lock
        }
        if may_line_up.is_ok() {
            let waiter = place.insert(Arc::new(waiter));
            queue.line.push_back(Arc::clone(waiter));
            queue.waiting += 1;
            if queue.waiting == 1 {
                self.cell.shut();
                let more = self.pass(&mut queue, now);
                drop(queue);
                self.tell(served);
                self.tell(more);
                return Ok(());
            }
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
        let mut wakers: Vec<Waker> = next.resolve(Phase::Granted(grant)).into_iter().collect();
        queue.waiting -= 1;
        queue.tail = None;
        // Whoever is the head now may cost less, and be due before the alarm that was set.
        let mut served = self.pass(&mut queue, now);
        drop(queue);
        wakers.append(&mut served.wakers);
        self.tell(Served { wakers, ..served });
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

    /// Charges what something cost beyond what was asked for.
    pub(crate) fn charge(self: &Arc<Self>, extra: u64, now: Tick) {
        let queue = lock(&self.queue);
        self.cell.charge(extra, now);
        if queue.waiting > 0 {
            self.re_time(queue, now);
        }
    }

    /// Changes the quota, and re-times everybody who waits.
    pub(crate) fn set_quota(self: &Arc<Self>, quota: Quota, now: Tick) {
        wake_all(self.retune(quota, now));
    }

    /// [`set_quota`](Self::set_quota) that leaves the waking to the caller, who may hold locks that those who are woken want.
    #[must_use = "whoever must hear of it has to be woken"]
    pub(crate) fn retune(self: &Arc<Self>, quota: Quota, now: Tick) -> Vec<Waker> {
        let mut queue = lock(&self.queue);
        queue.quota = quota;
        let retuned = self.cell.retune(now, quota);
        queue.spare.retuned(self.cell.standing(now));
        if queue.changes.len() == CHANGES_KEPT {
            queue.changes.pop_front();
        }
        queue.changes.push_back(Change { retuned, fallen: self.fallen.load(Ordering::Relaxed) });
        self.generation.fetch_add(1, Ordering::AcqRel);
        let mut wakers = self.move_turns(&mut queue, now).wakers;
        drop(queue);
        wakers.extend(self.watchers.take());
        wakers
    }

    /// After a change that moves everybody's turn: refuses those who can no longer be served, and serves who can be.
    fn re_time(self: &Arc<Self>, mut queue: MutexGuard<'_, Queue<A, C>>, now: Tick) {
        let told = self.move_turns(&mut queue, now);
        drop(queue);
        self.tell(told);
    }

    /// The same while the queue is locked; whom to wake.
    fn move_turns(self: &Arc<Self>, queue: &mut Queue<A, C>, now: Tick) -> Served {
        queue.tail = None;
        let mut told = self.refuse_hopeless(queue, now);
        let served = self.pass(queue, now);
        told.wakers.extend(served.wakers);
        told.turned_away |= served.turned_away;
        told
    }

    /// Wakes whoever has been served or turned away; if it was turned away, gates that wait come sooner than they know.
    fn tell(&self, served: Served) {
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
                let would_take = now.since(waiter.since) + delay;
                (now + delay > waiter.deadline).then_some(WaitError::TooLate { would_take })
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

    /// Turns everybody away, now and from now on.
    pub(crate) fn close(&self) {
        let mut queue = lock(&self.queue);
        self.closed.store(1, Ordering::Release);
        queue.waiting = 0;
        queue.tail = None;
        let line = std::mem::take(&mut queue.line);
        let wakers = line.iter().filter(|waiter| waiter.is_waiting());
        let wakers = wakers.filter_map(|waiter| waiter.resolve(Phase::Refused(WaitError::Closed))).collect();
        self.cell.open();
        drop(queue);
        wake_all(wakers);
        self.watchers.tell();
    }

    fn serve(self: &Arc<Self>, mut queue: MutexGuard<'_, Queue<A, C>>, now: Tick) {
        let served = self.pass(&mut queue, now);
        drop(queue);
        self.tell(served);
    }

    /// Grants whatever is due, opens the cell if nobody is left, and sets the alarm otherwise.
    fn pass(self: &Arc<Self>, queue: &mut Queue<A, C>, now: Tick) -> Served {
        let mut served = Served::default();
        while let Some(head) = queue.line.front() {
            if !head.is_waiting() {
                queue.line.pop_front();
                continue;
            }
            let epoch = self.epoch();
            if now > head.deadline + FORGIVEN {
                let wait = self.cell.prepare(now, Ask::whenever(head.cost)).decision.delay();
                served.turn_away(head, WaitError::TooLate { would_take: now.since(head.since) + wait });
                queue.waiting -= 1;
                continue;
            }
            queue.spare.watch(self.cell.standing(now));
            let Taken { decision, claim } = self.cell.take(now, Ask::now(head.cost));
            if !decision.is_allowed() {
                if let Some(wait) = decision.retry_after() {
                    if now + wait > head.deadline + FORGIVEN {
                        // Somebody took ahead of it unseen, or those before it were served late.
                        served
                            .turn_away(head, WaitError::TooLate { would_take: now.since(head.since) + wait });
                        queue.waiting -= 1;
                        queue.tail = None;
                        continue;
                    }
                    let pause = if served.cost > 0 { self.pause(&decision) } else { Duration::ZERO };
                    let far_off = now.since(head.since).max(SOON);
                    self.set_alarm(queue, now + wait.max(pause).min(far_off));
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

    /// Makes sure that an alarm rings by then.
    fn set_alarm(self: &Arc<Self>, queue: &mut Queue<A, C>, due: Tick) {
        if queue.alarms.last().is_some_and(|(_, earlier)| *earlier <= due) {
            return;
        }
        let alarm = Arc::new(Alarm { shared: std::sync::Mutex::new(Arc::downgrade(self)) });
        // Whoever was told the time may have been told another than the clock's.
        self.timer.wake_after(due.since(self.clock.now()), Waker::from(Arc::clone(&alarm)));
        queue.alarms.push((alarm, due)); // only now: a timer that panicked will not ring
    }
}

impl<A: Held, C> Drop for Shared<A, C> {
    /// A timer may hold an alarm for long; what it rings for must not stay with it.
    fn drop(&mut self) {
        for (alarm, _) in &lock(&self.queue).alarms {
            *alarm.target() = Weak::new();
        }
    }
}

/// Rings for one queue.
#[derive(Debug)]
struct Alarm<A: Held, C> {
    shared: std::sync::Mutex<Weak<Shared<A, C>>>,
}

impl<A: Held, C> Alarm<A, C> {
    fn target(&self) -> std::sync::MutexGuard<'_, Weak<Shared<A, C>>> {
        self.shared.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl<A: Held, C: Clock> Wake for Alarm<A, C> {
    fn wake(self: Arc<Self>) {
        let Some(shared) = self.target().upgrade() else {
            return; // the limiter is gone
        };
        let now = shared.clock.now();
        let mut queue = lock(&shared.queue);
        queue.alarms.retain(|(alarm, _)| !Arc::ptr_eq(alarm, &self));
        shared.serve(queue, now);
    }
}
