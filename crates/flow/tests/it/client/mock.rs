//! A server that answers as told, in virtual time.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use tollgate_flow::{Sleep, Time};
use tower_service::Service;

/// What the server does with a request.
pub(crate) struct Reply {
    after: Duration,
    outcome: Result<Response<String>, io::Error>,
}

pub(crate) fn status(code: u16) -> Reply {
    let response = Response::builder().status(code).body(format!("{code}")).unwrap();
    Reply { after: Duration::ZERO, outcome: Ok(response) }
}

pub(crate) fn broken(kind: io::ErrorKind) -> Reply {
    Reply { after: Duration::ZERO, outcome: Err(kind.into()) }
}

/// No answer for an hour.
pub(crate) fn silence() -> Reply {
    status(200).after_ms(3_600_000)
}

impl Reply {
    pub(crate) fn after_ms(self, ms: u64) -> Self {
        Self { after: Duration::from_millis(ms), ..self }
    }

    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Self {
        if let Ok(response) = &mut self.outcome {
            response.headers_mut().insert(name, value.parse().unwrap());
        }
        self
    }
}

type Rule = dyn Fn(&Request<String>, usize) -> Reply + Send + Sync;

/// The server, and what it saw. Clones are the same.
#[derive(Clone)]
pub(crate) struct Server {
    time: Time,
    seen: Arc<Mutex<Seen>>,
    rule: Arc<Rule>,
    /// How long a clone takes to be ready, once there were so many requests.
    unready: (usize, Duration),
    readying: Option<Arc<Mutex<Sleep>>>,
}

#[derive(Default)]
struct Seen {
    at_ms: Vec<u64>,
    bodies: Vec<String>,
    in_flight: usize,
}

impl Server {
    /// Answers the n-th request, from 0, by this rule.
    pub(crate) fn new(rule: impl Fn(&Request<String>, usize) -> Reply + Send + Sync + 'static) -> Self {
        let (time, rule) = (Time::tokio(), Arc::new(rule));
        Self { time, seen: Arc::default(), rule, unready: (0, Duration::ZERO), readying: None }
    }

    /// Answers with these statuses, and then with the last of them.
    pub(crate) fn of(codes: &'static [u16]) -> Self {
        Self::new(|_, n| status(codes[n.min(codes.len() - 1)]))
    }

    /// After so many requests it takes a minute to be ready for the next.
    pub(crate) fn tired_after(self, requests: usize) -> Self {
        Self { unready: (requests, Duration::from_secs(60)), ..self }
    }

    /// When the requests came, in milliseconds from the start.
    pub(crate) fn at_ms(&self) -> Vec<u64> {
        self.seen.lock().unwrap().at_ms.clone()
    }

    pub(crate) fn bodies(&self) -> Vec<String> {
        self.seen.lock().unwrap().bodies.clone()
    }

    pub(crate) fn requests(&self) -> usize {
        self.at_ms().len()
    }

    /// How many it is busy with.
    pub(crate) fn in_flight(&self) -> usize {
        self.seen.lock().unwrap().in_flight
    }
}

impl Service<Request<String>> for Server {
    type Response = Response<String>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Response<String>>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let (from, span) = self.unready;
        let span = if self.requests() >= from { span } else { Duration::ZERO };
        let sleep = || Arc::new(Mutex::new(self.time.sleep(span)));
        let readying = self.readying.get_or_insert_with(sleep);
        Pin::new(&mut *readying.lock().unwrap()).poll(context).map(Ok)
    }

    fn call(&mut self, request: Request<String>) -> Self::Future {
        assert!(self.readying.is_some(), "it was not asked whether it is ready");
        let busy = Busy::begin(&self.seen);
        let number = {
            let mut seen = self.seen.lock().unwrap();
            seen.at_ms.push(self.time.now().as_nanos() / 1_000_000);
            seen.bodies.push(request.body().clone());
            seen.at_ms.len() - 1
        };
        let Reply { after, outcome } = (self.rule)(&request, number);
        let sleep = self.time.sleep(after);
        Box::pin(async move {
            let _busy = busy;
            sleep.await;
            outcome
        })
    }
}

struct Busy(Arc<Mutex<Seen>>);

impl Busy {
    fn begin(seen: &Arc<Mutex<Seen>>) -> Self {
        seen.lock().unwrap().in_flight += 1;
        Self(Arc::clone(seen))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.lock().unwrap().in_flight -= 1;
    }
}
