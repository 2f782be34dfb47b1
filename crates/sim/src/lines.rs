//! JSON lines: one value to a line, as logs and other tools write them.

use std::fmt;
use std::io::{self, BufRead, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A line that could not be used, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineError {
    line: usize,
    what: String,
}

impl LineError {
    /// The number of the line, from one.
    pub fn line(&self) -> usize {
        self.line
    }
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl std::error::Error for LineError {}

/// Reads every line that is not blank, and lets `check` object to a value.
pub(crate) fn read<T: DeserializeOwned>(
    reader: impl BufRead,
    check: impl Fn(&T) -> Result<(), String>,
) -> Result<Vec<T>, LineError> {
    let mut values = Vec::new();
    for (index, line) in reader.lines().enumerate() {
        let bad = |what: String| LineError { line: index + 1, what };
        let line = line.map_err(|error| bad(error.to_string()))?;
        if line.trim().is_empty() {
            continue;
        }
        let value = serde_json::from_str(&line).map_err(|error| bad(error.to_string()))?;
        check(&value).map_err(bad)?;
        values.push(value);
    }
    Ok(values)
}

/// Writes one value to a line.
pub(crate) fn write<T: Serialize>(mut writer: impl Write, values: &[T]) -> io::Result<()> {
    for value in values {
        serde_json::to_writer(&mut writer, value)?;
        writer.write_all(b"\n")?;
    }
    writer.flush()
}
