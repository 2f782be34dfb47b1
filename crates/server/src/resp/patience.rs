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

/// In so many parts a span is waited for.
const PARTS: u32 = 8;

/// Notices when nothing was answered for too long: after that time and at most an eighth more.
///
/// It reads no clock when something is answered. It only sleeps, an eighth of the time at once, and looks when it wakes up whether
/// anything was answered since.
pub(super) struct Watch {
    time: Time,
    span: Duration,
    sleep: Sleep,
    /// How many had been answered when it fell asleep.
    seen: u64,
    /// How many parts have passed since.
    quiet: u32,
}

impl Watch {
    pub(super) fn new(span: Duration) -> Self {
        let time = Time::tokio();
        let sleep = time.sleep(span / PARTS);
        Self { time, span, sleep, seen: 0, quiet: 0 }
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
        self.sleep = self.time.sleep(self.span / PARTS);
        self.seen = answered;
        self.quiet = 0;
    }

    /// Waits until it is too late.
    pub(super) async fn late(&mut self, answered: u64) {
        loop {
            (&mut self.sleep).await;
            if self.seen != answered {
                self.begin(answered);
                continue;
            }
            self.quiet += 1;
            if self.quiet >= PARTS {
                return;
            }
            self.sleep = self.time.sleep(self.span / PARTS);
        }
    }
}
