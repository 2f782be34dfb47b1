//! Reading files again when they change: the policy, certificates, keys.
//!
//! One thread does all of it for one thing, so that two changes never race. What it watches is not the file but the folders on the
//! way to it: a file that is replaced by renaming, and a link that is swapped, are other files than before.

mod files;
mod policy;
mod spots;

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tollgate::store::Store;

pub use policy::{PolicyPath, read_policy};

use crate::access::{Keyring, Keys};
use crate::audit;
use crate::engine::Engine;
use crate::tls::Tls;
use files::{Certificates, KeyFile};
use policy::PolicyFile;
use spots::Spots;

/// Keeps a policy, certificates or keys as they are in their files, until it is dropped.
///
/// A change is noticed however it comes about: a file is written, replaced by renaming, or a link on the way to it is
/// swapped, as Kubernetes does with a `ConfigMap`. What is new takes over whole. While something is wrong with it, what was
/// before goes on, and the log tells why.
///
/// # Examples
/// ```no_run
/// use tollgate::store::MemoryStore;
/// use tollgate_server::{Engine, Reloader, read_policy};
///
/// let (policy, origin) = read_policy("limits.toml")?;
/// let engine = Engine::new(MemoryStore::new(), policy, origin);
/// let reloader = Reloader::start(engine, "limits.toml")?;
/// reloader.reload(); // at once, for whoever cannot wait for the file system to tell
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Reloader {
    wishes: Sender<Wish>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread hears.
enum Wish {
    /// Something changed there.
    Changed(Vec<PathBuf>),
    /// Somebody asked for it.
    Asked,
    /// No more.
    Stop,
}

impl Reloader {
    /// Loads the policy again from now on whenever the file or folder at `path` changes. Limits that stayed the same go on with
    /// what they have counted; [`Engine::status`] tells what is wrong, too.
    ///
    /// # Errors
    /// If there can be no more threads. That the system cannot tell of changes is no error: the log says so, and
    /// [`reload`](Self::reload) still works.
    pub fn start<S: Store>(engine: Engine<S>, path: impl Into<PolicyPath>) -> io::Result<Self> {
        Self::keeping(PolicyFile::new(engine, path.into()))
    }

    /// Reads certificates again whenever one of their files changes, for connections from then on.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn certificates(tls: Arc<Tls>) -> io::Result<Self> {
        Self::keeping(Certificates::new(tls))
    }

    /// Reads the keyring at `path` again whenever it changes, for connections that there are as well. It must be
    /// `acceptable`: otherwise, that says why.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn keys<A>(keys: Keys, path: impl Into<PathBuf>, acceptable: A) -> io::Result<Self>
    where
        A: Fn(&Keyring) -> Result<(), String> + Send + 'static,
    {
        Self::keeping(KeyFile::new(keys, path.into(), acceptable))
    }

    fn keeping(kept: impl Kept) -> io::Result<Self> {
        let (wishes, heard) = channel();
        let keeper = Keeper::new(kept, heard, wishes.clone());
        let thread = thread::Builder::new().name("tollgate-reload".to_owned()).spawn(|| keeper.run())?;
        Ok(Self { wishes, thread: Some(thread) })
    }

    /// Reads the files again soon, whether or not they seem to have changed.
    pub fn reload(&self) {
        let _ = self.wishes.send(Wish::Asked); // it listens for as long as this exists
    }
}

/// What is in files.
trait Kept: Send + 'static {
    /// The name in the log.
    const NAME: &'static str;

    /// Where it is.
    fn paths(&self) -> Vec<PathBuf>;

    /// Reloads it and logs the result. If nothing has changed, this is logged only after a SIGHUP.
    fn read_again(&mut self, was_asked: bool);

    /// Adds the result to the audit log.
    fn audit(&self, was_asked: bool, result: audit::Reload, changes: Option<&str>) {
        let paths: Vec<String> = self.paths().iter().map(|path| path.display().to_string()).collect();
        audit::reload(Self::NAME, paths.join(" "), was_asked, result, changes);
    }
}

impl Drop for Reloader {
    fn drop(&mut self) {
        let _ = self.wishes.send(Wish::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic was told where it happened
        }
    }
}

impl fmt::Debug for Reloader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloader").finish_non_exhaustive()
    }
}

fn watcher(name: &str, wishes: Sender<Wish>) -> Option<RecommendedWatcher> {
    let tell = move |event: notify::Result<Event>| {
        let Ok(event) = event else { return };
        // To read a file is no change of it, and we read it ourselves.
        if !matches!(event.kind, EventKind::Access(_)) {
            let _ = wishes.send(Wish::Changed(event.paths)); // nobody listens any more at the end
        }
    };
    notify::recommended_watcher(tell).map_err(|error| unseen(name, &error)).ok()
}

fn unseen(of: &str, error: &notify::Error) {
    tracing::warn!(of, %error, "cannot watch files, send SIGHUP after each change");
}

/// So long must it be quiet: editors and installers change a file in several steps.
const QUIET: Duration = Duration::from_millis(50);
/// And so many steps are waited for.
const MOST_STEPS: usize = 40;

/// What the thread knows.
struct Keeper<K> {
    kept: K,
    wishes: Receiver<Wish>,
    watcher: Option<RecommendedWatcher>,
    spots: Spots,
    /// Those that are watched.
    folders: BTreeSet<PathBuf>,
}

impl<K: Kept> Keeper<K> {
    fn new(kept: K, heard: Receiver<Wish>, wishes: Sender<Wish>) -> Self {
        let watcher = watcher(K::NAME, wishes);
        Self { kept, wishes: heard, watcher, spots: Spots::default(), folders: BTreeSet::new() }
    }

    fn run(mut self) {
        // Somebody may have changed it after it was read and before it is watched.
        self.look(false);
        while let Ok(wish) = self.wishes.recv() {
            match wish {
                Wish::Stop => return,
                Wish::Asked => self.look(true),
                Wish::Changed(paths) if !paths.iter().any(|path| self.spots.concern(path)) => {}
                Wish::Changed(_) => {
                    let Some(was_asked) = self.quiet() else { return };
                    self.look(was_asked);
                }
            }
        }
    }

    /// Waits until it is quiet: whether somebody asked meanwhile. None if there is to be no more.
    fn quiet(&self) -> Option<bool> {
        let mut was_asked = false;
        for _ in 0..MOST_STEPS {
            match self.wishes.recv_timeout(QUIET) {
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) | Ok(Wish::Stop) => return None,
                Ok(Wish::Asked) => was_asked = true,
                Ok(Wish::Changed(_)) => {}
            }
        }
        Some(was_asked)
    }

    /// Reads the files, after all folders on the way there are watched: so no change goes unseen.
    fn look(&mut self, was_asked: bool) {
        self.watch();
        self.kept.read_again(was_asked);
    }

    /// Watches every folder on the way. One may come or go after it was looked for and before it is watched, so it is looked for
    /// again until nothing has changed.
    fn watch(&mut self) {
        let mut failure = None;
        for _ in 0..MOST_STEPS {
            failure = self.watch_once().err();
            if failure.is_none() && Spots::on_all_ways_to(&self.kept.paths()).folders() == self.folders {
                return;
            }
        }
        if let Some(error) = failure {
            unseen(K::NAME, &error);
        }
    }

    fn watch_once(&mut self) -> notify::Result<()> {
        self.spots = Spots::on_all_ways_to(&self.kept.paths());
        let folders = self.spots.folders();
        let Some(watcher) = &mut self.watcher else {
            self.folders = folders;
            return Ok(());
        };
        for gone in self.folders.difference(&folders) {
            let _ = watcher.unwatch(gone); // which the system may have done, if the folder is no more
        }
        // Those that are watched already too: a folder that was replaced is another one of the same name.
        let mut all = Ok(());
        for folder in &folders {
            all = watcher.watch(folder, RecursiveMode::NonRecursive).and(all);
        }
        self.folders = folders;
        all
    }
}

#[cfg(test)]
mod tests;
