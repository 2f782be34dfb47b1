//! A limiter, whatever its clock.

use std::time::{Duration, SystemTime};

use tollgate::{Clock, Limiter, Quota, Tick, TokenBucket};

/// What a feedback needs of a limiter.
pub(super) trait Driven: Send + Sync {
    fn now(&self) -> Tick;
    fn utc(&self) -> SystemTime;
    fn set_rate(&self, rate: f64, burst: u64, now: Tick);

    /// Lets nobody pass for `span`, or for so much longer if it is stopped already. `rate` is the one it goes at.
    fn stop(&self, span: Duration, rate: f64, now: Tick);
}

/// Rates are counted in thousandths per second.
const GRAIN: f64 = 1e3;
const PERIOD: Duration = Duration::from_secs(1_000);

/// How late a timer may be without a loss: what comes meanwhile must fit on top of the one that is due.
const LATENESS: Duration = Duration::from_millis(10);

impl<C: Clock> Driven for Limiter<TokenBucket, C> {
    fn now(&self) -> Tick {
        self.clock().now()
    }

    fn utc(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + self.clock().unix()
    }

    fn set_rate(&self, rate: f64, burst: u64, now: Tick) {
        let count = (rate * GRAIN).round().max(1.0) as u64;
        let burst = burst.max(1 + (rate * LATENESS.as_secs_f64()).ceil() as u64);
        self.set_quota_at(Quota::per(count, PERIOD).burst(burst), now);
    }

    /// A debt that takes this long to pay off. Nobody needs to come back to end it: the limiter re-times all who wait, and
    /// when it is paid there is one turn, not a burst of them.
    fn stop(&self, span: Duration, rate: f64, now: Tick) {
        // Nothing if it is stopped already; and nothing if somebody waits, since there is less than they want.
        let left = self.peek_n_at(0, now).remaining();
        let debt = (span.as_secs_f64() * rate).ceil() as u64;
        self.charge_at(left.saturating_add(debt), now);
    }
}
