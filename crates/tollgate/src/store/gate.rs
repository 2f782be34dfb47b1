//! Limits of a store that admit together or not at all.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tollgate_core::Tick;

use super::{Answer, Hit, Mode, Rule, Store, StoreError};
use crate::clock::{Clock, DefaultClock};
use crate::timer::Bell;

/// Limits of a store that admit together or not at all, wherever the store keeps them.
///
/// What a [`Gate`](crate::Gate) is in this process, for keys of limits in any [`Store`]; a [`Limiter`](super::Limiter) is one of
/// one limit. A call names a key for each limit, in the order in which those were given, and with `_n` what it costs each of them.
///
/// # Examples
/// ```
/// use tollgate::store::{Denied, Gate, MemoryStore, Rule};
/// use tollgate::{ManualClock, Quota};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Denied> {
/// let store = MemoryStore::builder().clock(ManualClock::new()).build(); // or one that many machines share
/// let requests = Rule::new("api", "requests per user", Quota::per_minute(60));
/// let bytes = Rule::new("api", "bytes", Quota::per_minute(1_000_000));
/// let gate = Gate::new(&store, [&requests, &bytes]);
/// assert!(gate.check_n([("alice", 1), ("", 4_096)]).await?.is_admitted());
///
/// let permit = gate.acquire_n([("alice", 1), ("", 10_000)]).await?; // an estimate
/// permit.settle([1, 1_234]).await?;
/// let left = gate.peek_n([("alice", 0), ("", 0)]).await?;
/// assert_eq!((left.each()[0].decision.remaining(), left.each()[1].decision.remaining()), (58, 994_670));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Gate<S: Store, const N: usize, C: Clock = DefaultClock> {
    store: S,
    limits: [S::Limit; N],
    clock: C,
}

impl<S: Store, const N: usize> Gate<S, N> {
    /// Opens the limits of some rules.
    pub fn new(store: &S, rules: [&Rule; N]) -> Self {
        Gate {
            limits: rules.map(|rule| store.open(rule)),
            store: store.clone(),
            clock: DefaultClock::default(),
        }
    }
}

impl<S: Store, const N: usize, C: Clock> Gate<S, N, C> {
    /// The same, by whose clock those who [wait](Self::wait) do so. The store has its own to decide by.
    pub fn clock<D: Clock>(self, clock: D) -> Gate<S, N, D> {
        Gate { store: self.store, limits: self.limits, clock }
    }

    /// Whether one of each may happen. (A [leaky queue](crate::Kind::LeakyQueue) may ask for a [delay](Answer::delay), which only
    /// [`check`](Self::check) tells, and [`wait`](Self::wait) waits for.)
    ///
    /// # Errors
    /// If the store cannot tell.
    pub async fn allow<K: AsRef<[u8]>>(&self, keys: [K; N]) -> Result<bool, StoreError> {
        Ok(self.check(keys).await?.is_admitted())
    }

    /// Whether one of each may happen, and everything a caller may want to know with that.
    ///
    /// # Errors
    /// If the store cannot tell.
    pub async fn check<K: AsRef<[u8]>>(&self, keys: [K; N]) -> Result<Answer, StoreError> {
        self.check_n(keys.map(one)).await
    }

    /// The same at such costs.
    ///
    /// # Errors
    /// If the store cannot tell.
    pub async fn check_n<K: AsRef<[u8]>>(&self, asks: [(K, u64); N]) -> Result<Answer, StoreError> {
        self.store.decide(Mode::Take, &self.hits(&asks)).await
    }

    /// What [`check`](Self::check) would say, without taking anything.
    ///
    /// # Errors
    /// If the store cannot tell.
    pub async fn peek<K: AsRef<[u8]>>(&self, keys: [K; N]) -> Result<Answer, StoreError> {
        self.peek_n(keys.map(one)).await
    }

    /// What [`check_n`](Self::check_n) would say, without taking anything.
    ///
    /// # Errors
    /// If the store cannot tell.
    pub async fn peek_n<K: AsRef<[u8]>>(&self, asks: [(K, u64); N]) -> Result<Answer, StoreError> {
        self.store.decide(Mode::Peek, &self.hits(&asks)).await
    }

    /// Takes what has happened already, whether it fits or not: see [`Mode::Charge`].
    ///
    /// # Errors
    /// If the store cannot be reached.
    pub async fn charge_n<K: AsRef<[u8]>>(&self, asks: [(K, u64); N]) -> Result<Answer, StoreError> {
        self.store.decide(Mode::Charge, &self.hits(&asks)).await
    }

    /// Gives back what was taken and not used: see [`Mode::Refund`]. Where it can be, [settle a permit](Self::acquire_n) instead.
    ///
    /// # Errors
    /// If the store cannot be reached.
    pub async fn refund_n<K: AsRef<[u8]>>(&self, asks: [(K, u64); N]) -> Result<Answer, StoreError> {
        self.store.decide(Mode::Refund, &self.hits(&asks)).await
    }

    /// Takes what can be settled with its real cost later.
    ///
    /// # Errors
    /// If a limit refuses, or the store cannot tell.
    pub async fn acquire_n<K: AsRef<[u8]>>(&self, asks: [(K, u64); N]) -> Result<Permit<S, N>, Denied> {
        let (answer, permit) = self.store.acquire(&self.hits(&asks)).await?;
        match permit {
            Some(held) => Ok(Permit { store: self.store.clone(), answer, held }),
            None => Err(Denied::ByLimit(answer)),
        }
    }

    /// Waits until one of each may happen, for so long at most.
    ///
    /// Who is refused asks again when it was told to, and so do others, in this process and elsewhere: there is no line, and
    /// who comes at the right moment is first. A [leaky queue](crate::Kind::LeakyQueue) admits at once and says for how long to wait,
    /// which is waited for whatever it is. Callers of one process who should take turns wait for a
    /// [`Limiter`](crate::Limiter) of its own before.
    ///
    /// # Errors
    /// If it would take longer, or forever, which is said at once; or the store cannot tell.
    ///
    /// # Cancel safety
    /// That of the store: what it was asked for last may have been taken.
    pub async fn wait<K: AsRef<[u8]>>(&self, keys: [K; N], at_most: Duration) -> Result<Answer, Denied> {
        self.wait_n(keys.map(one), at_most).await
    }

    /// The same at such costs.
    ///
    /// # Errors
    /// If it would take longer, or forever, which is said at once; or the store cannot tell.
    pub async fn wait_n<K: AsRef<[u8]>>(
        &self,
        asks: [(K, u64); N],
        at_most: Duration,
    ) -> Result<Answer, Denied> {
        let deadline = self.clock.now() + at_most;
        loop {
            let answer = self.store.decide(Mode::Take, &self.hits(&asks)).await?;
            if answer.is_admitted() {
                Sleep::new(&self.clock, self.clock.now() + answer.delay()).await;
                return Ok(answer);
            }
            match answer.retry_after().map(|wait| self.clock.now() + wait) {
                Some(next) if next <= deadline => Sleep::new(&self.clock, next).await,
                _ => return Err(Denied::ByLimit(answer)),
            }
        }
    }

    /// Forgets what keys have used. Which of them were known.
    ///
    /// # Errors
    /// If the store cannot be reached.
    pub async fn reset<K: AsRef<[u8]>>(&self, keys: [K; N]) -> Result<[bool; N], StoreError> {
        let mut known = [false; N];
        for ((limit, key), known) in self.limits.iter().zip(&keys).zip(&mut known) {
            *known = self.store.reset(limit, key.as_ref()).await?;
        }
        Ok(known)
    }

    fn hits<'a, K: AsRef<[u8]>>(&'a self, asks: &'a [(K, u64); N]) -> [Hit<'a, S::Limit>; N] {
        std::array::from_fn(|place| {
            let (key, cost) = &asks[place];
            Hit::new(&self.limits[place], key.as_ref()).costing(*cost)
        })
    }
}

fn one<K>(key: K) -> (K, u64) {
    (key, 1)
}

/// Something taken of the limits of a [`Gate`], whose real cost will be known later. Dropping it keeps what was taken.
#[derive(Debug)]
#[must_use = "a permit that is not settled costs what was asked for"]
pub struct Permit<S: Store, const N: usize> {
    store: S,
    answer: Answer,
    held: S::Permit,
}

impl<S: Store, const N: usize> Permit<S, N> {
    /// What the limits said when they admitted it.
    pub fn answer(&self) -> &Answer {
        &self.answer
    }

    /// Says what it really cost: see [`Store::settle`].
    ///
    /// # Errors
    /// If the store cannot be reached. What was taken then stays taken.
    pub async fn settle(mut self, actual: [u64; N]) -> Result<(), StoreError> {
        self.store.settle(&mut self.held, &actual).await
    }
}

/// An error that a request was not admitted.
#[derive(Debug)]
pub enum Denied {
    /// A limit was reached; [`retry_after`](Answer::retry_after) returns when a retry can succeed.
    ByLimit(Answer),
    /// The store is unavailable.
    ByStore(StoreError),
}

impl From<StoreError> for Denied {
    fn from(error: StoreError) -> Self {
        Self::ByStore(error)
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ByLimit(answer) => match answer.retry_after() {
                Some(wait) => write!(f, "limit reached: retry after {wait:?}"),
                None => f.write_str("never allowed: the cost exceeds a limit, or a rate is zero"),
            },
            Self::ByStore(_) => f.write_str("store unavailable"),
        }
    }
}

impl Error for Denied {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::ByLimit(_) => None,
            Self::ByStore(error) => Some(error),
        }
    }
}

/// Sleeps until then.
struct Sleep<'a, C> {
    clock: &'a C,
    until: Tick,
    bell: Bell,
}

impl<'a, C: Clock> Sleep<'a, C> {
    fn new(clock: &'a C, until: Tick) -> Self {
        Self { clock, until, bell: Bell::default() }
    }
}

impl<C: Clock> Future for Sleep<'_, C> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let now = self.clock.now();
        if now >= self.until {
            return Poll::Ready(());
        }
        let left = self.until.since(now);
        let timer = self.clock.timer();
        self.bell.ring_after(&*timer, left, context.waker());
        Poll::Pending
    }
}
