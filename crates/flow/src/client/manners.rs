//! How a client behaves.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tollgate_http::Reader;

use super::polite::Polite;
use crate::{AdaptiveLimit, Hedge, RateControl, Retry, Time};

/// How an HTTP client behaves towards those it calls: the recipe of a [`Polite`] client.
///
/// What becomes of a call, in order:
///
/// 1. It has until its [deadline](Self::deadline), or as long as the [`Scope`](crate::Scope) lasts that is an extension of the
///    request, whichever ends first.
/// 2. It waits for a turn, at the [rate](Self::rate) that the upstream stands, and for a slot, if [calls at
///    once](Self::concurrency) are limited; for both together, first come, first served. What cannot be had before the deadline
///    is refused at once. A `Retry-After`, or a budget that is used up, pauses everybody.
/// 3. The request is sent, for no longer than [one attempt may take](Self::attempt_timeout). If it is slow it may be
///    [hedged](Self::hedge).
/// 4. Status and fields of the answer teach the rate ([`Feedback`](crate::Feedback)), and status and time the number of
///    slots: an answer is a success; 429, 503, 504 and a time-out are a drop; other failures teach nothing, nor does an
///    attempt that the deadline ended.
/// 5. What failed is [tried again](Self::retry), if it may be: after a backoff, or what `Retry-After` says, and with a turn of its
///    own. The slot is kept meanwhile.
/// 6. When there is no further attempt the caller gets what the last one brought: a response, whatever its status, as from
///    an ordinary client; or the client's [error](crate::client::NoAnswer). An [`Effort`](crate::client::Effort) in the response's extensions tells
///    what it took. A response that might be the last is kept until there is another, with its connection.
///
/// The slot is given back with the head of the answer, not at the end of its body: a slow download does not count.
///
/// # What is tried again
/// What failed: no connection, an attempt that timed out; 408, 429, 502, 503, 504; a refusal by a limit with another status, such as
/// GitHub's 403; and what the service says to try again (`stripe-should-retry`, `x-should-retry`). If the service says
/// not to, it is not.
///
/// And may be repeated:
/// - Its method is idempotent (GET, HEAD, OPTIONS, TRACE, PUT, DELETE: RFC 9110), or it has an `Idempotency-Key`, or the
///   caller says [`Repeat(true)`](crate::client::Repeat).
/// - Any other only if nothing can have come of it: it was refused by a limit (429, but not 503, which gateways also say of what
///   broke half way), or there was no connection; or the service itself says to try again.
/// - Its body can be had again. A reqwest body that is a stream cannot.
///
/// # One state for each upstream
/// Rate, slots, budgets and latencies are kept for each host and port. At most [1 000 of them](Self::most_upstreams) are
/// remembered, those called last; one that is being called is never forgotten, so there are more if more are called at once.
/// What was learnt of one that was forgotten is lost, and it begins anew. [`as_one`](Self::as_one) has one state for
/// everything.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate_flow::{AdaptiveLimit, Gradient2, Hedge, Manners, RateControl, Retry};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
/// # let _context = runtime.enter();
/// let polite = Manners::new()
///     .rate(RateControl::new().starting_at(20.0).at_most(100.0))
///     .concurrency(|time| AdaptiveLimit::new(Gradient2::new(), time))
///     .retry(|time| Retry::with_time(time).tries(3))
///     .hedge(|time| Hedge::with_time(time).copies(2))
///     .attempt_timeout(Duration::from_secs(10))
///     .deadline(Duration::from_secs(60))
///     .build();
/// # assert!(polite.upstreams().is_empty());
/// ```
///
/// # Logs
/// Each retry and each pause is an event at level INFO, with target `tollgate::client`: the host and port, the method, the
/// status, the wait. Never a path, a query, a header or the text of an error, which may quote them.
#[derive(Clone)]
#[must_use = "a recipe does nothing until something is built by it"]
pub struct Manners {
    pub(super) time: Time,
    pub(super) rate: RateControl,
    pub(super) reader: Reader,
    pub(super) concurrency: Option<Make<AdaptiveLimit>>,
    pub(super) retry: Make<Retry>,
    pub(super) hedge: Option<Make<Hedge>>,
    pub(super) attempt_timeout: Option<Duration>,
    pub(super) deadline: Option<Duration>,
    /// `None`: they are all one.
    pub(super) most_upstreams: Option<usize>,
}

/// Makes one for each upstream.
pub(super) type Make<T> = Arc<dyn Fn(Time) -> T + Send + Sync>;

const MOST_UPSTREAMS: usize = 1_000;
const TRIES: u32 = 5;

impl Manners {
    /// A rate that is learnt, and five attempts at most, by tokio's time; no limit of calls at once, no hedging, no time-outs.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn new() -> Self {
        Self::with_time(Time::tokio())
    }

    /// The same, by another time.
    pub fn with_time(time: Time) -> Self {
        Self {
            time,
            rate: RateControl::new(),
            reader: Reader::new(),
            concurrency: None,
            retry: Arc::new(|time| Retry::with_time(time).tries(TRIES)),
            hedge: None,
            attempt_timeout: None,
            deadline: None,
            most_upstreams: Some(MOST_UPSTREAMS),
        }
    }

    /// How the rate begins, what it may be at most, and how it grows.
    pub fn rate(self, rate: RateControl) -> Self {
        Self { rate, ..self }
    }

    /// How answers are read: for a longest wait other than ten minutes.
    pub fn reader(self, reader: Reader) -> Self {
        Self { reader, ..self }
    }

    /// Limits how many calls there are at once. The closure makes the limit of an upstream.
    pub fn concurrency(self, make: impl Fn(Time) -> AdaptiveLimit + Send + Sync + 'static) -> Self {
        Self { concurrency: Some(Arc::new(make)), ..self }
    }

    /// How often, how long and after which waits to try again. The closure makes the policy of an upstream, with a budget
    /// of its own; one that returns clones of a policy has one budget for all.
    pub fn retry(self, make: impl Fn(Time) -> Retry + Send + Sync + 'static) -> Self {
        Self { retry: Arc::new(make), ..self }
    }

    /// Sends a copy of what is slow, and takes whichever answer is first. The closure makes the policy of an upstream.
    ///
    /// Only requests whose method is safe (GET, HEAD, OPTIONS, TRACE) are hedged: a late copy of a PUT could undo what came after it.
    /// A copy is sent only if there is a turn and a slot for it that nobody waits for. It is an answer to slowness alone: what failed is
    /// for the retry.
    pub fn hedge(self, make: impl Fn(Time) -> Hedge + Send + Sync + 'static) -> Self {
        Self { hedge: Some(Arc::new(make)), ..self }
    }

    /// How long one attempt may take, from when it is sent to the head of its answer.
    pub fn attempt_timeout(self, span: Duration) -> Self {
        Self { attempt_timeout: Some(span), ..self }
    }

    /// How long a call may take, with all its waits and attempts.
    pub fn deadline(self, span: Duration) -> Self {
        Self { deadline: Some(span), ..self }
    }

    /// How many upstreams to remember; at least one.
    pub fn most_upstreams(self, most: usize) -> Self {
        Self { most_upstreams: Some(most), ..self }
    }

    /// Has one state for all upstreams: for many names of one service.
    pub fn as_one(self) -> Self {
        Self { most_upstreams: None, ..self }
    }

    /// Makes the client's state, for use with as many clients as should share it.
    pub fn build(self) -> Polite {
        Polite::new(self)
    }
}

impl Default for Manners {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Manners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manners")
            .field("rate", &self.rate)
            .field("attempt_timeout", &self.attempt_timeout)
            .field("deadline", &self.deadline)
            .field("most_upstreams", &self.most_upstreams)
            .finish_non_exhaustive()
    }
}
