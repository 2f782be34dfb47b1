//! Signals.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Receives signals.
pub(super) struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
}

/// The meaning of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// Reload all files.
    Reload,
    /// Stop; the name of the signal.
    Stop(&'static str),
}

impl Signals {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next signal.
    ///
    /// # Cancel safety
    /// No signal is lost.
    pub(super) async fn next(&mut self) -> Told {
        tokio::select! {
            _ = self.hangup.recv() => Told::Reload,
            _ = self.terminate.recv() => Told::Stop("SIGTERM"),
            _ = self.interrupt.recv() => Told::Stop("SIGINT"),
        }
    }
}
