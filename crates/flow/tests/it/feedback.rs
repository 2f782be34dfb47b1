//! Two thousand jobs against servers that enforce 50/s, each in its own way, in virtual time: how much of the limit is used,
//! and how often they refuse.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{HeaderMap, HeaderValue, StatusCode};
use tollgate::{AnyAlgorithm, Kind, Limiter, Quota, Tick, TokioClock};
use tollgate_flow::{Feedback, RateControl, Time};

const JOBS: usize = 2_000;
const WORKERS: usize = 32;
const LIMIT: u64 = 50;
const SECOND: Duration = Duration::from_secs(1);

/// How a server tells of its limit.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Told {
    /// `Retry-After` on refusals, in whole seconds, rounded up.
    RetryAfter,
    /// `RateLimit` and `RateLimit-Policy` on every answer.
    Fields,
    /// `RateLimit` on every answer: what is left, but not of how much.
    Remaining,
    /// Not at all.
    Nothing,
}

/// A server that is 25 ms away.
struct Server {
    limiter: Limiter<AnyAlgorithm, TokioClock>,
    told: Told,
    /// When it halves its limit.
    halves_at: Option<Tick>,
    record: Mutex<Record>,
}

#[derive(Debug, Default)]
struct Record {
    accepted: Vec<Tick>,
    refused: usize,
}

impl Server {
    fn new(kind: Kind, quota: Quota, told: Told) -> Self {
        let limiter = Limiter::builder(quota).kind(kind).clock(TokioClock::new()).build();
        Self { limiter, told, halves_at: None, record: Mutex::default() }
    }

    fn answer(&self, now: Tick) -> (StatusCode, HeaderMap) {
        let quota = self.limiter.quota();
        if self.halves_at.is_some_and(|moment| now >= moment) && quota.count() == LIMIT {
            self.limiter.set_quota(Quota::per_second(LIMIT / 2).burst(quota.burst_size() / 2));
        }
        let decision = self.limiter.check_at(now);
        let mut record = self.record.lock().unwrap();
        if decision.is_allowed() {
            record.accepted.push(now);
        } else {
            record.refused += 1;
        }
        let mut headers = HeaderMap::new();
        let mut say = |name: &'static str, value: String| {
            headers.insert(name, HeaderValue::from_str(&value).unwrap());
        };
        let (wait, reset) = (decision.retry_after(), decision.reset_after());
        if self.told == Told::RetryAfter && !decision.is_allowed() {
            say("retry-after", whole_seconds(wait.unwrap()).max(1).to_string());
        }
        if matches!(self.told, Told::Fields | Told::Remaining) {
            let until = whole_seconds(if decision.is_allowed() { reset.unwrap() } else { wait.unwrap() });
            say("ratelimit", format!("\"a\";r={};t={until}", decision.remaining()));
        }
        if self.told == Told::Fields {
            say("ratelimit-policy", format!("\"a\";q={};w=1", self.limiter.quota().count()));
        }
        let status = if decision.is_allowed() { StatusCode::OK } else { StatusCode::TOO_MANY_REQUESTS };
        (status, headers)
    }
}

fn whole_seconds(span: Duration) -> u64 {
    span.as_millis().div_ceil(1_000) as u64
}

/// Does all jobs, each until it is answered 200.
async fn run(server: Server, control: RateControl) -> Record {
    let (server, time) = (Arc::new(server), Time::tokio());
    let limiter = Limiter::builder(Quota::per_second(1)).clock(TokioClock::new()).build();
    let feedback = Feedback::new(&limiter, control);
    let jobs = Arc::new(AtomicUsize::new(0));
    let workers = (0..WORKERS).map(|seed| {
        let (server, time, limiter) = (Arc::clone(&server), time.clone(), limiter.clone());
        let (feedback, jobs) = (feedback.clone(), Arc::clone(&jobs));
        let mut random = fastrand::Rng::with_seed(seed as u64);
        tokio::spawn(async move {
            let mut way = move || Duration::from_micros(random.u64(22_500..27_500));
            while jobs.fetch_add(1, Ordering::Relaxed) < JOBS {
                loop {
                    limiter.wait().await.expect("nobody closes it");
                    let sent = feedback.sending();
                    time.sleep(way()).await;
                    let (status, headers) = server.answer(time.now());
                    time.sleep(way()).await;
                    if feedback.read(sent, status, &headers, b"").throttled.is_none() {
                        break;
                    }
                }
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.expect("no worker panics");
    }
    std::mem::take(&mut *server.record.lock().unwrap())
}

/// What was used of the limit, and how many were refused for 100 that were accepted.
#[derive(Clone, Copy, Debug)]
struct Figures {
    used: f64,
    refused: f64,
}

impl Record {
    fn refused_in_100(&self) -> f64 {
        assert_eq!(self.accepted.len(), JOBS, "every job is answered 200 in the end, once");
        100.0 * f64::from(u32::try_from(self.refused).unwrap()) / f64::from(u32::try_from(JOBS).unwrap())
    }

    /// The share of `limit` that was used between two moments.
    fn used(&self, limit: u64, from: Tick, to: Tick) -> f64 {
        let accepted = self.accepted.iter().filter(|at| (from..to).contains(at)).count();
        let allowed = to.since(from).as_secs_f64() * f64::from(u32::try_from(limit).unwrap());
        f64::from(u32::try_from(accepted).unwrap()) / allowed
    }

    fn end(&self) -> Tick {
        self.accepted.iter().copied().max().unwrap()
    }
}

/// The servers: each enforces 50/s, more or less strictly.
fn servers() -> [(&'static str, Kind, Quota); 5] {
    let quota = Quota::per_second(LIMIT);
    [
        ("token bucket, burst 50", Kind::TokenBucket, quota),
        ("token bucket, burst 5", Kind::TokenBucket, quota.burst(5)),
        ("fixed window", Kind::FixedWindow, quota),
        ("sliding log", Kind::SlidingLog, quota),
        ("sliding counter", Kind::SlidingCounter, quota),
    ]
}

/// The first seconds are for finding out.
const SETTLED: Duration = Duration::from_secs(10);

async fn steady(told: Told, control: RateControl) -> Vec<(&'static str, Figures)> {
    let mut all = Vec::new();
    for (name, kind, quota) in servers() {
        let record = run(Server::new(kind, quota, told), control.clone()).await;
        let used = record.used(LIMIT, Tick::ZERO + SETTLED, record.end());
        all.push((name, Figures { used, refused: record.refused_in_100() }));
    }
    all
}

/// Halves its limit after twenty seconds; five more to find out.
async fn halving(control: RateControl) -> Vec<(&'static str, Figures)> {
    let (mut all, half) = (Vec::new(), Tick::ZERO + SECOND * 20);
    for (name, kind, quota) in servers() {
        let mut server = Server::new(kind, quota, Told::Nothing);
        server.halves_at = Some(half);
        let record = run(server, control.clone()).await;
        let before = record.used(LIMIT, Tick::ZERO + SETTLED, half);
        let after = record.used(LIMIT / 2, half + SECOND * 5, record.end());
        all.push((name, Figures { used: before.min(after), refused: record.refused_in_100() }));
    }
    all
}

#[track_caller]
fn assert_all(figures: &[(&'static str, Figures)], used: f64, refused: f64) {
    for (server, found) in figures {
        println!("{server:24} used {:.3}, refused {:.2} in 100", found.used, found.refused);
    }
    for (server, found) in figures {
        assert!(found.used >= used, "{server}: {found:?}");
        assert!(found.refused <= refused, "{server}: {found:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_told_by_retry_after_is_used_to_90_percent_with_2_refusals_in_100() {
    assert_all(&steady(Told::RetryAfter, RateControl::new()).await, 0.9, 2.0);
}

#[tokio::test(start_paused = true)]
async fn a_limit_told_by_fields_is_used_to_90_percent_with_2_refusals_in_100() {
    assert_all(&steady(Told::Fields, RateControl::new()).await, 0.9, 2.0);
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_only_tells_what_is_left_is_hardly_ever_exceeded() {
    let mut figures = steady(Told::Remaining, RateControl::new()).await;
    // This one says when everything will be back, which is two windows ahead: "23 in 2 s". So it gets 23 in 2 s.
    figures.retain(|(server, _)| *server != "sliding counter");
    assert_all(&figures, 0.85, 2.0);
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_nobody_tells_is_used_to_90_percent_with_2_refusals_in_100() {
    assert_all(&steady(Told::Nothing, RateControl::new()).await, 0.9, 2.0);
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_nobody_tells_and_that_halves_is_followed() {
    assert_all(&halving(RateControl::new()).await, 0.9, 2.0);
}

#[tokio::test(start_paused = true)]
async fn cubic_follows_too_with_more_refusals() {
    assert_all(&halving(RateControl::new().cubic()).await, 0.8, 3.0);
}
