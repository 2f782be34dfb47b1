//! Restores a limiter or a store from arbitrary bytes. A limiter that was restored takes no more memory than the file allows,
//! works, and can be saved and restored again with the same state.
//!
//! The first byte chooses the algorithm and the options, the last one is the number of keys. What lies between is a snapshot
//! without what cannot be guessed: the seed at its beginning, and the checksum at its end.
#![no_main]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use tollgate::store::{Hit, MemoryStore, Mode, Rule, Store};
use tollgate::{AnyAlgorithm, AtCap, KeyedBuilder, KeyedLimiter, Kind, ManualClock, Quota};

type Limiter = KeyedLimiter<u64, AnyAlgorithm, ManualClock>;
type LimiterBuilder = KeyedBuilder<u64, AnyAlgorithm, ManualClock>;

/// The magic number, the version, the seed, and the fingerprint of a known text.
const HEAD: usize = 8 + 4 + 3 * 8;
/// The fewest bytes of a key: tag, fingerprint, plan and a state without words.
const KEY: usize = 1 + 8 + 4 + 4;
const MOST_KEYS: usize = 16;
/// Half of the time that a limiter lasts, in nanoseconds.
const OLD: u64 = 1 << 58;
/// What a table takes in memory for a single key at most: a segment of its own.
const BYTES_PER_KEY: usize = 4096;

/// What the first byte chooses.
#[derive(Clone, Copy)]
struct Choice {
    kind: Kind,
    by_key: bool,
    is_capped: bool,
    /// A store in place of a limiter.
    is_store: bool,
    /// The input is the whole file.
    is_whole: bool,
}

impl Choice {
    fn new(byte: u8) -> Self {
        let is_chosen = |bit: u8| byte >> bit & 1 == 1;
        Self {
            kind: Kind::ALL[usize::from(byte % 8)],
            by_key: is_chosen(3),
            is_capped: is_chosen(4),
            is_store: is_chosen(5),
            is_whole: is_chosen(6),
        }
    }

    fn limiter(self) -> LimiterBuilder {
        let mut builder = KeyedLimiter::builder(Quota::per_hour(10)).kind(self.kind).clock(clock());
        if self.by_key {
            builder = builder.quota_of(|key: &u64| Quota::per_minute(10 + key % 3));
        }
        if self.is_capped { builder.max_keys(MOST_KEYS).at_cap(AtCap::Evict) } else { builder }
    }

    fn store(self) -> tollgate::store::MemoryStoreBuilder<ManualClock> {
        let builder = MemoryStore::builder().clock(clock());
        if self.is_capped { builder.max_keys(MOST_KEYS) } else { builder }
    }

    fn rule(self) -> Rule {
        let quota = Quota::per_minute(10);
        let rule = if self.by_key { Rule::floating("d", "n", quota) } else { Rule::new("d", "n", quota) };
        if self.by_key { rule } else { rule.with_kind(self.kind) }
    }

    /// What a store calls the file of this algorithm.
    fn file_name(self) -> String {
        match self.kind {
            _ if self.by_key => "floating.snapshot".to_owned(),
            Kind::SubWindows => "sub-windows-10.snapshot".to_owned(),
            kind => format!("{kind}.snapshot"),
        }
    }
}

fn clock() -> ManualClock {
    ManualClock::starting_at(Duration::from_secs(1_700_000_000))
}

/// A folder of this process, in memory where there is such a place.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let path = parent.join(format!("tollgate-fuzz-snapshot-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder for temporary files");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).expect("it was made");
    }
}

/// The beginning of every snapshot of this process.
fn head() -> Vec<u8> {
    let folder = Folder::new();
    let path = folder.0.join("head");
    KeyedLimiter::<u64>::new(Quota::per_second(1)).save(&path).expect("it can be written");
    let mut head = fs::read(&path).expect("it was written");
    head.truncate(HEAD);
    head
}

thread_local! {
    static HEAD_BYTES: Vec<u8> = head();
}

fuzz_target!(|input: &[u8]| {
    let [choice, body @ .., keys] = input else { return };
    let choice = Choice::new(*choice);
    let file =
        if choice.is_whole { body.to_vec() } else { HEAD_BYTES.with(|head| sealed(head, body, *keys)) };
    let folder = Folder::new();
    let path = folder.0.join(choice.file_name());
    fs::write(&path, &file).expect("it can be written");
    if choice.is_store {
        restore_store(choice, &folder.0);
    } else {
        restore_limiter(choice, &path, file.len());
    }
});

/// A file with the right mark at its end, and the right checksum.
fn sealed(head: &[u8], body: &[u8], keys: u8) -> Vec<u8> {
    let mut file = [head, body, &u64::from(keys).to_le_bytes(), b"gatetoll"].concat();
    let checksum = crc32fast::hash(&file);
    file.extend_from_slice(&checksum.to_le_bytes());
    file
}

fn restore_limiter(choice: Choice, path: &Path, file_bytes: usize) {
    let (limiter, restored) = choice.limiter().restore(path);
    match restored {
        Ok(keys) => assert_eq!(keys, limiter.len()),
        Err(error) => {
            assert!(limiter.is_empty() && !error.to_string().is_empty());
            return work(&limiter);
        }
    }
    assert!(limiter.len() <= file_bytes / KEY, "{} keys in {file_bytes} bytes", limiter.len());
    let empty = choice.limiter().build().bytes();
    let most = empty + BYTES_PER_KEY * (file_bytes / KEY);
    assert!(limiter.bytes() <= most, "{} bytes, {empty} when empty, of {file_bytes}", limiter.bytes());
    if choice.is_capped {
        assert!(limiter.len() <= 2 * MOST_KEYS, "{} keys", limiter.len());
    } else {
        let first = state_after(|| limiter.save(path), path);
        let (again, restored) = choice.limiter().restore(path);
        assert_eq!(restored.expect("it was saved"), first.keys.len());
        first.check(&state_after(|| again.save(path), path));
    }
    work(&limiter);
}

fn restore_store(choice: Choice, folder: &Path) {
    let path = folder.join(choice.file_name());
    let (store, restored) = choice.store().restore(folder);
    assert!(restored.problems.iter().all(|problem| !problem.to_string().is_empty()));
    if restored.problems.is_empty() && !choice.is_capped {
        let first = state_after(|| store.save(folder), &path);
        let (again, restored) = choice.store().restore(folder);
        assert_eq!((restored.keys, restored.problems.len()), (first.keys.len(), 0));
        first.check(&state_after(|| again.save(folder), &path));
    }
    let limit = store.open(&choice.rule());
    for mode in [Mode::Peek, Mode::Take, Mode::Count, Mode::Charge, Mode::Refund, Mode::Take] {
        let answer = store.decide(mode, &[Hit::new(&limit, b"alice").costing(3)]).into_inner();
        assert!(answer.is_ok(), "{mode:?}");
        store.clock().advance(Duration::from_secs(7));
    }
    store.sweep();
}

/// Does a bit of everything.
fn work(limiter: &Limiter) {
    for key in 0..4 {
        let _ = (limiter.peek(&key), limiter.check_n(&key, 3), limiter.charge(&key, 9));
        if let Ok(reserved) = limiter.reserve_within(&key, 2, Duration::from_secs(100)) {
            reserved.settle(1);
        }
        limiter.clock().advance(Duration::from_secs(11));
    }
    limiter.set_quota(Quota::per_second(3));
    let _ = (limiter.check(&1), limiter.refresh(&2), limiter.reset(&3));
    limiter.clock().advance(Duration::from_secs(86_400));
    limiter.sweep();
}

/// What a snapshot says, whatever the order of its keys.
#[derive(Debug, PartialEq)]
struct State {
    header: Vec<u8>,
    /// The time that the states are kept in.
    tick: u64,
    /// The quota and the state of each fingerprint.
    keys: BTreeMap<u64, (Vec<u8>, Vec<u8>)>,
}

fn state_after(save: impl FnOnce() -> std::io::Result<usize>, path: &Path) -> State {
    let saved = save().expect("it can be written");
    let file = fs::read(path).expect("it was written");
    let state = State::read(&file[..file.len() - 20]);
    assert_eq!(state.keys.len(), saved);
    state
}

impl State {
    fn read(file: &[u8]) -> Self {
        let mut rest = &file[HEAD..];
        text(&mut rest); // kind
        take(&mut rest, 4); // parts
        text(&mut rest); // quota
        let tick = u64_in(&mut rest);
        take(&mut rest, 2 * 8); // times since 1970
        words(&mut rest);
        words(&mut rest);
        let header = file[..file.len() - rest.len()].to_vec();
        let (mut quotas, mut keys) = (vec![Vec::new()], BTreeMap::new());
        while !rest.is_empty() {
            if take(&mut rest, 1) == b"p" {
                quotas.push(text(&mut rest).to_vec());
            } else {
                let print = u64_in(&mut rest);
                let quota = quotas[u32_in(&mut rest)].clone();
                let old = keys.insert(print, (quota, words(&mut rest).to_vec()));
                assert_eq!(old, None, "a key is saved once");
            }
        }
        Self { header, tick, keys }
    }

    /// Checks that the state after restoring and saving is this one.
    fn check(&self, again: &Self) {
        // A limiter without keys that would not last for long starts out from zero.
        if !self.keys.is_empty() || self.tick < OLD {
            assert_eq!(again, self);
        }
    }
}

fn take<'f>(rest: &mut &'f [u8], count: usize) -> &'f [u8] {
    rest.split_off(..count).expect("a saved file is whole")
}

fn u64_in(rest: &mut &[u8]) -> u64 {
    u64::from_le_bytes(take(rest, 8).try_into().expect("eight bytes"))
}

fn u32_in(rest: &mut &[u8]) -> usize {
    u32::from_le_bytes(take(rest, 4).try_into().expect("four bytes")) as usize
}

fn text<'f>(rest: &mut &'f [u8]) -> &'f [u8] {
    let length = usize::from(take(rest, 1)[0]);
    take(rest, length)
}

fn words<'f>(rest: &mut &'f [u8]) -> &'f [u8] {
    let count = u32_in(rest);
    take(rest, 8 * count)
}
