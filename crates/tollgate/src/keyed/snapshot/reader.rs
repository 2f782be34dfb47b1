//! Reading a snapshot, which may be anything.
//!
//! The whole file is checked first: then what it says is what was written, and whoever reads on can tell a file of another
//! limiter from a damaged one. Still nothing in it is believed: no memory is set aside by a number in the file, and
//! whatever does not make sense is an error that says where it is.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use tollgate_core::Quota;

use super::{END, MAGIC, SnapshotProblem, VERSION};

/// How much is read at a time.
const CHUNK: usize = 1 << 16;
/// The number of keys, the mark of the end, and the checksum.
const TRAILER: u64 = 8 + END.len() as u64 + 4;

/// A snapshot that is as it was written.
#[derive(Debug)]
pub(super) struct Reader {
    file: BufReader<File>,
    /// Where it is read.
    at: u64,
    /// Where the trailer begins.
    end: u64,
    /// How many keys there should be.
    keys: u64,
    words: Vec<u64>,
}

impl Reader {
    /// Opens a file and checks that it is whole. Reading goes on after the version.
    pub(super) fn open(path: &Path) -> Result<Self, SnapshotProblem> {
        let mut file = File::open(path)?;
        let (bytes, keys) = check(&mut file)?;
        let at = MAGIC.len() as u64 + 4;
        file.seek(SeekFrom::Start(at))?;
        let end = bytes.saturating_sub(TRAILER);
        Ok(Self { file: BufReader::with_capacity(CHUNK, file), at, end, keys, words: Vec::new() })
    }

    /// Whether everything was read.
    pub(super) fn is_at_end(&self) -> bool {
        self.at == self.end
    }

    /// The problem that whatever is read next, or was read from `at` on, cannot be.
    pub(super) fn impossible(at: u64, what: &'static str) -> SnapshotProblem {
        SnapshotProblem::Impossible { at, what }
    }

    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// How many keys there are, by its own account.
    pub(super) fn keys(&self) -> u64 {
        self.keys
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), SnapshotProblem> {
        let left = self.end - self.at;
        if bytes.len() as u64 > left {
            return Err(Self::impossible(self.at, "the entry goes on beyond the end"));
        }
        self.file.read_exact(bytes)?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], SnapshotProblem> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    pub(super) fn tag(&mut self) -> Result<u8, SnapshotProblem> {
        self.array().map(|[tag]| tag)
    }

    pub(super) fn u32(&mut self) -> Result<u32, SnapshotProblem> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, SnapshotProblem> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn text(&mut self) -> Result<String, SnapshotProblem> {
        let at = self.at;
        let mut bytes = vec![0; usize::from(self.tag()?)]; // 255 at most
        self.fill(&mut bytes)?;
        String::from_utf8(bytes).map_err(|_| Self::impossible(at, "the text is not UTF-8"))
    }

    pub(super) fn quota(&mut self) -> Result<Quota, SnapshotProblem> {
        let at = self.at;
        let text = self.text()?;
        text.parse().map_err(|error| SnapshotProblem::BadQuota { at, error })
    }

    /// What `read` makes of a state's words.
    pub(super) fn state<S>(&mut self, read: impl FnOnce(&[u64]) -> Option<S>) -> Result<S, SnapshotProblem> {
        let at = self.at;
        let count = self.u32()?;
        let mut words = std::mem::take(&mut self.words);
        words.clear();
        for _ in 0..count {
            words.push(self.u64()?);
        }
        let state = read(&words);
        self.words = words;
        state.ok_or_else(|| Self::impossible(at, "the algorithm has no such state"))
    }
}

/// Checks the beginning, the end and the checksum; how many bytes there are, and how many keys it says there are.
fn check(file: &mut File) -> Result<(u64, u64), SnapshotProblem> {
    let bytes = file.seek(SeekFrom::End(0))?;
    file.rewind()?;
    let mut begin = Vec::new();
    file.take(MAGIC.len() as u64 + 4).read_to_end(&mut begin)?;
    match begin.strip_prefix(MAGIC) {
        Some(version) => match version.try_into().map(u32::from_le_bytes) {
            Ok(VERSION) => {}
            Ok(found) => return Err(SnapshotProblem::OtherVersion { found }),
            Err(_) => return Err(SnapshotProblem::CutShort { bytes }),
        },
        None if MAGIC.starts_with(&begin) => return Err(SnapshotProblem::CutShort { bytes }),
        None => return Err(SnapshotProblem::NotASnapshot),
    }
    if bytes < begin.len() as u64 + TRAILER {
        return Err(SnapshotProblem::CutShort { bytes });
    }
    check_end(file, bytes)
}

fn check_end(file: &mut File, bytes: u64) -> Result<(u64, u64), SnapshotProblem> {
    let (mut keys, mut end, mut written) = ([0; 8], [0; END.len()], [0; 4]);
    file.seek(SeekFrom::Start(bytes - TRAILER))?;
    file.read_exact(&mut keys)?;
    file.read_exact(&mut end)?;
    file.read_exact(&mut written)?;
    if end != *END {
        return Err(SnapshotProblem::CutShort { bytes });
    }
    let (found, written) = (checksum(file, bytes - 4)?, u32::from_le_bytes(written));
    if found == written {
        Ok((bytes, u64::from_le_bytes(keys)))
    } else {
        Err(SnapshotProblem::Damaged { written, found })
    }
}

/// The checksum of the first `bytes` bytes.
fn checksum(file: &mut File, bytes: u64) -> Result<u32, SnapshotProblem> {
    file.rewind()?;
    let mut file = file.take(bytes);
    let (mut checksum, mut chunk) = (crc32fast::Hasher::new(), vec![0; CHUNK]);
    loop {
        match file.read(&mut chunk) {
            Ok(0) => return Ok(checksum.finalize()),
            Ok(read) => checksum.update(&chunk[..read]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
}
