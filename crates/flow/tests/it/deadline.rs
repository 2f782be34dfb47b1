//! Scopes as their users meet them: passed down, ended, run.

use std::future::{Future, pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
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
        assert_eq!(told(Ended::Cancelled), ("cancelled; trying again will not help".into(), Again::Never));
        assert_eq!(
            told(Ended::Deadline),
            ("deadline exceeded; trying again later can help".into(), Again::Later)
        );
        assert_eq!(
            told(short),
            ("not enough time: needs 3s, 500ms left; trying again later can help".into(), Again::Later)
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
