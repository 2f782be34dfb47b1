//! A pool against a real HTTP server that allows 50 requests a second: everything is answered in the end, nearly all of what is
//! allowed is used, and hardly anything is refused, however the server tells.
//!
//! In real time, because the sockets are real: what is waited for is the answers.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;
use tollgate::{Clock, Limiter, MonotonicClock, Quota, Tick};
use tollgate_flow::{Again, Backoff, Fault, Feedback, Hedge, OrFault, Pool, RateControl, Retry, Time};

const JOBS: usize = 2_000;
const RATE: u64 = 50;

/// How the server tells that it limits.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Tells {
    RetryAfter,
    Fields,
    /// Not at all; and it allows half as much after half of the jobs.
    Nothing,
    /// It is down: it refuses everything.
    Outage,
}

/// The server, and what it has answered.
#[derive(Clone)]
struct Upstream {
    tells: Tells,
    limiter: Limiter<tollgate::TokenBucket, MonotonicClock>,
    answers: Arc<Mutex<Vec<(Tick, StatusCode)>>>,
}

impl Upstream {
    /// Starts it; its address.
    async fn start(tells: Tells) -> (Self, String) {
        let limiter =
            Limiter::builder(Quota::per_second(RATE).burst(10)).clock(MonotonicClock::new()).build();
        let upstream = Self { tells, limiter, answers: Arc::default() };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("loopback has a port");
        let address = format!("http://{}/", listener.local_addr().expect("it is bound"));
        let router = Router::new().route("/", get(answer)).with_state(upstream.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (upstream, address)
    }

    fn count(&self, status: StatusCode) -> usize {
        self.answers.lock().unwrap().iter().filter(|(_, answered)| *answered == status).count()
    }

    /// The share of what was allowed between two moments that was used.
    fn used(&self, rate: u64, from: Tick, to: Tick) -> f64 {
        let answers = self.answers.lock().unwrap();
        let within = |at: Tick| from < at && at <= to;
        let passed = answers.iter().filter(|(at, status)| within(*at) && status.is_success()).count();
        to_f64(passed) / (to_f64(rate) * to.since(from).as_secs_f64())
    }

    /// When the `n`th answer of this kind was given.
    fn moment(&self, status: StatusCode, n: usize) -> Tick {
        let answers = self.answers.lock().unwrap();
        let mut of_kind = answers.iter().filter(|(_, answered)| *answered == status);
        of_kind.nth(n).map_or(Tick::ZERO, |(at, _)| *at)
    }
}

fn to_f64(count: impl TryInto<u32>) -> f64 {
    f64::from(count.try_into().ok().expect("a few thousand"))
}

async fn answer(State(upstream): State<Upstream>) -> impl IntoResponse {
    let decision = upstream.limiter.check();
    let status = match upstream.tells {
        Tells::Outage => StatusCode::SERVICE_UNAVAILABLE,
        _ if decision.is_allowed() => StatusCode::OK,
        _ => StatusCode::TOO_MANY_REQUESTS,
    };
    let passed = {
        let mut answers = upstream.answers.lock().unwrap();
        answers.push((upstream.limiter.clock().now(), status));
        answers.iter().filter(|(_, status)| status.is_success()).count()
    };
    if upstream.tells == Tells::Nothing && passed == JOBS / 2 && decision.is_allowed() {
        upstream.limiter.set_quota(Quota::per_second(RATE / 2).burst(10));
    }
    let seconds = |span: Option<Duration>| span.unwrap_or_default().as_secs_f64().ceil();
    let mut headers = HeaderMap::new();
    match upstream.tells {
        Tells::RetryAfter if !decision.is_allowed() => {
            let wait = seconds(decision.retry_after()).max(1.0);
            headers.insert("retry-after", wait.to_string().parse().expect("a number"));
        }
        Tells::Fields => {
            let (left, window) = (decision.remaining(), seconds(decision.reset_after()));
            headers.insert("ratelimit-policy", format!("\"api\";q={RATE};w=1").parse().expect("ASCII"));
            headers.insert("ratelimit", format!("\"api\";r={left};t={window}").parse().expect("ASCII"));
        }
        _ => {}
    }
    (status, headers)
}

/// Does all the jobs; how many were answered 200 in the end.
async fn call_it(address: String) -> usize {
    let limiter = Limiter::new(Quota::per_second(10));
    let feedback = Feedback::new(&limiter, RateControl::new());
    let client = reqwest::Client::new();
    let retry = Retry::new().backoff(Backoff::new().initial(Duration::from_millis(100))).unbudgeted();
    let pool = Pool::new(32).gate(limiter).retry(retry);
    let mut outcomes = pool.run(0..JOBS, move |_, _| {
        let (client, address, feedback) = (client.clone(), address.clone(), feedback.clone());
        async move {
            let sent = feedback.sending();
            let answer = client.get(&address).send().await.or_fault("the server does not answer")?;
            let (status, headers) = (answer.status(), answer.headers().clone());
            feedback.read(sent, status, &headers, b"");
            if status.is_success() { Ok(()) } else { Err(Fault::untraced("refused").try_again(Again::Later)) }
        }
    });
    let mut answered = 0;
    while let Some(outcome) = outcomes.next().await {
        outcome.result.expect("answered in the end");
        answered += 1;
    }
    answered
}

fn assert_hardly_any_refused(upstream: &Upstream) {
    let (passed, refused) = (upstream.count(StatusCode::OK), upstream.count(StatusCode::TOO_MANY_REQUESTS));
    println!("{:?}: {passed} answered, {refused} refused", upstream.tells);
    assert_eq!(passed, JOBS);
    assert!(refused * 100 <= passed * 2, "{refused} of {passed} refused: at most 2 in 100 should be");
}

/// From when it has found the rate until only the last jobs are left.
fn assert_most_is_used(upstream: &Upstream, rate: u64, jobs: std::ops::Range<usize>) {
    let (from, to) =
        (upstream.moment(StatusCode::OK, jobs.start), upstream.moment(StatusCode::OK, jobs.end - 1));
    let used = upstream.used(rate, from, to);
    println!("{:?}: {:.3} of {rate}/s used, jobs {jobs:?}", upstream.tells, used);
    assert!(used >= 0.9, "{used:.3} of {rate}/s was used: at least 0.9 should be");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_told_by_retry_after_is_kept_and_used() {
    let (upstream, address) = Upstream::start(Tells::RetryAfter).await;
    assert_eq!(call_it(address).await, JOBS);
    assert_hardly_any_refused(&upstream);
    assert_most_is_used(&upstream, RATE, 500..JOBS - 50);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_told_by_ratelimit_fields_is_kept_and_used() {
    let (upstream, address) = Upstream::start(Tells::Fields).await;
    assert_eq!(call_it(address).await, JOBS);
    assert_hardly_any_refused(&upstream);
    assert_most_is_used(&upstream, RATE, 500..JOBS - 50);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_that_nobody_announces_and_that_halves_is_kept_and_used() {
    let (upstream, address) = Upstream::start(Tells::Nothing).await;
    assert_eq!(call_it(address).await, JOBS);
    assert_hardly_any_refused(&upstream);
    assert_most_is_used(&upstream, RATE, 400..JOBS / 2);
    assert_most_is_used(&upstream, RATE / 2, JOBS / 2 + 200..JOBS - 50);
}

/// A thousand jobs at 500 a second, and nobody is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_an_outage_retries_add_a_fifth_and_ten_a_second() {
    let (upstream, address) = Upstream::start(Tells::Outage).await;
    let (time, client) = (Time::tokio(), reqwest::Client::new());
    let retry = Retry::new().tries(5).backoff(Backoff::new().initial(Duration::from_millis(5)));
    let start = time.now();
    let pool = Pool::new(32).gate(Limiter::new(Quota::per_second(500).burst(10))).retry(retry);
    let mut outcomes = pool.run(0..1_000, move |_, _| {
        let (client, address) = (client.clone(), address.clone());
        async move { ask(&client, &address).await }
    });
    while let Some(outcome) = outcomes.next().await {
        assert!(outcome.result.is_err(), "nobody is there");
    }
    let seconds = time.now().since(start).as_secs_f64();
    let retries = to_f64(upstream.count(StatusCode::SERVICE_UNAVAILABLE) - 1_000);
    println!("{retries} retries of 1000 jobs in {seconds:.2} s");
    // What is left over from the ten seconds before the first job counts as well.
    assert!(retries <= 200.0 + 10.0 * seconds + 100.0, "{retries} retries in {seconds} s");
    assert!(retries >= 200.0, "{retries} retries: the budget was there to be used");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_an_outage_hedges_add_a_twentieth() {
    let (upstream, address) = Upstream::start(Tells::Outage).await;
    let (client, hedge) = (reqwest::Client::new(), Hedge::new());
    let mut outcomes = Pool::new(32).run(0..1_000, move |_, _| {
        let (client, address, hedge) = (client.clone(), address.clone(), hedge.clone());
        async move { hedge.run(0..3, |_| ask(&client, &address)).await.map_err(Fault::from) }
    });
    while let Some(outcome) = outcomes.next().await {
        assert!(outcome.result.is_err(), "nobody is there");
    }
    let extra = upstream.count(StatusCode::SERVICE_UNAVAILABLE) - 1_000;
    println!("{extra} extra requests for 1000 jobs");
    assert!(
        (45..=50).contains(&extra),
        "{extra} extra requests: a twentieth is 50, and was there to be used"
    );
}

async fn ask(client: &reqwest::Client, address: &str) -> Result<(), Fault> {
    let answer = client.get(address).send().await.or_fault("the server does not answer")?;
    if answer.status().is_success() {
        Ok(())
    } else {
        Err(Fault::untraced("refused").try_again(Again::Later))
    }
}
