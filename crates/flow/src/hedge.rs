//! The same request on several handlers: the first success wins.

mod budget;
mod error;
mod flight;
mod latency;

use std::fmt;
use std::future::{Future, poll_fn};
use std::iter::{Peekable, Take};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

pub use budget::HedgeBudget;
pub use error::AllFailed;
use flight::Flight;
use latency::Latencies;
use tollgate::Tick;

use crate::retry::{Itself, Judge};
use crate::{Again, Sleep, Time};

/// Starts the same request again on another handler when the first is slow, and takes whichever succeeds first.
///
/// A call that is slower than nineteen of twenty is mostly just unlucky: a second copy of it, elsewhere, is likely back
/// sooner. With one straggler in a hundred, hedging after the 95th percentile took the 99th from 55 to 17 ms in a
/// simulation, for 4.9 % more load.
///
/// **Only for requests that may be made twice**: a copy that lost may have been carried out all the same.
///
/// - The first handler gets the request at once, and each further one after another [delay](Self::after): by default the
///   95th percentile of how long calls take (see below), at most [ten copies](Self::copies) in all.
/// - The first *success* wins; the other copies are dropped. A failure does not win: it starts the next copy at once.
///   When all copies failed, so has the call, with [every error](AllFailed).
/// - An error that says to come back later, or never ([`Again::After`], [`Again::Never`]), starts no further copy:
///   more of the same is not what that server needs. Copies on their way may still win.
/// - A [`HedgeBudget`] keeps the extra copies to 5 % of the calls, also when everything is slow or fails. A call that
///   is refused a copy goes on with those it has.
///
/// The copies run inside the caller's task. A handler that spawns tasks of its own should abort them when it is dropped.
/// Clones share the budget and what is known about latencies.
///
/// # The observed percentile
/// Each call counts once, with the time of its first copy. If another copy wins, or the call is dropped, all that is known
/// of the first is that it would have taken longer; since a copy is only sent after the percentile, the time
/// until then lies above it, as the true one would, and counts as it is. (Percentiles above the 95th would come
/// out too low that way; the 95th does not.) If the call is dropped before the delay has passed, or its first copy
/// failed, nothing is known, and it does not count.
///
/// The percentile is that of a window of at least a hundred calls and a second, never below the exact one and less than 1 % or
/// a microsecond above. It is kept [within](Self::between) 1 ms and 10 s; until the first window is over it is the longest.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate_flow::{Fault, Hedge, Time};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
/// # runtime.block_on(async {
/// let time = Time::tokio();
/// let ask = |replica: &'static str| {
///     let time = time.clone();
///     async move {
///         let busy = replica == "a.example.org";
///         time.sleep(Duration::from_millis(if busy { 900 } else { 20 })).await;
///         Ok::<_, Fault>(replica)
///     }
/// };
/// let hedge = Hedge::new().after(Duration::from_millis(50)).unbudgeted();
/// let answer = hedge.run(["a.example.org", "b.example.org"], ask).await;
/// assert_eq!(answer.unwrap(), "b.example.org");
/// assert_eq!(time.now().as_nanos(), 70_000_000); // 50 ms for a, 20 ms for b
/// # });
/// ```
#[derive(Clone)]
pub struct Hedge<J = Itself> {
    delay: Delay,
    copies: usize,
    budget: Option<HedgeBudget>,
    latencies: Arc<Mutex<Latencies>>,
    time: Time,
    judge: J,
}

#[derive(Clone, Copy, Debug)]
enum Delay {
    Observed { least: Duration, most: Duration },
    Fixed(Duration),
    AtOnce,
}

impl Hedge {
    /// Hedges after the observed 95th percentile, by tokio's time.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn new() -> Self {
        Self::with_time(Time::tokio())
    }

    /// The same, by another time.
    pub fn with_time(time: Time) -> Self {
        Self {
            delay: Delay::Observed { least: Duration::from_millis(1), most: Duration::from_secs(10) },
            copies: 10,
            budget: Some(HedgeBudget::default()),
            latencies: Arc::new(Mutex::new(Latencies::new(time.now()))),
            time,
            judge: Itself,
        }
    }
}

impl Default for Hedge {
    fn default() -> Self {
        Self::new()
    }
}

impl<J> Hedge<J> {
    /// Starts each further copy after this long, whatever is observed.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = Delay::Fixed(delay);
        self
    }

    /// Starts each further copy after the observed 95th percentile, but not sooner than `least` and not later than `most`.
    ///
    /// # Panics
    /// If `least` is more than `most`.
    #[must_use]
    pub fn between(mut self, least: Duration, most: Duration) -> Self {
        assert!(least <= most, "the least delay of a hedge is more than the most");
        self.delay = Delay::Observed { least, most };
        self
    }

    /// Starts all copies at once, and without a budget: n handlers mean n times the load. A [budget](Self::budget) given
    /// after this still holds.
    #[must_use]
    pub fn at_once(mut self) -> Self {
        self.delay = Delay::AtOnce;
        self.unbudgeted()
    }

    /// The most copies of one call, the first among them; at least 1.
    #[must_use]
    pub fn copies(mut self, most: usize) -> Self {
        self.copies = most.max(1);
        self
    }

    /// Pays for extra copies from this budget, which others may share.
    #[must_use]
    pub fn budget(mut self, budget: HedgeBudget) -> Self {
        self.budget = Some(budget);
        self
    }

    /// Starts extra copies whatever the load. In an outage that multiplies it.
    #[must_use]
    pub fn unbudgeted(mut self) -> Self {
        self.budget = None;
        self
    }

    /// Lets a closure say whether an error starts another copy, instead of the error itself.
    #[must_use]
    pub fn judge<E, K: Fn(&E) -> Again>(self, judge: K) -> Hedge<K> {
        let Self { delay, copies, budget, latencies, time, .. } = self;
        Hedge { delay, copies, budget, latencies, time, judge }
    }

    /// How long a call now waits before it starts its second copy.
    pub fn delay(&self) -> Duration {
        match self.delay {
            Delay::Observed { least, most } => self.known().p95().unwrap_or(most).clamp(least, most),
            Delay::Fixed(delay) => delay,
            Delay::AtOnce => Duration::ZERO,
        }
    }

    /// Makes a request of the first handler, and of others as needed; each handler is asked once at most.
    ///
    /// # Errors
    /// [`AllFailed`] if no copy succeeded, or there was no handler.
    ///
    /// # Cancel safety
    /// Dropping the future drops every copy.
    pub async fn run<H, C, A, T, E>(&self, handlers: H, call: C) -> Result<T, AllFailed<E>>
    where
        H: IntoIterator,
        C: FnMut(H::Item) -> A,
        A: Future<Output = Result<T, E>>,
        J: Judge<E>,
    {
        Race::new(self, handlers.into_iter(), call).run().await
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Latencies> {
        // Nothing in there panics half way, so a poisoned lock guards sound numbers.
        self.latencies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<J> fmt::Debug for Hedge<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("Hedge");
        fields.field("delay", &self.delay()).field("copies", &self.copies).field("budget", &self.budget);
        fields.finish_non_exhaustive()
    }
}

/// One call, and the copies of it.
struct Race<'a, J, H: Iterator, C, A, E> {
    hedge: &'a Hedge<J>,
    handlers: Peekable<Take<H>>,
    call: C,
    flight: Flight<A>,
    first: First<'a, J>,
    /// Rings when the next copy is due.
    alarm: Sleep,
    /// Whether there may be another copy.
    is_open: bool,
    errors: Vec<E>,
}

enum Event<T> {
    Landed(usize, T),
    Due,
}

impl<'a, J, H, C, A, T, E> Race<'a, J, H, C, A, E>
where
    H: Iterator,
    C: FnMut(H::Item) -> A,
    A: Future<Output = Result<T, E>>,
    J: Judge<E>,
{
    fn new(hedge: &'a Hedge<J>, handlers: H, call: C) -> Self {
        let first = First { hedge, started: hedge.time.now(), delay: hedge.delay(), is_flying: false };
        Self {
            alarm: hedge.time.sleep(first.delay),
            handlers: handlers.take(hedge.copies).peekable(),
            flight: Flight::new(),
            errors: Vec::new(),
            is_open: true,
            hedge,
            call,
            first,
        }
    }

    async fn run(mut self) -> Result<T, AllFailed<E>> {
        self.start_first();
        while matches!(self.hedge.delay, Delay::AtOnce) && self.start_another() {}
        while !self.flight.is_empty() {
            match self.event().await {
                Event::Due => {
                    self.start_another();
                }
                Event::Landed(number, Ok(value)) => {
                    self.landed(number, true);
                    return Ok(value);
                }
                Event::Landed(number, Err(error)) => {
                    self.landed(number, false);
                    self.is_open &= matches!(self.hedge.judge.judge(&error), Again::Later | Again::Unknown);
                    self.errors.push(error);
                    self.start_another();
                }
            }
        }
        Err(AllFailed { errors: self.errors })
    }

    /// Waits until a copy has landed or the next one is due.
    async fn event(&mut self) -> Event<A::Output> {
        poll_fn(|context| {
            if let Poll::Ready((number, output)) = self.flight.poll_landed(context) {
                return Poll::Ready(Event::Landed(number, output));
            }
            if !self.is_open {
                return Poll::Pending;
            }
            Pin::new(&mut self.alarm).poll(context).map(|()| Event::Due)
        })
        .await
    }

    fn start_first(&mut self) {
        if let Some(handler) = self.handlers.next() {
            if let Some(budget) = &self.hedge.budget {
                budget.deposit();
            }
            self.flight.start((self.call)(handler));
            self.first.is_flying = true;
        }
    }

    /// Starts another copy if there may be one. Once there may not, none is asked for again.
    fn start_another(&mut self) -> bool {
        self.is_open = self.is_open && self.handlers.peek().is_some() && self.is_paid();
        if let Some(handler) = self.handlers.next_if(|_| self.is_open) {
            self.alarm = self.hedge.time.sleep(self.first.delay);
            self.flight.start((self.call)(handler));
        }
        self.is_open
    }

    fn is_paid(&self) -> bool {
        self.hedge.budget.as_ref().is_none_or(HedgeBudget::withdraw)
    }

    fn landed(&mut self, number: usize, is_success: bool) {
        if number == 0 {
            self.first.landed(is_success);
        }
    }
}

/// The first copy of a call, whose time is measured.
struct First<'a, J> {
    hedge: &'a Hedge<J>,
    started: Tick,
    delay: Duration,
    is_flying: bool,
}

impl<J> First<'_, J> {
    fn landed(&mut self, is_success: bool) {
        self.is_flying = false;
        if is_success {
            self.count(Duration::ZERO);
        }
    }

    /// Counts the time until now, if it is at least this.
    fn count(&self, least: Duration) {
        let now = self.hedge.time.now();
        let span = now.since(self.started);
        if matches!(self.hedge.delay, Delay::Observed { .. }) && span >= least {
            self.hedge.known().record(span, now);
        }
    }
}

impl<J> Drop for First<'_, J> {
    /// Another copy won, or nobody waits any longer: it would have taken at least this long.
    fn drop(&mut self) {
        if self.is_flying {
            self.count(self.delay);
        }
    }
}

#[cfg(test)]
mod tests;
