//! What an answer took.

use std::time::Duration;

use crate::retry::Why;

/// What an answer took: an extension of every response that comes through a [`Polite`](crate::Polite) client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Effort {
    /// How many attempts there were, the first among them.
    pub attempts: u32,
    /// How many extra copies were sent because an attempt was slow.
    pub copies: u32,
    /// How long it waited, for turns and slots and between attempts.
    pub waited: Duration,
    /// Of an answer that is a failure and might have been tried again: why it was not.
    pub gave_up: Option<Why>,
}
