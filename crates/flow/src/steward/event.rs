//! What a steward has to tell.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinError;

/// What happened to a worker; told to [`Steward::on_event`](crate::Steward::on_event).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StewardEvent {
    /// A worker started.
    Started {
        /// How many had to be replaced before it.
        restarts: u64,
    },
    /// It missed some beats.
    Slow,
    /// It was slow and beats again.
    Recovered,
    /// It died, and another will start.
    Died {
        /// Of what.
        death: Death,
        /// When the next one starts.
        restart_in: Duration,
    },
    /// It would not end even when aborted, because it blocks its thread. It ends by itself at its next `await`.
    LeftBehind,
    /// It is done.
    Finished,
    /// The steward was asked to stop, and no worker of it runs any more, except one that was left behind.
    Stopped {
        /// How the worker ended, if not well; one that had to be aborted failed.
        failure: Option<Death>,
    },
    /// Workers died too often.
    GaveUp(StewardGaveUp),
}

/// Why a worker counts as dead.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Death {
    /// It did not beat for so long.
    Silent(Duration),
    /// It returned an error.
    Failed(Arc<dyn Error + Send + Sync>),
    /// It panicked, with that message.
    Panicked(String),
}

impl Death {
    pub(super) fn failed(error: Box<dyn Error + Send + Sync>) -> Self {
        Self::Failed(error.into())
    }

    /// Of a task that did not come to its end.
    pub(super) fn of_task(error: JoinError) -> Self {
        match error.try_into_panic() {
            Ok(payload) => Self::Panicked(message_of(payload.as_ref())),
            Err(cancelled) => Self::Failed(Arc::new(cancelled)),
        }
    }
}

fn message_of(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a value that is no text").to_owned()
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent(span) => write!(f, "the worker did not beat for {span:?}"),
            Self::Failed(_) => f.write_str("the worker failed"),
            Self::Panicked(message) => write!(f, "the worker panicked: {message}"),
        }
    }
}

impl Error for Death {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Failed(error) => Some(error.as_ref()),
            Self::Silent(_) | Self::Panicked(_) => None,
        }
    }
}

/// A [`Steward`](crate::Steward) gave up: its workers died too often. It says what the last one died of; if that was an
/// error, it is the [source](Error::source).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StewardGaveUp {
    /// After how many restarts.
    pub restarts: u32,
    /// Within which span.
    pub within: Duration,
    /// What the last worker died of.
    pub last: Death,
}

impl fmt::Display for StewardGaveUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { restarts, within, last } = self;
        let s = if *restarts == 1 { "" } else { "s" };
        write!(f, "gave up after {restarts} restart{s} within {within:?}: {last}")
    }
}

impl Error for StewardGaveUp {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.last.source()
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn gave_up(last: Death) -> StewardGaveUp {
        StewardGaveUp { restarts: 5, within: Duration::from_secs(60), last }
    }

    #[test]
    fn giving_up_says_the_last_reason() {
        let silent = gave_up(Death::Silent(Duration::from_secs(5)));
        assert_eq!(silent.to_string(), "gave up after 5 restarts within 60s: the worker did not beat for 5s");
        let panicked = gave_up(Death::Panicked("boom".into()));
        assert_eq!(panicked.to_string(), "gave up after 5 restarts within 60s: the worker panicked: boom");
        assert!(panicked.source().is_none());
    }

    #[test]
    fn the_error_of_a_worker_is_the_source_and_printed_once() {
        let failed = gave_up(Death::failed(io::Error::other("disk full").into()));
        assert_eq!(failed.to_string(), "gave up after 5 restarts within 60s: the worker failed");
        assert_eq!(failed.source().unwrap().to_string(), "disk full");
    }

    #[test]
    fn a_panic_may_carry_any_value() {
        assert_eq!(message_of(&"text"), "text");
        assert_eq!(message_of(&String::from("owned")), "owned");
        assert_eq!(message_of(&7_u8), "a value that is no text");
    }
}
