//! Closing connections that make no progress.
//!
//! A connection counts what it does in its [`Activity`]. One task for each connection compares the counts from time to time, so
//! that a request pays for no timer of its own. A time-out is enforced after its time and at most a quarter more.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::future::pending;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tollgate_flow::Time;

/// How long a connection may make no progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Without a byte from the peer: the connection is asked to [stop](super::Stop), and closed if it does not.
    pub read: Duration,
    /// Without the peer taking a byte that waits for it, and until a response has been handed to the socket as a whole.
    pub write: Duration,
}

/// Counts what a connection does. All of its parts share one.
#[derive(Debug)]
pub struct Activity {
    timeouts: Timeouts,
    reads: Cell<u64>,
    writes: Cell<u64>,
    is_write_pending: Cell<bool>,
    is_flush_pending: Cell<bool>,
    /// Shared with request bodies, which may be read in other threads.
    has_request: Arc<AtomicBool>,
    /// How many responses have begun and not ended, by the period they began in; the first belongs to the present period.
    unfinished: RefCell<VecDeque<Rc<Cell<usize>>>>,
}

/// Why a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stalled {
    FirstRequest,
    Idle,
    Write,
    Response,
}

impl fmt::Display for Stalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FirstRequest => "first request incomplete after first_request_timeout",
            Self::Idle => "the client sent nothing for the idle timeout",
            Self::Write => "the client read nothing for the write timeout",
            Self::Response => "a response was not complete after the write timeout",
        })
    }
}

/// How many periods a time-out is divided into.
const PERIODS: u32 = 4;
/// How long a connection that was asked to stop may take to say goodbye.
const FAREWELL: Duration = Duration::from_secs(1);

impl Activity {
    pub(crate) fn new(timeouts: Timeouts) -> Rc<Self> {
        Rc::new(Self {
            timeouts,
            reads: Cell::new(0),
            writes: Cell::new(0),
            is_write_pending: Cell::new(false),
            is_flush_pending: Cell::new(false),
            has_request: Arc::default(),
            unfinished: RefCell::new(VecDeque::from([Rc::default()])),
        })
    }

    /// Bytes were read.
    #[inline]
    pub(super) fn has_read(&self) {
        self.reads.set(self.reads.get() + 1);
    }

    /// A write was accepted, or is pending because the peer takes nothing.
    #[inline]
    pub(super) fn wrote(&self, is_pending: bool) {
        self.is_write_pending.set(is_pending);
        if !is_pending {
            self.writes.set(self.writes.get() + 1);
        }
    }

    /// A flush or shutdown went through, or is pending because the peer takes nothing.
    #[inline]
    pub(super) fn flushed(&self, is_pending: bool) {
        self.is_flush_pending.set(is_pending);
    }

    /// Notes that a request was complete and is answered.
    #[inline]
    pub fn answered(&self) {
        self.has_request.store(true, Ordering::Relaxed);
    }

    /// Whether a request was complete.
    pub(super) fn has_request(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.has_request)
    }

    /// Notes that a request was complete and its response begins. The response ends when the guard is dropped.
    pub fn respond(&self) -> ResponseGuard {
        self.answered();
        self.respond_early()
    }

    /// Notes that the response to a request begins that may not be complete yet.
    pub(crate) fn respond_early(&self) -> ResponseGuard {
        let count = Rc::clone(&self.unfinished.borrow()[0]);
        count.set(count.get() + 1);
        ResponseGuard { count }
    }

    /// How many responses have begun and not ended.
    #[cfg(test)]
    pub(super) fn unfinished(&self) -> usize {
        self.unfinished.borrow().iter().map(|count| count.get()).sum()
    }

    /// Waits until the connection has stalled. One that is idle is asked to stop a moment before.
    pub(super) async fn stalled(&self, first_request: Duration, stop: impl FnOnce()) -> Stalled {
        let late = async {
            Time::tokio().sleep(first_request).await;
            if self.has_request.load(Ordering::Relaxed) {
                pending::<()>().await;
            }
            Stalled::FirstRequest
        };
        tokio::select! {
            late = late => late,
            stalled = self.watch(stop) => stalled,
        }
    }

    async fn watch(&self, stop: impl FnOnce()) -> Stalled {
        let (time, Timeouts { read, write }) = (Time::tokio(), self.timeouts);
        // There are never more than a thousand counts of unfinished responses, whatever the time-outs.
        let period = (read.min(write) / PERIODS).max(write / 1_000).max(Duration::from_millis(1));
        let periods = |timeout: Duration| timeout.as_nanos().div_ceil(period.as_nanos());
        let (mut without_read, mut without_write) = (0, 0);
        while without_read < periods(read) {
            let (reads, writes) = (self.reads.get(), self.writes.get());
            time.sleep(period).await;
            without_read = if self.reads.get() == reads { without_read + 1 } else { 0 };
            let is_blocked = self.is_write_pending.get() || self.is_flush_pending.get();
            without_write = if is_blocked && self.writes.get() == writes { without_write + 1 } else { 0 };
            if without_write >= periods(write) {
                return Stalled::Write;
            }
            if self.oldest_unfinished_after_this_period() >= periods(write) {
                return Stalled::Response;
            }
        }
        stop();
        time.sleep(FAREWELL.min(period)).await;
        Stalled::Idle
    }

    /// Begins another period. For how many whole periods the oldest unfinished response has been there.
    fn oldest_unfinished_after_this_period(&self) -> u128 {
        let mut counts = self.unfinished.borrow_mut();
        while counts.back().is_some_and(|oldest| oldest.get() == 0) {
            counts.pop_back();
        }
        let age = counts.len().saturating_sub(1) as u128;
        counts.push_front(Rc::default());
        age
    }
}

/// A response that has begun. It ends when this is dropped.
#[derive(Debug)]
pub struct ResponseGuard {
    count: Rc<Cell<usize>>,
}

impl Drop for ResponseGuard {
    fn drop(&mut self) {
        self.count.set(self.count.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    const TIMEOUTS: Timeouts = Timeouts { read: Duration::from_secs(80), write: Duration::from_secs(10) };
    const FIRST: Duration = Duration::from_secs(15);

    /// Runs `connection` until it has stalled: why, and after how many seconds.
    async fn stalled(activity: &Activity, connection: impl Future<Output = ()>) -> (Stalled, u64) {
        let begin = Instant::now();
        let connection = async {
            connection.await;
            pending::<()>().await;
        };
        tokio::select! {
            stalled = activity.stalled(FIRST, || {}) => (stalled, begin.elapsed().as_secs()),
            () = connection => unreachable!("it is pending"),
        }
    }

    async fn sleep(seconds: u64) {
        Time::tokio().sleep(Duration::from_secs(seconds)).await;
    }

    /// Guards, item 1.
    #[tokio::test(start_paused = true)]
    async fn without_a_complete_request_it_ends_whatever_is_read() {
        let activity = Activity::new(TIMEOUTS);
        let drip = async {
            loop {
                sleep(1).await;
                activity.has_read();
            }
        };
        assert_eq!(stalled(&activity, drip).await, (Stalled::FirstRequest, 15));
    }

    /// Guards, item 1.
    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_is_asked_to_stop_and_then_ends() {
        let activity = Activity::new(TIMEOUTS);
        activity.answered();
        let stopped = Cell::new(None);
        let begin = Instant::now();
        assert_eq!(activity.stalled(FIRST, || stopped.set(Some(begin.elapsed()))).await, Stalled::Idle);
        assert_eq!((stopped.get(), begin.elapsed()), (Some(TIMEOUTS.read), TIMEOUTS.read + FAREWELL));
    }

    /// Guards, item 1.
    #[tokio::test(start_paused = true)]
    async fn reading_keeps_it_open() {
        let activity = Activity::new(TIMEOUTS);
        activity.answered();
        let connection = async {
            sleep(79).await;
            activity.has_read();
        };
        let (why, after) = stalled(&activity, connection).await;
        assert!(why == Stalled::Idle && (79 + 80..=79 + 80 + 20).contains(&after), "{why:?} after {after} s");
    }

    /// Guards, item 1.
    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_nothing_ends_it_though_it_sends() {
        let activity = Activity::new(TIMEOUTS);
        activity.answered();
        let connection = async {
            activity.wrote(true);
            loop {
                sleep(1).await;
                activity.has_read();
            }
        };
        let (why, after) = stalled(&activity, connection).await;
        assert!(why == Stalled::Write && (10..=13).contains(&after), "{why:?} after {after} s");
    }

    /// Guards, item 1.
    #[tokio::test(start_paused = true)]
    async fn a_response_that_is_taken_byte_by_byte_ends_it() {
        let activity = Activity::new(TIMEOUTS);
        let connection = async {
            let quick = activity.respond();
            sleep(9).await;
            let slow = activity.respond();
            drop(quick);
            for _ in 0..20 {
                sleep(1).await;
                activity.has_read();
                activity.wrote(true);
                activity.wrote(false);
            }
            drop(slow);
        };
        let (why, after) = stalled(&activity, connection).await;
        assert!(why == Stalled::Response && (19..=22).contains(&after), "{why:?} after {after} s");
    }

    /// Guards, item 1.
    #[tokio::test(start_paused = true)]
    async fn responses_that_end_in_time_do_not_add_up() {
        let activity = Activity::new(TIMEOUTS);
        let connection = async {
            let mut last = activity.respond();
            for _ in 0..20 {
                sleep(6).await;
                activity.has_read();
                last = activity.respond(); // before the one in front of it ends
            }
            drop(last);
        };
        let (why, after) = stalled(&activity, connection).await;
        assert!(why == Stalled::Idle && after >= 120 + 80, "{why:?} after {after} s");
    }
}
