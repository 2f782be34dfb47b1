//! The queue of those who wait: first come, first served, with one alarm for all of them.
//!
//! Nobody who waits has been promised a time. The head of the queue is admitted when the state admits it; whoever gives
//! up just leaves the line; a new quota changes when the head is due and nothing else. While anybody waits the cell
//! is shut, so that those who do not wait cannot slip past. Only a reservation can: it is made from what is not promised
//! yet, and those who wait have been promised nothing.
//!
//! Grants are made under the queue's lock, by whoever finds them due: the timer, a waiter that has just lined up, or
//! somebody who gives something back. The wakers are called after the lock is released.

mod alarm;
mod line;
mod look;
mod returns;
mod serve;
mod take;

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use tollgate_core::{Quota, Tick};

use crate::cell::{Cell, Held};
use crate::clock::Clock;
use crate::name::Name;
use crate::spare::Spare;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, lock};
use crate::timer::Timer;
use crate::wait::{Phase, WaitError, Waiter};
use crate::watch::Watchers;
use alarm::{Alarm, FIRST_ALARMS};
use returns::Change;
pub(crate) use returns::Epoch;
pub(crate) use serve::wake_all;

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

/// How many changes of quota a claim may outlive.
const CHANGES_KEPT: usize = 8;

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
}
