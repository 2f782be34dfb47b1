//! The alarm that rings when the head of the line is due.
//!
//! A timer forgets nothing, so for a turn that is far off the alarm rings several times on the way: what nobody needs any more
//! stays with the timer for no longer than somebody had waited by then, or a second.

use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};
use std::time::Duration;

use tollgate_core::Tick;

use super::{Queue, Shared};
use crate::cell::Held;
use crate::clock::Clock;
use crate::sync::lock;

/// An alarm that is not further off than this need not ring on the way.
const SOON: Duration = Duration::from_secs(1);

/// How many alarms there is room for when the first one is set.
pub(super) const FIRST_ALARMS: usize = 4;

impl<A: Held, C: Clock> Shared<A, C> {
    /// Makes sure that an alarm rings by the time that somebody, who waits since then, is due; or on the way.
    pub(super) fn set_alarm(
        self: &Arc<Self>,
        queue: &mut Queue<A, C>,
        since: Tick,
        now: Tick,
        wait: Duration,
    ) {
        let due = now + wait.min(now.since(since).max(SOON));
        if queue.alarms.last().is_some_and(|(_, earlier)| *earlier <= due) {
            return;
        }
        let alarm = Arc::new(Alarm { shared: std::sync::Mutex::new(Arc::downgrade(self)) });
        // By the clock: `now` may be a caller's own.
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
pub(super) struct Alarm<A: Held, C> {
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
