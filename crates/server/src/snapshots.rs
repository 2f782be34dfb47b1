//! Snapshots of the counters, which survive a restart.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tollgate::Clock;
use tollgate::store::MemoryStore;

/// Saves a store into a folder at an interval, and once more at the [end](Self::finish).
///
/// A process that is killed loses the counts since the last snapshot.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate::store::MemoryStore;
/// use tollgate_server::Snapshots;
///
/// # let folder = std::env::temp_dir().join(format!("tollgate-doc-snapshots-{}", std::process::id()));
/// let (store, restored) = MemoryStore::builder().restore(&folder);
/// assert!(restored.problems.is_empty()); // on the first start there is nothing
/// let snapshots = Snapshots::start(store, &folder, Some(Duration::from_secs(300)))?;
/// // … and when the server has been drained:
/// assert_eq!(snapshots.finish()?, 0);
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Snapshots {
    save: Box<dyn Fn() -> io::Result<usize> + Send>,
    /// Dropped, it ends the thread.
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl Snapshots {
    /// Saves `store` into `folder` once per `every`, if that is given, in a thread of its own.
    ///
    /// # Errors
    /// If there can be no more threads.
    pub fn start<C: Clock>(
        store: MemoryStore<C>,
        folder: impl Into<PathBuf>,
        every: Option<Duration>,
    ) -> io::Result<Self> {
        let folder = folder.into();
        let (stop, stopped) = channel();
        let saving = (store.clone(), folder.clone());
        let again = move || save_every(every.unwrap_or(Duration::MAX), &stopped, || saving.0.save(&saving.1));
        let thread = thread::Builder::new().name("tollgate-save".to_owned()).spawn(again)?;
        Ok(Self { save: Box::new(move || store.save(&folder)), stop, thread })
    }

    /// Saves once more, and returns the number of keys.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn finish(self) -> io::Result<usize> {
        drop(self.stop);
        let _ = self.thread.join(); // a panic was told where it happened
        (self.save)()
    }
}

fn save_every(every: Duration, stopped: &Receiver<()>, save: impl Fn() -> io::Result<usize>) {
    while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
        match save() {
            Ok(keys) => tracing::debug!(keys, "saved counters"),
            Err(error) => {
                tracing::error!(%error, "cannot save counters, retrying at the next interval");
            }
        }
    }
}

impl fmt::Debug for Snapshots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshots").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn it_saves_again_after_a_failure_and_until_it_is_told_to_stop() {
        let (stop, stopped) = channel();
        let (told, tries) = (std::sync::Mutex::new(Some(stop)), AtomicUsize::new(0));
        save_every(Duration::from_millis(1), &stopped, || match tries.fetch_add(1, Ordering::Relaxed) {
            0 => Err(io::Error::other("the disk is full")),
            1 => Ok(7),
            _ => {
                drop(told.lock().unwrap().take());
                Ok(7)
            }
        });
        assert_eq!(tries.into_inner(), 3);
    }

    #[test]
    fn the_longest_time_is_no_problem() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("made if it is not there");
        for every in [None, Some(Duration::MAX)] {
            let snapshots = Snapshots::start(MemoryStore::new(), &folder, every).unwrap();
            assert_eq!(snapshots.finish().unwrap(), 0);
        }
        std::fs::write(folder.join("file"), "").unwrap();
        let snapshots = Snapshots::start(MemoryStore::new(), folder.join("file"), None).unwrap();
        assert!(snapshots.finish().unwrap_err().to_string().starts_with("cannot save a store in "));
    }
}
