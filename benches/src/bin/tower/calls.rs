//! A call, without sockets.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::process::ExitCode;
use std::task::{Context, Poll, Waker};

use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, Request, Response, StatusCode};
use tollgate_benches::{
    Bench, Better, Case, Contender, Goal, Options, counted, instructions_between, interleave, on_core,
    thread_cpu,
};
use tollgate_tower::Form;
use tower_layer::Layer;
use tower_service::Service;

use crate::layers::{Allowance, tollgate, tower_governor, tower_governor_with_headers};

/// The first argument of a process that only counts instructions.
pub(crate) const COUNTED: &str = "counted";

/// Callers, each with a state of its own.
const ADDRESSES: u32 = 1_000;

/// A service that answers as axum's hello does.
#[derive(Clone)]
struct Hello;

impl Service<Request<Body>> for Hello {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        black_box(request);
        let mut response = Response::new(Body::empty());
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        ready(Ok(response))
    }
}

/// Calls a service so many times; the time of each.
type Calls = Box<dyn Fn(u64) + Send + Sync>;

fn calls<S, B>(service: S, expected: StatusCode) -> Calls
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible> + Clone + Send + Sync + 'static,
{
    Box::new(move |turns| {
        let (mut service, mut turn) = (service.clone(), 0_u32);
        counted(turns, || {
            turn += 1;
            let response = call(&mut service, turn % ADDRESSES);
            assert_eq!(response.status(), expected, "the set-up is wrong");
            black_box(response);
        });
    })
}

fn call<S, B>(service: &mut S, caller: u32) -> Response<B>
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible>,
{
    let mut request = Request::new(Body::empty());
    let address = Ipv4Addr::from_bits(0x0a00_0000 + caller);
    request.extensions_mut().insert(ConnectInfo(SocketAddr::from((address, 1_024))));
    let future = pin!(service.call(request));
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(response)) => response,
        Poll::Pending => unreachable!("nobody waits for anything here"),
    }
}

fn contender(name: &str) -> Calls {
    let (ok, refused) = (StatusCode::OK, StatusCode::TOO_MANY_REQUESTS);
    match name {
        "bare" => calls(Hello, ok),
        "tollgate" => calls(tollgate(Allowance::Plenty, Form::Draft11).layer(Hello), ok),
        "tollgate-x-ratelimit" => calls(tollgate(Allowance::Plenty, Form::XRateLimit).layer(Hello), ok),
        "tollgate-no-fields" => calls(tollgate(Allowance::Plenty, Form::Off).layer(Hello), ok),
        "tower_governor" => calls(tower_governor(Allowance::Plenty).layer(Hello), ok),
        "tower_governor-headers" => calls(tower_governor_with_headers(Allowance::Plenty).layer(Hello), ok),
        "tollgate-refused" => {
            calls(drained(tollgate(Allowance::Hardly, Form::Draft11).layer(Hello)), refused)
        }
        "tower_governor-refused" => {
            calls(drained(tower_governor_with_headers(Allowance::Hardly).layer(Hello)), refused)
        }
        other => unreachable!("{other} is none of ours"),
    }
}

/// A service whose callers have all had what they get.
fn drained<S, B>(mut service: S) -> S
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible>,
{
    for caller in 0..ADDRESSES {
        black_box(call(&mut service, caller));
    }
    service
}

const REFUSED: &str = "refused";

/// A name, the contenders, and which of them is to be at most 0.7 of which.
type Contest = (&'static str, &'static [&'static str], Option<(&'static str, &'static str)>);

const CASES: [Contest; 3] = [
    (
        "with-fields",
        &["tollgate", "tollgate-x-ratelimit", "tower_governor-headers"],
        Some(("tollgate", "tower_governor-headers")),
    ),
    (
        "without-fields",
        &["tollgate-no-fields", "tower_governor"],
        Some(("tollgate-no-fields", "tower_governor")),
    ),
    (REFUSED, &["tollgate-refused", "tower_governor-refused"], None),
];

pub(crate) fn run(options: Options, bench: &mut Bench) {
    let rounds = if options.is_quick() { 5 } else { 25 };
    for (name, contenders, goal) in CASES {
        let turns = if name == REFUSED { 10_000 } else { 100_000 }; // theirs take long there
        let mut case = Case::new(format!("call-{name}"), "ns", Better::Lower);
        if let Some((ours, theirs)) = goal {
            case = case.goal(Goal::ratio_at_most(ours, theirs, 0.7));
        }
        let bare = contender("bare");
        let contenders: Vec<Contender<'_, f64>> = contenders
            .iter()
            .map(|name| {
                let (calls, bare) = (contender(name), &bare);
                (*name, Box::new(move || nanos(turns, &calls) - nanos(turns, bare)) as Box<dyn Fn() -> f64>)
            })
            .collect();
        for (_, run) in &contenders {
            _ = run(); // warms up
        }
        interleave(rounds, &contenders, |name, value| case.sample(name, value));
        bench.add(case);
    }
    for (name, contenders, _) in CASES {
        bench.add(counted_case(name, contenders));
    }
}

/// By the processor's time of this thread: nobody waits for anything here, and others may be at work.
fn nanos(turns: u64, calls: &Calls) -> f64 {
    on_core(1, || {
        let began = thread_cpu();
        calls(turns);
        thread_cpu().saturating_sub(began).as_secs_f64() * 1e9 / turns as f64
    })
}

fn counted_case(name: &str, contenders: &[&'static str]) -> Case {
    let mut case = Case::new(format!("instructions-{name}"), "instructions", Better::Lower);
    let counted = |name| instructions_between([10_000, 20_000], &[COUNTED, name]);
    let bare = counted("bare");
    for contender in contenders {
        match (&bare, &counted(contender)) {
            (Ok(bare), Ok(count)) => case.sample(contender, count - bare),
            (Err(message), _) | (_, Err(message)) => eprintln!("{contender}: {message}"),
        }
    }
    case
}

/// What a process that only counts instructions does.
pub(crate) fn run_counted(name: &str, turns: &str) -> ExitCode {
    let Ok(turns) = turns.parse() else {
        eprintln!("tower: {turns:?} is not a number of turns");
        return ExitCode::from(2);
    };
    contender(name)(turns);
    ExitCode::SUCCESS
}
