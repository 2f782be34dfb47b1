//! Whether trying again can help.

use std::error::Error;
use std::fmt;
use std::io::{self, ErrorKind};
use std::time::Duration;

use tollgate::{GateRefused, Refused, WaitError};

use super::error::{FaultError, causes};
use crate::{Elapsed, Ended};

/// Whether trying again can help. `Display` says so in words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Again {
    /// It will fail in the same way until something else is changed.
    Never,
    /// It may well work after a while.
    Later,
    /// It may well work after this long, and not sooner.
    After(Duration),
    /// Nobody knows.
    #[default]
    Unknown,
}

impl Again {
    /// What the error, or else the first of its causes that tells, says about trying again.
    ///
    /// A [`FaultError`] and the errors of this crate and of `tollgate` know. Of [`io::Error`], what is wrong with the
    /// connection or takes too long is worth another try; what is wrong with the request (not found, not permitted, not
    /// valid) is not. Of all others nothing is known.
    pub fn of(error: &(dyn Error + 'static)) -> Self {
        causes(error).map(told_by).find(|again| *again != Self::Unknown).unwrap_or_default()
    }

    fn after(wait: Option<Duration>) -> Self {
        wait.map_or(Self::Never, Self::After)
    }
}

/// What the error itself says about trying again, whatever its causes.
fn told_by(error: &(dyn Error + 'static)) -> Again {
    if let Some(error) = error.downcast_ref::<FaultError>() {
        error.fault().again()
    } else if let Some(error) = error.downcast_ref::<io::Error>() {
        of_io(error.kind())
    } else if let Some(Refused(decision)) = error.downcast_ref() {
        Again::after(decision.retry_after())
    } else if let Some(GateRefused(decision)) = error.downcast_ref() {
        Again::after(decision.retry_after())
    } else if let Some(error) = error.downcast_ref() {
        of_wait(error)
    } else if let Some(error) = error.downcast_ref::<Ended>() {
        error.again()
    } else if error.is::<Elapsed>() {
        Again::Later
    } else {
        Again::Unknown
    }
}

fn of_wait(error: &WaitError) -> Again {
    match error {
        WaitError::Never { .. } | WaitError::Closed => Again::Never,
        WaitError::TooLate { would_take } => Again::After(*would_take),
        WaitError::Full { .. } => Again::Later,
        _ => Again::Unknown,
    }
}

fn of_io(kind: ErrorKind) -> Again {
    match kind {
        ErrorKind::AddrInUse
        | ErrorKind::BrokenPipe
        | ErrorKind::ConnectionAborted
        | ErrorKind::ConnectionRefused
        | ErrorKind::ConnectionReset
        | ErrorKind::HostUnreachable
        | ErrorKind::Interrupted
        | ErrorKind::NetworkDown
        | ErrorKind::NetworkUnreachable
        | ErrorKind::NotConnected
        | ErrorKind::OutOfMemory
        | ErrorKind::ResourceBusy
        | ErrorKind::TimedOut
        | ErrorKind::UnexpectedEof
        | ErrorKind::WouldBlock => Again::Later,
        ErrorKind::AddrNotAvailable
        | ErrorKind::AlreadyExists
        | ErrorKind::InvalidData
        | ErrorKind::InvalidInput
        | ErrorKind::IsADirectory
        | ErrorKind::NotADirectory
        | ErrorKind::NotFound
        | ErrorKind::PermissionDenied
        | ErrorKind::ReadOnlyFilesystem
        | ErrorKind::Unsupported => Again::Never,
        _ => Again::Unknown,
    }
}

impl fmt::Display for Again {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Never => f.write_str("trying again will not help"),
            Self::Later => f.write_str("trying again later can help"),
            Self::After(wait) => {
                f.write_str("trying again in ")?;
                write_span(f, *wait)?;
                f.write_str(" can help")
            }
            Self::Unknown => f.write_str("trying again may or may not help"),
        }
    }
}

/// A span as people say it, rounded up: coming back too late is better than too soon.
fn write_span(f: &mut fmt::Formatter<'_>, span: Duration) -> fmt::Result {
    let seconds = span.as_secs().saturating_add(u64::from(span.subsec_nanos() > 0)).max(1);
    match seconds {
        0..=90 => write!(f, "{seconds} s"),
        91..=5_400 => write!(f, "{} min", seconds.div_ceil(60)),
        _ => write!(f, "{} h", seconds.div_ceil(3_600)),
    }
}

#[cfg(test)]
mod tests {
    use tollgate::{Limiter, ManualClock, Quota};

    use super::*;

    fn words(millis: u64) -> String {
        Again::After(Duration::from_millis(millis)).to_string()
    }

    #[test]
    fn words_say_whether_it_can_help() {
        assert_eq!(Again::Never.to_string(), "trying again will not help");
        assert_eq!(Again::Later.to_string(), "trying again later can help");
        assert_eq!(Again::Unknown.to_string(), "trying again may or may not help");
    }

    #[test]
    fn spans_are_rounded_up_and_never_overflow() {
        for (millis, span) in [
            (0, "1 s"),
            (1, "1 s"),
            (1_001, "2 s"),
            (90_000, "90 s"),
            (90_001, "2 min"),
            (5_400_000, "90 min"),
        ] {
            assert_eq!(words(millis), format!("trying again in {span} can help"), "{millis} ms");
        }
        assert_eq!(words(5_400_001), "trying again in 2 h can help");
        let ever = Again::After(Duration::MAX).to_string();
        assert_eq!(ever, format!("trying again in {} h can help", u64::MAX.div_ceil(3_600)));
    }

    #[test]
    fn a_broken_connection_is_worth_another_try_and_a_wrong_request_is_not() {
        let of = |kind: ErrorKind| Again::of(&io::Error::from(kind));
        assert_eq!(of(ErrorKind::ConnectionReset), Again::Later);
        assert_eq!(of(ErrorKind::TimedOut), Again::Later);
        assert_eq!(of(ErrorKind::NotFound), Again::Never);
        assert_eq!(of(ErrorKind::PermissionDenied), Again::Never);
        assert_eq!(of(ErrorKind::Other), Again::Unknown);
    }

    #[test]
    fn a_refusal_says_when() {
        let limiter = Limiter::builder(Quota::per_second(1)).clock(ManualClock::new()).build();
        limiter.reserve_n(1).unwrap();
        let refused = limiter.reserve_within(1, Duration::ZERO).unwrap_err();
        assert_eq!(Again::of(&refused), Again::After(Duration::from_secs(1)));
        let never = limiter.reserve_n(2).unwrap_err();
        assert_eq!(Again::of(&never), Again::Never);
    }

    #[test]
    fn a_wait_says_when() {
        let late = WaitError::TooLate { would_take: Duration::from_secs(3) };
        assert_eq!(Again::of(&late), Again::After(Duration::from_secs(3)));
        assert_eq!(Again::of(&WaitError::Full { waiting: 9 }), Again::Later);
        assert_eq!(Again::of(&WaitError::Closed), Again::Never);
        assert_eq!(Again::of(&WaitError::Never { cost: 2, limit: 1 }), Again::Never);
        assert_eq!(Again::of(&Elapsed), Again::Later);
    }

    #[test]
    fn a_cause_tells_when_the_error_does_not() {
        let outer = io::Error::other(io::Error::from(ErrorKind::TimedOut));
        assert_eq!(Again::of(&outer), Again::Later);
    }
}
