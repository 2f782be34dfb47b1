//! What it keeps beyond a restart.

use std::fs;
use std::path::PathBuf;

use tollgate::store::{Hit, MemoryStore, Mode, Rule, Store};
use tollgate::{Kind, ManualClock, Quota, SnapshotProblem};

use super::{Limit, Memory, SLOW, decide, left, memory, per_user, secs, take};

/// A folder that is gone when the test is over.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tollgate-store-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A limit of every kind, and sub-windows with two numbers of parts.
fn of_every_kind(store: &Memory) -> Vec<Limit> {
    let rule = |kind| Rule::new("d", "n", Quota::per_hour(10)).with_kind(kind);
    let mut limits: Vec<Limit> = Kind::ALL.iter().map(|kind| store.open(&rule(*kind))).collect();
    limits.push(store.open(&Rule::new("d", "n", Quota::per_hour(10)).with_sub_windows(60)));
    limits
}

#[test]
fn a_store_goes_on_after_a_restart() {
    let folder = Folder::new("restart");
    let start = secs(1_000_000);
    let clock = ManualClock::starting_at(start);
    let store = MemoryStore::builder().clock(clock.clone()).build();
    clock.advance(secs(7_200));
    let limits = of_every_kind(&store);
    let bucket = store.open(&per_user());
    for limit in &limits {
        assert!(take(&store, limit, "alice", 1));
    }
    assert!(take(&store, &bucket, "bob", 10));
    assert_eq!(store.save(&folder.0).unwrap(), limits.len() + 1);

    let clock = ManualClock::starting_at(start + secs(7_200 + 60));
    let (restored, what) = MemoryStore::builder().clock(clock.clone()).restore(&folder.0);
    assert_eq!((what.keys, what.problems.len()), (limits.len() + 1, 0));
    store.clock().advance(secs(60));
    for (old, new) in limits.iter().zip(&of_every_kind(&restored)) {
        let peek = |store: &Memory, limit: &Limit| {
            decide(store, Mode::Peek, &[Hit::new(limit, b"alice")]).decision()
        };
        assert_eq!(peek(&store, old), peek(&restored, new), "{old:?}");
    }
    let bucket = restored.open(&per_user());
    assert!(!take(&restored, &bucket, "bob", 1) && take(&restored, &bucket, "carol", 10));
    let changed = restored.open(&Rule::new("api", "per user", SLOW.burst(9)));
    assert!(take(&restored, &changed, "bob", 9), "another rule starts afresh");
}

/// Answers, item 29: a snapshot that cannot be read is kept beside where it was, and neither a save nor a second one replaces it.
#[test]
fn restore_sets_an_unreadable_file_aside() {
    let folder = Folder::new("aside");
    let limit = |store: &Memory| store.open(&per_user());
    let store = MemoryStore::builder().clock(ManualClock::new()).build();
    assert!(take(&store, &limit(&store), "bob", 1));
    store.save(&folder.0).unwrap();
    let name = fs::read_dir(&folder.0).unwrap().next().unwrap().unwrap().file_name().into_string().unwrap();
    let file = folder.0.join(&name);
    for (damaged, aside) in [("one", format!("{name}.unreadable")), ("two", format!("{name}.unreadable-1"))] {
        fs::write(&file, damaged).unwrap();
        let (store, what) = MemoryStore::builder().clock(ManualClock::new()).restore(&folder.0);
        assert_eq!((what.keys, what.problems.len()), (0, 1));
        assert_eq!(what.set_aside, [folder.0.join(&aside)]);
        assert!(take(&store, &limit(&store), "bob", 1));
        assert_eq!(store.save(&folder.0).unwrap(), 1);
        assert_eq!(fs::read_to_string(folder.0.join(aside)).unwrap(), damaged);
    }
    let (_, what) = MemoryStore::builder().clock(ManualClock::new()).restore(&folder.0);
    assert_eq!((what.keys, what.problems.len()), (1, 0), "what was saved since is read");
}

#[test]
fn a_first_start_has_no_folder_and_a_bad_file_harms_no_other() {
    let folder = Folder::new("damaged");
    let (store, what) = MemoryStore::builder().clock(ManualClock::new()).restore(&folder.0);
    assert_eq!((what.keys, what.problems.len()), (0, 0));
    for limit in &of_every_kind(&store) {
        assert!(take(&store, limit, "alice", 1));
    }
    store.save(&folder.0).unwrap();
    let bad = folder.0.join("fixed-window.snapshot");
    let mut bytes = fs::read(&bad).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&bad, bytes).unwrap();
    fs::write(folder.0.join("notes.txt"), "not ours").unwrap();
    fs::write(folder.0.join("token-bucketeer.snapshot"), "not ours either").unwrap();
    let (store, what) = MemoryStore::builder().clock(ManualClock::new()).restore(&folder.0);
    assert_eq!((what.keys, what.problems.len()), (8, 1));
    assert_eq!(what.problems[0].path(), bad);
    assert!(matches!(what.problems[0].problem(), SnapshotProblem::Damaged { .. }));
    let window = store.open(&Rule::new("d", "n", Quota::per_hour(10)).with_kind(Kind::FixedWindow));
    assert_eq!(left(&store, &window, "alice"), [10], "it starts afresh, and works");
}

#[test]
fn saving_leaves_nothing_of_before_and_nothing_that_is_not_ours_is_touched() {
    let folder = Folder::new("again");
    let (store, _) = memory();
    for limit in &of_every_kind(&store) {
        assert!(take(&store, limit, "alice", 1));
    }
    store.save(&folder.0).unwrap();
    fs::write(folder.0.join("notes.txt"), "not ours").unwrap();
    let (other, _) = memory();
    assert!(take(&other, &other.open(&per_user()), "bob", 1));
    assert_eq!(other.save(&folder.0).unwrap(), 1);
    let mut files: Vec<_> = fs::read_dir(&folder.0).unwrap().map(|file| file.unwrap().file_name()).collect();
    files.sort();
    assert_eq!(files, ["notes.txt", "token-bucket.snapshot"]);
}

#[test]
fn a_folder_that_cannot_be_made_or_read_is_said_by_name() {
    let folder = Folder::new("file");
    fs::write(&folder.0, "a file").unwrap();
    let (store, _) = memory();
    let error = store.save(&folder.0).unwrap_err().to_string();
    assert!(error.starts_with("cannot save a store in ") && error.contains("tollgate-store-file"), "{error}");
    let (_, what) = MemoryStore::builder().clock(ManualClock::new()).restore(&folder.0);
    assert_eq!(what.problems.len(), 1);
    assert!(what.problems[0].to_string().contains("tollgate-store-file"), "{}", what.problems[0]);
    fs::remove_file(&folder.0).unwrap();
}
