//! Whose time everything goes by.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use tollgate::{Bell, Clock, Tick, Timer, TokioClock};

/// Where the pieces of this crate read the time, and what wakes them. Clones go by the same time.
///
/// [`tokio`](Self::tokio) is what everything uses unless told otherwise; under `tokio::time::pause` it stands still and
/// jumps as tokio's does. [`of`](Self::of) goes by any other clock, such as a [`ManualClock`](tollgate::ManualClock).
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate_flow::Time;
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
/// # runtime.block_on(async {
/// let time = Time::tokio();
/// let start = time.now();
/// time.sleep(Duration::from_secs(3_600)).await; // at once, by tokio's paused clock
/// assert_eq!(time.now().since(start), Duration::from_secs(3_600));
/// # });
/// ```
#[derive(Clone, Debug)]
pub struct Time {
    source: Source,
}

#[derive(Clone, Debug)]
enum Source {
    Tokio(TokioClock),
    Clock(Arc<dyn Ticking>),
}

/// A clock whose type nobody needs to know.
trait Ticking: fmt::Debug + Send + Sync {
    fn tick(&self) -> Tick;
    fn since_1970(&self) -> Duration;
    fn alarms(&self) -> Arc<dyn Timer>;
}

impl<C: Clock> Ticking for C {
    fn tick(&self) -> Tick {
        self.now()
    }

    fn since_1970(&self) -> Duration {
        self.unix()
    }

    fn alarms(&self) -> Arc<dyn Timer> {
        self.timer()
    }
}

impl Time {
    /// tokio's time, on the current runtime.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn tokio() -> Self {
        Self { source: Source::Tokio(TokioClock::new()) }
    }

    /// The time of `clock`, and its timer. A sleep that is dropped leaves its alarm with the timer until it rings.
    pub fn of(clock: impl Clock) -> Self {
        Self { source: Source::Clock(Arc::new(clock)) }
    }

    /// The time now.
    pub fn now(&self) -> Tick {
        match &self.source {
            Source::Tokio(clock) => clock.now(),
            Source::Clock(clock) => clock.tick(),
        }
    }

    /// The date and time now, UTC.
    pub fn utc(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + self.unix()
    }

    /// Waits for `span`.
    pub fn sleep(&self, span: Duration) -> Sleep {
        self.sleep_until(self.now() + span)
    }

    /// Waits until `moment`; for ever if it is [`Tick::MAX`].
    pub fn sleep_until(&self, moment: Tick) -> Sleep {
        let waking = match &self.source {
            _ if moment == Tick::MAX => Waking::Never,
            Source::Tokio(clock) => {
                let span = moment.since(clock.now());
                Waking::Tokio {
                    sleep: Box::pin(tokio::time::sleep(span)),
                    clock: clock.clone(),
                    until: moment,
                }
            }
            Source::Clock(clock) => {
                Waking::Timer { clock: Arc::clone(clock), until: moment, bell: Bell::default() }
            }
        };
        Sleep { waking }
    }

    /// Gives `future` no longer than `span`; then it is dropped.
    pub fn timeout<F: Future>(&self, span: Duration, future: F) -> Timeout<F> {
        Timeout { sleep: self.sleep(span), future: Box::pin(future) }
    }
}

/// So limiters can go by it.
impl Clock for Time {
    fn now(&self) -> Tick {
        self.now()
    }

    fn unix(&self) -> Duration {
        match &self.source {
            Source::Tokio(clock) => clock.unix(),
            Source::Clock(clock) => clock.since_1970(),
        }
    }

    fn timer(&self) -> Arc<dyn Timer> {
        match &self.source {
            Source::Tokio(clock) => clock.timer(),
            Source::Clock(clock) => clock.alarms(),
        }
    }
}

/// A wait for a moment; made by [`Time::sleep`].
#[must_use = "a sleep does nothing unless it is awaited"]
#[derive(Debug)]
pub struct Sleep {
    waking: Waking,
}

#[derive(Debug)]
enum Waking {
    Never,
    Tokio { sleep: Pin<Box<tokio::time::Sleep>>, clock: TokioClock, until: Tick },
    Timer { clock: Arc<dyn Ticking>, until: Tick, bell: Bell },
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match &mut self.waking {
            Waking::Never => Poll::Pending,
            // tokio's sleep stays pending for a task that has used up its budget, however late it is.
            Waking::Tokio { clock, until, .. } if *until <= clock.now() => Poll::Ready(()),
            Waking::Tokio { sleep, .. } => sleep.as_mut().poll(context),
            Waking::Timer { clock, until, bell } => {
                let left = until.since(clock.tick());
                if left.is_zero() {
                    return Poll::Ready(());
                }
                bell.ring_after(&*clock.alarms(), left, context.waker());
                Poll::Pending
            }
        }
    }
}

/// It took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("timed out")
    }
}

impl std::error::Error for Elapsed {}

/// A future with a time limit; made by [`Time::timeout`].
#[must_use = "a future does nothing unless it is awaited"]
#[derive(Debug)]
pub struct Timeout<F> {
    sleep: Sleep,
    future: Pin<Box<F>>,
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Poll::Ready(output) = self.future.as_mut().poll(context) {
            return Poll::Ready(Ok(output));
        }
        Pin::new(&mut self.sleep).poll(context).map(|()| Err(Elapsed))
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, poll_fn};
    use std::sync::atomic::Ordering;
    use std::task::{Wake, Waker};

    use tollgate::{Limiter, ManualClock, Quota};

    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    #[test]
    fn a_manual_clock_drives_sleeps() {
        let clock = ManualClock::new();
        let time = Time::of(clock.clone());
        let mut sleep = Box::pin(time.sleep(HOUR));
        let mut context = Context::from_waker(Waker::noop());
        assert!(sleep.as_mut().poll(&mut context).is_pending());
        assert_eq!(clock.next_due(), Some(Tick::ZERO + HOUR));
        clock.advance_to(Tick::from_nanos(HOUR.as_nanos() as u64 - 1));
        assert!(sleep.as_mut().poll(&mut context).is_pending());
        clock.advance(Duration::from_nanos(1));
        assert!(sleep.as_mut().poll(&mut context).is_ready());
        assert_eq!(time.utc(), SystemTime::UNIX_EPOCH + HOUR);
    }

    #[test]
    fn a_limiter_goes_by_it() {
        let clock = ManualClock::new();
        let limiter = Limiter::builder(Quota::per_hour(1)).clock(Time::of(clock.clone())).build();
        assert!(limiter.allow() && !limiter.allow());
        let mut wait = Box::pin(limiter.wait());
        let mut context = Context::from_waker(Waker::noop());
        assert!(wait.as_mut().poll(&mut context).is_pending());
        assert!(clock.next_due().is_some(), "it waits by that clock");
        clock.advance(HOUR);
        assert!(wait.as_mut().poll(&mut context).is_ready());
        assert_eq!(limiter.clock().unix(), HOUR);
    }

    #[test]
    fn a_sleep_for_ever_sets_no_alarm() {
        let clock = ManualClock::new();
        let mut sleep = Box::pin(Time::of(clock.clone()).sleep_until(Tick::MAX));
        assert!(sleep.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(clock.next_due(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_timeout_ends_what_takes_too_long_and_nothing_else() {
        let time = Time::tokio();
        assert_eq!(time.timeout(HOUR, pending::<()>()).await, Err(Elapsed));
        assert_eq!(time.now().since(Tick::ZERO), HOUR);
        assert_eq!(time.timeout(HOUR, async { 7 }).await, Ok(7));
        assert_eq!(time.timeout(HOUR, time.sleep(HOUR / 2)).await, Ok(()));
    }

    #[test]
    fn being_polled_often_sets_one_alarm() {
        let clock = ManualClock::new();
        let mut sleep = Box::pin(Time::of(clock.clone()).sleep(HOUR));
        let rung = Arc::new(Rung::default());
        let waker = Waker::from(Arc::clone(&rung));
        for waker in [Waker::noop(), &waker, &waker] {
            assert!(sleep.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
        }
        clock.advance(HOUR);
        assert_eq!(rung.0.load(Ordering::SeqCst), 1, "the last one is woken, once");
        assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
    }

    #[test]
    fn an_alarm_that_rings_early_is_set_again() {
        let clock = ManualClock::new();
        let mut sleep = Box::pin(Time::of(clock.clone()).sleep(HOUR));
        let mut context = Context::from_waker(Waker::noop());
        assert!(sleep.as_mut().poll(&mut context).is_pending());
        clock.advance(HOUR); // rings
        clock.set(Tick::ZERO); // and it turns out to have been early
        assert!(sleep.as_mut().poll(&mut context).is_pending());
        assert_eq!(clock.next_due(), Some(Tick::ZERO + HOUR));
    }

    #[derive(Default)]
    struct Rung(std::sync::atomic::AtomicUsize);

    impl Wake for Rung {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// tokio's own sleep would not be seen to end: each poll of the future uses up what the task may do.
    #[tokio::test(start_paused = true)]
    async fn a_future_that_is_always_busy_is_ended_all_the_same() {
        let time = Time::tokio();
        let busy = poll_fn(|context| {
            while tokio::task::coop::has_budget_remaining() {
                let mut step = std::pin::pin!(tokio::task::coop::consume_budget());
                let _ = step.as_mut().poll(context);
            }
            context.waker().wake_by_ref();
            Poll::<()>::Pending
        });
        let timeout = time.timeout(HOUR, busy);
        let moving = async {
            tokio::time::advance(HOUR).await;
        };
        assert_eq!(tokio::join!(timeout, moving).0, Err(Elapsed));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_ready_in_time_wins_over_the_clock() {
        let time = Time::tokio();
        assert_eq!(time.timeout(Duration::ZERO, async { 7 }).await, Ok(7));
    }
}
