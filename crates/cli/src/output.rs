//! What a command prints.

use std::io::{self, ErrorKind, Write};

use crate::failure::Failure;

/// Prints text. A reader that closes the pipe early is not an error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::Failed(format!("cannot write to the standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Prints a value as JSON.
pub(crate) fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let json = serde_json::to_string_pretty(value).map_err(Failure::failed)?;
    print(&(json + "\n"))
}
