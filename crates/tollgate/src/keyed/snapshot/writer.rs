//! Writing a snapshot, so that there is either the old one or the new one, and never half of one.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::{END, MAGIC, VERSION};

/// How many names are tried for the temporary file.
const MOST_NAMES: u32 = 100;

/// Replaces the file at `path` by what `write` writes.
pub(super) fn replace<T>(path: &Path, write: impl FnOnce(&mut Writer) -> io::Result<T>) -> io::Result<T> {
    let (temporary, file) = create_beside(path)?;
    let mut writer = Writer { file, checksum: crc32fast::Hasher::new() };
    let replaced = write(&mut writer).and_then(|answer| {
        writer.end()?;
        fs::rename(&temporary, path)?;
        sync_folder(path)?;
        Ok(answer)
    });
    if replaced.is_err() {
        let _ = fs::remove_file(&temporary); // the first error is the one to tell
    }
    replaced
}

/// A new file next to `path`, under a name that nobody else uses.
fn create_beside(path: &Path) -> io::Result<(PathBuf, File)> {
    let name = path.file_name().ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, "it is a folder; expected the name of a file")
    })?;
    let mut number = 0;
    loop {
        let mut temporary = OsString::from(name);
        temporary.push(format!(".{number}.tmp"));
        let temporary = path.with_file_name(temporary);
        match open_new(&temporary) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < MOST_NAMES => number += 1,
            opened => return opened.map(|file| (temporary, file)),
        }
    }
}

/// Only for us to read: whoever knows the seed can make up keys that collide.
fn open_new(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// A new name is only as durable as the folder it is in.
#[cfg(unix)]
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// Elsewhere a folder cannot be opened.
#[cfg(not(unix))]
fn sync_folder(_: &Path) -> io::Result<()> {
    Ok(())
}

/// A snapshot on its way into a file.
#[derive(Debug)]
pub(super) struct Writer {
    file: File,
    checksum: crc32fast::Hasher,
}

impl Writer {
    /// Writes what has been put together, and empties the buffer.
    pub(super) fn write(&mut self, buffer: &mut Buffer) -> io::Result<()> {
        self.write_bytes(&buffer.bytes)?;
        buffer.bytes.clear();
        Ok(())
    }

    fn write_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.checksum.update(bytes);
        self.file.write_all(bytes)
    }

    fn end(&mut self) -> io::Result<()> {
        self.write_bytes(END)?;
        let checksum = self.checksum.clone().finalize();
        self.file.write_all(&checksum.to_le_bytes())?;
        self.file.sync_all()
    }
}

/// Part of a snapshot, put together in memory because a lock is held meanwhile.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    bytes: Vec<u8>,
    words: Vec<u64>,
}

impl Buffer {
    /// The beginning of a file.
    pub(super) fn begin() -> Self {
        let mut begin = Self::default();
        begin.bytes.extend(MAGIC);
        begin.put_u32(VERSION);
        begin
    }

    pub(super) fn put_tag(&mut self, tag: u8) {
        self.bytes.push(tag);
    }

    pub(super) fn put_u32(&mut self, number: u32) {
        self.bytes.extend(number.to_le_bytes());
    }

    pub(super) fn put_u64(&mut self, number: u64) {
        self.bytes.extend(number.to_le_bytes());
    }

    /// A text of at most 255 bytes: the names and quotas that are written are all shorter.
    pub(super) fn put_text(&mut self, text: &str) {
        let text = &text.as_bytes()[..text.len().min(usize::from(u8::MAX))];
        self.bytes.push(text.len() as u8); // just cut to that
        self.bytes.extend(text);
    }

    /// The words that `write` writes, and before them how many they are.
    pub(super) fn put_words(&mut self, write: impl FnOnce(&mut Vec<u64>)) {
        self.words.clear();
        write(&mut self.words);
        // So many words would not fit into memory.
        self.bytes.extend((self.words.len() as u32).to_le_bytes());
        self.bytes.extend(self.words.iter().flat_map(|word| word.to_le_bytes()));
    }
}
