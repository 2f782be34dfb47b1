//! Those who wait at a gate.
//!
//! Only the head of the line tries, each time it is woken; whoever leaves the head wakes the next. So nothing is ever
//! granted to somebody who is not there to take it, and whoever gives up just leaves. The line knows nothing of the limits:
//! it can be shared by gates that only borrow theirs.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Wake, Waker};
use std::time::Duration;

use tollgate_core::Tick;

use crate::queue::LONGEST_QUEUE;
use crate::sync::{Mutex, lock};
use crate::timer::Timer;
use crate::wait::WaitError;

/// A line, once somebody needs it: gates that are composed for one call never do.
#[derive(Debug, Default)]
pub(super) struct LineHandle {
    line: OnceLock<Arc<Line>>,
}

impl LineHandle {
    pub(super) fn get(&self) -> Option<&Arc<Line>> {
        self.line.get()
    }

    pub(super) fn get_or_make(&self) -> &Arc<Line> {
        self.line.get_or_init(Arc::default)
    }

    /// A handle on the same line.
    pub(super) fn share(&self) -> Self {
        Self { line: OnceLock::from(Arc::clone(self.get_or_make())) }
    }
}

#[derive(Debug)]
pub(super) struct Line {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// In order of arrival, and so of ticket.
    waiters: VecDeque<Spot>,
    tickets: u64,
    /// When the head is next woken by time.
    alarm: Option<Tick>,
}

#[derive(Debug)]
struct Spot {
    ticket: u64,
    n: u64,
    waker: Option<Waker>,
}

impl Default for Line {
    fn default() -> Self {
        Self { state: Mutex::new(State::default()) }
    }
}

impl Line {
    pub(super) fn len(&self) -> usize {
        lock(&self.state).waiters.len()
    }

    /// Lines up; the ticket.
    pub(super) fn join(&self, n: u64) -> Result<u64, WaitError> {
        let mut state = lock(&self.state);
        let waiting = state.waiters.len();
        if waiting >= LONGEST_QUEUE {
            return Err(WaitError::Full { waiting });
        }
        state.tickets += 1;
        let ticket = state.tickets;
        state.waiters.push_back(Spot { ticket, n, waker: None });
        Ok(ticket)
    }

    /// What those in line wait for.
    pub(super) fn costs(&self) -> Vec<u64> {
        lock(&self.state).waiters.iter().map(|spot| spot.n).collect()
    }

    /// Whether it is the turn of `ticket`; whoever waits is woken by `waker` when it may be.
    pub(super) fn is_head(&self, ticket: u64, waker: &Waker) -> bool {
        let mut state = lock(&self.state);
        let Some(index) = state.index(ticket) else {
            return false;
        };
        let known = &mut state.waiters[index].waker;
        let old = match known {
            Some(known) if known.will_wake(waker) => None,
            _ => known.replace(waker.clone()),
        };
        drop(state);
        drop(old); // the last waker of a task may drop the task, and with it who knows what
        index == 0
    }

    /// Leaves the line; the next one may be the head now.
    pub(super) fn leave(&self, ticket: u64) {
        let mut state = lock(&self.state);
        let Some(index) = state.index(ticket) else {
            return;
        };
        let left = state.waiters.remove(index);
        let next = if index == 0 { state.head() } else { None };
        drop(state);
        drop(left);
        if let Some(next) = next {
            next.wake();
        }
    }

    /// Wakes the head after `wait`, unless it is woken before that anyway.
    pub(super) fn set_alarm(self: &Arc<Self>, timer: &dyn Timer, now: Tick, wait: Duration) {
        let due = now + wait;
        let mut state = lock(&self.state);
        if state.alarm.is_some_and(|alarm| now <= alarm && alarm <= due) {
            return;
        }
        state.alarm = Some(due);
        drop(state);
        timer.wake_after(wait, Waker::from(Arc::new(Alarm { line: Arc::downgrade(self), ticket: None })));
    }

    /// Wakes whoever has `ticket` after `wait`.
    pub(super) fn set_deadline(self: &Arc<Self>, timer: &dyn Timer, wait: Duration, ticket: u64) {
        let alarm = Alarm { line: Arc::downgrade(self), ticket: Some(ticket) };
        timer.wake_after(wait, Waker::from(Arc::new(alarm)));
    }

    fn wake_head(&self) {
        let head = lock(&self.state).head();
        if let Some(head) = head {
            head.wake();
        }
    }

    fn ring(&self, ticket: Option<u64>) {
        let mut state = lock(&self.state);
        let waker = if let Some(ticket) = ticket {
            state.index(ticket).and_then(|index| state.waiters[index].waker.clone())
        } else {
            state.alarm = None;
            state.head()
        };
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl State {
    fn index(&self, ticket: u64) -> Option<usize> {
        self.waiters.binary_search_by_key(&ticket, |spot| spot.ticket).ok()
    }

    fn head(&self) -> Option<Waker> {
        self.waiters.front().and_then(|spot| spot.waker.clone())
    }
}

/// Told by a limit that something came back.
impl Wake for Line {
    fn wake(self: Arc<Self>) {
        self.wake_head();
    }
}

/// Rings for the head of a line, or for one who waits in it. A timer may keep it for days; the line does not stay with it.
struct Alarm {
    line: Weak<Line>,
    ticket: Option<u64>,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        if let Some(line) = self.line.upgrade() {
            line.ring(self.ticket);
        }
    }
}
