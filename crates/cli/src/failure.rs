//! How a command ends if it does not end well.

use std::fmt::Display;
use std::process::ExitCode;

use tollgate_flow::Fault;

/// Why a command did not do what it was asked for.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It was called in a wrong way.
    Usage(String),
    /// It could not be done.
    Failed(String),
    /// It was done, and what came out is bad; that has been told already.
    Found,
}

/// The record goes to the log, under the id that is told.
impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Self::Failed(fault.report())
    }
}

impl Failure {
    pub(crate) fn failed(message: impl Display) -> Self {
        Self::Failed(message.to_string())
    }

    /// Says it, and what the process should end with.
    pub(crate) fn tell(self) -> ExitCode {
        match self {
            Self::Usage(message) => {
                eprintln!("{message}\n\nFor more information, try 'tollgate help'.");
                ExitCode::from(2)
            }
            Self::Failed(message) => {
                eprintln!("tollgate: {message}");
                ExitCode::FAILURE
            }
            Self::Found => ExitCode::FAILURE,
        }
    }
}
