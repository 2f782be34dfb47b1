//! How many processes share a server.
//!
//! Each says twice a second that it is here, in one sorted set. Whoever has not said so for three seconds is gone; whoever ends
//! well says that, too.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use redis::{Cmd, Value};

use super::PATIENCE;
use super::wire::Wire;

/// For how long somebody is remembered.
const MEMORY: Duration = Duration::from_secs(3);
/// After so many heartbeats of a connection everybody has been heard who is there: also by a server that had forgotten all.
const ALL_HEARD: u32 = 8;
const SCRIPT: &str = include_str!("../../lua/nodes.lua");

/// Who this process is, and how many there are.
pub(crate) struct Presence {
    key: Vec<u8>,
    id: String,
    seen: AtomicU32,
}

impl Presence {
    /// Somebody new, who says so at that key.
    pub(crate) fn new(key: Vec<u8>) -> Self {
        Self { key, id: format!("{:016x}", fastrand::u64(..)), seen: AtomicU32::new(1) }
    }

    /// How many there were when that was last known, this one included.
    pub(super) fn nodes(&self) -> u32 {
        self.seen.load(Ordering::Relaxed)
    }

    /// Says that it is here, and hears who else is. That nobody answers is found out otherwise.
    pub(super) async fn say(&self, wire: &mut Wire, beats: u32) {
        let answer = tokio::time::timeout(PATIENCE, wire.send(&self.here())).await;
        if let Ok(Ok(Value::Int(counted))) = answer {
            self.heard(u32::try_from(counted).unwrap_or(1), beats);
        }
    }

    /// Says that it is gone.
    pub(super) async fn leave(&self, wire: &mut Wire) {
        let mut gone = redis::cmd("ZREM");
        gone.arg(&self.key).arg(&self.id);
        // If nobody hears it, it is forgotten all the same.
        let _ = tokio::time::timeout(PATIENCE, wire.send(&gone)).await;
    }

    fn here(&self) -> Cmd {
        let mut command = redis::cmd("EVAL");
        command.arg(SCRIPT).arg(1).arg(&self.key).arg(&self.id).arg(MEMORY.as_millis() as u64);
        command
    }

    /// Fewer than before are believed when everybody has had the time to say that it is there: if there were fewer than that for a
    /// moment, each would take more than its share.
    fn heard(&self, counted: u32, beats: u32) {
        if counted > self.nodes() || beats >= ALL_HEARD {
            self.seen.store(counted.max(1), Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for Presence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Presence").field("nodes", &self.nodes()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_are_believed_at_once_and_fewer_when_all_have_been_heard() {
        let presence = Presence::new(b"nodes".to_vec());
        assert_eq!(presence.nodes(), 1);
        presence.heard(5, 0);
        assert_eq!(presence.nodes(), 5);
        for beats in 0..8 {
            presence.heard(1, beats); // a server that has forgotten all, say
            assert_eq!(presence.nodes(), 5, "{beats}");
        }
        presence.heard(3, 8);
        assert_eq!(presence.nodes(), 3);
        presence.heard(0, 9);
        assert_eq!(presence.nodes(), 1, "this one is always there");
    }

    #[test]
    fn everybody_has_another_name() {
        assert_ne!(Presence::new(Vec::new()).id, Presence::new(Vec::new()).id);
    }
}
