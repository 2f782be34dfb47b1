//! Policies in files: the one place here that reads any.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use crate::draft::Draft;
use crate::native;
use crate::policy::Policy;
use crate::problem::{Problem, Problems};
use crate::source::{Place, Source};

/// The largest policy file. A hundred thousand limits fit.
pub const LARGEST_FILE: u64 = 16 * 1024 * 1024;

impl Policy {
    /// Reads a policy file and compiles it.
    ///
    /// # Errors
    /// Everything that is wrong with the file, or why it cannot be read.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, Problems> {
        Self::compile(Draft::load(path)?)
    }
}

impl Draft {
    /// Reads a policy file.
    ///
    /// # Errors
    /// Everything that is wrong with the file, or why it cannot be read.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, Problems> {
        native::read(&read(path.as_ref())?)
    }
}

fn read(path: &Path) -> Result<Arc<Source>, Problems> {
    let shown = path.display().to_string();
    let failed =
        |error: std::io::Error| Problems::from(Problem::in_file(&*shown, format!("cannot be read: {error}")));
    let mut bytes = Vec::new();
    File::open(path).map_err(failed)?.take(LARGEST_FILE + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > LARGEST_FILE {
        let most = LARGEST_FILE / (1024 * 1024);
        let message = format!("is larger than {most} MiB, the most that a policy may have");
        return Err(Problem::in_file(shown, message).into());
    }
    decode(&shown, bytes)
}

fn decode(path: &str, bytes: Vec<u8>) -> Result<Arc<Source>, Problems> {
    String::from_utf8(bytes).map(|text| Source::new(path, text)).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let source = Source::new(path, String::from_utf8_lossy(error.as_bytes()));
        let message =
            format!("this byte (0x{:02x}) is not UTF-8, which policies are written in", error.as_bytes()[at]);
        // Up to here the two texts are the same; the replacement character is three bytes long.
        Problem::new(&Place::new(&source, at..at + 3), message).into()
    })
}
