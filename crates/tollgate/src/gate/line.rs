//! Those who wait at a gate.
//!
//! Only the head of the line tries, each time it is woken; whoever leaves the head wakes the next. So nothing is ever
//! granted to somebody who is not there to take it, and whoever gives up just leaves. A head that does not come although its
//! deadline has passed is turned away, so that it stands in nobody's way. The line knows nothing of the limits but their time:
//! it can be shared by gates that only borrow theirs.
//!
//! One alarm is set for the whole line, for the next moment at which anybody in it must be woken. Most who wait are served
//! long before their deadline, and a timer forgets nothing; so for a deadline that is far off the alarm rings several times on
//! the way, and a wait that has ended leaves none behind for longer than it lasted itself, or a second.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Wake, Waker};
use std::time::Duration;

use tollgate_core::Tick;

use super::member::AnyClock;
use crate::queue::{FORGIVEN, LONGEST_QUEUE, wake_all};
use crate::sync::{Mutex, lock};
use crate::timer::Timer;
use crate::wait::WaitError;

/// A line, once somebody needs it: gates that are composed for one call never do.
#[derive(Debug, Default)]
pub(super) struct LineHandle {
    line: OnceLock<Arc<Line>>,
}

impl LineHandle {
    /// A handle on a line that there is.
    pub(super) fn on(line: &Arc<Line>) -> Self {
        Self { line: OnceLock::from(Arc::clone(line)) }
    }

    pub(super) fn get(&self) -> Option<&Arc<Line>> {
        self.line.get()
    }

    pub(super) fn get_or_make(&self, make: impl FnOnce() -> Line) -> &Arc<Line> {
        self.line.get_or_init(|| Arc::new(make()))
    }
}

#[derive(Debug)]
pub(super) struct Line {
    clock: Box<dyn AnyClock>,
    timer: Arc<dyn Timer>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// In order of arrival, and so of ticket.
    waiters: VecDeque<Spot>,
    tickets: u64,
    /// When the head is to try again, if the limits know.
    head_due: Option<Tick>,
    /// Who has a deadline of which it has not been woken yet.
    deadlines: BTreeSet<(Tick, u64)>,
    /// The alarms that are set: more than one only if an earlier one was needed later on.
    alarms: Vec<Tick>,
}

#[derive(Debug)]
struct Spot {
    ticket: u64,
    n: u64,
    since: Tick,
    deadline: Tick,
    waker: Option<Waker>,
}

/// Where somebody stands who lined up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is its turn.
    Head,
    /// It is not its turn yet.
    Behind,
    /// It is too late, and no longer in line.
    TurnedAway,
}

impl Line {
    pub(super) fn new(clock: Box<dyn AnyClock>, timer: Arc<dyn Timer>) -> Self {
        Self { clock, timer, state: Mutex::new(State::default()) }
    }

    pub(super) fn len(&self) -> usize {
        lock(&self.state).waiters.len()
    }

    /// Lines up; the ticket.
    pub(super) fn join(&self, n: u64, since: Tick, deadline: Tick) -> Result<u64, WaitError> {
        let mut state = lock(&self.state);
        let waiting = state.waiters.len();
        if waiting >= LONGEST_QUEUE {
            return Err(WaitError::Full { waiting });
        }
        state.tickets += 1;
        let ticket = state.tickets;
        state.waiters.push_back(Spot { ticket, n, since, deadline, waker: None });
        Ok(ticket)
    }

    /// What those in line wait for.
    pub(super) fn costs(&self) -> Vec<u64> {
        lock(&self.state).waiters.iter().map(|spot| spot.n).collect()
    }

    /// Whether it is the turn of `ticket`; whoever waits is woken by `waker` when it may be.
    pub(super) fn standing(&self, ticket: u64, now: Tick, waker: &Waker) -> Standing {
        let mut state = lock(&self.state);
        let wakers = state.turn_away(now);
        let index = state.index(ticket);
        let old = index.and_then(|index| state.set_waker(index, waker));
        drop(state);
        drop(old); // the last waker of a task may drop the task, and with it who knows what
        wake_all(wakers);
        match index {
            Some(0) => Standing::Head,
            Some(_) => Standing::Behind,
            None => Standing::TurnedAway,
        }
    }

    /// The head goes on waiting, and tries again when it is `due`, if the limits know when that is.
    pub(super) fn try_again(self: &Arc<Self>, now: Tick, due: Option<Tick>) {
        let mut state = lock(&self.state);
        state.head_due = due;
        self.set_alarm(&mut state, now);
    }

    /// Makes sure that whoever waits is woken when its deadline has passed.
    pub(super) fn ring_in_time(self: &Arc<Self>, now: Tick) {
        self.set_alarm(&mut lock(&self.state), now);
    }

    /// Leaves the line; the next one may be the head now.
    pub(super) fn leave(self: &Arc<Self>, ticket: u64) {
        let now = self.clock.time();
        let mut state = lock(&self.state);
        let Some(index) = state.index(ticket) else {
            drop(state);
            return self.wake_head(); // all watch by one waker, which whoever was turned away has just taken along
        };
        let left = state.remove(index);
        let mut wakers = state.turn_away(now);
        if index == 0 {
            wakers.extend(state.head());
        }
        self.set_alarm(&mut state, now);
        drop(state);
        drop(left);
        wake_all(wakers);
    }

    /// Sets the next alarm, unless one rings before that anyway.
    fn set_alarm(self: &Arc<Self>, state: &mut State, now: Tick) {
        let Some(due) = state.next_alarm(now) else {
            return;
        };
        state.alarms.retain(|alarm| now <= *alarm); // what should have rung by now may never
        if state.alarms.iter().any(|alarm| *alarm <= due) {
            return;
        }
        let due = due.max(now);
        state.alarms.push(due);
        let alarm = Alarm { line: Arc::downgrade(self), due };
        self.timer.wake_after(due.since(now), Waker::from(Arc::new(alarm)));
    }

    fn wake_head(&self) {
        let head = lock(&self.state).head();
        if let Some(head) = head {
            head.wake();
        }
    }

    /// Wakes whoever is to be woken by now. The alarm may have come early, or for somebody who has left.
    fn ring(self: &Arc<Self>, alarm: Tick) {
        let now = self.clock.time();
        let mut state = lock(&self.state);
        state.alarms.retain(|other| *other != alarm);
        let wakers = state.due(now);
        self.set_alarm(&mut state, now);
        drop(state);
        wake_all(wakers);
    }
}

impl State {
    fn index(&self, ticket: u64) -> Option<usize> {
        self.waiters.binary_search_by_key(&ticket, |spot| spot.ticket).ok()
    }

    fn head(&self) -> Option<Waker> {
        self.waiters.front().and_then(|spot| spot.waker.clone())
    }

    /// Sets whom to wake, also when the deadline has passed; the waker that was known before.
    fn set_waker(&mut self, index: usize, waker: &Waker) -> Option<Waker> {
        let Spot { ticket, deadline, waker: known, .. } = &mut self.waiters[index];
        if *deadline < Tick::MAX {
            self.deadlines.insert((*deadline, *ticket));
        }
        match known {
            Some(known) if known.will_wake(waker) => None,
            _ => known.replace(waker.clone()),
        }
    }

    fn remove(&mut self, index: usize) -> Option<Spot> {
        let spot = self.waiters.remove(index)?;
        self.deadlines.remove(&(spot.deadline, spot.ticket));
        if index == 0 {
            self.head_due = None;
        }
        Some(spot)
    }

    /// When somebody must be woken or turned away next, or before that if that is for a deadline and far off.
    fn next_alarm(&self, now: Tick) -> Option<Tick> {
        let head = self.waiters.front()?;
        let deadlines = self.deadlines.first().map(|(deadline, _)| *deadline);
        let patience = (head.deadline < Tick::MAX).then(|| head.deadline + FORGIVEN);
        let late = deadlines.into_iter().chain(patience).min().map(|deadline| deadline + JUST_AFTER);
        let far_off = now + now.since(head.since).max(SOON);
        late.map(|late| late.min(far_off)).into_iter().chain(self.head_due).min()
    }

    /// Turns the head away if it is too late for it, and the next one, and so on; whom to wake: them, and the new head.
    fn turn_away(&mut self, now: Tick) -> Vec<Waker> {
        let waiting = self.waiters.len();
        let mut wakers = Vec::new();
        while self.waiters.front().is_some_and(|head| head.deadline + FORGIVEN < now) {
            wakers.extend(self.remove(0).and_then(|head| head.waker));
        }
        if self.waiters.len() < waiting {
            wakers.extend(self.head());
        }
        wakers
    }

    /// Whom to wake by now: whose deadline has passed, and the head if it is to try again.
    fn due(&mut self, now: Tick) -> Vec<Waker> {
        let mut wakers = self.turn_away(now);
        while self.deadlines.first().is_some_and(|(deadline, _)| *deadline < now) {
            let late = self.deadlines.pop_first();
            let index = late.and_then(|(_, ticket)| self.index(ticket));
            wakers.extend(index.and_then(|index| self.waiters[index].waker.clone()));
        }
        if self.head_due.take_if(|due| *due <= now).is_some() {
            wakers.extend(self.head());
        }
        wakers
    }
}

/// What is not further off than this need not be forgotten before its time.
const SOON: Duration = Duration::from_secs(1);

/// A deadline has passed a moment after it.
const JUST_AFTER: Duration = Duration::from_nanos(1);

/// Told by a limit that something came back.
impl Wake for Line {
    fn wake(self: Arc<Self>) {
        self.wake_head();
    }
}

/// Rings for a line. A timer may keep it for days; the line does not stay with it.
struct Alarm {
    line: Weak<Line>,
    due: Tick,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        if let Some(line) = self.line.upgrade() {
            line.ring(self.due);
        }
    }
}
