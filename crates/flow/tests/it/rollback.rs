//! Undoing what was half done.

use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio_util::task::TaskTracker;
use tollgate::Tick;
use tollgate_flow::{AsyncRollback, Ended, Rollback, Scope, Time};

use crate::log::logged;

const SECOND: Duration = Duration::from_secs(1);

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
    assert!(undone.steps().is_empty());
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
    assert!(undone.steps().is_empty());
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
    assert!(undone.steps().is_empty(), "dropping did not wait");
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
    assert!(undone.steps().is_empty());
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
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
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
    assert!(undone.steps().is_empty());
    assert!(log.contains("context=steps=3"), "{log}");
}
