//! A file that is not as it was saved gives an error and an empty limiter.

use super::twins::use_at_random;
use super::*;

const QUOTA: Quota = Quota::per_hour(10);

fn builder() -> KeyedBuilder<u64, TokenBucket, ManualClock> {
    buckets(QUOTA, some_clock()).quota_of(|key| Quota::per_hour(9).burst(*key))
}

/// A small file with a bit of everything.
fn small(path: &Path) -> Vec<u8> {
    let limiter = builder().build();
    for key in 5..8 {
        assert!(limiter.allow_n(&key, 2));
    }
    limiter.save(path).unwrap();
    fs::read(path).unwrap()
}

/// Restores from these bytes: the error, after seeing that the limiter is empty, and that it works.
fn restore(path: &Path, bytes: &[u8], case: &str) -> Result<usize, tollgate::SnapshotError> {
    fs::write(path, bytes).unwrap();
    let (limiter, restored) = builder().restore(path);
    if let Err(error) = &restored {
        assert_eq!((limiter.len(), limiter.quota()), (0, QUOTA), "{case}");
        assert!(error.to_string().starts_with(&format!("{}: ", path.display())), "{case}: {error}");
        assert_eq!(error.path(), path);
    }
    assert!(limiter.allow_n(&100, 100) && !limiter.allow(&100), "{case}");
    restored
}

/// Puts the checksum right, as nobody would but for malice.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.len() - 4;
    let checksum = crc32fast::hash(&bytes[..end]);
    bytes[end..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

#[test]
fn every_byte_counts() {
    let folder = Folder::new();
    let good = small(&folder.file());
    assert_eq!(restore(&folder.file(), &good, "as it was").unwrap(), 3);
    for at in 0..good.len() {
        for change in [0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0xFF] {
            let mut bad = good.clone();
            bad[at] ^= change;
            let restored = restore(&folder.file(), &bad, &format!("byte {at} changed by {change:02x}"));
            assert!(restored.is_err(), "byte {at} changed by {change:02x}");
        }
    }
}

#[test]
fn every_cut_is_seen_and_so_is_anything_added() {
    let folder = Folder::new();
    let good = small(&folder.file());
    for length in 0..good.len() {
        let error = restore(&folder.file(), &good[..length], &format!("cut to {length}")).unwrap_err();
        let is_cut =
            matches!(error.problem(), SnapshotProblem::CutShort { bytes } if *bytes == length as u64);
        assert!(is_cut, "cut to {length}: {error}");
    }
    for more in [&[0][..], &[0; 100], &good] {
        let longer = [&good, more].concat();
        assert!(restore(&folder.file(), &longer, "longer").is_err(), "{} more", more.len());
    }
}

#[test]
fn garbage_is_not_a_snapshot() {
    let folder = Folder::new();
    let mut rng = Rng::with_seed(1);
    for case in 0..300 {
        let mut bytes: Vec<u8> = (0..rng.usize(1..400)).map(|_| rng.u8(..)).collect();
        if case % 2 == 0 {
            bytes.splice(..0, *b"tollgate\x01\0\0\0");
            bytes.extend(b"gatetoll");
        }
        assert!(restore(&folder.file(), &bytes, &format!("case {case}")).is_err(), "case {case}");
    }
}

/// Whatever a file says, with a checksum that is right: no panic, no huge allocation, and what is restored works.
#[test]
fn a_file_made_in_malice_does_no_harm() {
    let folder = Folder::new();
    let path = folder.file();
    let mut rng = Rng::with_seed(2);
    for kind in Kind::ALL {
        let restore = |clock| KeyedLimiter::<u64>::builder(QUOTA).kind(kind).clock(clock).restore(&path);
        let limiter = KeyedLimiter::<u64>::builder(QUOTA).kind(kind).clock(some_clock()).build();
        use_at_random(&limiter, &mut rng, 50);
        limiter.save(&path).unwrap();
        let good = fs::read(&path).unwrap();
        let mut restored = 0;
        for case in 0..1_500 {
            let mut bad = good.clone();
            for _ in 0..rng.usize(1..4) {
                let (at, width) = (rng.usize(12..bad.len() - 20), rng.usize(1..9));
                let filler = [0, 0xFF, rng.u8(..)][rng.usize(..3)];
                let end = (at + width).min(bad.len() - 20);
                bad[at..end].fill(filler);
            }
            fs::write(&path, sealed(bad)).unwrap();
            let (limiter, result) = restore(some_clock());
            assert!(result.is_ok() || limiter.is_empty(), "{kind}, case {case}");
            restored += u32::from(result.is_ok());
            use_at_random(&limiter, &mut rng, 20);
            limiter.set_quota(Quota::per_second(3));
            use_at_random(&limiter, &mut rng, 20);
        }
        assert!(restored > 100, "{kind}: {restored} were believed");
    }
}

#[test]
fn what_is_wrong_is_said() {
    let folder = Folder::new();
    let path = folder.file();
    let good = small(&path);
    let position = |text: &str| good.windows(text.len()).position(|part| part == text.as_bytes()).unwrap();
    let with = |at: usize, bytes: &[u8]| {
        let mut bad = good.clone();
        bad[at..at + bytes.len()].copy_from_slice(bytes);
        sealed(bad)
    };
    let (kind, quota) = (position("token-bucket"), position("10/h"));
    let plan = position("9/h burst");
    let key = good[plan..].iter().position(|byte| *byte == b'k').unwrap() + plan;
    let cases = [
        (b"something else".to_vec(), "not a snapshot; expected a file that begins with \"tollgate\""),
        (with(8, &[7]), "snapshot version 7; expected version 2"),
        (
            with(28, &[0; 8]),
            "the keys are hashed in another way: saved by another program or on another machine",
        ),
        (with(kind, b"taken"), "snapshot of a limiter with taken-bucket; expected token-bucket"),
        (with(quota, b"ten/"), &format!("invalid quota at byte {}", quota - 1)),
        (with(quota, b"\xFF"), &format!("byte {}: the text is not UTF-8", quota - 1)),
        (with(plan - 2, b"x"), &format!("byte {}: expected 'p' for a quota or 'k' for a key", plan - 2)),
        (with(key + 1, &[0; 8]), &format!("byte {}: no key has the fingerprint zero", key + 1)),
        (with(key + 9, &[9]), &format!("byte {}: no quota with that number comes before the key", key + 1)),
        (
            with(good.len() - 20, &[9]),
            &format!("byte {}: there should be as many keys as it says here", good.len() - 20),
        ),
        (with(key + 13, &[2]), &format!("byte {}: the algorithm has no such state", key + 13)),
        (with(key + 13, &[0xFF; 4]), &format!("byte {}: the entry goes on beyond the end", good.len() - 24)),
    ];
    for (bytes, message) in cases {
        let error = restore(&path, &bytes, message).expect_err(message);
        assert_eq!(error.to_string(), format!("{}: {message}", path.display()));
    }
    let error = restore(&path, &with(quota, b"ten/"), "a bad quota").unwrap_err();
    let cause = error.source().expect("what the quota is not").to_string();
    assert_eq!(cause, "quota \"ten/\": expected a number such as 10, found \"ten\"");

    let mut damaged = good.clone();
    damaged[quota] = b'2';
    let error = restore(&path, &damaged, "a damaged quota").unwrap_err();
    let SnapshotProblem::Damaged { written, found } = *error.problem() else { panic!("{error}") };
    assert_eq!(
        (found, written),
        (crc32fast::hash(&damaged[..good.len() - 4]), crc32fast::hash(&good[..good.len() - 4]))
    );
    let message = format!("{}: damaged: checksum {found:08x}, expected {written:08x}", path.display());
    assert_eq!(error.to_string(), message);
    let error = restore(&path, &good[..50], "cut").unwrap_err();
    let message = "truncated or extended: 50 bytes without the end mark";
    assert_eq!(error.to_string(), format!("{}: {message}", path.display()));
}

#[test]
fn a_missing_file_is_told_from_one_that_cannot_be_read() {
    let folder = Folder::new();
    let (_, missing) = builder().restore(folder.file());
    let missing = missing.unwrap_err();
    assert!(missing.is_not_found() && missing.source().is_none());
    let (limiter, unreadable) = builder().restore(&folder.0);
    let unreadable = unreadable.unwrap_err();
    assert!(!unreadable.is_not_found() && unreadable.source().is_some() && limiter.is_empty());
    assert_eq!(unreadable.to_string(), format!("{}: cannot read the file", folder.0.display()));
}

#[test]
fn the_kind_of_algorithm_must_agree() {
    let folder = Folder::new();
    for kind in Kind::ALL {
        let old = KeyedLimiter::<u64>::builder(QUOTA).kind(kind).clock(some_clock()).build();
        assert!(old.allow(&1));
        old.save(folder.file()).unwrap();
        for other in Kind::ALL {
            let builder = KeyedLimiter::<u64>::builder(QUOTA).kind(other).clock(some_clock());
            let (new, restored) = builder.restore(folder.file());
            assert_eq!(restored.is_ok(), kind == other, "{kind} to {other}");
            assert_eq!(new.len(), usize::from(kind == other));
        }
    }
    let in_parts = |parts| {
        let builder = KeyedLimiter::<u64>::builder(QUOTA).clock(some_clock());
        builder.algorithm(move |quota| SubWindows::new(quota).parts(parts))
    };
    let old = in_parts(60).build();
    assert!(old.allow(&1));
    old.save(folder.file()).unwrap();
    assert_eq!(in_parts(60).restore(folder.file()).1.unwrap(), 1);
    let error = in_parts(10).restore(folder.file()).1.unwrap_err();
    let message = "snapshot of a limiter with sub-windows in 60 parts; expected sub-windows in 10 parts";
    assert_eq!(error.problem().to_string(), message);
}
