//! Undoing what was half done.

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;

use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::{Fault, OrFault, catch};

/// Undoes, when it is dropped, the steps that were done so far; the last one first. [`commit`](Self::commit) keeps
/// them.
///
/// Cancelling work means to drop its future, a time-out does the same, `?` leaves the function, and a panic unwinds: in
/// each case the rollback is dropped and runs. A step that panics does not keep the others from running; the panic is
/// [reported](Fault::report).
///
/// Steps run where it is dropped, so they must not block for long. For those that have to wait: [`AsyncRollback`].
///
/// # Examples
/// ```
/// use std::sync::Mutex;
/// use tollgate_flow::{Fault, Rollback};
///
/// fn buy(seats: &Mutex<Vec<u32>>, pays: bool) -> Result<(), Fault> {
///     let mut rollback = Rollback::new();
///     let seat = seats.lock().unwrap().pop().ok_or_else(|| Fault::new("sold out"))?;
///     rollback.on_undo(move || seats.lock().unwrap().push(seat));
///     if !pays {
///         return Err(Fault::new("the payment failed"));
///     }
///     rollback.commit();
///     Ok(())
/// }
///
/// let seats = Mutex::new(vec![1, 2]);
/// assert!(buy(&seats, false).is_err());
/// assert_eq!(*seats.lock().unwrap(), [1, 2]);
/// assert!(buy(&seats, true).is_ok());
/// assert_eq!(*seats.lock().unwrap(), [1]);
/// ```
#[must_use = "it undoes everything at once if it is not kept"]
#[derive(Default)]
pub struct Rollback<'a> {
    steps: Vec<Box<dyn FnOnce() + Send + 'a>>,
}

impl<'a> Rollback<'a> {
    /// One with nothing to undo yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds what undoes the step just done.
    pub fn on_undo(&mut self, undo: impl FnOnce() + Send + 'a) {
        self.steps.push(Box::new(undo));
    }

    /// Everything is done, and stays so.
    pub fn commit(mut self) {
        self.steps.clear();
    }
}

impl Drop for Rollback<'_> {
    fn drop(&mut self) {
        while let Some(undo) = self.steps.pop() {
            // The step is gone after a panic, so nobody sees what state that left it in.
            if let Err(payload) = catch_unwind(AssertUnwindSafe(undo)) {
                report(Fault::panicked(payload));
            }
        }
    }
}

impl fmt::Debug for Rollback<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rollback").field("steps", &self.steps.len()).finish()
    }
}

/// As [`Rollback`], with steps that are futures.
///
/// Nothing can be awaited while a future is dropped. So the steps then run in a task of their own, one after the other,
/// the last one first, to the end: that task is no part of the scope that ended, so nothing cancels it. Its
/// [`TaskTracker`] is how a program waits for it before it exits (`tracker.close(); tracker.wait().await`), from the
/// moment the rollback is made. If the runtime ends sooner, the steps that did not run are [reported](Fault::report).
/// Give a step that may hang a [timeout](crate::Time::timeout). [`undo`](Self::undo) also waits for the steps.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tokio_util::task::TaskTracker;
/// use tollgate_flow::{AsyncRollback, Ended, Scope, Time};
///
/// async fn upload(time: &Time, tracker: &TaskTracker, log: std::sync::mpsc::Sender<&'static str>) {
///     let mut rollback = AsyncRollback::new(tracker);
///     rollback.on_undo(async move { log.send("parts removed").unwrap() });
///     time.sleep(Duration::from_secs(60)).await; // uploads the parts
///     rollback.commit();
/// }
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
/// # runtime.block_on(async {
/// let (time, tracker) = (Time::tokio(), TaskTracker::new());
/// let (log, logged) = std::sync::mpsc::channel();
/// let scope = Scope::new(time.clone()).within(Duration::from_secs(5));
/// assert_eq!(scope.run(upload(&time, &tracker, log)).await, Err(Ended::Deadline));
/// tracker.close();
/// tracker.wait().await;
/// assert_eq!(logged.try_recv(), Ok("parts removed"));
/// # });
/// ```
#[must_use = "it undoes everything at once if it is not kept"]
pub struct AsyncRollback {
    steps: Steps,
    /// Held from the beginning, so that nobody who waits for the tracker misses a rollback that is still to begin.
    token: TaskTrackerToken,
    handle: Handle,
}

impl AsyncRollback {
    /// One with nothing to undo yet, whose task will be one of `tracker`'s, on the current runtime.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn new(tracker: &TaskTracker) -> Self {
        Self { steps: Steps::default(), token: tracker.token(), handle: Handle::current() }
    }

    /// Adds what undoes the step just done. It is not polled unless it has to be undone.
    pub fn on_undo(&mut self, undo: impl Future<Output = ()> + Send + 'static) {
        self.steps.waiting.push(Box::pin(undo));
    }

    /// Everything is done, and stays so.
    pub fn commit(mut self) {
        self.steps.waiting.clear();
    }

    /// Undoes everything now, and waits until that is done.
    ///
    /// # Cancel safety
    /// Dropping it only ends the waiting: the steps run to the end all the same.
    pub async fn undo(mut self) {
        let steps = std::mem::take(&mut self.steps);
        // An error means that the runtime ends, which the steps report.
        let _ = self.token.task_tracker().spawn_on(steps.run(), &self.handle).await;
    }
}

impl Drop for AsyncRollback {
    fn drop(&mut self) {
        if !self.steps.waiting.is_empty() {
            let steps = std::mem::take(&mut self.steps);
            self.token.task_tracker().spawn_on(steps.run(), &self.handle);
        }
    }
}

impl fmt::Debug for AsyncRollback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncRollback").field("steps", &self.steps.waiting.len()).finish_non_exhaustive()
    }
}

type Undo = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What is still to be undone.
#[derive(Default)]
struct Steps {
    waiting: Vec<Undo>,
    is_one_running: bool,
}

impl Steps {
    async fn run(mut self) {
        while let Some(undo) = self.waiting.pop() {
            self.is_one_running = true;
            let outcome = catch(undo).await;
            self.is_one_running = false;
            if let Err(fault) = outcome {
                report(fault);
            }
        }
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        let lost = self.waiting.len() + usize::from(self.is_one_running);
        if lost > 0 {
            Fault::new("the runtime ended before everything was undone").with("steps", lost).report();
        }
    }
}

fn report(fault: Fault) {
    let _ = Err::<(), _>(fault).or_fault("a step could not be undone").map_err(|fault| fault.report());
}
