//! The failures of a command, and the writer of its error messages.

use std::fmt::Display;
use std::process::ExitCode;

use crate::log;
use crate::settings::Format;

/// An error that ends a command.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A usage error: exit status 2.
    Usage(String),
    /// Any other error: exit status 1.
    Failed(String),
    /// A negative result that has been printed already: exit status 1.
    Found,
}

impl Failure {
    pub(crate) fn failed(message: impl Display) -> Self {
        Self::Failed(message.to_string())
    }

    /// Writes the error to stderr and returns the exit status.
    ///
    /// As text, the message begins with `error: `, as the messages of clap do. As JSON, it is a line of the log.
    pub(crate) fn report(self, format: Format) -> ExitCode {
        let (message, hint, code) = match self {
            Self::Usage(message) => {
                (message, "\n\nFor more information, try 'tollgate help'.", ExitCode::from(2))
            }
            Self::Failed(message) => (message, "", ExitCode::FAILURE),
            Self::Found => return ExitCode::FAILURE,
        };
        match format {
            Format::Text => eprintln!("error: {message}{hint}"),
            Format::Json => log::json_error(&message),
        }
        code
    }
}
