//! Leave to call.

use std::sync::Arc;
use std::time::Duration;

use tollgate::{Permit, Reservation, TokenBucket, WaitError};

use super::host::{Entrance, Host};
use crate::Time;

/// Leave to call a host: a slot until it is dropped, and a turn for one attempt after the other. A turn that was not used goes
/// back.
#[derive(Debug)]
pub(super) struct Pass {
    host: Arc<Host>,
    /// The slot, and the turn of the first attempt.
    entry: Option<Permit<Entrance>>,
    is_entry_used: bool,
    /// The turn of a later one, until it is used.
    turn: Option<Reservation<TokenBucket, Time>>,
}

impl Pass {
    /// Waits for a slot and a turn, together: so nobody has a turn and no slot to use it, and then many at once.
    pub(super) async fn enter(host: Arc<Host>, patience: Duration) -> Result<Self, WaitError> {
        let entry = host.entrance.wait().within(patience).await?;
        Ok(Self::new(entry, host))
    }

    /// A slot and a turn if both are free.
    pub(super) fn try_enter(host: Arc<Host>) -> Option<Self> {
        if host.entrance.waiting() > 0 {
            return None;
        }
        let entry = host.entrance.acquire().ok()?;
        Some(Self::new(entry, host))
    }

    fn new(entry: Permit<Entrance>, host: Arc<Host>) -> Self {
        Self { host, entry: Some(entry), is_entry_used: false, turn: None }
    }

    /// Waits for a turn for another attempt.
    pub(super) async fn next(&mut self, patience: Duration) -> Result<(), WaitError> {
        self.turn = Some(self.host.turns.wait().within(patience).await?);
        Ok(())
    }

    /// The turn is being used.
    pub(super) fn use_turn(&mut self) {
        self.is_entry_used = true;
        self.turn = None;
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        match self.entry.take() {
            Some(entry) if self.is_entry_used => entry.release(),
            Some(entry) => entry.cancel(),
            None => {}
        }
        if let Some(turn) = self.turn.take() {
            turn.settle(0);
        }
    }
}
