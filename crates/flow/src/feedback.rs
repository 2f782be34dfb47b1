//! What an upstream's answers teach: how fast to call it.

mod climb;
mod control;
mod driven;
mod meter;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use tollgate::{Clock, Limiter, Tick};
use tollgate_http::{Advice, Budget, Reader, Throttled, Unit};

pub use control::{Heard, RateControl};
use driven::Driven;

/// Keeps a [`Limiter`] at the rate that an upstream stands, by what its answers say.
///
/// A refusal lowers the rate, successes raise it again, `Retry-After` or an exhausted budget stops it for a while, and it never
/// goes above what the upstream states: see [`RateControl`] for how much of each. Whoever waits for the limiter keeps
/// waiting meanwhile, and is served in order when it goes on; whoever has a deadline that lies before the end of a
/// pause is told at once.
///
/// One for each budget of an upstream: calls to it that are limited separately should not slow each other down. Clones share one
/// state.
///
/// # Examples
/// ```
/// use http::{HeaderMap, StatusCode};
/// use tollgate::{Limiter, Quota};
/// use tollgate_flow::{Feedback, RateControl};
///
/// # async fn call() -> (StatusCode, HeaderMap) {
/// #     (StatusCode::TOO_MANY_REQUESTS, HeaderMap::from_iter([(http::header::RETRY_AFTER, "2".parse().unwrap())]))
/// # }
/// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// # runtime.block_on(async {
/// let limiter = Limiter::new(Quota::per_second(10));
/// let feedback = Feedback::new(&limiter, RateControl::new());
///
/// limiter.wait().await?;
/// let sent = feedback.sending();
/// let (status, headers) = call().await;
/// let advice = feedback.read(sent, status, &headers, b"");
/// if advice.throttled.is_some() {
///     // Nobody gets a turn for two seconds; then all go on, more slowly.
///     assert!(feedback.paused_for().is_some());
/// }
/// # Ok::<(), tollgate::WaitError>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct Feedback {
    shared: Arc<Shared>,
}

struct Shared {
    limiter: Box<dyn Driven>,
    reader: Reader,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    control: RateControl,
    /// What the limiter was told: the rate, and until when it is stopped.
    rate: f64,
    stopped_until: Tick,
}

/// When something was sent, by the limiter's clock, and what it cost.
#[derive(Clone, Copy, Debug)]
#[must_use = "an answer is heard together with when it was asked for"]
pub struct Sent {
    at: Tick,
    cost: u64,
}

/// A new rate that differs by less than this is not worth re-timing everybody who waits.
const NOTABLE: f64 = 0.01;

impl Feedback {
    /// Drives `limiter`, from now on, by `control`, which sets its quota.
    pub fn new<C: Clock>(limiter: &Limiter<tollgate::TokenBucket, C>, control: RateControl) -> Self {
        Self::with_reader(limiter, control, Reader::new())
    }

    /// The same, with a reader of its own for [`read`](Self::read): for other longest waits than ten minutes.
    pub fn with_reader<C: Clock>(
        limiter: &Limiter<tollgate::TokenBucket, C>,
        control: RateControl,
        reader: Reader,
    ) -> Self {
        let limiter: Box<dyn Driven> = Box::new(limiter.clone());
        let rate = control.rate();
        limiter.set_rate(rate, control.burst_size(), limiter.now());
        let state = Mutex::new(State { control, rate, stopped_until: Tick::ZERO });
        Self { shared: Arc::new(Shared { limiter, reader, state }) }
    }

    /// To be called when something is sent, after its turn came.
    pub fn sending(&self) -> Sent {
        self.sending_n(1)
    }

    /// The same for something that costs `cost`.
    pub fn sending_n(&self, cost: u64) -> Sent {
        Sent { at: self.shared.limiter.now(), cost }
    }

    /// Reads an answer, and learns from it. The arguments are those of [`tollgate_http::read`].
    ///
    /// Whoever gets no answer at all just drops `sent`: it says nothing about the rate.
    pub fn read(&self, sent: Sent, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Advice {
        let advice = self.shared.reader.read(status, headers, body, self.shared.limiter.utc());
        let is_failure = status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT;
        if is_failure && advice.throttled.is_none() {
            self.overhear(&advice);
        } else {
            self.hear(sent, &advice);
        }
        advice
    }

    /// A server that fails does not say that it could bear more.
    fn overhear(&self, advice: &Advice) {
        let now = self.shared.limiter.now();
        let mut state = self.shared.state();
        state.control.overhear(now, advice.wait.unwrap_or_default(), stated(&advice.budgets));
        state.enforce(&*self.shared.limiter, now);
    }

    /// Learns from an answer that has been read. A refusal because of too many calls at once is none of ours, other than
    /// that its wait is kept: that is for an [`AdaptiveLimit`](crate::AdaptiveLimit).
    pub fn hear(&self, sent: Sent, advice: &Advice) {
        let (now, wait) = (self.shared.limiter.now(), advice.wait.unwrap_or_default());
        let mut state = self.shared.state();
        if advice.throttled == Some(Throttled::Concurrency) {
            state.control.hold(now, wait);
        } else {
            let (refused, stated) = (advice.throttled.is_some(), stated(&advice.budgets));
            state.control.hear(now, Heard { sent: sent.at, cost: sent.cost, refused, wait, stated });
        }
        state.enforce(&*self.shared.limiter, now);
    }

    /// Learns from a call that ended just now and took so long: it was let through, or refused for some time.
    pub(crate) fn hear_attempt(&self, took: Duration, cost: u64, refused_for: Option<Duration>) {
        let now = self.shared.limiter.now();
        let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let sent = Tick::from_nanos(now.as_nanos().saturating_sub(took_ns));
        let (refused, wait) = (refused_for.is_some(), refused_for.unwrap_or_default());
        let mut state = self.shared.state();
        state.control.hear(now, Heard { sent, cost, refused, wait, stated: None });
        state.enforce(&*self.shared.limiter, now);
    }

    /// The rate per second.
    pub fn rate(&self) -> f64 {
        self.shared.state().control.rate()
    }

    /// How long nothing will be sent, if it is stopped.
    pub fn paused_for(&self) -> Option<Duration> {
        let left = self.shared.state().control.held_until().since(self.shared.limiter.now());
        (!left.is_zero()).then_some(left)
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Tells the limiter what has changed. A stop is a debt, so the rate stays as it is until that is paid.
    fn enforce(&mut self, limiter: &dyn Driven, now: Tick) {
        let (rate, held_until) = (self.control.rate(), self.control.held_until());
        let is_stopped = self.stopped_until > now;
        if !is_stopped && (rate - self.rate).abs() > NOTABLE * self.rate {
            limiter.set_rate(rate, self.control.burst_size(), now);
            self.rate = rate;
        }
        let stopped_until = self.stopped_until.max(now);
        if held_until > stopped_until {
            limiter.stop(held_until.since(stopped_until), self.rate, now);
            self.stopped_until = held_until;
        }
    }
}

impl fmt::Debug for Feedback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feedback").field("state", &self.shared.state()).finish_non_exhaustive()
    }
}

/// The lowest rate that a budget of calls states. What is exhausted states a wait instead.
fn stated(budgets: &[Budget]) -> Option<f64> {
    let budgets = budgets.iter().filter(|budget| budget.unit == Unit::Requests);
    budgets.filter_map(Budget::rate).filter(|rate| *rate > 0.0).min_by(f64::total_cmp)
}

#[cfg(test)]
mod tests;
