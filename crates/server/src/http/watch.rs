//! The time-out of heads over HTTP/1.
//!
//! A request must not pay for a timer. So a connection only notes what it waits for, and a task beside it checks from time to
//! time whether that has changed. It checks more closely once a head is incomplete and nothing more of it can be read.
//! The time-out is enforced after its time and at most a quarter more. Bodies have a [deadline](crate::server::body) of their own. Idle
//! connections and responses that are not taken are closed by the connection's [`Activity`](crate::server::Activity).

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tollgate_flow::Time;

use super::limits::HttpLimits;
use crate::server::Stop;

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// A request.
    Idle,
    /// The rest of a request's head.
    Head,
    /// Us, or the rest of a request's body, which has a time-out of its own.
    Busy,
}

/// What a connection should do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alarm {
    /// End after the request in hand.
    Stop,
    /// The head of a request took too long.
    Late,
}

/// What a connection waits for, as it tells it itself.
#[derive(Debug)]
pub(super) struct Watch {
    phase: Cell<Phase>,
    /// Changes with every change of what is waited for.
    beat: Cell<u64>,
    /// The beat at which the watcher was called.
    called: Cell<u64>,
    call: Notify,
    alarm: Cell<Option<Alarm>>,
    connection: RefCell<Waker>,
}

/// In how many looks a time-out is measured.
const LOOKS: u32 = 4;

impl Watch {
    pub(super) fn new() -> Rc<Self> {
        Rc::new(Self {
            phase: Cell::new(Phase::Idle),
            beat: Cell::new(1),
            called: Cell::new(0),
            call: Notify::new(),
            alarm: Cell::new(None),
            connection: RefCell::new(Waker::noop().clone()),
        })
    }

    /// Watches until what is returned is dropped.
    pub(super) fn start(self: &Rc<Self>, limits: HttpLimits, stop: Stop) -> Watcher {
        let watch = Rc::clone(self);
        let task = tokio::task::spawn_local(async move {
            tokio::select! {
                () = watch.look(&limits) => {}
                () = async { stop.wait().await; watch.raise(Alarm::Stop); std::future::pending().await } => {}
            }
        });
        Watcher { task: task.abort_handle() }
    }

    /// Waits for something else from now on.
    pub(super) fn enter(&self, phase: Phase) {
        self.phase.set(phase);
        self.change();
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase.get()
    }

    fn change(&self) {
        self.beat.set(self.beat.get() + 1);
    }

    /// Something was read.
    pub(super) fn has_read(&self) {
        if self.phase.get() == Phase::Idle {
            self.enter(Phase::Head);
        }
    }

    /// Nothing more is there to be read.
    pub(super) fn wants_more(&self) {
        if self.phase.get() == Phase::Head {
            self.look_closely();
        }
    }

    /// Calls the watcher, once for each thing that is waited for.
    fn look_closely(&self) {
        if self.called.get() != self.beat.get() {
            self.called.set(self.beat.get());
            self.call.notify_one();
        }
    }

    /// What should be done, if anything; the connection is woken when there is something.
    pub(super) fn alarm(&self, context: &Context<'_>) -> Option<Alarm> {
        let mut connection = self.connection.borrow_mut();
        if !connection.will_wake(context.waker()) {
            connection.clone_from(context.waker());
        }
        self.alarm.take()
    }

    pub(super) fn raise(&self, alarm: Alarm) {
        self.alarm.set(Some(alarm));
        self.connection.borrow().wake_by_ref();
    }

    /// Looks for ever.
    async fn look(&self, limits: &HttpLimits) {
        let time = Time::tokio();
        let mut looks = 0;
        loop {
            let (seen, phase) = (self.beat.get(), self.phase.get());
            let patience = match phase {
                Phase::Head => limits.head_timeout,
                Phase::Idle | Phase::Busy => limits.idle_timeout,
            };
            let pause = (patience / LOOKS).max(Duration::from_millis(1));
            let was_called = tokio::select! {
                () = time.sleep(pause) => false,
                () = self.call.notified() => true,
            };
            looks = if was_called || seen != self.beat.get() { 0 } else { looks + 1 };
            if looks >= LOOKS && phase == Phase::Head {
                looks = 0;
                self.raise(Alarm::Late);
            }
        }
    }
}

/// Watches a connection; made by [`Watch::start`].
#[derive(Debug)]
pub(super) struct Watcher {
    task: AbortHandle,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}
