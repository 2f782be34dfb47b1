//! An answer, cut down to what an oracle can predict.

use tollgate_core::{Decision, Verdict};

/// What was decided, and how long the caller waits for it or before it asks again.
///
/// # Examples
/// ```
/// use tollgate_sim::Outcome;
///
/// assert_eq!(Outcome::of(Some(30), 50), Outcome::Admit { delay_ns: 30 });
/// assert_eq!(Outcome::of(Some(80), 50), Outcome::Deny { retry_ns: Some(30) });
/// assert_eq!(Outcome::of(None, 50), Outcome::Deny { retry_ns: None });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Admitted, to act after `delay_ns` (zero: now).
    Admit {
        /// Nanoseconds from the question to the moment of acting.
        delay_ns: u64,
    },
    /// Refused.
    Deny {
        /// Nanoseconds until the same question is admitted; `None` if it never is.
        retry_ns: Option<u64>,
    },
}

impl Outcome {
    /// The answer to somebody ready to wait `patience_ns` for what can be had in `wait_ns`.
    pub fn of(wait_ns: Option<u64>, patience_ns: u64) -> Self {
        match wait_ns {
            Some(delay_ns) if delay_ns <= patience_ns => Self::Admit { delay_ns },
            Some(wait_ns) => Self::Deny { retry_ns: Some(wait_ns - patience_ns) },
            None => Self::Deny { retry_ns: None },
        }
    }

    /// Whether the caller may go ahead, now or later.
    pub fn is_admitted(self) -> bool {
        matches!(self, Self::Admit { .. })
    }

    /// The wait that this is the answer to, the inverse of [`of`](Self::of).
    pub fn wait_ns(self, patience_ns: u64) -> Option<u64> {
        match self {
            Self::Admit { delay_ns } => Some(delay_ns),
            Self::Deny { retry_ns } => retry_ns.map(|retry_ns| retry_ns.saturating_add(patience_ns)),
        }
    }
}

impl From<Decision> for Outcome {
    fn from(decision: Decision) -> Self {
        match decision.verdict() {
            Verdict::Allow | Verdict::Delay => Self::Admit { delay_ns: nanos(decision.delay()) },
            Verdict::Deny => Self::Deny { retry_ns: decision.retry_after().map(nanos) },
        }
    }
}

/// A span of a decision in nanoseconds; it was made from 64 bits of them, so it fits.
pub(crate) fn nanos(span: std::time::Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
