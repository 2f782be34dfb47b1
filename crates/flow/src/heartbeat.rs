//! Signs of life: a worker beats, whoever wants to know listens.
//!
//! Everything a beat leaves behind is a few numbers; nothing is sent, so nothing can fill up or block. A listener that waits
//! for a beat says so by a mark (`wanted`) first and looks again then: either it sees the beat, or the beat sees the mark
//! and wakes it. Both sides are sequentially consistent for that. While all is well nobody sets the mark: a monitor that waits
//! for a healthy worker to change sleeps until the moment at which silence would be too long, and looks again then.

mod monitor;
mod rhythm;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use tokio::sync::Notify;
use tollgate::Tick;

use crate::Time;

pub use monitor::{Monitor, Pulse};
pub use rhythm::{Health, Rhythm};

/// The heart of a worker: it beats, whether or not anybody listens.
///
/// There are two kinds of pulse. [`begin_unit`](Self::begin_unit) at the start of each unit of work proves that work goes on,
/// and counts it. [`beating`](Self::beating) pulses at the [`Rhythm`]'s interval while a future waits, and is for times without
/// work, such as waiting for the next job. Both are the worker's own doing, so a worker that hangs or blocks its thread falls silent. A
/// ticker in a task of its own would go on, and prove only that the runtime lives: there is none here.
///
/// A beat is a handful of atomic operations, and only one that somebody waits for wakes anybody; listeners who are
/// slow, gone or were never there cost nothing. Listeners see the latest, not each one.
///
/// Dropping the heart is the end of the worker, which is not death: see [`Health::Ended`].
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate_flow::{Health, Heart, Rhythm, Time};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
/// # runtime.block_on(async {
/// let heart = Heart::new(Rhythm::every(Duration::from_secs(1)), Time::tokio());
/// let mut monitor = heart.monitor();
/// tokio::spawn(async move {
///     for job in ["first", "second"] {
///         heart.begin_unit();
///         // do the job, then wait for another
///         # let _ = job;
///         heart.beating(tokio::time::sleep(Duration::from_secs(60))).await;
///     }
///     tokio::time::sleep(Duration::from_secs(3)).await; // three seconds without a beat
/// });
/// assert_eq!(monitor.changed().await, Some(Health::Slow));
/// assert_eq!(monitor.latest().units, 2);
/// assert_eq!(monitor.changed().await, Some(Health::Ended));
/// # });
/// ```
#[derive(Debug)]
pub struct Heart {
    shared: Arc<Shared>,
}

/// What a beat leaves behind.
#[derive(Debug)]
struct Shared {
    rhythm: Rhythm,
    time: Time,
    /// When the last beat was.
    last: AtomicU64,
    beats: AtomicU64,
    units: AtomicU64,
    ended: AtomicBool,
    /// Somebody waits for the next beat.
    wanted: AtomicBool,
    news: Notify,
}

impl Heart {
    /// A heart that is expected to beat in `rhythm`. The clock starts now, as if it had just beaten.
    pub fn new(rhythm: Rhythm, time: Time) -> Self {
        let last = AtomicU64::new(time.now().as_nanos());
        let (beats, units) = (AtomicU64::new(0), AtomicU64::new(0));
        let (ended, wanted) = (AtomicBool::new(false), AtomicBool::new(false));
        Self {
            shared: Arc::new(Shared { rhythm, time, last, beats, units, ended, wanted, news: Notify::new() }),
        }
    }

    /// Somebody who listens, from now on.
    pub fn monitor(&self) -> Monitor {
        Monitor::new(Arc::clone(&self.shared))
    }

    /// How it is expected to beat.
    pub fn rhythm(&self) -> Rhythm {
        self.shared.rhythm
    }

    /// One beat: the worker is alive. For long units of work, between two steps; from any thread.
    pub fn beat(&self) {
        self.shared.beat();
    }

    /// One beat at the start of a unit of work. Returns the unit's number; the first is 1.
    pub fn begin_unit(&self) -> u64 {
        let unit = self.shared.units.fetch_add(1, SeqCst).wrapping_add(1);
        self.shared.beat();
        unit
    }

    /// Does what `future` does, with a beat now, one at each interval meanwhile, and one when it is done.
    ///
    /// It is for waiting. Work inside it that never ends still counts as alive, as long as it does not block its thread:
    /// give it a time limit, or let it beat for itself.
    ///
    /// # Cancel safety
    /// As safe as `future`; the beats stop.
    pub async fn beating<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        loop {
            self.beat();
            tokio::select! {
                biased;
                output = &mut future => {
                    self.beat();
                    return output;
                }
                () = self.shared.time.sleep(self.shared.rhythm.interval()) => {}
            }
        }
    }
}

impl Drop for Heart {
    fn drop(&mut self) {
        self.shared.ended.store(true, SeqCst);
        self.shared.news.notify_waiters();
    }
}

impl Shared {
    fn beat(&self) {
        // The latest wins: a beat of another thread may have read the clock earlier and come later.
        self.last.fetch_max(self.time.now().as_nanos(), SeqCst);
        self.beats.fetch_add(1, SeqCst);
        if self.wanted.load(SeqCst) && self.wanted.swap(false, SeqCst) {
            self.news.notify_waiters();
        }
    }

    fn last(&self) -> Tick {
        Tick::from_nanos(self.last.load(SeqCst))
    }

    fn health_at(&self, now: Tick) -> Health {
        if self.ended.load(SeqCst) { Health::Ended } else { self.rhythm.health(now.since(self.last())) }
    }
}

#[cfg(test)]
mod tests;
