//! Why a limiter could not be restored.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use tollgate_core::QuotaError;

use super::VERSION;

/// Why a limiter could not be restored from a file: which file, and what is wrong with it.
///
/// # Examples
/// ```
/// use tollgate::{KeyedLimiter, Quota};
///
/// let builder = KeyedLimiter::<str>::builder(Quota::per_second(10));
/// let (limiter, restored) = builder.restore("no-such-folder/limits.snapshot");
/// let error = restored.unwrap_err();
/// assert!(error.is_not_found()); // the first start
/// assert_eq!(error.to_string(), "no-such-folder/limits.snapshot: no such file");
/// assert!(limiter.is_empty());
/// ```
#[derive(Debug)]
pub struct SnapshotError {
    path: PathBuf,
    problem: SnapshotProblem,
}

impl SnapshotError {
    pub(crate) fn new(path: &Path, problem: SnapshotProblem) -> Self {
        Self { path: path.to_path_buf(), problem }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What is wrong with it.
    pub fn problem(&self) -> &SnapshotProblem {
        &self.problem
    }

    /// Whether there is no such file, as on the first start.
    pub fn is_not_found(&self) -> bool {
        matches!(self.problem, SnapshotProblem::NotFound)
    }
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.problem)
    }
}

impl Error for SnapshotError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.problem.source()
    }
}

/// What is wrong with a file that a limiter should be restored from.
#[derive(Debug)]
#[non_exhaustive]
pub enum SnapshotProblem {
    /// There is no such file.
    NotFound,
    /// The system does not let us read it.
    Unreadable(io::Error),
    /// It is something else.
    NotASnapshot,
    /// It was written in another format.
    OtherVersion {
        /// The version of that format.
        found: u32,
    },
    /// Its end is missing.
    CutShort {
        /// How much there is.
        bytes: u64,
    },
    /// It is not what was written.
    Damaged {
        /// The checksum that was written.
        written: u32,
        /// The checksum of what is there.
        found: u32,
    },
    /// Keys have other fingerprints in this program, so that none would be found again.
    OtherHash,
    /// It is of a limiter with another algorithm.
    OtherKind {
        /// That algorithm.
        found: String,
        /// The one of the limiter to be restored.
        wanted: String,
    },
    /// A quota cannot be read, though nothing was damaged.
    BadQuota {
        /// Where it is.
        at: u64,
        /// Why not.
        error: QuotaError,
    },
    /// Something that no limiter writes, though nothing was damaged.
    Impossible {
        /// Where it is.
        at: u64,
        /// What is wrong with it, and what would be right.
        what: &'static str,
    },
}

impl fmt::Display for SnapshotProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => f.write_str("no such file"),
            Self::Unreadable(_) => f.write_str("cannot read the file"),
            Self::NotASnapshot => {
                f.write_str("not a snapshot; expected a file that begins with \"tollgate\"")
            }
            Self::OtherVersion { found } => {
                write!(f, "snapshot version {found}; expected version {VERSION}")
            }
            Self::CutShort { bytes } => {
                write!(f, "truncated or extended: {bytes} bytes without the end mark")
            }
            Self::Damaged { written, found } => {
                write!(f, "damaged: checksum {found:08x}, expected {written:08x}")
            }
            Self::OtherHash => f.write_str(
                "the keys are hashed in another way: saved by another program or on another machine",
            ),
            Self::OtherKind { found, wanted } => {
                write!(f, "snapshot of a limiter with {found}; expected {wanted}")
            }
            Self::BadQuota { at, .. } => write!(f, "invalid quota at byte {at}"),
            Self::Impossible { at, what } => write!(f, "byte {at}: {what}"),
        }
    }
}

impl Error for SnapshotProblem {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Unreadable(error) => Some(error),
            Self::BadQuota { error, .. } => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for SnapshotProblem {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::NotFound { Self::NotFound } else { Self::Unreadable(error) }
    }
}
