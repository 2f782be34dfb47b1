//! A store in a folder, so that a restart forgets nothing: a file for each table.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::table::{Sort, Table};
use super::{Kept, MemoryStore, Shared};
use crate::clock::Clock;
use crate::keyed::SnapshotError;
use crate::sync::lock;

/// How the files end.
const SUFFIX: &str = ".snapshot";

/// What came back from a folder.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Restored {
    /// How many keys still count.
    pub keys: usize,
    /// What could not be read. Nothing, on a first start: then there is no folder.
    pub problems: Vec<SnapshotError>,
    /// Where the files are now that could not be read: beside where they were, so that no later save replaces them.
    pub set_aside: Vec<PathBuf>,
}

impl<C: Clock> MemoryStore<C> {
    /// Saves every key that counts into a folder, which is made if it is not there; how many they are.
    /// [`restore`](super::MemoryStoreBuilder::restore) goes on from there after a restart.
    ///
    /// There is one file for each algorithm in use, named after it; those of algorithms that are not are removed. Calls go on
    /// meanwhile. Each file is complete or as it was before, and every key is in one of them. Keep them private: see
    /// [`KeyedLimiter::save`](crate::KeyedLimiter::save).
    ///
    /// # Errors
    /// If a file cannot be written. The files that come after it are as they were.
    ///
    /// # Examples
    /// ```
    /// use tollgate::Quota;
    /// use tollgate::store::{Hit, MemoryStore, Mode, Rule, Store};
    ///
    /// # let folder = std::env::temp_dir().join(format!("tollgate-doc-store-{}", std::process::id()));
    /// let rule = Rule::new("api", "per user", Quota::per_hour(2));
    /// let store = MemoryStore::new();
    /// let limit = store.open(&rule);
    /// let _ = store.decide(Mode::Take, &[Hit::new(&limit, b"alice").costing(2)]);
    /// assert_eq!(store.save(&folder)?, 1);
    ///
    /// // After a restart:
    /// let (store, restored) = MemoryStore::builder().restore(&folder);
    /// assert_eq!((restored.keys, restored.problems.len()), (1, 0));
    /// let limit = store.open(&rule);
    /// assert!(!store.decide(Mode::Take, &[Hit::new(&limit, b"alice")]).into_inner()?.is_admitted());
    /// # std::fs::remove_dir_all(&folder)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn save(&self, folder: impl AsRef<Path>) -> io::Result<usize> {
        let folder = folder.as_ref();
        let said = |error: io::Error| {
            io::Error::new(error.kind(), format!("cannot save a store in {}: {error}", folder.display()))
        };
        fs::create_dir_all(folder).map_err(said)?;
        let tables = self.tables();
        let mut keys = 0;
        for (sort, table) in &tables {
            keys += table.save(&folder.join(format!("{sort}{SUFFIX}")))?;
        }
        for (sort, path) in saved(folder).map_err(said)? {
            if !tables.iter().any(|(known, _)| *known == sort) {
                fs::remove_file(path).map_err(said)?;
            }
        }
        Ok(keys)
    }
}

/// Puts back what was saved, into a store that has no tables yet.
pub(super) fn restore<C: Clock>(store: &MemoryStore<C>, folder: &Path) -> Restored {
    let Shared { clock, options, pool, tables, .. } = &*store.shared;
    let mut restored = Restored::default();
    let files = match saved(folder) {
        Ok(files) => files,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return restored,
        Err(error) => {
            restored.problems.push(SnapshotError::new(folder, error.into()));
            return restored;
        }
    };
    for (sort, path) in files {
        let (table, keys) = Table::restore(sort, options, pool.as_ref(), clock, &path);
        match keys {
            Ok(keys) => restored.keys += keys,
            Err(problem) => {
                restored.problems.push(problem);
                match set_aside(&path) {
                    Ok(place) => restored.set_aside.push(place),
                    Err(error) => restored.problems.push(SnapshotError::new(&path, error.into())),
                }
            }
        }
        lock(tables).insert(sort, Kept::new(options, table));
    }
    restored
}

/// Renames a file that could not be read, without replacing one that was set aside before.
fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let place = |number: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(".unreadable");
        if number > 0 {
            name.push(format!("-{number}"));
        }
        PathBuf::from(name)
    };
    let free = (0..=u32::MAX).map(place).find(|place| !place.exists());
    let free = free.ok_or(io::ErrorKind::AlreadyExists)?;
    fs::rename(path, &free)?;
    Ok(free)
}

/// The files of tables in a folder, in the order of their names.
fn saved(folder: &Path) -> io::Result<Vec<(Sort, PathBuf)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if let Some(sort) = name.and_then(|name| name.strip_suffix(SUFFIX)).and_then(Sort::parse) {
            files.push((sort, path));
        }
    }
    files.sort_by(|one, other| one.1.cmp(&other.1));
    Ok(files)
}
