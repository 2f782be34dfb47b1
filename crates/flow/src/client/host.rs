//! What is known of one upstream.

use std::time::Duration;

use http::{HeaderMap, StatusCode};
use tollgate::{And, ConcurrencyLimit, Gate, Limiter, Quota, TokenBucket};
use tollgate_http::Advice;

use super::manners::Manners;
use crate::concurrency::Fixed;
use crate::feedback::Sent;
use crate::{AdaptiveLimit, Feedback, Hedge, Retry, Time};

/// The limit of a host's rate.
pub(super) type Turns = Limiter<TokenBucket, Time>;
/// What the first attempt of a call takes: a turn, and a slot for the whole of it.
pub(super) type Entrance = And<Turns, ConcurrencyLimit>;

/// What is known of one upstream, and what limits the calls to it.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) turns: Turns,
    pub(super) entrance: Gate<Entrance>,
    pub(super) feedback: Feedback,
    pub(super) slots: AdaptiveLimit,
    pub(super) retry: Retry,
    pub(super) hedge: Option<Hedge>,
}

/// A pause that grows by less than this is still the same pause.
const SAME_PAUSE: Duration = Duration::from_millis(50);

impl Host {
    pub(super) fn new(manners: &Manners) -> Self {
        let time = || manners.time.clone();
        // The feedback sets the quota right away; of what is there before, a burst is left.
        let turns = Limiter::builder(Quota::per_second(1).burst(u64::MAX)).clock(time()).build();
        let unlimited = || AdaptiveLimit::new(Fixed::new(ConcurrencyLimit::MOST), time());
        let slots = manners.concurrency.as_ref().map_or_else(unlimited, |make| make(time()));
        Self {
            entrance: Gate::new(turns.clone()).and(slots.concurrency().clone()),
            feedback: Feedback::with_reader(&turns, manners.rate.clone(), manners.reader),
            retry: (manners.retry)(time()),
            hedge: manners.hedge.as_ref().map(|make| make(time())),
            slots,
            turns,
        }
    }

    /// Learns from an answer how fast to call.
    pub(super) fn read(&self, name: &str, sent: Sent, status: StatusCode, headers: &HeaderMap) -> Advice {
        let before = self.feedback.paused_for().unwrap_or_default();
        let advice = self.feedback.read(sent, status, headers, b"");
        if let Some(pause) = self.feedback.paused_for().filter(|pause| *pause > before + SAME_PAUSE) {
            let (status, rate) = (status.as_u16(), self.feedback.rate());
            tracing::info!(target: "tollgate::client", upstream = name, status, ?pause, rate, "pausing requests to the upstream");
        }
        advice
    }

    pub(super) fn describe(&self, name: &str) -> Upstream {
        Upstream {
            name: name.to_owned(),
            rate: self.feedback.rate(),
            paused_for: self.feedback.paused_for(),
            waiting: self.entrance.waiting(),
            in_flight: self.slots.concurrency().in_use(),
            slots: self.slots.limit(),
        }
    }
}

/// How an upstream does; told by [`Polite::upstreams`](crate::Polite::upstreams).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Upstream {
    /// Its host and port; empty where all are one.
    pub name: String,
    /// How many requests a second it gets at most.
    pub rate: f64,
    /// For how long it gets none, if so.
    pub paused_for: Option<Duration>,
    /// How many calls wait to begin.
    pub waiting: usize,
    /// How many calls have begun and not ended; those that back off count, and each extra copy.
    pub in_flight: u64,
    /// How many there may be of them.
    pub slots: u64,
}
