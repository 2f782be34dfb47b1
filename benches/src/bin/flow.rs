//! What a pool costs beside doing its work by hand, and what hedging does to a server with a slow tail.

use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tollgate_benches::{Bench, Better, Case, Contender, Goal, Options, interleave, percentile};
use tollgate_flow::{Fault, Hedge, Pool};

const AT_ONCE: usize = 64;

fn main() -> ExitCode {
    let options = match Options::from_env() {
        Ok(options) => options,
        Err(message) => {
            eprintln!("flow: {message}");
            return ExitCode::from(2);
        }
    };
    let mut bench = Bench::new("flow", options);
    let (rounds, jobs) = if options.is_quick() { (3, 50_000) } else { (10, 500_000) };
    bench.add(overhead("job-1-thread", rounds, jobs, Work::Nothing, one_thread));
    bench.add(overhead("job-2-threads", rounds, jobs, Work::Nothing, two_threads));
    bench.add(overhead("job-that-yields-1-thread", rounds, jobs, Work::Yield, one_thread));
    bench.add(overhead("job-that-yields-2-threads", rounds, jobs, Work::Yield, two_threads));
    let (rounds, calls) = if options.is_quick() { (1, 15_000) } else { (3, 40_000) };
    for case in slow_tail(rounds, calls) {
        bench.add(case);
    }
    bench.finish()
}

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn two_threads() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

#[derive(Clone, Copy)]
enum Work {
    /// Is done at once.
    Nothing,
    /// Lets others go on once.
    Yield,
}

impl Work {
    async fn done(self, job: u64) -> u64 {
        if let Self::Yield = self {
            tokio::task::yield_now().await;
        }
        black_box(job)
    }
}

/// Nanoseconds a job: no limit of rate, no retry, 64 at once.
fn overhead(name: &'static str, rounds: usize, jobs: u64, work: Work, runtime: fn() -> Runtime) -> Case {
    let case = Case::new(name, "ns", Better::Lower);
    let mut case = case.goal(Goal::ratio_at_most("tollgate-pool", "joinset-semaphore", 1.5));
    let timed = move |run: fn(&Runtime, u64, Work) -> u64| {
        let runtime = runtime();
        let start = Instant::now();
        assert_eq!(run(&runtime, jobs, work), jobs * (jobs - 1) / 2, "every job was done once");
        start.elapsed().as_secs_f64() * 1e9 / jobs as f64
    };
    let contenders: Vec<Contender<'static, f64>> = vec![
        ("tollgate-pool", Box::new(move || timed(by_pool))),
        ("joinset-semaphore", Box::new(move || timed(by_hand))),
    ];
    interleave(rounds, &contenders, |name, ns| case.sample(name, ns));
    case
}

fn by_pool(runtime: &Runtime, jobs: u64, work: Work) -> u64 {
    runtime.block_on(async {
        let pool = Pool::new(AT_ONCE as u64);
        let mut outcomes =
            pool.run(0..jobs, move |job, _| async move { Ok::<_, Fault>(work.done(*job).await) });
        let mut sum = 0;
        while let Some(outcome) = outcomes.next().await {
            sum += outcome.result.unwrap_or_default();
        }
        sum
    })
}

fn by_hand(runtime: &Runtime, jobs: u64, work: Work) -> u64 {
    runtime.block_on(async {
        let (slots, mut running, mut sum) = (Arc::new(Semaphore::new(AT_ONCE)), JoinSet::new(), 0);
        for job in 0..jobs {
            let slot = Arc::clone(&slots).acquire_owned().await.expect("it is never closed");
            running.spawn(async move {
                let done = work.done(job).await;
                drop(slot);
                done
            });
            while let Some(done) = running.try_join_next() {
                sum += done.expect("no job panics");
            }
        }
        while let Some(done) = running.join_next().await {
            sum += done.expect("no job panics");
        }
        sum
    })
}

/// What callers saw.
struct Seen {
    latencies_ms: Vec<f64>,
    /// Requests that the server got, for each call.
    load: f64,
}

/// Calls to a server that takes 2 ms, and for one call in a hundred 100 ms.
fn slow_tail(rounds: usize, calls: usize) -> Vec<Case> {
    let mut cases = [("p50", 0.50), ("p99", 0.99), ("p99.9", 0.999)]
        .map(|(name, share)| (Case::new(format!("slow-tail-{name}"), "ms", Better::Lower), share));
    let load = Case::new("slow-tail-requests-a-call", "requests", Better::Lower);
    let mut load = load.goal(Goal::at_most("hedged-after-p95", 1.05));
    let contenders: Vec<Contender<'static, Seen>> = vec![
        ("plain", Box::new(move || two_threads().block_on(call(calls, None)))),
        (
            "hedged-after-p95",
            Box::new(move || two_threads().block_on(async { call(calls, Some(Hedge::new())).await })),
        ),
        (
            "hedged-after-p95-unbudgeted",
            Box::new(move || {
                two_threads().block_on(async { call(calls, Some(Hedge::new().unbudgeted())).await })
            }),
        ),
    ];
    interleave(rounds, &contenders, |name, mut seen| {
        seen.latencies_ms.sort_by(f64::total_cmp);
        for (case, share) in &mut cases {
            case.sample(name, percentile(&seen.latencies_ms, *share));
        }
        load.sample(name, seen.load);
    });
    cases.into_iter().map(|(case, _)| case).chain([load]).collect()
}

async fn call(calls: usize, hedge: Option<Hedge>) -> Seen {
    let (server, requests) = Tail::start().await;
    let mut outcomes = Pool::new(32).run(0..calls, move |_, _| {
        let hedge = hedge.clone();
        async move {
            let start = Instant::now();
            match hedge {
                Some(hedge) => hedge.run(0..2, |_| ask(server)).await.map_err(Fault::from)?,
                None => ask(server).await?,
            }
            Ok::<_, Fault>(start.elapsed().as_secs_f64() * 1e3)
        }
    });
    let mut latencies_ms = Vec::with_capacity(calls);
    while let Some(outcome) = outcomes.next().await {
        latencies_ms.push(outcome.result.expect("the server answers"));
    }
    Seen { latencies_ms, load: requests.load(Ordering::Relaxed) as f64 / calls as f64 }
}

/// One request, on a connection of its own.
async fn ask(server: SocketAddr) -> Result<(), std::io::Error> {
    let mut stream = TcpStream::connect(server).await?;
    stream.set_zero_linger()?; // thousands of calls must not use up the ports
    stream.write_all(b"?").await?;
    stream.read_exact(&mut [0]).await?;
    Ok(())
}

/// A server with a slow tail.
struct Tail;

impl Tail {
    async fn start() -> (SocketAddr, Arc<AtomicU64>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("loopback has a port");
        let address = listener.local_addr().expect("it is bound");
        let requests = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&requests);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let number = count.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(Self::answer(stream, number));
            }
        });
        (address, requests)
    }

    async fn answer(mut stream: TcpStream, number: u64) {
        let mut random = fastrand::Rng::with_seed(number);
        let delay = if random.u8(..100) == 0 { 100 } else { 2 };
        if stream.read_exact(&mut [0]).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(delay)).await;
            let _ = stream.write_all(b"!").await;
        }
    }
}
