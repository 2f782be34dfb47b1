//! Ending a run when the process is told to end.

use std::io;

use tokio::task::JoinHandle;

use super::control::Control;

/// Listens for SIGINT and SIGTERM until it is dropped; made by [`Control::on_signals`].
#[must_use = "dropping it stops listening"]
#[derive(Debug)]
pub struct EndSignals {
    listener: JoinHandle<()>,
}

impl Control {
    /// From now on the first SIGINT or SIGTERM [drains](Self::drain) the run, and the second [stops](Self::stop) it. Elsewhere
    /// than on Unix it is Ctrl-C.
    ///
    /// Once this was called, tokio keeps these signals from ending the process; also after this was dropped, until the process
    /// ends.
    ///
    /// # Errors
    /// If the system refuses to have the signals handled.
    ///
    /// # Panics
    /// Outside of a tokio runtime with I/O enabled.
    pub fn on_signals(&self) -> io::Result<EndSignals> {
        let (mut signals, control) = (Either::listen()?, self.clone());
        let listener = tokio::spawn(async move {
            signals.next().await;
            control.drain();
            signals.next().await;
            control.stop();
        });
        Ok(EndSignals { listener })
    }
}

impl Drop for EndSignals {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

/// Either of the two signals.
#[cfg(unix)]
struct Either {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Either {
    fn listen() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Ctrl-C.
#[cfg(windows)]
struct Either(tokio::signal::windows::CtrlC);

#[cfg(windows)]
impl Either {
    fn listen() -> io::Result<Self> {
        tokio::signal::windows::ctrl_c().map(Self)
    }

    async fn next(&mut self) {
        self.0.recv().await;
    }
}
