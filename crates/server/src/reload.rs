//! Loading the policy again when its file changes.
//!
//! One thread does all of it, so that two changes never race. What it watches is not the file but the folders on the way to
//! it: a file that is replaced by renaming, and a link that is swapped, are other files than before.

mod spots;

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tollgate::store::Store;
use tollgate_policy::{Draft, Policy, Problem, Problems};

use crate::engine::{Engine, Origin};
use spots::Spots;

/// Reads the policy at a path, and what tells it from others: its name, and a hash of what it says.
///
/// The hash is that of the limits in our own notation, so that neither comments nor the order of words nor the format of the
/// file make a difference.
///
/// # Errors
/// Everything that is wrong with it, or why it cannot be read.
pub fn read_policy(path: impl AsRef<Path>) -> Result<(Policy, Origin), Problems> {
    let path = path.as_ref();
    let draft = Draft::load(path)?;
    let origin = Origin { name: path.display().to_string(), hash: hash(&draft.to_string()) };
    Ok((Policy::compile(draft)?, origin))
}

/// FNV-1a: the same in every process and version, so that servers can be compared. It keeps no secret.
fn hash(text: &str) -> String {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:016x}", text.bytes().fold(0xcbf2_9ce4_8422_2325, mix))
}

/// Keeps the policy of an engine as it is in its file, until it is dropped.
///
/// A change is noticed however it comes about: the file is written, replaced by renaming, or a link on the way to it is
/// swapped, as Kubernetes does with a `ConfigMap`. The new policy takes over whole; limits that stayed the same go on with what
/// they have counted. While the file has mistakes, the policy before goes on deciding, and the log and
/// [`Engine::status`] tell what is wrong.
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
    /// Loads the policy again from now on whenever the file or folder at `path` changes.
    ///
    /// # Errors
    /// If there can be no more threads. That the system cannot tell of changes is no error: the log says so, and
    /// [`reload`](Self::reload) still works.
    pub fn start<S: Store>(engine: Engine<S>, path: impl Into<PathBuf>) -> io::Result<Self> {
        let (wishes, heard) = channel();
        let watcher = watcher(wishes.clone());
        let keeper = Keeper {
            engine,
            path: path.into(),
            wishes: heard,
            watcher,
            spots: Spots::default(),
            folders: BTreeSet::new(),
        };
        let thread = thread::Builder::new().name("tollgate-reload".to_owned()).spawn(|| keeper.run())?;
        Ok(Self { wishes, thread: Some(thread) })
    }

    /// Loads the policy again soon, whether or not it seems to have changed.
    pub fn reload(&self) {
        let _ = self.wishes.send(Wish::Asked); // it listens for as long as this exists
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

fn watcher(wishes: Sender<Wish>) -> Option<RecommendedWatcher> {
    let tell = move |event: notify::Result<Event>| {
        let Ok(event) = event else { return };
        // To read a file is no change of it, and we read it ourselves.
        if !matches!(event.kind, EventKind::Access(_)) {
            let _ = wishes.send(Wish::Changed(event.paths)); // nobody listens any more at the end
        }
    };
    let watcher = notify::recommended_watcher(tell);
    watcher.map_err(|error| tracing::warn!(%error, "{UNSEEN}")).ok()
}

const UNSEEN: &str = "changes of the policy cannot be noticed: send SIGHUP after each";

/// So long must it be quiet: editors and installers change a file in several steps.
const QUIET: Duration = Duration::from_millis(50);
/// And so many steps are waited for.
const MOST_STEPS: usize = 40;

/// What the thread knows.
struct Keeper<S: Store> {
    engine: Engine<S>,
    path: PathBuf,
    wishes: Receiver<Wish>,
    watcher: Option<RecommendedWatcher>,
    spots: Spots,
    /// Those that are watched.
    folders: BTreeSet<PathBuf>,
}

impl<S: Store> Keeper<S> {
    fn run(mut self) {
        // Somebody may have changed it after it was read and before it is watched.
        self.look(false);
        while let Ok(wish) = self.wishes.recv() {
            match wish {
                Wish::Stop => return,
                Wish::Asked => self.look(true),
                Wish::Changed(paths) if !paths.iter().any(|path| self.spots.concern(path)) => {}
                Wish::Changed(_) => {
                    if !self.is_quiet() {
                        return;
                    }
                    self.look(false);
                }
            }
        }
    }

    /// Waits until it is quiet. Not if there is to be no more.
    fn is_quiet(&self) -> bool {
        for _ in 0..MOST_STEPS {
            match self.wishes.recv_timeout(QUIET) {
                Err(RecvTimeoutError::Timeout) => return true,
                Err(RecvTimeoutError::Disconnected) | Ok(Wish::Stop) => return false,
                Ok(Wish::Changed(_) | Wish::Asked) => {}
            }
        }
        true
    }

    /// Reads the file, after all folders on the way there are watched: so no change goes unseen.
    fn look(&mut self, was_asked: bool) {
        self.watch();
        match read_policy(&self.path) {
            Err(problems) => self.refuse(&problems),
            Ok((_, origin)) if self.is_same(&origin) => {
                if was_asked {
                    tracing::info!(policy = origin.name, "the policy is the same as before");
                }
            }
            Ok((policy, origin)) => self.load(policy, origin),
        }
    }

    /// Watches every folder on the way. One may come or go after it was looked for and before it is watched, so it is looked for
    /// again until nothing has changed.
    fn watch(&mut self) {
        let mut failure = None;
        for _ in 0..MOST_STEPS {
            failure = self.watch_once().err();
            if failure.is_none() && Spots::on_the_way_to(&self.path).folders() == self.folders {
                return;
            }
        }
        if let Some(error) = failure {
            tracing::warn!(%error, "{UNSEEN}");
        }
    }

    fn watch_once(&mut self) -> notify::Result<()> {
        self.spots = Spots::on_the_way_to(&self.path);
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

    fn is_same(&self, origin: &Origin) -> bool {
        let status = self.engine.status();
        status.problem.is_none() && status.origin == *origin
    }

    fn load(&self, policy: Policy, origin: Origin) {
        let limits = policy.limits().len();
        tracing::info!(policy = origin.name, limits, hash = origin.hash, "the policy has been loaded again");
        self.engine.load(policy, origin);
    }

    fn refuse(&self, problems: &Problems) {
        let (policy, count) = (self.path.display(), problems.count());
        tracing::error!(%policy, problems = count, "the policy is not loaded: the one before goes on deciding");
        problems.iter().for_each(log);
        self.engine.load_failed(problems.to_string());
    }
}

/// A mistake as a line of the log.
fn log(problem: &Problem) {
    let Problem { path, line, column, message, help, .. } = problem;
    tracing::error!(at = %format_args!("{path}:{line}:{column}"), help, "{message}");
}

#[cfg(test)]
mod tests;
