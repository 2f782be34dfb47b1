use std::fs;
use std::path::Path;

use tollgate::store::{MemoryStore, Mode};
use tollgate_policy::Descriptor;

use super::*;
use crate::engine::Ask;

const TWO: &str = "[limit.all]\nrate = \"2/h\"\n";
const NINE: &str = "[limit.all]\nrate = \"9/h\"\n\n[limit.other]\nkey = \"x\"\nrate = \"1/h\"\n";

/// An engine, and the way to its policy, which has been read once.
fn engine(path: &Path) -> Engine<MemoryStore> {
    let (policy, origin) = read_policy(path).unwrap();
    Engine::new(MemoryStore::new(), policy, origin)
}

/// Looks until it is so: what happens to files is told when it is told.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let (_keep, never) = channel::<()>();
    for _ in 0..1000 {
        if is_so() {
            return;
        }
        let _ = never.recv_timeout(Duration::from_millis(20));
    }
    panic!("it never came about that {what}");
}

fn is_allowed(engine: &Engine<MemoryStore>) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (nobody, mut clerk) = (Descriptor::new(), engine.clerk());
    runtime.block_on(async { clerk.decide(Mode::Take, &[Ask::policy(&nobody)]).await.unwrap().is_allowed() })
}

fn limits(engine: &Engine<MemoryStore>) -> usize {
    engine.loaded().policy().limits().len()
}

#[test]
fn a_file_that_is_written_is_loaded_again_and_what_was_counted_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.toml");
    fs::write(&path, TWO).unwrap();
    let engine = engine(&path);
    assert!(is_allowed(&engine) && is_allowed(&engine) && !is_allowed(&engine));
    let _reloader = Reloader::start(engine.clone(), &path).unwrap();
    fs::write(&path, format!("{TWO}[limit.more]\nkey = \"x\"\nrate = \"1/h\"\n")).unwrap();
    until("there are two limits", || limits(&engine) == 2);
    assert!(!is_allowed(&engine), "the limit that stayed the same has nothing left");
    fs::write(&path, NINE).unwrap();
    until("there is another rate", || is_allowed(&engine));
}

#[test]
fn a_bad_file_changes_nothing_and_is_told_and_a_good_one_ends_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.toml");
    fs::write(&path, TWO).unwrap();
    let engine = engine(&path);
    let _reloader = Reloader::start(engine.clone(), &path).unwrap();
    fs::write(&path, "[limit.all]\nrat = \"9/h\"\n").unwrap();
    until("the mistake is told", || engine.status().problem.is_some());
    let status = engine.status();
    let text = status.problem.unwrap().text;
    assert!(
        text.contains("a.toml:2:1: unknown field \"rat\"") && text.contains("did you mean \"rate\""),
        "{text}"
    );
    assert_eq!((status.loads, limits(&engine)), (1, 1));
    assert!(is_allowed(&engine));
    fs::remove_file(&path).unwrap();
    until("it is told that the file is gone", || {
        engine.status().problem.is_some_and(|problem| problem.text.contains("cannot be read"))
    });
    fs::write(&path, TWO).unwrap();
    until("all is well again", || engine.status().problem.is_none());
    assert!(is_allowed(&engine) && !is_allowed(&engine), "and one of two was left");
}

#[test]
fn a_file_that_comes_by_renaming_is_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.toml");
    fs::write(&path, TWO).unwrap();
    let engine = engine(&path);
    let _reloader = Reloader::start(engine.clone(), &path).unwrap();
    for (text, count) in [(NINE, 2), (TWO, 1), (NINE, 2)] {
        fs::write(folder.path().join("next"), text).unwrap();
        fs::rename(folder.path().join("next"), &path).unwrap();
        until("it is loaded", || limits(&engine) == count);
    }
}

#[cfg(unix)]
#[test]
fn a_link_that_is_swapped_leads_to_another_policy() {
    use std::os::unix::fs::symlink;
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    for (version, text) in [("..v1", TWO), ("..v2", NINE), ("..v3", TWO)] {
        fs::create_dir(root.join(version)).unwrap();
        fs::write(root.join(version).join("a.toml"), text).unwrap();
    }
    symlink("..v1", root.join("..data")).unwrap();
    symlink("..data/a.toml", root.join("a.toml")).unwrap();
    let engine = engine(&root.join("a.toml"));
    let _reloader = Reloader::start(engine.clone(), root.join("a.toml")).unwrap();
    for (version, count) in [("..v2", 2), ("..v3", 1), ("..v2", 2)] {
        symlink(version, root.join("..tmp")).unwrap();
        fs::rename(root.join("..tmp"), root.join("..data")).unwrap();
        until("it is loaded", || limits(&engine) == count);
    }
    // What lies behind both links is watched as well.
    fs::write(root.join("..v2/a.toml"), TWO).unwrap();
    until("it is loaded", || limits(&engine) == 1);
}

#[test]
fn a_folder_that_is_replaced_is_found_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policies/a.toml");
    fs::create_dir(path.parent().unwrap()).unwrap();
    fs::write(&path, TWO).unwrap();
    let engine = engine(&path);
    let _reloader = Reloader::start(engine.clone(), &path).unwrap();
    fs::remove_dir_all(path.parent().unwrap()).unwrap();
    until("it is told that the file is gone", || engine.status().problem.is_some());
    fs::create_dir(path.parent().unwrap()).unwrap();
    fs::write(&path, NINE).unwrap();
    until("it is loaded", || limits(&engine) == 2);
}

#[test]
fn what_is_asked_for_is_done_without_a_change_that_the_system_tells() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.toml");
    fs::write(&path, TWO).unwrap();
    let engine = engine(&path);
    let (wishes, heard) = channel();
    let kept = PolicyFile::new(engine.clone(), path.clone().into());
    let keeper =
        Keeper { kept, wishes: heard, watcher: None, spots: Spots::default(), folders: BTreeSet::new() };
    let thread = thread::spawn(|| keeper.run());
    fs::write(&path, NINE).unwrap();
    wishes.send(Wish::Asked).unwrap();
    wishes.send(Wish::Stop).unwrap();
    thread.join().unwrap();
    assert_eq!(limits(&engine), 2);
}
