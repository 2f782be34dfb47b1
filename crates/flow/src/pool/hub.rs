//! What the outcomes' side of a run and its runners share.
//!
//! One lock guards it all, and nobody does anything slow while holding it. A runner that has finished a job takes it once:
//! to put the outcome away, and to take the next job if it may go on.
//!
//! The reader of the outcomes leaves its waker here when it finds nothing to do. Whoever brings something takes the waker
//! along and wakes it without the lock. What does not come with an outcome sets `stirred`, which the reader looks at before it
//! sleeps.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use tokio::sync::Notify;
use tollgate::{ConcurrencyLimit, Tick, WaitError};

use super::control::{Control, Course, Steered};
use super::metrics::Gauges;
use super::outcome::{Outcome, Times, Unfinished};
use super::queue::Queue;
use super::rules::Rules;
use super::stats::{Meter, Stats};
use super::toll::Paid;
use crate::{Fault, Time};

/// A run: its rules, and how it stands.
pub(super) struct Run<J, V> {
    pub(super) rules: Rules,
    pub(super) time: Time,
    state: Mutex<State<J, V>>,
    /// Something changed other than by an outcome.
    stirred: AtomicBool,
    /// Tells runners between two attempts that a pause or hold changed.
    turned: Notify,
}

/// How a run stands.
#[derive(Debug)]
pub(super) struct State<J, V> {
    pub(super) queue: Queue<Entry<J>>,
    /// Outcomes that the reader has not taken over yet.
    pub(super) done: VecDeque<Outcome<J, V>>,
    pub(super) unfinished: Vec<Unfinished<J>>,
    /// How many jobs are with runners.
    pub(super) running: usize,
    /// How many runners were sent to work and have not begun.
    pub(super) fresh: usize,
    pub(super) course: Course,
    pub(super) is_paused: bool,
    pub(super) held_until: Tick,
    pub(super) meter: Meter,
    gauges: Gauges,
    reader: Option<Waker>,
}

/// So many runners are sent to work, and no more until half of them have begun. Those that are done by then go on with the
/// next jobs themselves: so short jobs need few runners, however many there might be.
pub(super) const MOST_FRESH: usize = 16;

/// A job that was pulled from the source.
#[derive(Debug)]
pub(super) struct Entry<J> {
    pub(super) job: Arc<J>,
    pub(super) position: u64,
    pub(super) cost: u64,
    pub(super) queued: Tick,
}

/// Whether an attempt may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Open,
    HeldUntil(Tick),
    Paused,
}

impl Way {
    pub(super) fn is_open(self) -> bool {
        self == Self::Open
    }
}

impl<J, V> State<J, V> {
    /// Whether a job may start, as far as the run is concerned.
    pub(super) fn may_start(&self, rules: &Rules) -> bool {
        self.course < Course::Stop && self.done.len() < rules.unread
    }

    /// Whether anything may start.
    pub(super) fn way(&self, now: impl FnOnce() -> Tick) -> Way {
        if self.is_paused {
            Way::Paused
        } else if self.held_until > Tick::ZERO && now() < self.held_until {
            Way::HeldUntil(self.held_until)
        } else {
            Way::Open
        }
    }

    /// The next job, which is with a runner from now on.
    pub(super) fn start_next(&mut self, now: Tick) -> Option<Entry<J>> {
        let entry = self.queue.pop()?;
        self.running += 1;
        self.meter.started(now.since(entry.queued));
        self.gauges.started(now.since(entry.queued));
        Some(entry)
    }

    /// A runner has begun; whether that makes room for others.
    pub(super) fn begin(&mut self) -> bool {
        self.fresh -= 1;
        self.fresh == MOST_FRESH / 2 && self.queue.len() > 0
    }

    /// Puts an outcome away. If nobody will ever read it, the caller gets it back to drop it without the lock.
    pub(super) fn put_away(&mut self, outcome: Outcome<J, V>) -> Option<Outcome<J, V>> {
        if self.course == Course::Abandon {
            return Some(outcome);
        }
        self.done.push_back(outcome);
        None
    }

    /// As [`put_away`](Self::put_away), for a job that was cut short.
    pub(super) fn hand_back(&mut self, left: Unfinished<J>) -> Option<Unfinished<J>> {
        if self.course == Course::Abandon {
            return Some(left);
        }
        self.unfinished.push(left);
        None
    }

    /// What an entry becomes that could not be started.
    pub(super) fn refuse(&mut self, entry: Entry<J>, error: WaitError, now: Tick) {
        let fault = Fault::from(error).with("cost", entry.cost);
        self.meter.ended(false, now);
        let times =
            Times { queued: entry.queued, waited: now.since(entry.queued), ran: std::time::Duration::ZERO };
        let Entry { job, position, .. } = entry;
        self.done.push_back(Outcome { job, result: Err(fault), attempts: 0, position, times });
    }

    /// A job has an outcome.
    pub(super) fn count_outcome(&mut self, has_value: bool, now: Tick) {
        self.meter.ended(has_value, now);
        self.gauges.ended(has_value);
    }

    /// A job is tried again.
    pub(super) fn count_retry(&mut self, fault: &Fault) {
        self.meter.retries += 1;
        self.gauges.retried(fault);
    }

    /// Leaves a waker, unless there is something to do already.
    pub(super) fn wait(&mut self, waker: &Waker) {
        if !self.reader.as_ref().is_some_and(|known| known.will_wake(waker)) {
            self.reader = Some(waker.clone());
        }
    }

    /// Says how many there are of each, to whoever collects that.
    pub(super) fn tell(&mut self) {
        self.gauges.tell(self.running, self.queue.len());
    }

    /// Whom to wake.
    pub(super) fn waker(&mut self) -> Option<Waker> {
        self.reader.take()
    }
}

impl<J, V> Run<J, V> {
    pub(super) fn new(rules: Rules, time: Time) -> Self {
        let state = State {
            queue: Queue::new(),
            done: VecDeque::new(),
            unfinished: Vec::new(),
            running: 0,
            fresh: 0,
            course: Course::Run,
            is_paused: false,
            held_until: Tick::ZERO,
            meter: Meter::new(time.now()),
            gauges: rules.metering.gauges(),
            reader: None,
        };
        Self { rules, time, state: Mutex::new(state), stirred: AtomicBool::new(true), turned: Notify::new() }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State<J, V>> {
        // Nothing under the lock panics half way, so a poisoned state is a sound one.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that the reader should look at everything.
    pub(super) fn stir(&self) {
        self.stirred.store(true, Ordering::Release);
    }

    /// Whether somebody said so since this was last asked.
    pub(super) fn take_stir(&self) -> bool {
        self.stirred.load(Ordering::Acquire) && self.stirred.swap(false, Ordering::AcqRel)
    }

    pub(super) fn is_stirred(&self) -> bool {
        self.stirred.load(Ordering::Acquire)
    }

    /// Changes how the run is to go on, and tells everybody.
    fn steer(&self, change: impl FnOnce(&mut State<J, V>)) {
        let mut state = self.state();
        change(&mut state);
        self.stir();
        let waker = state.waker();
        drop(state);
        self.turned.notify_waiters();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Waits for the next attempt of a job that has a slot already: while the run is paused or held, and at the gate.
    pub(super) async fn next_turn(&self, cost: u64) -> Result<Option<Paid>, WaitError> {
        loop {
            self.until_open().await;
            let Some(toll) = &self.rules.toll else { return Ok(None) };
            let paid = toll.pay(cost).await?;
            if self.way().is_open() {
                return Ok(Some(paid));
            }
            paid.take_back();
        }
    }

    async fn until_open(&self) {
        loop {
            let mut turned = std::pin::pin!(self.turned.notified());
            turned.as_mut().enable(); // first listen, then look
            match self.way() {
                Way::Open => return,
                Way::Paused => turned.await,
                Way::HeldUntil(moment) => {
                    tokio::select! {
                        () = turned => {}
                        () = self.time.sleep_until(moment) => {}
                    }
                }
            }
        }
    }

    fn way(&self) -> Way {
        self.state().way(|| self.time.now())
    }
}

impl<J: Send + Sync + 'static, V: Send + 'static> Run<J, V> {
    pub(super) fn control(self: &Arc<Self>) -> Control {
        Control::new(Arc::clone(self) as Arc<dyn Steered>)
    }
}

impl<J: Send + Sync, V: Send> Steered for Run<J, V> {
    fn pause(&self, is_paused: bool) {
        self.steer(|state| state.is_paused = is_paused);
    }

    fn hold_until(&self, moment: Tick) {
        self.steer(|state| state.held_until = state.held_until.max(moment));
    }

    fn set_course(&self, course: Course) {
        self.steer(|state| {
            state.course = state.course.max(course);
            state.is_paused = false;
        });
    }

    fn now(&self) -> Tick {
        self.time.now()
    }

    fn limit(&self) -> &ConcurrencyLimit {
        &self.rules.limit
    }

    fn stats(&self) -> Stats {
        let now = self.now();
        let state = self.state();
        Stats { in_flight: state.running, queued: state.queue.len(), ..state.meter.stats(now) }
    }
}

impl<J, V> fmt::Debug for Run<J, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("rules", &self.rules).finish_non_exhaustive()
    }
}
