//! Ending a run, in every state, with every job accounted for.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use tollgate_flow::pool::{JobContext, Rest};
use tollgate_flow::{Backoff, Control, Fault, Jitter, Outcome, Outcomes, Pool, Retry};

use super::support::{MS, all, evenly, for_a_while, limiter, nap, positions, sleep_ms};

const JOBS: u64 = 40;

/// A source that has no more than `flowing` for the moment, and the moment does not end.
struct Dam {
    jobs: VecDeque<u64>,
    flowing: u64,
}

impl Dam {
    fn new(flowing: u64) -> Self {
        Self { jobs: (0..JOBS).collect(), flowing }
    }
}

impl Stream for Dam {
    type Item = u64;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<u64>> {
        if self.flowing == 0 && !self.jobs.is_empty() {
            return Poll::Pending;
        }
        self.flowing = self.flowing.saturating_sub(1);
        Poll::Ready(self.jobs.pop_front())
    }
}

/// Takes 100 ms. The jobs 3 and 4 fail at the first attempt.
async fn work(job: Arc<u64>, context: JobContext) -> Result<(), Fault> {
    sleep_ms(100).await;
    if context.attempt == 1 && (3..5).contains(&*job) { Err(Fault::untraced("not yet")) } else { Ok(()) }
}

/// A state that a run can be in, and how to get there.
#[derive(Clone, Copy, Debug)]
enum State {
    Idle,
    SourcePending,
    Queued,
    WaitingForTheGate,
    Running,
    BackingOff,
    BackingOffAndPaused,
    Paused,
    Held,
    Unread,
    Over,
}

const STATES: [State; 11] = [
    State::Idle,
    State::SourcePending,
    State::Queued,
    State::WaitingForTheGate,
    State::Running,
    State::BackingOff,
    State::BackingOffAndPaused,
    State::Paused,
    State::Held,
    State::Unread,
    State::Over,
];

type Run = Outcomes<u64, (), Pin<Box<Dam>>>;

impl State {
    /// A run in this state, and what was read on the way.
    async fn reach(self, in_input_order: bool) -> (Run, Vec<Outcome<u64, ()>>) {
        let backoff = Backoff::new().initial(1_000 * MS).jitter(Jitter::None);
        let mut pool = Pool::new(if matches!(self, Self::Queued) { 0 } else { 3 });
        pool = pool.queued(5).retry(Retry::new().backoff(backoff));
        if in_input_order {
            pool = pool.in_input_order();
        }
        if matches!(self, Self::WaitingForTheGate) {
            pool = pool.gate(limiter(evenly(1)));
        }
        let flowing = if matches!(self, Self::SourcePending) { 1 } else { JOBS };
        let mut run = pool.run_stream(Dam::new(flowing), work);
        let (control, mut read) = (run.control(), Vec::new());
        let mut wait = async |millis| read.extend(for_a_while(&mut run, millis * MS).await);
        match self {
            Self::Idle => {}
            Self::SourcePending | Self::WaitingForTheGate => wait(500).await,
            Self::Queued | Self::Running => wait(50).await,
            Self::BackingOff => wait(350).await,
            Self::BackingOffAndPaused => {
                wait(350).await;
                control.pause();
                wait(5_000).await;
            }
            Self::Paused => {
                wait(50).await;
                control.pause();
                wait(500).await;
            }
            Self::Held => {
                wait(50).await;
                control.hold(Duration::from_secs(3_600));
                wait(500).await;
            }
            Self::Unread => {
                wait(50).await;
                sleep_ms(1_000).await;
            }
            Self::Over => wait(100_000).await,
        }
        self.assert_reached(&control);
        (run, read)
    }

    fn assert_reached(self, control: &Control) {
        let stats = control.stats();
        let expected = match self {
            Self::Idle | Self::SourcePending | Self::Over => (0, 0),
            Self::Queued | Self::WaitingForTheGate | Self::Paused | Self::Held | Self::Unread => (0, 5),
            Self::Running | Self::BackingOff => (3, 5),
            Self::BackingOffAndPaused => (2, 5),
        };
        assert_eq!((stats.in_flight, stats.queued), expected, "{self:?}: {stats:?}");
    }
}

/// Every job there was is in exactly one place.
fn assert_all_accounted_for(read: &[Outcome<u64, ()>], rest: &Rest<u64, (), Pin<Box<Dam>>>) {
    let outcomes = read.iter().chain(&rest.outcomes).map(|outcome| *outcome.job);
    let unfinished = rest.unfinished.iter().map(|left| *left.job);
    let mut jobs: Vec<u64> = outcomes.chain(unfinished).chain(rest.source.jobs.iter().copied()).collect();
    jobs.sort_unstable();
    assert_eq!(jobs, (0..JOBS).collect::<Vec<_>>());
    assert!(rest.unfinished.is_sorted_by_key(|left| left.position));
    assert!(rest.unfinished.iter().all(|left| *left.job == left.position));
}

#[tokio::test(start_paused = true)]
async fn a_drain_in_every_state_finishes_what_was_taken_and_takes_no_more() {
    for (state, in_input_order) in STATES.into_iter().flat_map(|state| [(state, false), (state, true)]) {
        let (mut run, mut read) = state.reach(in_input_order).await;
        let control = run.control();
        let taken = control.stats().taken;
        control.drain();
        if matches!(state, State::Queued) {
            control.limit().set_limit(1); // there was no slot at all
        }
        while let Some(outcome) = run.next().await {
            read.push(outcome);
        }
        let stats = control.stats();
        assert_eq!((stats.taken, stats.in_flight, stats.queued), (taken, 0, 0), "{state:?}");
        assert!(read.iter().all(|outcome| outcome.result.is_ok()), "{state:?}");
        assert_eq!(read.len() as u64, taken, "{state:?}");
        assert!(!in_input_order || positions(&read).is_sorted(), "{state:?}");
        let rest = run.stop().await;
        assert!(rest.unfinished.is_empty() && rest.outcomes.is_empty(), "{state:?}");
        assert_all_accounted_for(&read, &rest);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_in_every_state_hands_back_everything() {
    for (state, in_input_order) in STATES.into_iter().flat_map(|state| [(state, false), (state, true)]) {
        let (run, read) = state.reach(in_input_order).await;
        let control = run.control();
        let before = control.stats();
        let start = tokio::time::Instant::now();
        let rest = run.stop().await;
        assert_eq!(start.elapsed(), Duration::ZERO, "{state:?}: at once");
        assert_all_accounted_for(&read, &rest);
        let started = rest.unfinished.iter().filter(|left| left.was_started()).count();
        let not_started = rest.unfinished.len() - started;
        assert_eq!((started, not_started), (before.in_flight, before.queued), "{state:?}");
        let all: Vec<_> = read.iter().chain(&rest.outcomes).map(|outcome| outcome.position).collect();
        assert!(!in_input_order || all.is_sorted(), "{state:?}");
        let stats = control.stats();
        assert_eq!((stats.in_flight, stats.queued, stats.taken), (0, 0, before.taken), "{state:?}");
        assert_eq!(control.limit().in_use(), 0, "{state:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_by_control_ends_the_outcomes_and_what_is_left_can_be_fetched() {
    for state in STATES {
        let (mut run, mut read) = state.reach(false).await;
        run.control().stop();
        while let Some(outcome) = run.next().await {
            read.push(outcome);
        }
        let rest = run.stop().await;
        assert!(rest.outcomes.is_empty(), "{state:?}");
        assert_all_accounted_for(&read, &rest);
    }
}

#[tokio::test(start_paused = true)]
async fn a_drop_in_every_state_leaves_nothing_behind() {
    for state in STATES {
        let (run, _) = state.reach(false).await;
        let control = run.control();
        drop(run);
        sleep_ms(1).await;
        let stats = control.stats();
        assert_eq!((stats.in_flight, stats.queued, control.limit().in_use()), (0, 0, 0), "{state:?}");
        // A control that outlives its run does nothing.
        control.pause();
        control.resume();
        control.hold(MS);
        control.drain();
        control.stop();
        assert_eq!(control.stats(), stats);
    }
}

/// A source that ends the run while it is asked for more.
struct Quitter(Arc<OnceLock<Control>>);

impl Stream for Quitter {
    type Item = u64;

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<u64>> {
        if let Some(control) = self.0.get() {
            control.drain();
        }
        Poll::Pending
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_from_within_the_source_is_heard() {
    let control = Arc::new(OnceLock::new());
    let mut run = Pool::new(1).run_stream(Quitter(Arc::clone(&control)), work);
    control.set(run.control()).unwrap();
    assert!(for_a_while(&mut run, MS).await.is_empty());
    assert!(tokio::time::timeout(MS, run.next()).await.expect("it has ended").is_none());
}

#[tokio::test(start_paused = true)]
async fn what_was_cut_short_is_marked_with_its_attempts() {
    let (run, _) = State::BackingOff.reach(false).await;
    let rest = run.stop().await;
    let attempts: Vec<_> = rest.unfinished.iter().map(|left| (left.position, left.attempts)).collect();
    // 3 and 4 failed at 200 ms and back off; the third slot did 5, then 6, and is at 7.
    assert_eq!(attempts[..3], [(3, 1), (4, 1), (7, 1)]);
    assert!(attempts[3..].iter().all(|(_, attempts)| *attempts == 0));
    assert_eq!(attempts.len(), 8);
}

#[tokio::test(start_paused = true)]
async fn a_stopped_run_can_be_continued_by_another() {
    let pool = Pool::new(2).queued(3);
    let mut first = pool.run(0..20_u64, |_, _| nap(Arc::new(10)));
    let read = for_a_while(&mut first, 35 * MS).await;
    let rest = first.stop().await;
    let left = rest.unfinished.into_iter().map(|left| Arc::into_inner(left.job).expect("nobody else has it"));
    let second = all(pool.run(left.chain(rest.source), |_, _| nap(Arc::new(10)))).await;
    let mut jobs: Vec<_> =
        read.iter().chain(&rest.outcomes).chain(&second).map(|outcome| *outcome.job).collect();
    jobs.sort_unstable();
    assert_eq!(jobs, (0..20).collect::<Vec<_>>());
}
