//! Scopes as their users meet them: passed down, ended, run, preempted, rolled back.

mod log;

use std::future::{Future, pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use proptest::prelude::*;
use tollgate::{Clock, Limiter, ManualClock, Quota, Tick, TokioClock};
use tollgate_flow::{Again, Ended, Fault, Scope, Time};

const SECOND: Duration = Duration::from_secs(1);

fn manual() -> (ManualClock, Scope) {
    let clock = ManualClock::new();
    let scope = Scope::new(Time::of(clock.clone()));
    (clock, scope)
}

mod families {
    use super::*;

    proptest! {
        #[test]
        fn a_childs_deadline_is_never_later_than_its_parents(spans in prop::collection::vec((any::<u64>(), any::<u64>()), 1..8)) {
            let (clock, mut scope) = manual();
            let mut least = u64::MAX;
            for (wait, span) in spans {
                clock.advance(Duration::from_nanos(wait >> 4));
                let child = scope.within(Duration::from_nanos(span));
                least = least.min(clock.now().as_nanos().saturating_add(span));
                prop_assert_eq!(child.deadline().unwrap_or(Tick::MAX).as_nanos(), least);
                prop_assert!(child.left() <= scope.left());
                scope = child;
            }
        }
    }

    #[test]
    fn a_later_deadline_or_none_is_the_parents() {
        let (_, root) = manual();
        assert_eq!(root.deadline(), None);
        let parent = root.within(SECOND);
        for child in
            [parent.child(), parent.within(2 * SECOND), parent.until(Tick::MAX), parent.within(Duration::MAX)]
        {
            assert_eq!(child.deadline(), Some(Tick::ZERO + SECOND));
        }
        assert_eq!(parent.within(SECOND / 2).deadline(), Some(Tick::ZERO + SECOND / 2));
    }

    #[test]
    fn cancelling_reaches_children_and_grandchildren_only() {
        let (_, root) = manual();
        let parent = root.child();
        let sibling = root.child();
        let child = parent.within(SECOND);
        let grandchild = child.child();
        parent.cancel();
        for ended in [&parent, &child, &grandchild, &parent.child()] {
            assert_eq!(ended.check(), Err(Ended::Cancelled));
        }
        assert_eq!(root.check(), Ok(()));
        assert_eq!(sibling.check(), Ok(()));
    }

    #[test]
    fn a_child_ends_without_its_parent() {
        let (clock, parent) = manual();
        let hasty = parent.within(SECOND);
        clock.advance(SECOND);
        assert_eq!(hasty.check(), Err(Ended::Deadline));
        parent.child().cancel();
        assert_eq!(parent.check(), Ok(()));
    }

    #[test]
    fn a_clone_is_the_same_scope() {
        let (_, scope) = manual();
        scope.clone().cancel();
        assert_eq!(scope.check(), Err(Ended::Cancelled));
    }

    #[test]
    fn a_guard_cancels_when_it_is_dropped() {
        let (_, scope) = manual();
        let guard = scope.cancel_on_drop();
        assert_eq!(scope.check(), Ok(()));
        drop(guard);
        assert_eq!(scope.check(), Err(Ended::Cancelled));
    }
}

mod ends {
    use super::*;

    #[test]
    fn the_deadline_itself_is_too_late() {
        let (clock, root) = manual();
        let scope = root.within(SECOND);
        clock.advance(Duration::from_nanos(999_999_999));
        assert_eq!((scope.check(), scope.left()), (Ok(()), Duration::from_nanos(1)));
        clock.advance(Duration::from_nanos(1));
        assert_eq!((scope.check(), scope.left()), (Err(Ended::Deadline), Duration::ZERO));
        clock.advance(SECOND);
        assert_eq!((scope.check(), scope.left()), (Err(Ended::Deadline), Duration::ZERO));
    }

    #[test]
    fn work_that_cannot_be_done_in_time_is_refused_with_what_is_left() {
        let (clock, root) = manual();
        let scope = root.within(5 * SECOND);
        assert_eq!(scope.needs(5 * SECOND), Ok(()));
        clock.advance(2 * SECOND);
        assert_eq!(scope.needs(3 * SECOND), Ok(()));
        let needed = 3 * SECOND + Duration::from_nanos(1);
        assert_eq!(scope.needs(needed), Err(Ended::TooShort { needed, left: 3 * SECOND }));
        let needed = Duration::MAX;
        assert_eq!(scope.needs(needed), Err(Ended::TooShort { needed, left: 3 * SECOND }));
        clock.advance(3 * SECOND);
        assert_eq!(scope.needs(Duration::ZERO), Err(Ended::Deadline));
        scope.cancel();
        assert_eq!(scope.needs(Duration::ZERO), Err(Ended::Cancelled));
    }

    #[test]
    fn without_a_deadline_there_is_time_for_everything() {
        let (_, scope) = manual();
        assert_eq!(scope.left(), Duration::MAX);
        assert_eq!(scope.needs(Duration::MAX), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn time_spent_waiting_counts() {
        let limiter = Limiter::builder(Quota::per_minute(20).burst(1)).clock(TokioClock::new()).build(); // one in 3 s
        let scope = Scope::new(Time::tokio()).within(5 * SECOND);
        scope.run(limiter.wait()).await.unwrap().unwrap();
        scope.run(limiter.wait()).await.unwrap().unwrap();
        assert_eq!(scope.left(), 2 * SECOND);
        assert_eq!(scope.needs(3 * SECOND), Err(Ended::TooShort { needed: 3 * SECOND, left: 2 * SECOND }));
        assert_eq!(scope.run(limiter.wait()).await.map(|_| ()), Err(Ended::Deadline));
        assert_eq!(scope.left(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn everybody_who_waits_for_the_end_learns_why() {
        let time = Time::tokio();
        let root = Scope::new(time.clone());
        let scope = root.within(SECOND);
        assert_eq!(scope.ended().await, Ended::Deadline);
        assert_eq!(time.now(), Tick::ZERO + SECOND);
        let (a, b, ()) = tokio::join!(root.ended(), root.ended(), async { root.cancel() });
        assert_eq!((a, b), (Ended::Cancelled, Ended::Cancelled));
    }

    #[test]
    fn why_it_ended_is_told_to_people() {
        let told = |ended: Ended| {
            let fault = (|| -> Result<(), Fault> { Err(ended)? })().unwrap_err();
            assert!(!fault.is_unexpected());
            assert_eq!(fault.find::<Ended>(), Some(&ended));
            (fault.to_string().split(" (fault").next().unwrap().to_owned(), fault.again())
        };
        let short = Ended::TooShort { needed: 3 * SECOND, left: SECOND / 2 };
        assert_eq!(
            told(Ended::Cancelled),
            ("it was cancelled; trying again will not help".into(), Again::Never)
        );
        assert_eq!(
            told(Ended::Deadline),
            ("it was not done in time; trying again later can help".into(), Again::Later)
        );
        assert_eq!(
            told(short),
            (
                "there is not enough time: it needs 3s, and 500ms is left; trying again later can help"
                    .into(),
                Again::Later
            )
        );
    }
}

mod running {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_done_at_the_very_moment_of_the_end_is_done() {
        let time = Time::tokio();
        let scope = Scope::new(time.clone()).within(SECOND);
        assert_eq!(scope.run(time.sleep(SECOND)).await, Ok(()));
        assert_eq!(scope.check(), Err(Ended::Deadline));
    }

    #[tokio::test(start_paused = true)]
    async fn a_future_is_dropped_at_the_moment_of_the_end() {
        let time = Time::tokio();
        let held = Arc::new(());
        let inside = Arc::clone(&held);
        let scope = Scope::new(time.clone()).within(SECOND);
        let mut run = Box::pin(scope.run(async move {
            pending::<()>().await;
            drop(inside);
        }));
        assert_eq!(run.as_mut().await, Err(Ended::Deadline));
        assert_eq!(time.now(), Tick::ZERO + SECOND);
        assert_eq!(Arc::strong_count(&held), 1, "although the run itself is still there");
        assert_eq!(run.as_mut().await, Err(Ended::Deadline), "and says the same again");
    }

    #[tokio::test]
    async fn an_ended_scope_does_not_poll_at_all() {
        let (_, scope) = manual();
        scope.cancel();
        let run = scope.run(poll_fn(|_| -> Poll<()> { unreachable!("polled") }));
        assert_eq!(run.await, Err(Ended::Cancelled));
        let run = manual().1.within(Duration::ZERO).run(poll_fn(|_| -> Poll<()> { unreachable!("polled") }));
        assert_eq!(run.await, Err(Ended::Deadline));
    }

    #[tokio::test(start_paused = true)]
    async fn cancelling_from_another_task_ends_it_then() {
        let time = Time::tokio();
        let root = Scope::new(time.clone());
        let scope = root.within(10 * SECOND);
        let canceller = tokio::spawn({
            let time = time.clone();
            async move {
                time.sleep(SECOND).await;
                root.cancel();
            }
        });
        assert_eq!(scope.run(pending::<()>()).await, Err(Ended::Cancelled));
        assert_eq!(time.now(), Tick::ZERO + SECOND);
        canceller.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn cancelled_while_waiting_for_a_token_the_turn_goes_to_the_next() {
        let time = Time::tokio();
        let limiter = Limiter::builder(Quota::per_second(1)).clock(TokioClock::new()).build();
        limiter.wait().await.unwrap();
        let scope = Scope::new(time.clone()).within(SECOND / 2);
        let (first, second) = tokio::join!(scope.run(limiter.wait()), limiter.wait());
        assert_eq!(first.map(|_| ()), Err(Ended::Deadline));
        second.unwrap();
        assert_eq!(time.now(), Tick::ZERO + SECOND);
    }

    /// By the real clock, for a millisecond: paused time does not move while somebody computes.
    #[tokio::test]
    async fn a_future_that_uses_up_its_budget_is_ended_all_the_same() {
        let scope = Scope::new(Time::tokio()).within(Duration::from_millis(1));
        let busy = async {
            for _ in 0..1_000_000_000 {
                tokio::task::consume_budget().await;
            }
        };
        assert_eq!(scope.run(busy).await, Err(Ended::Deadline));
    }

    #[tokio::test(start_paused = true)]
    async fn the_nearest_end_of_nested_runs_decides() {
        let time = Time::tokio();
        let outer = Scope::new(time.clone()).within(3 * SECOND);
        let inner = outer.within(SECOND);
        assert_eq!(outer.run(inner.run(pending::<()>())).await, Ok(Err(Ended::Deadline)));
        assert_eq!(time.now(), Tick::ZERO + SECOND);
    }

    #[test]
    fn a_manual_clock_rings_at_the_deadline_and_only_if_there_is_one() {
        let (clock, root) = manual();
        let mut context = Context::from_waker(Waker::noop());
        let mut endless = pin!(root.run(pending::<()>()));
        assert!(endless.as_mut().poll(&mut context).is_pending());
        assert_eq!(clock.next_due(), None);
        let mut run = pin!(root.within(SECOND).run(pending::<()>()));
        assert!(run.as_mut().poll(&mut context).is_pending());
        assert_eq!(clock.next_due(), Some(Tick::ZERO + SECOND));
        clock.advance(SECOND);
        assert_eq!(run.as_mut().poll(&mut context), Poll::Ready(Err(Ended::Deadline)));
    }

    #[test]
    fn dropping_a_run_drops_the_future() {
        let (_, scope) = manual();
        let held = Arc::new(());
        let inside = Arc::clone(&held);
        let mut run = Box::pin(scope.run(async move {
            pending::<()>().await;
            drop(inside);
        }));
        assert!(run.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(run);
        assert_eq!(Arc::strong_count(&held), 1);
    }
}

mod preempting {
    use super::*;

    const PERIOD: Duration = Duration::from_millis(10);

    /// Computes for `turns`, each of which takes as long as it says, beside a task that wants to run all the time. Returns the
    /// longest time for which it could not.
    fn longest_silence(turns: impl Iterator<Item = Duration>) -> Duration {
        let (clock, scope) = manual();
        let mut preempt = scope.preempt(PERIOD);
        let computation = async {
            for turn in turns {
                clock.advance(turn);
                preempt.point().await.unwrap();
            }
        };
        let mut computation = pin!(computation);
        let mut context = Context::from_waker(Waker::noop());
        let mut longest = Duration::ZERO;
        loop {
            let start = clock.now();
            let is_done = computation.as_mut().poll(&mut context).is_ready();
            longest = longest.max(clock.now().since(start));
            if is_done {
                return longest;
            }
        }
    }

    #[test]
    fn it_yields_once_in_every_period_whatever_a_turn_takes() {
        for micros in [1, 7, 50, 300, 1_200] {
            let turn = Duration::from_micros(micros);
            let silence = longest_silence(std::iter::repeat_n(turn, 200_000 / micros as usize));
            assert!(silence >= PERIOD / 2 && silence <= PERIOD, "turns of {turn:?}: {silence:?}");
        }
    }

    #[test]
    fn it_yields_once_in_every_period_when_turns_become_four_times_as_slow() {
        // 1 µs, 4 µs, 16 µs, 64 µs, 256 µs, 1 024 µs: 300 turns of each.
        let turns = (0..6).flat_map(|step| std::iter::repeat_n(Duration::from_micros(4_u64.pow(step)), 300));
        let silence = longest_silence(turns);
        assert!(silence <= PERIOD, "{silence:?}");
    }

    #[test]
    fn a_sudden_slowness_lasts_for_64_turns_at_most() {
        let fast = std::iter::repeat_n(Duration::from_nanos(10), 10_000);
        let slow = std::iter::repeat_n(PERIOD, 1_000);
        assert!(longest_silence(fast.chain(slow)) <= 64 * PERIOD + PERIOD);
    }

    #[test]
    fn turns_longer_than_the_period_yield_each_time() {
        assert_eq!(longest_silence(std::iter::repeat_n(3 * PERIOD, 20)), 3 * PERIOD);
    }

    #[test]
    fn blocking_work_stops_within_a_period_of_the_deadline() {
        for micros in [1, 40, 1_000] {
            let (clock, root) = manual();
            let scope = root.within(SECOND);
            let mut preempt = scope.preempt(PERIOD);
            while preempt.check().is_ok() {
                clock.advance(Duration::from_micros(micros));
            }
            let late = clock.now().since(Tick::ZERO + SECOND);
            assert!(late <= PERIOD / 8 + Duration::from_micros(micros), "turns of {micros} µs: {late:?}");
        }
    }

    #[test]
    fn async_work_stops_within_a_period_of_being_cancelled() {
        let (clock, scope) = manual();
        let mut preempt = scope.preempt(PERIOD);
        let mut cancelled_at = None;
        let computation = async {
            for turn in 0.. {
                if turn == 7_777 {
                    scope.cancel();
                    cancelled_at = Some(clock.now());
                }
                clock.advance(Duration::from_micros(3));
                preempt.point().await?;
            }
            Ok(())
        };
        let mut computation = Box::pin(computation);
        let mut context = Context::from_waker(Waker::noop());
        let ended = std::iter::repeat_with(|| computation.as_mut().poll(&mut context)).find(Poll::is_ready);
        assert_eq!(ended, Some(Poll::Ready(Err(Ended::Cancelled))));
        drop(computation);
        assert!(clock.now().since(cancelled_at.unwrap()) <= PERIOD);
    }

    #[test]
    fn what_happens_while_it_yields_counts() {
        let (clock, root) = manual();
        let scope = root.within(SECOND);
        let mut preempt = scope.preempt(PERIOD);
        clock.advance(PERIOD);
        let mut point = Box::pin(preempt.point());
        let mut context = Context::from_waker(Waker::noop());
        assert!(point.as_mut().poll(&mut context).is_pending());
        clock.advance(SECOND);
        assert_eq!(point.as_mut().poll(&mut context), Poll::Ready(Err(Ended::Deadline)));
    }

    /// Stands still, and counts how often it is read.
    #[derive(Clone, Debug, Default)]
    struct Counting(Arc<AtomicU32>);

    impl Clock for Counting {
        fn now(&self) -> Tick {
            self.0.fetch_add(1, Ordering::Relaxed);
            Tick::ZERO
        }
    }

    #[test]
    fn a_tight_loop_seldom_reads_the_clock() {
        let clock = Counting::default();
        let mut preempt = Scope::new(Time::of(clock.clone())).preempt(PERIOD);
        for _ in 0..63 + 64 * 1_000 {
            preempt.check().unwrap();
        }
        // Once to begin with, six times for strides of 1, 2, 4, 8, 16 and 32, then every 64th time.
        assert_eq!(clock.0.load(Ordering::Relaxed), 1 + 6 + 1_000);
    }

    #[tokio::test]
    async fn a_thread_ends_with_whoever_wants_its_result() {
        let scope = Scope::new(Time::tokio());
        let guard = scope.cancel_on_drop();
        let mut preempt = scope.preempt(PERIOD);
        let thread = tokio::task::spawn_blocking(move || {
            loop {
                if let Err(ended) = preempt.check() {
                    return ended;
                }
            }
        });
        drop(guard);
        assert_eq!(thread.await.unwrap(), Ended::Cancelled);
    }
}

mod undoing {
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
    use std::sync::Mutex;

    use tokio_util::task::TaskTracker;
    use tollgate_flow::{AsyncRollback, Rollback};

    use super::log::logged;
    use super::*;

    /// What was undone, in order.
    #[derive(Clone, Default)]
    struct Undone(Arc<Mutex<Vec<u32>>>);

    impl Undone {
        fn push(&self, step: u32) {
            self.0.lock().unwrap().push(step);
        }

        fn steps(&self) -> Vec<u32> {
            self.0.lock().unwrap().clone()
        }

        /// A rollback of three steps.
        fn three(&self) -> Rollback<'_> {
            let mut rollback = Rollback::new();
            for step in 1..=3 {
                rollback.on_undo(move || self.push(step));
            }
            rollback
        }

        /// The same, of steps that take a second each.
        fn slow_three(&self, time: &Time, tracker: &TaskTracker) -> AsyncRollback {
            let mut rollback = AsyncRollback::new(tracker);
            for step in 1..=3 {
                let (undone, time) = (self.clone(), time.clone());
                rollback.on_undo(async move {
                    time.sleep(SECOND).await;
                    undone.push(step);
                });
            }
            rollback
        }
    }

    #[test]
    fn the_last_step_is_undone_first() {
        let undone = Undone::default();
        drop(undone.three());
        assert_eq!(undone.steps(), [3, 2, 1]);
    }

    #[test]
    fn what_is_committed_stays() {
        let undone = Undone::default();
        undone.three().commit();
        assert_eq!(undone.steps(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn cancelled_work_is_undone_and_finished_work_is_not() {
        let time = Time::tokio();
        let undone = Undone::default();
        let work = async |span| {
            let rollback = undone.three();
            time.sleep(span).await;
            rollback.commit();
        };
        let scope = Scope::new(time.clone()).within(2 * SECOND);
        assert_eq!(scope.run(work(SECOND)).await, Ok(()));
        assert_eq!(undone.steps(), []);
        assert_eq!(scope.run(work(SECOND + SECOND / 2)).await, Err(Ended::Deadline));
        assert_eq!(undone.steps(), [3, 2, 1]);
    }

    #[test]
    fn a_panic_undoes() {
        let undone = Undone::default();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _rollback = undone.three();
            resume_unwind(Box::new("x"))
        }));
        assert!(panicked.map(|(): ()| ()).is_err());
        assert_eq!(undone.steps(), [3, 2, 1]);
    }

    #[test]
    fn a_step_that_panics_is_reported_and_does_not_keep_the_others() {
        let undone = Undone::default();
        let log = logged(|| {
            let mut rollback = undone.three();
            rollback.on_undo(|| resume_unwind(Box::new("no way back")));
            rollback.on_undo(|| undone.push(5));
        });
        assert_eq!(undone.steps(), [5, 3, 2, 1]);
        assert_eq!(log.lines().count(), 1);
        assert!(log.contains("a step could not be undone") && log.contains("no way back"), "{log}");
    }

    #[tokio::test(start_paused = true)]
    async fn async_steps_run_to_the_end_although_the_scope_has_ended() {
        let (time, tracker, undone) = (Time::tokio(), TaskTracker::new(), Undone::default());
        let root = Scope::new(time.clone());
        let scope = root.within(SECOND);
        let work = async {
            let rollback = undone.slow_three(&time, &tracker);
            pending::<()>().await;
            rollback.commit();
        };
        assert_eq!(scope.run(work).await, Err(Ended::Deadline));
        root.cancel();
        assert_eq!(undone.steps(), [], "dropping did not wait");
        tracker.close();
        tracker.wait().await;
        assert_eq!(undone.steps(), [3, 2, 1]);
        assert_eq!(time.now(), Tick::ZERO + 4 * SECOND, "one second of work, and one for each step");
    }

    #[tokio::test(start_paused = true)]
    async fn async_work_that_is_committed_starts_nothing() {
        let (time, tracker, undone) = (Time::tokio(), TaskTracker::new(), Undone::default());
        undone.slow_three(&time, &tracker).commit();
        drop(AsyncRollback::new(&tracker));
        assert!(tracker.is_empty());
        time.sleep(10 * SECOND).await;
        assert_eq!(undone.steps(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn undo_waits_and_dropping_it_midway_loses_nothing() {
        let (time, tracker, undone) = (Time::tokio(), TaskTracker::new(), Undone::default());
        undone.slow_three(&time, &tracker).undo().await;
        assert_eq!(undone.steps(), [3, 2, 1]);
        let undo = undone.slow_three(&time, &tracker).undo();
        assert!(time.timeout(SECOND + SECOND / 2, undo).await.is_err());
        assert_eq!(undone.steps(), [3, 2, 1, 3]);
        tracker.close();
        tracker.wait().await;
        assert_eq!(undone.steps(), [3, 2, 1, 3, 2, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_for_the_tracker_waits_for_rollbacks_that_are_still_to_begin() {
        let (time, tracker, undone) = (Time::tokio(), TaskTracker::new(), Undone::default());
        let rollback = undone.slow_three(&time, &tracker);
        tracker.close();
        assert!(time.timeout(SECOND, tracker.wait()).await.is_err());
        drop(rollback);
        tracker.wait().await;
        assert_eq!(undone.steps(), [3, 2, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_async_step_that_panics_does_not_keep_the_others() {
        let (time, tracker, undone) = (Time::tokio(), TaskTracker::new(), Undone::default());
        let mut rollback = undone.slow_three(&time, &tracker);
        rollback.on_undo(async { resume_unwind(Box::new("no way back")) });
        rollback.undo().await;
        assert_eq!(undone.steps(), [3, 2, 1]);
    }

    #[test]
    fn steps_that_the_runtime_did_not_live_to_run_are_reported() {
        let undone = Undone::default();
        let log = logged(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .start_paused(true)
                .build()
                .unwrap();
            runtime.block_on(async {
                let time = Time::tokio();
                drop(undone.slow_three(&time, &TaskTracker::new()));
                time.sleep(SECOND + SECOND / 2).await;
            });
            drop(runtime);
        });
        assert_eq!(undone.steps(), [3]);
        assert!(log.contains("the runtime ended before everything was undone"), "{log}");
        assert!(log.contains("context=steps=2"), "{log}");
    }

    #[test]
    fn a_rollback_that_outlives_the_runtime_is_reported() {
        let undone = Undone::default();
        let log = logged(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            let rollback = runtime.block_on(async { undone.slow_three(&Time::tokio(), &TaskTracker::new()) });
            drop(runtime);
            drop(rollback);
        });
        assert_eq!(undone.steps(), []);
        assert!(log.contains("context=steps=3"), "{log}");
    }
}
