//! Calls over loopback.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;
use axum::routing::get;
use axum::{Router, ServiceExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Handle};
use tollgate_benches::{
    Bench, Better, Case, Contender, Goal, Options, interleave, on_core, pin_to_core, thread_cpu,
};
use tollgate_tower::Form;
use tower_layer::Layer;
use tower_service::Service;

use crate::layers::{Allowance, nothing, tollgate, tower_governor, tower_governor_with_headers};

const CONNECTIONS: usize = 32;
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";
const BODY: &str = "hello";

/// What one round of a contender gave.
struct Round {
    per_second: f64,
    cpu_micros: f64,
}

pub(crate) fn run(options: Options, bench: &mut Bench) {
    let (rounds, span) =
        if options.is_quick() { (5, Duration::from_millis(200)) } else { (41, Duration::from_millis(200)) };
    let server = Server::start();
    let hello = || Router::new().route("/", get(async || BODY));
    let ready = |router: Router| -> Router { router.with_state(()) }; // as axum does before it serves a router
    let (plenty, draft11, off) = (Allowance::Plenty, Form::Draft11, Form::Off);
    let served = [
        ("bare", server.serve(ready(hello()))),
        ("bare-with-fields", server.serve(ready(Router::new().route("/", get(with_fields))))),
        ("nothing", server.serve(ready(hello().layer(nothing())))),
        ("nothing-around", server.serve(nothing().layer(ready(hello())))),
        ("tollgate", server.serve(ready(hello().layer(tollgate(plenty, draft11))))),
        ("tollgate-around", server.serve(tollgate(plenty, draft11).around(hello()))),
        ("tollgate-no-fields", server.serve(ready(hello().layer(tollgate(plenty, off))))),
        ("tollgate-no-fields-around", server.serve(tollgate(plenty, off).around(hello()))),
        ("tower_governor", server.serve(ready(hello().layer(tower_governor(plenty))))),
        ("tower_governor-around", server.serve(tower_governor(plenty).layer(ready(hello())))),
        ("tower_governor-headers", server.serve(ready(hello().layer(tower_governor_with_headers(plenty))))),
        (
            "tower_governor-headers-around",
            server.serve(tower_governor_with_headers(plenty).layer(ready(hello()))),
        ),
    ];
    let contenders: Vec<Contender<'_, Round>> = served
        .iter()
        .map(|(name, address)| {
            let server = &server;
            (*name, Box::new(move || server.measure(*address, span)) as Box<dyn Fn() -> Round>)
        })
        .collect();
    for (_, run) in &contenders {
        _ = run(); // warms up
    }
    let mut requests = Case::new("hello-requests", "thousand/s", Better::Higher)
        .goal(Goal::ratio_at_least("tollgate", "bare", 0.97))
        .goal(Goal::ratio_at_least("tollgate-around", "bare", 0.97));
    let mut cpu = Case::new("hello-cpu", "µs", Better::Lower);
    interleave(rounds, &contenders, |name, round| {
        requests.sample(name, round.per_second / 1e3);
        cpu.sample(name, round.cpu_micros);
    });
    bench.add(requests);
    bench.add(cpu);
}

/// What our fields cost on the wire, whoever writes them: as long as ours, and always the same.
async fn with_fields() -> ([(HeaderName, HeaderValue); 2], &'static str) {
    let field = |name, value| (HeaderName::from_static(name), HeaderValue::from_static(value));
    let policy = field("ratelimit-policy", r#""per-address";q=1000000000;w=1000000000"#);
    ([policy, field("ratelimit", r#""per-address";r=999999999;t=1"#)], BODY)
}

/// A thread on a core of its own that serves everything.
struct Server {
    runtime: Handle,
}

impl Server {
    fn start() -> Self {
        let (tell, told) = std::sync::mpsc::channel();
        // Ends with the process.
        std::thread::spawn(move || {
            pin_to_core(0);
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
            tell.send(runtime.handle().clone()).expect("somebody who waits for it");
            runtime.block_on(std::future::pending::<()>());
        });
        Self { runtime: told.recv().expect("a server that starts") }
    }

    fn serve<A>(&self, app: A) -> SocketAddr
    where
        A: Service<Request, Response = Response, Error = Infallible, Future: Send>
            + Clone
            + Send
            + Sync
            + 'static,
    {
        let bound = self.runtime.spawn(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
        let listener = wait_for(bound).expect("a task that does not panic").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let service = ServiceExt::<Request>::into_make_service_with_connect_info::<SocketAddr>(app);
        self.runtime.spawn(async move { axum::serve(listener, service).await });
        address
    }

    fn measure(&self, address: SocketAddr, span: Duration) -> Round {
        let (before, (answers, took), after) = (self.cpu(), on_core(1, || ask(address, span)), self.cpu());
        let cpu_micros = after.saturating_sub(before).as_secs_f64() * 1e6 / answers as f64;
        Round { per_second: answers as f64 / took.as_secs_f64(), cpu_micros }
    }

    /// How long its thread has worked so far.
    fn cpu(&self) -> Duration {
        wait_for(self.runtime.spawn(async { thread_cpu() })).expect("a task that does not panic")
    }
}

fn wait_for<T>(future: impl Future<Output = T>) -> T {
    Builder::new_current_thread().build().expect("a runtime").block_on(future)
}

/// Asks from many connections for a while; how many answers there were, and how long it took.
fn ask(address: SocketAddr, span: Duration) -> (u64, Duration) {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let is_over = Arc::new(AtomicBool::new(false));
        let mut streams = Vec::new();
        for _ in 0..CONNECTIONS {
            streams.push(TcpStream::connect(address).await.expect("a connection"));
        }
        let began = Instant::now();
        let asking: Vec<_> =
            streams.into_iter().map(|stream| tokio::spawn(ask_on(stream, Arc::clone(&is_over)))).collect();
        tokio::time::sleep(span).await;
        is_over.store(true, Ordering::Relaxed);
        let mut answers = 0;
        for asking in asking {
            answers += asking.await.expect("an asker that does not panic");
        }
        (answers, began.elapsed())
    })
}

async fn ask_on(mut stream: TcpStream, is_over: Arc<AtomicBool>) -> u64 {
    let (mut answers, mut buffer) = (0, [0; 4_096]);
    while !is_over.load(Ordering::Relaxed) {
        stream.write_all(REQUEST).await.expect("a server that reads");
        let mut read = 0;
        while !buffer[..read].ends_with(BODY.as_bytes()) {
            let more = stream.read(&mut buffer[read..]).await.expect("a server that answers");
            assert!(more > 0, "the server hung up");
            read += more;
        }
        assert!(buffer.starts_with(b"HTTP/1.1 200"), "the set-up is wrong");
        answers += 1;
    }
    answers
}
