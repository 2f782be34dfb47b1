//! How long is waited for callers.

use std::time::Duration;

use tollgate_flow::{Sleep, Time};

/// How long is waited for callers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// For the next command.
    pub(super) idle: Duration,
    /// For the rest of a command that has begun, and for answers to be taken.
    pub(super) slow: Duration,
}

/// Notices when nothing was answered for too long: after once to twice that time.
///
/// It reads no clock when something is answered. It only sleeps, and looks when it wakes up whether anything was answered since.
pub(super) struct Watch {
    time: Time,
    span: Duration,
    sleep: Sleep,
    /// How many had been answered when it fell asleep.
    seen: u64,
}

impl Watch {
    pub(super) fn new(span: Duration) -> Self {
        let time = Time::tokio();
        let sleep = time.sleep(span);
        Self { time, span, sleep, seen: 0 }
    }

    /// Gives callers another span from now on.
    #[inline]
    pub(super) fn expect(&mut self, span: Duration, answered: u64) {
        if span != self.span {
            self.span = span;
            self.begin(answered);
        }
    }

    fn begin(&mut self, answered: u64) {
        self.sleep = self.time.sleep(self.span);
        self.seen = answered;
    }

    /// Waits until it is too late.
    pub(super) async fn late(&mut self, answered: u64) {
        loop {
            (&mut self.sleep).await;
            if self.seen == answered {
                return;
            }
            self.begin(answered);
        }
    }
}
